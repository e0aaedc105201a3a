"""Ways to make each event happen, on a scheduler without threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

from ratchet import JobFilter, JobStatus, ManualClock, Options, RetryLater, circuit_breaker
from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import NodeSpec
from ratchet.model.events import (
    BatchCompleted,
    BatchProgressed,
    BranchTaken,
    BreakerClosed,
    BreakerOpened,
    Event,
    JobCallbackFailed,
    JobCanceled,
    JobCompleted,
    JobDeadLettered,
    JobFailed,
    JobPaused,
    JobRescheduled,
    JobRescued,
    JobResumed,
    JobRetrying,
    JobsCanceled,
    JobSignaled,
    JobSignalTimedOut,
    JobsRetried,
    JobStarted,
    JobSubmitted,
    NodeJoined,
    NodeLost,
)
from ratchet.model.identifiers import new_id
from ratchet.spi.store import JobStore
from ratchet.testing import ManualScheduler
from tests.integration.composition_samples import is_high, number, raises, signaled

#: A rescue makes a dead letter of what it finds the second time.
OPTIONS = Options(max_crashes=2)


def breaks() -> None:
    raise ValueError("it is broken")


def breaks_once() -> None:
    from ratchet import JobContext

    if JobContext.current().attempt == 1:
        raise ValueError("it is broken")


async def sleeps() -> None:
    await asyncio.sleep(60)


def waits() -> None:
    raise RetryLater(timedelta(minutes=5), count=False, reason="not yet")


def broken_callback(context: object, error: object) -> None:
    raise ValueError("the callback is broken")


@circuit_breaker("event-samples")
def calls_out() -> None:
    raise ConnectionError("no answer")


class Case:
    """A scheduler, its clock and its store."""

    def __init__(self, scheduler: ManualScheduler, clock: ManualClock, store: JobStore) -> None:
        self.scheduler = scheduler
        self.clock = clock
        self.store = store

    def run(self, target: Callable[..., object], *args: object, retries: int = 0) -> object:
        handle = self.scheduler.enqueue(target, *args).with_max_retries(retries).submit()
        self.scheduler.drain()
        return handle.id

    def fail(self) -> object:
        return self.run(breaks)

    def retry_by_hand(self) -> None:
        failed = self.fail()
        assert self.scheduler.retry_job(str(failed))

    def retry_many(self) -> None:
        self.fail()
        assert self.scheduler.retry_jobs(JobFilter(statuses=[JobStatus.FAILED])) == 1

    def cancel(self) -> None:
        self.scheduler.enqueue(number, 1).submit().cancel()

    def cancel_many(self) -> None:
        self.scheduler.enqueue(number, 1).with_tags("many").submit()
        assert self.scheduler.cancel_jobs(JobFilter(tags=["many"])) == 1

    def pause_and_resume(self) -> None:
        handle = self.scheduler.enqueue(number, 1).submit()
        assert handle.pause()
        assert handle.resume()

    def signal(self) -> None:
        self.scheduler.enqueue(signaled, "one").await_signal("go").submit()
        assert self.scheduler.signal("go", rejected="too dear") == 1

    def miss_signal(self) -> None:
        self.scheduler.enqueue(signaled, "one").await_signal("go", timeout=timedelta(minutes=1)).submit()
        self.clock.advance(timedelta(minutes=2))
        self.scheduler.drain()

    def branch(self) -> None:
        self.scheduler.enqueue(number, 11).when_result(is_high, number, 1).submit()
        self.scheduler.drain()

    def break_condition(self) -> None:
        self.scheduler.enqueue(number, 11).when_result(raises, number, 1).submit()
        self.scheduler.drain()

    def batch(self) -> None:
        self.scheduler.enqueue_batch("nightly").for_each([1, 2], number).submit()
        self.scheduler.drain()
        self.clock.advance(timedelta(seconds=2))  # reports are a second apart
        self.scheduler.drain()

    def fail_callback(self) -> None:
        self.scheduler.enqueue(breaks).on_failure(broken_callback).submit()
        for _ in range(10):  # a callback has retries of its own
            self.scheduler.drain()
            self.clock.advance(timedelta(hours=1))

    def move_breaker(self) -> None:
        assert self.scheduler.breakers.open("event-samples")
        assert self.scheduler.breakers.reset("event-samples")

    def lose_node(self) -> None:
        """A node claims a job and falls silent."""
        self.scheduler.drain()
        self.scheduler.enqueue(number, 1).submit()
        self._claim_and_die("other-0")

    def crash(self) -> None:
        """A job's node falls silent as often as is allowed: a dead letter."""
        self.lose_node()
        self._claim_and_die("other-1")

    def crash_again(self) -> None:
        """The same, for the one job that is there, after its retry."""
        self._claim_and_die("other-2")
        self._claim_and_die("other-3")

    def _claim_and_die(self, name: str) -> None:
        orphans, now = self.scheduler._core.manual.assembly.orphans, self.clock.now()
        orphans.look()
        node = NodeSpec(
            node_id=name,
            name=name,
            host="elsewhere",
            pid=7,
            version="1",
            beat_interval=timedelta(seconds=1),
            silence=timedelta(seconds=5),
        )
        self.store.register(node, now=now)
        orphans.look()
        request = ClaimRequest(node_id=name, claim_id=new_id(), limit=1)
        assert len(self.store.claim_next_batch(request, now=now)) == 1
        assert orphans.rescue_ended(name, now)
        self.scheduler._core.bus.flush()


#: Each kind of event, and what makes it happen.
EVENTS: dict[type[Event], Callable[[Case], object]] = {
    JobSubmitted: lambda case: case.run(number, 1),
    JobStarted: lambda case: case.run(number, 1),
    JobCompleted: lambda case: case.run(number, 1),
    JobFailed: lambda case: case.fail(),
    JobRetrying: lambda case: case.run(breaks_once, retries=1),
    JobDeadLettered: lambda case: case.fail(),
    JobCanceled: Case.cancel,
    JobsCanceled: Case.cancel_many,
    JobsRetried: Case.retry_many,
    JobPaused: Case.pause_and_resume,
    JobResumed: Case.pause_and_resume,
    JobRescheduled: lambda case: case.run(waits),
    JobRescued: Case.lose_node,
    JobSignaled: Case.signal,
    JobSignalTimedOut: Case.miss_signal,
    BranchTaken: Case.branch,
    JobCallbackFailed: Case.fail_callback,
    BatchProgressed: Case.batch,
    BatchCompleted: Case.batch,
    NodeJoined: lambda case: case.run(number, 1),
    NodeLost: Case.lose_node,
    BreakerOpened: Case.move_breaker,
    BreakerClosed: Case.move_breaker,
}

#: Ends without a run that failed: each must be told as a failure, as a dead letter, and to the alert function.
STORE_MADE_FAILURES: dict[str, tuple[Callable[[Case], None], str]] = {
    "signal timeout": (Case.miss_signal, "SignalTimeout"),
    "condition": (Case.break_condition, "ConditionFailed"),
    "crash": (Case.crash, "Crashed"),
}
