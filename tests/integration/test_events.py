"""Every event, made to happen on every store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ratchet import JobFilter, JobStatus, JobType, ManualClock, Scheduler
from ratchet.engine.events import EventBus
from ratchet.model import events
from ratchet.model.events import (
    BatchCompleted,
    BatchProgressed,
    BranchTaken,
    Event,
    JobCompleted,
    JobDeadLettered,
    JobEvent,
    JobFailed,
    JobRetrying,
    JobsCanceled,
    JobSignaled,
    JobSignalTimedOut,
    JobsRetried,
    JobSubmitted,
    JobTimedOut,
    NodeJoined,
    NodeLost,
)
from ratchet.model.job import JobRecord
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler
from tests.integration.composition_samples import forget, number
from tests.integration.conftest import Stores
from tests.integration.event_samples import EVENTS, OPTIONS, STORE_MADE_FAILURES, Case, breaks, sleeps
from tests.support.waiting import until


class Told:
    """What listeners and the alert function were told."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.alerts: list[JobDeadLettered] = []

    def listen(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if type(event) is kind]


@pytest.fixture
def told() -> Told:
    forget()
    return Told()


@pytest.fixture
def scheduler(stores: Stores, clock: ManualClock, told: Told) -> Iterator[ManualScheduler]:
    made = ManualScheduler(store=stores.open(), clock=clock, options=OPTIONS, alert=told.alerts.append)
    made.on(Event)(told.listen)
    yield made
    made.close()


@pytest.fixture
def case(scheduler: ManualScheduler, clock: ManualClock, stores: Stores) -> Case:
    return Case(scheduler, clock, stores.open())


def kinds() -> set[type[Event]]:
    """Every class of events that can be published."""
    found = {one for one in vars(events).values() if isinstance(one, type) and issubclass(one, Event)}
    return found - {Event, JobEvent}


class TestEveryEvent:
    def test_the_table_is_complete(self) -> None:
        """No kind of event is without a case; `JobTimedOut` needs threads and has a test of its own."""
        assert set(EVENTS) == kinds() - {JobTimedOut}

    @pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
    def test_it_happens(self, case: Case, told: Told, kind: type[Event]) -> None:
        """Listeners hear of it; an event of a job names the job's target and type."""
        EVENTS[kind](case)
        heard = told.of(kind)
        assert heard
        for event in heard:
            if isinstance(event, JobEvent):
                job = case.store.get(event.job_id)
                assert job is not None
                assert (event.type, event.schedule) == (job.type, job.schedule)

    def test_a_timeout(self, stores: Stores, told: Told) -> None:
        """Told with its limit, before the failure."""
        store = stores.open() if stores.url is not None else MemoryStore(lambda: datetime.now(UTC))
        scheduler = Scheduler(store=store, allow=[sleeps.__module__])
        scheduler.on(JobTimedOut, JobFailed)(told.listen)
        scheduler.enqueue(sleeps).with_timeout(0.2).submit()
        with scheduler:
            until(lambda: told.of(JobFailed))
        assert [type(event) for event in told.events] == [JobTimedOut, JobFailed]
        assert told.events[0].timeout == timedelta(seconds=0.2)


class TestFailuresWithoutARun:
    @pytest.mark.parametrize("name", STORE_MADE_FAILURES)
    def test_they_are_told_like_others(self, case: Case, told: Told, name: str) -> None:
        """`JobFailed`, `JobDeadLettered` and the alert function, once each."""
        make, error_type = STORE_MADE_FAILURES[name]
        make(case)
        (failed,) = told.of(JobFailed)
        (dead,) = told.of(JobDeadLettered)
        assert (failed.error_type, failed.will_retry, failed.status) == (error_type, False, JobStatus.FAILED)
        assert (dead.job_id, dead.alerted, bool(dead.reason)) == (failed.job_id, True, True)
        assert told.alerts == [dead]

    def test_repeats_are_suppressed(self, case: Case, told: Told) -> None:
        """The same job fails again for the same cause within the hour: told as an event, not as an alert."""
        case.crash()
        first = told.of(JobDeadLettered)[0]
        assert case.scheduler.retry_job(first.job_id)
        case.crash_again()
        dead = told.of(JobDeadLettered)
        assert [event.alerted for event in dead] == [True, False]
        assert told.alerts == dead[:1]

    def test_a_signal_that_did_not_come(self, case: Case, told: Told) -> None:
        """Its own event first, with the key."""
        case.miss_signal()
        ended = [e for e in told.events if isinstance(e, JobSignalTimedOut | JobFailed | JobDeadLettered)]
        assert [type(event) for event in ended] == [JobSignalTimedOut, JobFailed, JobDeadLettered]
        assert told.of(JobSignalTimedOut)[0].key == "go"


class TestWhatTheySay:
    def test_a_retry_by_hand(self, case: Case, told: Told) -> None:
        """The error that the job had, and when it is due."""
        case.retry_by_hand()
        (event,) = told.of(JobRetrying)
        assert (event.error, event.status) == ("ValueError: it is broken", JobStatus.PENDING)
        assert event.scheduled_at <= case.clock.now()

    def test_bulk_verbs(self, case: Case, told: Told) -> None:
        """One event with the filter and the number; none where nothing matched."""
        case.retry_many()
        case.cancel_many()
        case.scheduler.cancel_jobs(JobFilter(tags=["nobody"]))
        case.scheduler.retry_jobs(JobFilter(tags=["nobody"]))
        ((retried,), (canceled,)) = told.of(JobsRetried), told.of(JobsCanceled)
        assert (retried.filter, retried.count) == (JobFilter(statuses=[JobStatus.FAILED]), 1)
        assert (canceled.filter, canceled.count) == (JobFilter(tags=["many"]), 1)

    def test_a_signal(self, case: Case, told: Told) -> None:
        """The key, and the reason if it says no."""
        case.signal()
        (event,) = told.of(JobSignaled)
        assert (event.key, event.rejected, event.status) == ("go", "too dear", JobStatus.PENDING)

    def test_a_branch(self, case: Case, told: Told) -> None:
        """Which job decided, and which one goes on; a branch that is not taken is not told."""
        case.branch()
        (event,) = told.of(BranchTaken)
        branch = case.store.get(event.branch_id)
        assert branch is not None
        assert branch.status is JobStatus.SUCCEEDED
        assert branch.type is JobType.WORKFLOW_BRANCH
        assert event.job_id == branch.root_id

    def test_a_branch_for_failures(self, case: Case, told: Told) -> None:
        """`then_on_failure` is a branch like others."""
        handle = case.scheduler.enqueue(breaks).then_on_failure(number, 1).submit()
        case.scheduler.drain()
        (event,) = told.of(BranchTaken)
        assert (event.job_id, event.status) == (handle.id, JobStatus.FAILED)

    def test_a_batch(self, case: Case, told: Told) -> None:
        """Its counters; the last report has all of them."""
        case.batch()
        last, (done,) = told.of(BatchProgressed)[-1], told.of(BatchCompleted)
        assert (last.batch_id, last.completed_items, last.total_items) == (done.batch_id, 2, 2)

    def test_nodes(self, case: Case, told: Told) -> None:
        """The own node joins, then another; the other is lost, and this one has its work."""
        case.lose_node()
        own = case.scheduler._core.manual.node_id
        assert [event.node_id for event in told.of(NodeJoined)] == [own, "other-0"]
        (lost,) = told.of(NodeLost)
        assert (lost.node_id, lost.by, lost.requeued) == ("other-0", own, 1)

    def test_runs_of_a_schedule(self, case: Case, told: Told) -> None:
        """Name the schedule."""
        case.scheduler.schedule_recurring(timedelta(hours=1), number, 1, name="hourly")
        case.clock.advance(timedelta(hours=1, seconds=1))
        case.scheduler.drain()
        (event,) = told.of(JobCompleted)
        assert (event.schedule, event.type) == ("hourly", JobType.RECURRING_RUN)


class TestListeners:
    def test_off(self, scheduler: ManualScheduler, told: Told) -> None:
        """A listener that was taken off hears nothing more, whatever it was listening for; others go on."""
        heard: list[Event] = []

        def both(event: Event) -> None:
            heard.append(event)

        scheduler.on(JobSubmitted, JobCompleted)(both)
        assert scheduler.off(both)
        assert not scheduler.off(both)
        scheduler.enqueue(number, 1).submit()
        scheduler.drain()
        assert heard == []
        assert told.of(JobCompleted)

    @pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
    def test_nobody_listens(
        self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, kind: type[Event]
    ) -> None:
        """No event is made, and no job is looked up for one, whatever happens to it."""
        forget()
        store = MemoryStore(clock.now)
        scheduler = ManualScheduler(store=store, clock=clock, options=OPTIONS)
        made: list[Event] = []
        looked_up: list[UUID] = []
        find = store.get

        def get(job_id: UUID) -> JobRecord | None:
            looked_up.append(job_id)
            return find(job_id)

        monkeypatch.setattr(EventBus, "publish", lambda bus, event: made.append(event))
        monkeypatch.setattr(store, "get", get)
        EVENTS[kind](Case(scheduler, clock, store))
        scheduler.close()
        assert (made, looked_up) == ([], [])
