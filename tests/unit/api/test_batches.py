"""Batches: counted, followed, canceled, retried; whole or streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ratchet import (
    BatchContext,
    BatchHandle,
    CommitUnknown,
    InvalidJob,
    JobFilter,
    JobNotFound,
    JobStatus,
    JobType,
    ManualClock,
    Priority,
    call,
    new_id,
)
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler, manual_scheduler

ran: list[Any] = []
broken: set[int] = set()


def work(item: int) -> int:
    if item in broken:
        raise ValueError(f"item {item} is broken")
    return item * 10


def done(*words: Any) -> None:
    ran.append(("done", *words))


def alarm() -> None:
    ran.append("alarm")


def certify(level: str) -> None:
    ran.append(("certify", level))


def escalate() -> None:
    ran.append("escalate")


def recover() -> None:
    ran.append("recover")


def half(context: BatchContext) -> bool:
    return context.success_rate == 0.5


def report(context: BatchContext) -> None: ...


@pytest.fixture
def scheduler() -> Iterator[ManualScheduler]:
    ran.clear()
    broken.clear()
    made = manual_scheduler()
    yield made
    made.close()


class TestBatches:
    def test_everything_succeeds(self, scheduler: ManualScheduler) -> None:
        """Children are configured by ``with_…``, counted exactly, and the success follower gets its arguments."""
        batch = (
            scheduler.enqueue_batch("import")
            .for_each([1, 2, 3], work)
            .with_priority(Priority.HIGH)
            .with_max_retries(2)
            .on_progress(report)
            .then_on_batch_success(done, 1)
            .with_queue("after")
            .then_on_batch_failure(alarm)
            .submit()
        )
        (child, *_) = batch.jobs()
        assert (child.type, child.priority, child.max_retries, child.queue) == (
            JobType.BATCH_CHILD,
            Priority.HIGH,
            2,
            "default",
        )
        assert batch.context() == BatchContext(
            batch_id=batch.id, total_items=3, completed_items=0, failed_items=0, canceled_items=0
        )
        scheduler.drain()
        context = batch.wait(timeout=0)
        assert (context.completed_items, context.percent_done, context.is_complete) == (3, 100.0, True)
        assert batch.results() == [10, 20, 30]
        assert ran == [("done", 1)]
        assert scheduler.enqueued(done)[0].queue == "after"

    @pytest.mark.parametrize(
        ("bad", "expected"),
        [
            (set(), [("done", "all"), ("certify", "gold")]),
            ({1}, ["alarm", ("certify", "gold")]),
            ({1, 2, 3, 4, 5}, ["alarm", "escalate", "recover"]),
        ],
        ids=["none fails", "one of ten", "five of ten"],
    )
    def test_followers_by_condition(
        self, scheduler: ManualScheduler, bad: set[int], expected: list[Any]
    ) -> None:
        """Each follower runs when its condition about the counters holds, and only then."""
        broken.update(bad)
        (
            scheduler.enqueue_batch("import")
            .for_each(range(10), work)
            .then_on_batch_success(done, "all")
            .then_on_batch_failure(alarm)
            .then_when_success_rate(0.9, certify, "gold")
            .then_when_failure_count(5, escalate)
            .then_when_batch(half, recover)
            .submit()
        )
        scheduler.drain()
        assert sorted(map(str, ran)) == sorted(map(str, expected))

    def test_an_empty_batch_succeeds_at_once(self, scheduler: ManualScheduler) -> None:
        """No items: complete, and the success follower runs."""
        batch = scheduler.enqueue_batch("none").for_each([], work).then_on_batch_success(done).submit()
        assert batch.context().is_complete
        assert batch.context().success_rate == 1.0
        scheduler.drain()
        assert batch.wait(timeout=0).total_items == 0
        assert ran == [("done",)]

    def test_retry_failed(self, scheduler: ManualScheduler) -> None:
        """Failed items run again; the batch is open until they have ended, and then succeeds."""
        broken.add(2)
        batch = scheduler.enqueue_batch("b").for_each([1, 2, 3], work).then_on_batch_success(done).submit()
        scheduler.drain()
        assert batch.context().failed_items == 1
        assert [job.args for job in batch.jobs(JobFilter(statuses=[JobStatus.FAILED]))] == [(2,)]
        broken.clear()
        assert batch.retry_failed() == 1
        scheduler.drain()
        assert batch.context().completed_items == 3

    def test_cancel(self, scheduler: ManualScheduler) -> None:
        """Canceling a batch cancels its items and tells no follower."""
        batch = scheduler.enqueue_batch("b").for_each([1, 2], work).then_on_batch_failure(alarm).submit()
        assert batch.cancel()
        assert not batch.cancel()
        scheduler.drain()
        assert batch.context().canceled_items == 2
        assert ran == []

    def test_a_large_batch_is_stored_in_chunks(self, scheduler: ManualScheduler) -> None:
        """More items than fit one transaction: all are counted, and the follower runs once, at the end."""
        batch = (
            scheduler.enqueue_batch("large").for_each(range(6001), work).then_on_batch_success(done).submit()
        )
        assert batch.context().total_items == 6001
        scheduler.drain()
        assert batch.context().completed_items == 6001
        assert ran == [("done",)]

    def test_within_a_transaction(self, scheduler: ManualScheduler) -> None:
        """A rolled back batch leaves neither items nor followers."""

        def rolled_back() -> None:
            with scheduler.store.begin() as connection:
                scheduler.enqueue_batch("b").for_each(range(6001), work).submit(within=connection)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            rolled_back()
        assert scheduler.jobs.count() == 0
        assert scheduler.batches.list() == []

    def test_find_batches(self, scheduler: ManualScheduler) -> None:
        """Batches are found by id and listed, newest first."""
        first = scheduler.enqueue_batch("first").for_each([1], work).submit()
        second = scheduler.enqueue_batch("second").for_each([1], work).submit()
        assert scheduler.batches.get(str(first.id)).name == "first"
        assert [batch.id for batch in scheduler.batches.list()] == [second.id, first.id]
        with pytest.raises(JobNotFound):
            scheduler.batches.get(new_id())

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda s: s.enqueue_batch(""), "must not be empty"),
            (lambda s: s.enqueue_batch("b").submit(), "for_each"),
            (lambda s: s.streaming_batch("b").from_iterable([1]).start(), "process"),
            (lambda s: s.enqueue_batch("b").for_each("text", work), "list or an iterator"),
            (lambda s: s.enqueue_batch("b").for_each([1], call(work, 1)), "pass the function"),
            (lambda s: s.enqueue_batch("b").for_each([1], work).then_when_success_rate(95, done), "0 to 1"),
            (
                lambda s: s.enqueue_batch("b").for_each([1], work).then_when_failure_count(0, done),
                "at least 1",
            ),
            (lambda s: s.enqueue_batch("b").for_each([1], alarm).submit(), "too many positional"),
            (lambda s: s.enqueue_batch("b").for_each([1, object()], work).submit(), r"args\[0\]"),
            (lambda s: s.enqueue_batch("b").for_each([1] * 5500 + [object()], work).submit(), r"args\[0\]"),
            (lambda s: s.enqueue_batch("b").for_each([1], work).on_progress(alarm).submit(), "do not fit"),
            (lambda s: s.streaming_batch("b").with_chunk_size(0), "at least 1"),
        ],
    )
    def test_a_batch_that_makes_no_sense(
        self, scheduler: ManualScheduler, make: Callable[[Any], object], says: str
    ) -> None:
        """Bad batches are refused and leave nothing."""
        with pytest.raises(InvalidJob, match=says):
            make(scheduler)
        assert scheduler.jobs.count() == 0


def stream(scheduler: ManualScheduler, items: Any) -> BatchHandle:
    return (
        scheduler.streaming_batch("migrate")
        .from_iterable(items)
        .process(work)
        .with_chunk_size(500)
        .then_on_batch_success(done, "all")
        .start()
    )


class TestStreams:
    def test_items_run_while_the_source_is_read(self, scheduler: ManualScheduler) -> None:
        """The first chunk is stored, and can run, before the last item was made."""
        running: list[int] = []

        def source() -> Iterator[int]:
            for number in range(1200):
                if number == 1100:
                    running.append(scheduler.jobs.count(JobFilter(types=[JobType.BATCH_CHILD])))
                yield number

        batch = stream(scheduler, source())
        assert running[0] >= 500
        assert batch.context().total_items == 1200
        scheduler.drain()
        assert batch.context().completed_items == 1200
        assert ran == [("done", "all")]

    def test_a_source_that_raises_cancels_the_batch(self, scheduler: ManualScheduler) -> None:
        """The error comes through, nothing more starts, and no follower hears of a success."""

        def source() -> Iterator[int]:
            yield from range(700)
            raise OSError("the file is gone")

        with pytest.raises(OSError, match="file is gone"):
            stream(scheduler, source())
        (batch,) = scheduler.batches.list()
        scheduler.drain()
        assert ran == []
        assert batch.context().completed_items == 0
        assert {job.status for job in batch.jobs(limit=1000)} == {JobStatus.CANCELED}
        assert batch.parent.job().canceled_reason == "the source of the batch failed"

    def test_a_lost_answer_counts_once(self) -> None:
        """A chunk whose commit is unknown is looked for before it is sent again."""

        class Losing(MemoryStore):
            lost = 0

            def append_children(self, batch_id: Any, specs: Any, *, now: Any) -> bool:
                answer = super().append_children(batch_id, specs, now=now)
                if self.lost < 2:
                    self.lost += 1
                    raise CommitUnknown("lost while committing")
                return answer

        clock = ManualClock()
        scheduler = manual_scheduler(clock=clock, store=Losing(clock.now))
        batch = stream(scheduler, range(1600))
        assert batch.context().total_items == 1600
        assert scheduler.jobs.count(JobFilter(types=[JobType.BATCH_CHILD])) == 1600
