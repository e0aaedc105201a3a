"""Many jobs submitted together: stored in parts, checked before the first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import RESULT, InvalidJob, ManualClock, Priority
from ratchet.api.submit.bulk import specs_for
from ratchet.api.submit.steps import Step
from ratchet.spi.store import Capabilities
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.unit.api.submission_samples import FlakyStore, Receipt, charge, print_receipt, ship, stored


@pytest.fixture
def store(clock: ManualClock) -> FlakyStore:
    return FlakyStore(clock)


@pytest.fixture
def scheduler(clock: ManualClock, store: FlakyStore) -> Iterator[ManualScheduler]:
    made = manual_scheduler(clock=clock, store=store)
    yield made
    made.close()


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
