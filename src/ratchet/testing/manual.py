"""A scheduler without threads: `drain` runs what is due, here, and time passes only when the clock is moved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

from ratchet.api.observe.queries import Jobs
from ratchet.api.submit.steps import Step
from ratchet.engine.manual import ManualNode
from ratchet.model.clock import Clock, ManualClock
from ratchet.model.decision import CanceledJob
from ratchet.model.durations import Duration
from ratchet.model.errors import RatchetError
from ratchet.model.events import Event, JobDeadLettered
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import Job, JobFilter, JobResultRow, JobSpec
from ratchet.model.options import Options
from ratchet.model.status import JobStatus, Priority
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core
from ratchet.scheduler.nodes import store_recurrences
from ratchet.scheduler.parts import Parts
from ratchet.spi.store import JobStore
from ratchet.stores.memory import MemoryStore


class EveryTarget:
    """A target policy that allows everything: what runs in a test is the test's own code."""

    def allows(self, target: str) -> bool:
        """Always True."""
        return True

    def hint(self, target: str) -> str:
        """Nothing needs to be added."""
        return ""


class ManualCore(Core):
    """A core whose node is driven by hand: nothing sleeps and no thread is started."""

    driven_by_hand = True
    _manual: ManualNode | None = None

    @property
    def manual(self) -> ManualNode:
        """The node, made when something is first drained."""
        if self._manual is None:
            self.import_modules()
            self._manual = ManualNode(self.node_parts())
        return self._manual

    def rest(self, seconds: float) -> None:
        """Nothing sleeps here."""

    def wait_for(
        self, job_id: UUID, timeout: float | None, *, uncommitted: bool = False
    ) -> JobResultRow | None:
        """The row of a job that has ended; None at once if it has not: waiting would not make it so."""
        row = self.store.results([job_id]).get(job_id)
        return row if row is not None and row.status.is_terminal else None

    async def await_end(
        self, job_id: UUID, timeout: float | None, *, uncommitted: bool = False
    ) -> JobResultRow | None:
        """The same."""
        return self.wait_for(job_id, timeout, uncommitted=uncommitted)

    def submitted(self, specs: Sequence[JobSpec], *, due: bool, priority: Priority) -> None:
        """Nobody has to be woken: the next ``drain()`` looks."""

    def canceled(self, jobs: Sequence[CanceledJob]) -> None:
        """Stop the run if it is the one that is calling."""
        if self._manual is not None:
            for job in jobs:
                if job.previous is JobStatus.RUNNING:
                    self._manual.cancel_local(job.job_id)

    def publish(self, event: Event) -> None:
        """Tell the listeners at once."""
        self.bus.publish(event)
        self.bus.flush()

    def drain(self, limit: int) -> int:
        """Run what is due; how many runs that took."""
        store_recurrences(self)
        return self.manual.run_until_idle(limit)

    def start(self) -> None:
        """Refused: threads and a manual clock do not go together."""
        raise RatchetError("a manual scheduler is driven by drain() and has no threads to start")

    def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """Leave the cluster and deliver what events there are."""
        if self._manual is not None:
            self._manual.close()
            self._manual = None
        self._events.flush()
        return True


class Enqueued:
    """What a test asks about the jobs that were submitted."""

    _core: Core

    @property
    def jobs(self) -> Jobs:
        """Reads jobs."""
        raise NotImplementedError

    def enqueued(self, target: Callable[..., Any] | None = None) -> list[Job]:
        """The jobs that are stored (of *target*, if given), in the order they were submitted, whatever became of them."""
        where = JobFilter(targets=None if target is None else [self._name_of(target)])
        found: list[Job] = []
        cursor: str | None = None
        while True:
            page = self.jobs.find(where, limit=1000, cursor=cursor)
            found += page
            cursor = page.next_cursor
            if cursor is None:
                return found[::-1]

    def assert_enqueued(self, target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """
        The last job of *target* with these arguments, as an assertion: it was submitted, whatever became of it.

        Without arguments any job of *target* will do.
        """
        jobs = self.enqueued(target)
        for job in reversed(jobs):
            if not (args or kwargs) or (job.args == args and job.kwargs == kwargs):
                return job
        wanted = ", ".join([*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())])
        others = "".join(f"\n  {job.target}{job.args!r} {job.kwargs or ''}" for job in jobs) or " none"
        raise AssertionError(
            f"no job {self._name_of(target)}({wanted}) was enqueued; of this target there are:{others}"
        )

    def assert_not_enqueued(self, target: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """No job of *target* (with these arguments, if any are given) was submitted."""
        for job in self.enqueued(target):
            if not (args or kwargs) or (job.args == args and job.kwargs == kwargs):
                raise AssertionError(
                    f"job {job.id} {job.target}{job.args!r} was enqueued; it is {job.status}"
                )

    def _name_of(self, target: Callable[..., Any]) -> str:
        function, _, _ = Step(target, (), {}).call()
        return self._core.parts.registry.reference(function).name


class ManualScheduler(Scheduler, Enqueued):
    """A `Scheduler` for tests: in memory, on a manual clock, without threads."""

    _core: ManualCore

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        store: JobStore | None = None,
        seed: int = 0,
        allow: Iterable[str] | None = None,
        **given: Any,
    ) -> None:
        #: The clock that this scheduler lives by.
        self.clock: Clock = clock if clock is not None else ManualClock()
        self._seed = seed
        if allow is None and "target_policy" not in given:
            given["target_policy"] = EveryTarget()
        super().__init__(
            store=store if store is not None else MemoryStore(self.clock.now),
            clock=self.clock,
            allow=allow,
            **given,
        )

    def _make_core(
        self,
        store: JobStore | str | None,
        options: Options,
        parts: Parts,
        clock: Clock | None,
        alert: Callable[[JobDeadLettered], None] | None,
    ) -> Core:
        assert store is not None
        assert not isinstance(store, str)
        return ManualCore(
            open_store=lambda: store,
            options=options,
            parts=parts,
            clock=self.clock,
            ids=IdFactory.seeded(self.clock, self._seed),
            alert=alert,
        )

    def drain(self, limit: int = 1_000_000) -> int:
        """
        Run everything that is due now and what follows from it, in order, here; how many runs that took.

        Retries, schedules, signals that timed out and expiry are included; what is due later is not.
        """
        return self._core.drain(limit)


def manual_scheduler(
    *, clock: Clock | None = None, allow: Iterable[str] | None = None, seed: int = 0, **given: Any
) -> ManualScheduler:
    """
    A scheduler for tests: in memory, no threads, no sleeping.

    Every function may be a job unless *allow* says otherwise. Equal *seed*, clock and calls give equal
    ids. *given* is what `Scheduler` takes: ``options``, SPIs.
    """
    return ManualScheduler(clock=clock, allow=allow, seed=seed, **given)
