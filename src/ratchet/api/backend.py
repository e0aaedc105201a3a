"""What builders, handles and facades need of the scheduler that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.composition import ScheduleSpec
from ratchet.model.decision import CanceledJob
from ratchet.model.events import Event
from ratchet.model.identifiers import IdSource
from ratchet.model.job import JobResultRow, JobSpec
from ratchet.model.options import Options
from ratchet.model.status import Priority
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.store import JobStore, SendingStore


class Backend(Protocol):
    """
    The scheduler as the floor below it sees it.

    Everything that user code holds (a builder, a handle, ``scheduler.jobs``) reaches the store, the
    clock and the running node through this and nothing else.
    """

    @property
    def store(self) -> JobStore:
        """The store, opened and with its schema checked."""
        ...

    @property
    def sending(self) -> SendingStore | None:
        """The store, where a job can be sent to it without waiting, now."""
        ...

    @property
    def options(self) -> Options:
        """The options in force."""
        ...

    @property
    def targets(self) -> InvocationResolver:
        """Names targets and finds them again."""
        ...

    @property
    def ids(self) -> IdSource:
        """Makes job ids."""
        ...

    def now(self) -> datetime:
        """The engine's time."""
        ...

    def caller(self) -> str | None:
        """On whose behalf the calling code submits."""
        ...

    def allow_type(self, module: str, qualname: str) -> bool:
        """True if a stored value of this class may be restored here."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point."""
        ...

    def rest(self, seconds: float) -> None:
        """Wait before a submission is sent again."""
        ...

    def wait_for(self, job_id: UUID, timeout: float | None) -> JobResultRow | None:
        """The row of a job once it has ended; None when *timeout* seconds are over first."""
        ...

    async def await_end(self, job_id: UUID, timeout: float | None) -> JobResultRow | None:
        """The same without blocking the event loop, or a thread."""
        ...

    def submitted(self, specs: Sequence[JobSpec], *, due: bool, priority: Priority) -> None:
        """Jobs were committed; where one is *due*, pollers here and elsewhere are told."""
        ...

    def ensure_limit(self, name: str, concurrent: int, *, joined: bool) -> None:
        """
        A concurrency key was used with this limit; it is stored when this process first sees it.

        *joined*: inside the caller's transaction, on a store with one writer, it must be there already.
        """
        ...

    def canceled(self, jobs: Sequence[CanceledJob]) -> None:
        """Jobs were canceled: runs in this process are stopped now (others learn it with their beat), waiters told."""
        ...

    def fire_times(self, spec: ScheduleSpec, after: datetime, anchor: datetime) -> Iterator[datetime]:
        """The fire times of a schedule after *after*; `InvalidJob` for an expression or zone that is none."""
        ...

    def run_of(self, spec: ScheduleSpec, fire_at: datetime) -> JobSpec:
        """The job that one fire time of a schedule becomes."""
        ...

    def hears(self, event: type[Event]) -> bool:
        """True if somebody listens for *event*: only then is it worth making."""
        ...

    def publish(self, event: Event) -> None:
        """Tell the listeners of this process."""
        ...
