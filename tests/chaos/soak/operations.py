"""What users do in a soak: operations of every kind, each recorded with what it promises."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from ratchet import (
    RESULT,
    RESULTS,
    BackoffPolicy,
    BatchHandle,
    BusinessKeyBusy,
    Busy,
    JobFilter,
    JobHandle,
    JobNotFound,
    JobStatus,
    Join,
    Overlap,
    Priority,
    RatchetError,
    Scheduler,
)
from tests.chaos.soak import jobs

KEYS = 4
RESOURCES = {"one": 1, "two": 2}
QUEUES = ("default", "side")
TIMEOUT = 0.4
SCHEDULES = ("tick", "tock")


@dataclass
class Promise:
    """What was acknowledged about one job."""

    kind: str
    key: str | None = None
    resource: str | None = None
    number: int | None = None
    may_fail: bool = False
    canceled_at: float | None = None  # acknowledged before it ended; monotonic time
    deleted: bool = False
    touched: bool = False  # paused, rescheduled or sent to a queue that may be closed: it may rightly wait


@dataclass
class Records:
    """All that was acknowledged. Nothing is promised about jobs of an operation that got no answer; they are not here."""

    jobs: dict[UUID, Promise] = field(default_factory=dict)
    chains: list[list[UUID]] = field(default_factory=list)
    joins: list[tuple[UUID, list[UUID]]] = field(default_factory=list)
    batches: list[tuple[BatchHandle, str]] = field(default_factory=list)
    rolled_back: list[UUID] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


class Operations:
    """Plays one seed against a scheduler that runs no jobs itself."""

    def __init__(self, scheduler: Scheduler, store: Any, folder: Path, dice: random.Random) -> None:
        self.records = Records()
        self._scheduler = scheduler
        self._store = store
        self._dice = dice
        self._folder = folder
        self._book = str(folder / "runs")
        self._numbers = 0
        self._signals: list[str] = []

    @property
    def book(self) -> str:
        return self._book

    def set_up(self) -> None:
        """Limits and the schedules that run all the time."""
        for name, concurrent in RESOURCES.items():
            self._scheduler.limits.set(name, concurrent=concurrent)
        for name in SCHEDULES:
            self._scheduler.schedule_recurring(
                "every 2s", jobs.work, self._book, 0.02, name, name=name, overlap=Overlap.ALLOW
            )

    def one(self) -> None:
        """Do the next thing. An error of the store means that nothing is promised; any other one is a fault."""
        name = self._dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        try:
            getattr(self, f"_{name}")()
            self.records.done[name] += 1
        except RatchetError as error:
            self.records.refused[f"{name}: {type(error).__name__}"] += 1

    def wind_down(self) -> None:
        """Let everything that waits for people go on, so that every job can end."""
        for name in SCHEDULES:
            self._scheduler.schedules.get(name).remove()
        for queue in QUEUES:
            self._scheduler.queues.resume(queue)
        for key in self._signals:
            self._scheduler.signal(key, {"by": "the end"})
        for job_id, promise in self.records.jobs.items():
            if not promise.deleted and self._scheduler.jobs.get(job_id).status is JobStatus.PAUSED:
                self._scheduler.resume_job(job_id)

    def mend_batches(self) -> None:
        """Whatever kept the items of batches from their success is mended, and they are retried."""
        for batch, flag in self.records.batches:
            Path(flag).write_text("mended")
            batch.retry_failed()

    # --- submissions

    def _promise(self, handle: JobHandle[Any], kind: str, **more: Any) -> JobHandle[Any]:
        if not handle.duplicate:
            self.records.jobs[handle.id] = Promise(kind, **more)
        return handle

    def _enqueue(self, target: Any, *arguments: Any) -> Any:
        draft = self._scheduler.enqueue(target, self._book, *arguments)
        return draft.with_priority(self._dice.choice(list(Priority))).with_queue(self._dice.choice(QUEUES))

    def _plain(self) -> None:
        target = self._dice.choice([jobs.work, jobs.visit])
        self._promise(self._enqueue(target, self._dice.uniform(0, 0.4)).submit(), "plain")

    def _bulk(self) -> None:
        for handle in self._scheduler.enqueue_many(jobs.work, [(self._book, 0.01)] * 20):
            self._promise(handle, "plain")

    def _payment(self) -> None:
        self._numbers += 1
        draft = self._enqueue(jobs.pay, self._numbers, self._dice.uniform(0, 0.3)).with_max_retries(
            self._dice.choice([0, 2])
        )
        self._promise(draft.submit(), "pay", number=self._numbers)

    def _within(self) -> None:
        """In a transaction of the caller's that is committed or rolled back."""
        commit = self._dice.random() < 0.5
        handle = None
        try:
            with self._store.begin() as connection:
                handle = self._enqueue(jobs.work, 0.02).submit(within=connection)
                if not commit:
                    raise _RolledBackError
        except _RolledBackError:
            assert handle is not None
            self.records.rolled_back.append(handle.id)
            return
        self._promise(handle, "plain")

    def _failing(self) -> None:
        self._promise(self._enqueue(jobs.fail).on_failure(jobs.alert).submit(), "fail", may_fail=True)

    def _flaky(self) -> None:
        draft = self._enqueue(jobs.flaky, self._dice.randint(0, 2)).with_max_retries(2)
        self._promise(draft.with_backoff(BackoffPolicy.FIXED, 0.2).submit(), "flaky")

    def _overrunning(self) -> None:
        """Its timeout ends each attempt; the code ends with it, or some time after."""
        if self._dice.random() < 0.5:
            draft = self._enqueue(jobs.work, 2.0)
        else:
            draft = self._enqueue(jobs.deaf, self._dice.uniform(1.0, 3.0))
        draft = draft.with_timeout(TIMEOUT).with_max_retries(self._dice.randint(0, 1)).with_queue("default")
        self._promise(draft.submit(), "timeout", may_fail=True)

    def _expiring(self) -> None:
        draft = self._enqueue(jobs.flaky, 1).with_max_retries(3).with_expiry(self._dice.uniform(0.5, 6.0))
        draft = draft.with_backoff(BackoffPolicy.FIXED, 2.0)
        self._promise(draft.with_delay(self._dice.uniform(0, 3.0)).submit(), "expiring")

    def _not_ready(self) -> None:
        draft = self._enqueue(jobs.later, self._dice.randint(1, 3)).with_expiry(self._dice.uniform(1.0, 4.0))
        self._promise(draft.submit(), "expiring")

    def _keyed(self) -> None:
        key = f"key-{self._dice.randrange(KEYS)}"
        target, arguments = self._dice.choice([(jobs.work, (0.3, key)), (jobs.deaf, (1.2, key))])
        busy = self._dice.choice(list(Busy))
        draft = self._enqueue(target, *arguments).with_business_key(key, busy=busy)
        if target is jobs.deaf:
            draft = draft.with_timeout(TIMEOUT)
        try:
            self._promise(draft.submit(), "keyed", key=key, may_fail=target is jobs.deaf)
        except BusinessKeyBusy:
            self.records.done["busy key"] += 1

    def _limited(self) -> None:
        resource = self._dice.choice(list(RESOURCES))
        draft = self._enqueue(jobs.work, 0.2, resource).with_resource(resource)
        self._promise(draft.submit(), "limited", resource=resource)

    def _idempotent(self) -> None:
        key = f"request-{self._dice.randrange(10)}"
        ids = {self._enqueue(jobs.work, 0.02).with_idempotency_key(key).submit().id for _ in range(2)}
        if len(ids) > 1:
            self.records.broken.append(f"idempotency key {key} named two jobs: {ids}")

    def _chain(self) -> None:
        draft = self._enqueue(jobs.flaky, self._dice.randint(0, 1)).with_max_retries(1)
        handle = draft.then(jobs.take, self._book, RESULT).then(jobs.work, self._book, 0.02).submit()
        for step in handle.steps:
            self._promise(step, "chain")
        self.records.chains.append([step.id for step in handle.steps])

    def _workflow(self) -> None:
        handle = (
            self._enqueue(jobs.work, self._dice.choice([0.01, 0.2]))
            .when(jobs.is_short, jobs.work, self._book, 0.02, "short")
            .then_on_success(jobs.work, self._book, 0.02, "after")
            .submit()
        )
        for step in handle.steps:
            self._promise(step, "branch")

    def _join(self) -> None:
        """Some parents fail at first and are retried by hand later: the join must run when all have succeeded."""
        flag = self._folder / f"join-{len(self.records.joins)}"
        parents = [
            self._promise(self._enqueue(jobs.work, 0.05).submit(), "plain"),
            *(
                self._promise(self._enqueue(jobs.mended, str(flag)).submit(), "mended", may_fail=True)
                for _ in range(2)
            ),
        ]
        joined = self._scheduler.join(parents, Join.ALL).then(jobs.gather, self._book, RESULTS).submit()
        self._promise(joined, "join", may_fail=False)
        self.records.joins.append((joined.id, [parent.id for parent in parents]))
        if self._dice.random() < 0.7:
            flag.write_text("mended")

    def _batch(self) -> None:
        name = f"batch-{len(self.records.batches)}"
        flag = str(self._folder / name)
        items = [flag] * self._dice.randint(1, 8)
        batch = (
            self._scheduler.enqueue_batch(name)
            .for_each(items, jobs.mended_item)
            .then_on_batch_success(jobs.work, self._book, 0.01, f"{name}-success")
            .submit()
        )
        self.records.batches.append((batch, flag))
        if self._dice.random() < 0.5:
            Path(flag).write_text("mended")

    def _waiting_for_a_signal(self) -> None:
        key = f"signal-{len(self._signals)}"
        handle = self._enqueue(jobs.work, 0.02).await_signal(key, timeout=600).submit()
        self._promise(handle, "signal")
        self._signals.append(key)

    def _signal(self) -> None:
        if self._signals:
            self._scheduler.signal(self._dice.choice(self._signals), {"by": "ann"})

    # --- verbs

    def _some_job(self) -> UUID | None:
        """A job of the last few seconds; those of compositions are left alone, but for chains."""
        found = [
            job_id
            for job_id, promise in list(self.records.jobs.items())[-60:]
            if promise.kind not in ("mended", "join") and not promise.deleted
        ]
        return self._dice.choice(found) if found else None

    def _cancel(self) -> None:
        if (job_id := self._some_job()) is None:
            return
        if self._scheduler.cancel_job(job_id):
            self.records.jobs[job_id].canceled_at = time.monotonic()

    def _pause(self) -> None:
        if (job_id := self._some_job()) is not None:
            self.records.jobs[job_id].touched = True
            self._scheduler.pause_job(job_id)

    def _resume(self) -> None:
        if (job_id := self._some_job()) is not None:
            self._scheduler.resume_job(job_id)

    def _retry(self) -> None:
        """One dead letter by hand, often one whose expiry is over or whose code still runs."""
        failed = [
            job.id
            for job in self._scheduler.jobs.find(JobFilter(statuses=[JobStatus.FAILED]), limit=30)
            if job.id in self.records.jobs
        ]
        if failed:
            job_id = self._dice.choice(failed)
            if self._scheduler.retry_job(job_id):
                self.records.jobs[job_id].touched = True

    def _replace(self) -> None:
        if (job_id := self._some_job()) is None or self.records.jobs[job_id].kind != "plain":
            return
        handle = self._scheduler.replace(job_id, jobs.work, self._book, 0.02)
        if handle is not None:
            self._promise(handle, "plain")
            self.records.jobs[job_id].canceled_at = time.monotonic()

    def _reschedule(self) -> None:
        if (job_id := self._some_job()) is not None:
            self.records.jobs[job_id].touched = True
            self._scheduler.reschedule_job(job_id, self._dice.uniform(0, 2))

    def _delete(self) -> None:
        """An ended job; whoever waits for it is told that it is gone."""
        job_id = self._some_job()
        if job_id is None or self.records.jobs[job_id].kind != "plain":
            return
        handle = self._scheduler.handle(job_id)
        if self._scheduler.jobs.delete(job_id):
            self.records.jobs[job_id].deleted = True
            try:
                handle.wait(timeout=5)
            except JobNotFound:
                return
            self.records.broken.append(f"wait() for {job_id}, which was deleted, did not say so")

    def _stop_queue(self) -> None:
        self._scheduler.queues.pause("side")

    def _open_queue(self) -> None:
        self._scheduler.queues.resume("side")

    def _schedule(self) -> None:
        schedule = self._scheduler.schedules.get(self._dice.choice(SCHEDULES))
        self._dice.choice([schedule.pause, schedule.resume, schedule.resume, schedule.trigger])()

    def _look(self) -> None:
        """Questions never fail, whatever happens meanwhile."""
        if (job_id := self._some_job()) is not None:
            self._scheduler.explain(job_id)
            self._scheduler.jobs.executions(job_id)
        self._scheduler.jobs.counts()
        self._scheduler.health()


class _RolledBackError(Exception):
    """The caller's own reason not to commit."""


WEIGHTS = {
    "plain": 20, "bulk": 3, "payment": 12, "within": 5, "failing": 3, "flaky": 6, "overrunning": 5, "expiring": 5,
    "not_ready": 4, "keyed": 8, "limited": 8, "idempotent": 2, "chain": 5, "workflow": 4, "join": 3, "batch": 3,
    "waiting_for_a_signal": 3, "signal": 4, "cancel": 6, "pause": 4, "resume": 5, "retry": 6, "replace": 3,
    "reschedule": 3, "delete": 2, "stop_queue": 1, "open_queue": 3, "schedule": 2, "look": 6,
}  # fmt: skip
