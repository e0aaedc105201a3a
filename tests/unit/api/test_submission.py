"""Submission: lost answers, keys, bulk, and who is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from ratchet import (
    RESULT,
    BusinessKeyBusy,
    Busy,
    CommitUnknown,
    InvalidJob,
    JobCanceled,
    JobFilter,
    JobStatus,
    JobSubmitted,
    ManualClock,
    Priority,
    Scheduler,
    StoreUnavailable,
)
from ratchet.api.steps import Step
from ratchet.api.submission import specs_for
from ratchet.spi.store import Capabilities
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler, manual_scheduler


def charge(invoice: int, note: Any = None) -> int:
    return invoice


def ship(receipt: Any) -> Any:
    return receipt


@dataclass
class Receipt:
    number: int


def print_receipt(receipt: Receipt) -> Receipt:
    return receipt


class FlakyStore:
    """A memory store whose ``insert`` loses its connection as told: before or after the commit."""

    def __init__(self, clock: ManualClock) -> None:
        self._inner = MemoryStore(clock.now)
        self.failures: list[str] = []
        self.inserts: list[tuple[int, list[Any]]] = []
        self.told: list[datetime] = []  # the time that each insert came with
        self.lasts: Callable[[], object] | None = None  # what happens while one is made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def insert(self, specs: Any, **given: Any) -> Any:
        self.inserts.append((len(specs), [spec.job_id for spec in specs]))
        self.told.append(given["now"])
        if self.lasts is not None:
            self.lasts()
        failure = self.failures.pop(0) if self.failures else None
        if failure == "before":
            raise StoreUnavailable("the connection was lost")
        answer = self._inner.insert(specs, **given)
        if failure == "after":
            raise CommitUnknown("the connection was lost while committing")
        return answer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> FlakyStore:
    return FlakyStore(clock)


@pytest.fixture
def scheduler(clock: ManualClock, store: FlakyStore) -> Iterator[ManualScheduler]:
    made = manual_scheduler(clock=clock, store=store)
    yield made
    made.close()


def stored(scheduler: ManualScheduler) -> int:
    return scheduler.jobs.count()


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


class TestBulk:
    def test_enqueue_many(self, scheduler: ManualScheduler, store: FlakyStore) -> None:
        """One job per tuple, handles in order, a round trip per thousand."""
        handles = scheduler.enqueue_many(charge, [(number,) for number in range(2500)])
        assert [size for size, _ in store.inserts] == [1000, 1000, 500]
        assert [handles[i].job().args for i in (0, 1, 2499)] == [(0,), (1,), (2499,)]
        assert stored(scheduler) == 2500
        assert scheduler.enqueue_many(charge, []) == []

    @pytest.mark.parametrize(
        ("bulk", "jobs", "sizes"),
        [
            (2500, 3000, [1000, 1000, 1000]),
            (2500, 12_000, [1500] * 8),
            (2500, 22_500, [2500] * 9),
            (600, 1500, [600, 600, 300]),
        ],
    )
    def test_a_store_says_how_much_a_transaction_may_hold(
        self, scheduler: ManualScheduler, store: FlakyStore, bulk: int, jobs: int, sizes: list[int]
    ) -> None:
        """A large bulk is eight transactions, until these are as large as the store likes them."""
        store.capabilities = Capabilities(bulk=bulk, concurrent_writers=False)
        scheduler.enqueue_many(charge, [(1,)] * jobs)
        assert [size for size, _ in store.inserts] == sizes

    def test_each_part_of_a_long_bulk_comes_with_its_own_time(
        self, scheduler: ManualScheduler, store: FlakyStore, clock: ManualClock
    ) -> None:
        """Jobs that reach the queue seconds after their due time are known as late ones; they keep that due time."""
        begun = clock.now()
        store.capabilities = Capabilities(concurrent_writers=False)
        store.lasts = lambda: clock.advance(2)
        handles = scheduler.enqueue_many(charge, [(1,)] * 2500)
        assert store.told == [begun, begun + timedelta(seconds=2), begun + timedelta(seconds=4)]
        assert {handles[i].job().scheduled_at for i in (0, 2499)} == {begun}

    def test_a_generator_and_lists_will_do(self, scheduler: ManualScheduler) -> None:
        """Arguments may come from a generator, and as lists."""
        handles = scheduler.enqueue_many(charge, ([number, "n"] for number in range(3)))
        assert [handle.job().args for handle in handles] == [(0, "n"), (1, "n"), (2, "n")]

    @pytest.mark.parametrize(
        ("bad", "says"),
        [
            (7, r"write \(7,\)"),
            ("text", "tuple of arguments"),
            ((1, 2, 3), "too many positional"),
            ((), "missing a required argument"),
            ((object(),), r"args\[0\]"),
            (("a\0b",), "0000"),
            ((RESULT,), "follows none"),
        ],
    )
    def test_one_bad_entry_refuses_all(self, scheduler: ManualScheduler, bad: Any, says: str) -> None:
        """Everything is checked before anything is stored, also in later chunks."""
        with pytest.raises(InvalidJob, match=says):
            scheduler.enqueue_many(charge, [(1,)] * 1500 + [bad])
        assert stored(scheduler) == 0

    def test_values_are_typed(self, scheduler: ManualScheduler) -> None:
        """Bulk arguments are encoded like single ones."""
        (handle,) = scheduler.enqueue_many(print_receipt, [(Receipt(1),)])
        scheduler.drain()
        assert handle.result() == Receipt(1)

    def test_declared_defaults_hold(self, scheduler: ManualScheduler) -> None:
        """A bulk job has the options of its declaration."""

        @scheduler.job(name="bulk", max_retries=4, priority=Priority.LOW, tags=["many"])
        def bulk(number: int) -> int:
            return number

        jobs = [handle.job() for handle in scheduler.enqueue_many(bulk, [(1,), (2,)])]
        assert {(job.max_retries, job.priority, job.tags) for job in jobs} == {(4, Priority.LOW, ("many",))}

    def test_a_spec_costs_little(self, scheduler: ManualScheduler) -> None:
        """Making a job in bulk costs some microseconds of Python (measured 5; here with room for a busy machine)."""
        items = [(number, "note") for number in range(5000)]
        step = Step(charge, (), {})
        best = min(
            _timed(lambda: specs_for(scheduler.backend, step, items, scheduler.backend.now()))
            for _ in range(5)
        )
        assert best / len(items) < 25e-6

    def test_submit_all(self, scheduler: ManualScheduler, store: FlakyStore) -> None:
        """Builders with options of their own in one round trip; handles in order, duplicates told."""
        old = scheduler.enqueue(charge, 0).with_idempotency_key("old").submit()
        store.inserts.clear()
        handles = scheduler.submit_all(
            [
                scheduler.enqueue(charge, 1).with_priority(Priority.HIGH),
                scheduler.enqueue(charge, 2).with_idempotency_key("old").then(ship, RESULT),
                scheduler.enqueue(charge, 3).then(ship, RESULT),
            ]
        )
        assert [handle.duplicate for handle in handles] == [False, True, False]
        assert handles[1] == old
        assert handles[0].job().priority is Priority.HIGH
        assert [step.job().args for step in handles[2].steps] == [(3,), (RESULT,)]
        assert len(store.inserts) == 1
        assert stored(scheduler) == 4

    def test_submit_all_keeps_graphs_together(self, scheduler: ManualScheduler, store: FlakyStore) -> None:
        """A chain is never split between two transactions."""
        scheduler.submit_all(
            [scheduler.enqueue(charge, n).then(ship, RESULT).then(ship, 1) for n in range(400)]
        )
        assert [size for size, _ in store.inserts] == [999, 201]

    def test_submit_all_refuses_as_a_whole(self, scheduler: ManualScheduler) -> None:
        """One bad builder, one used one, or the same twice: nothing is stored."""
        good = scheduler.enqueue(charge, 1)
        with pytest.raises(InvalidJob, match="missing a required argument"):
            scheduler.submit_all([good, scheduler.enqueue(charge)])  # type: ignore[call-overload]
        with pytest.raises(InvalidJob, match="same builder twice"):
            scheduler.submit_all([good, good])
        with pytest.raises(InvalidJob, match="takes builders"):
            scheduler.submit_all([charge])  # type: ignore[list-item]
        assert stored(scheduler) == 0
        scheduler.submit_all([good])
        with pytest.raises(InvalidJob, match="already submitted"):
            scheduler.submit_all([good])
        assert stored(scheduler) == 1


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class Coordinator:
    """Counts notifications."""

    def __init__(self) -> None:
        self.told: list[Priority] = []

    def notify_new_work(self, priority: Priority) -> None:
        self.told.append(priority)

    def wait_for(self, count: int) -> None:
        """Messages follow a submission, from another thread."""
        deadline = time.monotonic() + 30
        while len(self.told) < count:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


class TestWhoIsTold:
    def test_other_nodes_are_woken_for_due_jobs_only(self) -> None:
        """One notification per committed submission that is due soon; none for later, waiting or joined ones."""
        told = Coordinator()
        store = MemoryStore()
        scheduler = Scheduler(store=store, allow=[__name__], cluster_coordinator=told)
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
