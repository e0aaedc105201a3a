"""Submissions: answers that are lost, keys, transactions of the caller, and who is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import (
    RESULT,
    BusinessKeyBusy,
    Busy,
    JobCanceled,
    JobFilter,
    JobStatus,
    JobSubmitted,
    ManualClock,
    Priority,
    Scheduler,
    StoreUnavailable,
)
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.support.waiting import until
from tests.unit.api.submission_samples import HERE, FlakyStore, charge, ship, stored


@pytest.fixture
def store(clock: ManualClock) -> FlakyStore:
    return FlakyStore(clock)


@pytest.fixture
def scheduler(clock: ManualClock, store: FlakyStore) -> Iterator[ManualScheduler]:
    made = manual_scheduler(clock=clock, store=store)
    yield made
    made.close()


class TestLostAnswers:
    @pytest.mark.parametrize(
        "failures",
        [["before"], ["after"], ["before", "after"], ["after", "after", "before"]],
        ids=lambda failures: "+".join(failures),
    )
    def test_a_lost_answer_neither_loses_nor_doubles(
        self, scheduler: ManualScheduler, store: FlakyStore, failures: list[str]
    ) -> None:
        """The same ids are sent again until the store answers; there is one chain of two jobs."""
        store.failures = list(failures)
        handle = scheduler.enqueue(charge, 1).then(ship, RESULT).submit()
        assert stored(scheduler) == 2
        assert not handle.duplicate
        assert len(store.inserts) == len(failures) + 1
        assert all(ids == store.inserts[0][1] for _, ids in store.inserts)

    def test_a_store_that_stays_away(self, scheduler: ManualScheduler, store: FlakyStore) -> None:
        """After a few tries the error comes through, and the builder can be submitted again with the same id."""
        store.failures = ["before"] * 4
        builder = scheduler.enqueue(charge, 1)
        with pytest.raises(StoreUnavailable):
            builder.submit()
        handle = builder.submit()
        assert {tuple(ids) for _, ids in store.inserts} == {(handle.id,)}
        assert stored(scheduler) == 1

    def test_an_unknown_commit_is_asked_about_though_time_is_up(
        self, clock: ManualClock, store: FlakyStore
    ) -> None:
        """A first try that took longer than the patience is repeated if its commit is unknown, else not."""
        scheduler = manual_scheduler(clock=clock, store=store)
        inner = store.insert

        def slow(specs: Any, **given: Any) -> Any:
            clock.advance(timedelta(seconds=30))
            return inner(specs, **given)

        store.insert = slow  # type: ignore[method-assign]
        store.failures = ["after"]
        assert scheduler.enqueue_now(charge, 1).status() is JobStatus.PENDING
        assert len(store.inserts) == 2
        store.failures = ["before"]
        with pytest.raises(StoreUnavailable):
            scheduler.enqueue_now(charge, 2)
        assert len(store.inserts) == 3

    def test_within_is_never_repeated(self, scheduler: ManualScheduler, store: FlakyStore) -> None:
        """The caller's transaction is the caller's: its error comes through at once."""
        store.failures = ["before"]
        with pytest.raises(StoreUnavailable):
            with store.begin() as connection:
                scheduler.enqueue(charge, 1).submit(within=connection)
        assert len(store.inserts) == 1
        assert stored(scheduler) == 0


class TestWithin:
    def test_the_job_exists_when_the_caller_commits(
        self, scheduler: ManualScheduler, store: FlakyStore
    ) -> None:
        """Inside the block nobody sees the job and waiting times out; after the commit it is there."""
        with store.begin() as connection:
            handle = scheduler.enqueue(charge, 1).submit(within=connection)
            with pytest.raises(TimeoutError, match="not visible"):
                handle.result(timeout=0)
        assert handle.status() is JobStatus.PENDING

    def test_a_rollback_leaves_nothing(self, scheduler: ManualScheduler, store: FlakyStore) -> None:
        """The job goes with the transaction."""

        def rolled_back() -> None:
            with store.begin() as connection:
                scheduler.enqueue(charge, 1).then(ship, RESULT).submit(within=connection)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            rolled_back()
        assert stored(scheduler) == 0


class TestKeys:
    def test_an_idempotency_key_gives_the_same_job(self, scheduler: ManualScheduler) -> None:
        """The second submission stores nothing, says so, and its handle is the first one's, steps included."""

        def submit() -> Any:
            return scheduler.enqueue(charge, 1).with_idempotency_key("r1").then(ship, RESULT).submit()

        first, second = submit(), submit()
        assert second == first
        assert (first.duplicate, second.duplicate) == (False, True)
        assert second.steps == first.steps
        assert second.last == first.last
        scheduler.drain()
        assert submit() == first
        assert stored(scheduler) == 2

    def test_busy_raise(self, scheduler: ManualScheduler) -> None:
        """A live holder refuses the second job, by name; when it has ended the key is free."""
        first = scheduler.enqueue(charge, 1).with_business_key("k").submit()
        with pytest.raises(BusinessKeyBusy) as busy:
            scheduler.enqueue(charge, 2).with_business_key("k").submit()
        assert (busy.value.key, busy.value.holder) == ("k", first.id)
        assert stored(scheduler) == 1
        scheduler.drain()
        scheduler.enqueue(charge, 3).with_business_key("k").submit()

    def test_busy_return(self, scheduler: ManualScheduler) -> None:
        """The holder's handle comes back as a duplicate."""
        first = scheduler.enqueue(charge, 1).with_business_key("k").submit()
        second = scheduler.enqueue(charge, 2).with_business_key("k", busy=Busy.RETURN).submit()
        assert (second, second.duplicate) == (first, True)
        assert stored(scheduler) == 1

    def test_busy_replace(self, scheduler: ManualScheduler) -> None:
        """The holder is canceled for the new job, and listeners hear it."""
        heard: list[JobCanceled] = []
        scheduler.on(JobCanceled)(heard.append)
        first = scheduler.enqueue(charge, 1).with_business_key("k").submit()
        second = scheduler.enqueue(charge, 2).with_business_key("k", busy=Busy.REPLACE).submit()
        assert first.job().superseded_by == second.id
        assert first.status() is JobStatus.CANCELED
        assert [(event.job_id, event.reason) for event in heard] == [(first.id, "superseded")]


class Coordinator:
    """Counts notifications."""

    def __init__(self) -> None:
        self.told: list[Priority] = []

    def notify_new_work(self, priority: Priority) -> None:
        self.told.append(priority)

    def wait_for(self, count: int) -> None:
        """Messages follow a submission, from another thread."""
        until(lambda: len(self.told) >= count)

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class TestWhoIsTold:
    def test_other_nodes_are_woken_for_due_jobs_only(self) -> None:
        """One notification per committed submission that is due soon; none for later, waiting or joined ones."""
        told = Coordinator()
        store = MemoryStore()
        scheduler = Scheduler(store=store, allow=[HERE], cluster_coordinator=told)
        scheduler.enqueue(charge, 1).with_priority(Priority.CRITICAL).submit()
        told.wait_for(1)
        scheduler.enqueue_many(charge, [(1,), (2,)])
        told.wait_for(2)
        assert told.told == [Priority.CRITICAL, Priority.NORMAL]
        scheduler.schedule(3600, charge, 1).submit()
        scheduler.enqueue(charge, 1).await_signal("s").submit()
        with store.begin() as connection:
            scheduler.enqueue(charge, 1).submit(within=connection)
        scheduler.close()
        assert len(told.told) == 2

    def test_listeners_hear_of_every_stored_job(self, scheduler: ManualScheduler) -> None:
        """`JobSubmitted` comes after the commit, once per job, and not for duplicates."""
        heard: list[JobSubmitted] = []

        @scheduler.on(JobSubmitted)
        def listen(event: JobSubmitted) -> None:
            assert scheduler.jobs.get(event.job_id).status is event.status
            heard.append(event)

        for _ in range(2):
            scheduler.enqueue(charge, 1).with_idempotency_key("k").then(ship, RESULT).submit()
        assert [(event.target.rpartition(":")[2], event.status) for event in heard] == [
            ("charge", JobStatus.PENDING),
            ("ship", JobStatus.WAITING),
        ]
        assert scheduler.jobs.count(JobFilter()) == 2
