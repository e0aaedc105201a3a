"""Batches through the public API, the same on every store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    BatchContext,
    InvalidJob,
    JobFilter,
    JobStatus,
    ManualClock,
    StoreUnavailable,
)
from ratchet.api.batches.open_batches import LEASE, lease_name
from ratchet.engine.batches import ABANDONED
from ratchet.spi.store import JobStore
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.support.store_urls import KINDS

ROOT = Path(__file__).parents[2]
ran: list[Any] = []
reports: list[BatchContext] = []
broken: set[int] = set()


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()
    reports.clear()
    broken.clear()


def work(item: int) -> int:
    if item in broken:
        raise ValueError(f"item {item} is broken")
    return item * 10


def follow(name: str) -> None:
    ran.append(name)


def report(context: BatchContext) -> None:
    reports.append(context)


def few(context: BatchContext) -> bool:
    return context.total_items < 3


def counters(context: BatchContext) -> tuple[int, int, int, int]:
    return (
        context.total_items,
        context.completed_items,
        context.failed_items,
        context.canceled_items,
    )


class TestBatches:
    def test_an_empty_batch_succeeds_at_once(self, scheduler: ManualScheduler) -> None:
        """Its success followers run, its failure followers do not; its rate is one."""
        batch = (
            scheduler.enqueue_batch("nothing")
            .for_each([], work)
            .then_on_batch_success(follow, "done")
            .then_on_batch_failure(follow, "alarm")
            .then_when_success_rate(1.0, follow, "certified")
            .then_when_failure_count(1, follow, "escalated")
            .then_when_batch(few, follow, "few")
            .submit()
        )
        context = batch.context()
        assert (context.is_complete, context.percent_done, context.success_rate) == (True, 100.0, 1.0)
        scheduler.drain()
        assert sorted(ran) == ["certified", "done", "few"]
        assert batch.results() == []

    def test_an_empty_stream_succeeds_at_once(self, scheduler: ManualScheduler) -> None:
        """The same for a source that yields nothing."""
        builder = scheduler.streaming_batch("nothing").from_iterable(iter(())).process(work)
        batch = builder.then_on_batch_success(follow, "done").start()
        scheduler.drain()
        assert batch.wait(timeout=0).is_complete
        assert ran == ["done"]

    def test_retry_failed(self, scheduler: ManualScheduler) -> None:
        """Only the failed items run again; the batch completes again, and tells those it had not told."""
        broken.update({2, 4})
        batch = (
            scheduler.enqueue_batch("import")
            .for_each(range(6), work)
            .then_on_batch_success(follow, "done")
            .then_on_batch_failure(follow, "alarm")
            .then_when_failure_count(2, follow, "escalated")
            .submit()
        )
        scheduler.drain()
        assert counters(batch.context()) == (6, 4, 2, 0)
        assert ran == ["alarm", "escalated"]
        assert batch.results() == [0, 10, 30, 50]
        broken.clear()
        assert batch.retry_failed() == 2
        assert not batch.context().is_complete
        scheduler.drain()
        assert counters(batch.wait(timeout=0)) == (6, 6, 0, 0)
        assert ran == ["alarm", "escalated", "done"]
        assert batch.results() == [0, 10, 20, 30, 40, 50]
        assert batch.retry_failed() == 0
        metrics = batch.metrics()
        assert metrics is not None
        assert metrics.runs == 8

    def test_cancel(self, scheduler: ManualScheduler) -> None:
        """What has not ended is canceled and counted so; no follower runs; a second cancel changes nothing."""
        batch = (
            scheduler.enqueue_batch("import")
            .for_each(range(5), work)
            .then_on_batch_success(follow, "done")
            .then_on_batch_failure(follow, "alarm")
            .submit()
        )
        scheduler.drain(limit=1)
        assert batch.cancel()
        assert not batch.cancel()
        scheduler.drain()
        context = batch.context()
        assert (counters(context), context.is_complete) == ((5, 1, 0, 4), True)
        assert ran == []
        assert [job.status for job in batch.jobs(JobFilter(statuses=[JobStatus.SUCCEEDED]))] == [
            JobStatus.SUCCEEDED
        ]

    def test_progress(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Reports come while items end, not one for each, and the last one says that all is done."""
        batch = scheduler.enqueue_batch("import").for_each(range(20), work).on_progress(report).submit()
        scheduler.drain(limit=5)
        clock.advance(2)
        scheduler.drain()
        clock.advance(2)
        scheduler.drain()
        assert 2 <= len(reports) <= 4
        assert all(context.batch_id == batch.id for context in reports)
        assert (counters(reports[-1]), reports[-1].is_complete) == ((20, 20, 0, 0), True)

    def test_an_iterable_that_raises(self, scheduler: ManualScheduler) -> None:
        """While nothing is stored yet nothing is stored at all; the error is the source's own."""
        with pytest.raises(ZeroDivisionError):
            scheduler.enqueue_batch("import").for_each(_breaking(3), work).submit()
        assert not scheduler.enqueued()
        assert not scheduler.batches.list()

    def test_a_stream_that_raises(self, scheduler: ManualScheduler) -> None:
        """What was stored is canceled, whole: nobody is told of a success that is only a part."""
        builder = scheduler.streaming_batch("import").from_iterable(_breaking(7)).process(work)
        with pytest.raises(ZeroDivisionError):
            builder.with_chunk_size(2).then_on_batch_success(follow, "done").start()
        (batch,) = scheduler.batches.list()
        assert (counters(batch.context()), batch.context().is_complete) == ((6, 0, 0, 6), True)
        assert "source of the batch failed" in (batch.parent.job().canceled_reason or "")
        scheduler.drain()
        assert ran == []
        assert scheduler.store.lock(lease_name(batch.id)) is None

    def test_children_run_while_the_stream_is_read(self, scheduler: ManualScheduler) -> None:
        """The first items have ended before the last is read, and the batch has not completed meanwhile."""
        seen: list[int] = []

        def source() -> Iterator[int]:
            for item in range(8):
                yield item
                scheduler.drain()
                (batch,) = scheduler.batches.list() or [None]
                seen.append(batch.context().completed_items if batch is not None else 0)
                assert batch is None or not batch.context().is_complete

        builder = scheduler.streaming_batch("import").from_iterable(source()).process(work)
        batch = builder.with_chunk_size(2).then_on_batch_success(follow, "done").start()
        assert seen[-1] >= 4
        scheduler.drain()
        assert counters(batch.context()) == (8, 8, 0, 0)
        assert ran == ["done"]

    def test_a_batch_that_is_canceled_while_it_is_read(self, scheduler: ManualScheduler) -> None:
        """The submitter is told, at the next chunk or at the end."""

        def source(until: int) -> Iterator[int]:
            for item in range(10):
                yield item
                if item == until:
                    scheduler.batches.list()[0].cancel()

        for until in (5, 9):
            builder = scheduler.streaming_batch("import").from_iterable(source(until)).process(work)
            with pytest.raises(InvalidJob, match="was canceled while its items were being stored"):
                builder.with_chunk_size(2).start()


def _breaking(count: int) -> Iterator[int]:
    yield from range(count)
    raise ZeroDivisionError("the source")


class Mortal:
    """A store that cannot be reached any more after a while, as for a process that has died."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        if self.dead and name not in ("close", "name"):
            raise StoreUnavailable("gone")
        return getattr(self._store, name)


class TestAbandoned:
    def test_a_submitter_that_is_gone(
        self, stores: Stores, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """As long as its lease lasts more may come; then the batch is canceled, and no follower runs."""
        mortal: Any = Mortal(stores.open())
        submitter = ManualScheduler(store=mortal, clock=clock, seed=1)

        def source() -> Iterator[int]:
            yield from range(5)
            mortal.dead = True
            yield from range(5, 10)

        builder = submitter.streaming_batch("import").from_iterable(source()).process(work)
        with pytest.raises(StoreUnavailable):
            builder.with_chunk_size(2).then_on_batch_failure(follow, "alarm").start()
        scheduler.drain()
        (batch,) = scheduler.batches.list()
        assert (counters(batch.context()), batch.context().is_complete) == ((4, 4, 0, 0), False)
        clock.advance(LEASE + timedelta(seconds=1))
        scheduler.drain()
        assert batch.context().is_complete
        assert batch.parent.job().canceled_reason == ABANDONED
        assert ran == []

    def test_a_slow_source_is_no_dead_one(
        self, stores: Stores, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """A lease that was taken over is noticed; one that lives is left alone however long it takes."""
        seconds = LEASE.total_seconds() * 0.9

        def source(*pauses: float) -> Iterator[int]:
            for item, pause in enumerate(pauses):
                yield item
                clock.advance(pause)
                scheduler.drain()

        slow = scheduler.streaming_batch("slow").from_iterable(source(*[seconds] * 10)).process(work)
        assert counters(slow.with_chunk_size(1).start().context())[0] == 10
        late = scheduler.streaming_batch("late").from_iterable(source(0, 0, seconds * 2, 0)).process(work)
        with pytest.raises(InvalidJob, match="was canceled"):
            late.with_chunk_size(1).start()

    @pytest.mark.parametrize("stores", KINDS, indirect=True)  # memory dies with its process
    def test_a_submitter_that_was_killed(self, stores: Stores, tmp_path: Path) -> None:
        """``kill -9`` in the middle of a stream: a node cancels the batch a minute later."""
        assert stores.url is not None
        script = tmp_path / "submit.py"
        script.write_text(SUBMIT)
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        process = subprocess.Popen(
            [sys.executable, str(script), stores.url], stdout=subprocess.PIPE, env=environment
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"stored\n"
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout and process.stdout.close()
        clock = ManualClock(datetime.now(UTC) + timedelta(seconds=1))
        node = ManualScheduler(store=stores.open(), clock=clock)
        node.drain()
        (batch,) = node.batches.list()
        assert not batch.context().is_complete
        clock.advance(LEASE + timedelta(seconds=5))
        node.drain()
        total, completed, _, _ = counters(batch.context())
        assert completed == total > 0
        assert batch.context().is_complete
        assert batch.parent.status() is JobStatus.CANCELED
        node.close()


SUBMIT = """
import itertools, sys, time
from ratchet import Scheduler
from tests.integration.test_batches import work

def source():
    for item in itertools.count():
        yield item
        if item == 1000:
            print("stored", flush=True)
            time.sleep(60)

scheduler = Scheduler(sys.argv[1], allow=["tests.integration"])
scheduler.streaming_batch("import").from_iterable(source()).process(work).with_chunk_size(100).start()
"""


class TestRepeatedSubmission:
    def test_a_batch_whose_submission_was_not_answered(self, stores: Stores, clock: ManualClock) -> None:
        """Submitted again it has the same items: none is lost, none is there twice."""
        mortal: Any = Mortal(stores.open())
        scheduler = ManualScheduler(store=mortal, clock=clock)
        builder = scheduler.enqueue_batch("import").for_each(iter(range(4)), work)
        scheduler.store.batches()  # opened before the connection is lost
        mortal.dead = True
        with pytest.raises(StoreUnavailable):
            builder.submit()
        mortal.dead = False
        inserted = mortal._store.insert

        def lost(*args: Any, **more: Any) -> Any:
            inserted(*args, **more)
            mortal.dead = True
            raise StoreUnavailable("lost after the commit")

        mortal.insert = lost
        with pytest.raises(StoreUnavailable):
            builder.submit()
        mortal.dead = False
        mortal.insert = inserted
        batch = builder.submit()
        scheduler.drain()
        assert counters(batch.context()) == (4, 4, 0, 0)
        assert len(scheduler.enqueued(work)) == 4
        scheduler.close()


class TestMemory:
    def test_a_stream_needs_no_more_memory_than_its_chunk(self, tmp_path: Path) -> None:
        """Of 20,000 items the submitter holds a few hundred at a time: the peak does not grow with the stream."""
        from ratchet import Scheduler

        scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", allow=["tests.integration"])

        def peak(count: int) -> int:
            source = (f"item {n:06}" * 20 for n in range(count))
            builder = scheduler.streaming_batch("flat").from_iterable(source).process(work)
            tracemalloc.start()
            builder.with_chunk_size(250).start()
            _, highest = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return highest

        peak(1000)  # what is made once: statements, connections
        small, large = peak(1000), peak(20_000)
        scheduler.close()
        assert large < 1.5 * small, f"{small:,} bytes for a thousand items, {large:,} for twenty thousand"
