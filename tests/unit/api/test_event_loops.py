"""Sync verbs on an event loop: what would wait is refused, the rest warns once for each line, and both name the awaited form."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    BlocksEventLoop,
    BlocksEventLoopWarning,
    JobContext,
    JobStatus,
    Scheduler,
)
from ratchet.api import event_loops
from ratchet.testing import isolated, run_worker_until_idle


def add(one: int, two: int) -> int:
    return one + two


def double(number: int) -> int:
    return 2 * number


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    scheduler = Scheduler(f"sqlite:///{tmp_path / 'jobs.db'}", allow=[__name__])
    yield scheduler
    scheduler.close()


async def warned(verb: Callable[[], Any]) -> str:
    """What is said when *verb* is called on the loop."""
    event_loops._told.clear()
    with pytest.warns(BlocksEventLoopWarning) as caught:
        verb()
    (one,) = caught
    assert one.filename == __file__
    return str(one.message)


class TestWaiting:
    def test_result_and_wait_are_refused(self, scheduler: Scheduler) -> None:
        """With or without a timeout; a timeout of nothing only asks."""
        handle = scheduler.enqueue_now(add, 1, 2)
        batch = scheduler.enqueue_batch("b").for_each([1], double).submit()

        async def scenario() -> None:
            with pytest.raises(BlocksEventLoop, match=r"write `await handle\.aio\.result\(…\)` there"):
                handle.result()
            with pytest.raises(BlocksEventLoop, match=r"await handle\.aio\.wait\(…\)"):
                handle.wait(timeout=5)
            with pytest.raises(BlocksEventLoop, match=r"await batch\.aio\.wait\(…\)"):
                batch.wait(timeout=5)
            with pytest.raises(BlocksEventLoop, match=r"async with scheduler\.aio: …"):
                scheduler.run()
            with pytest.raises(TimeoutError):
                with pytest.warns(BlocksEventLoopWarning):
                    handle.result(timeout=0)

        asyncio.run(scenario())
        assert not scheduler.running

    def test_a_handle_of_the_await_face_is_awaited(self, scheduler: Scheduler) -> None:
        """``scheduler.aio.handle(id)`` has the awaited verbs, also by the name that other handles have them under."""
        first = scheduler.enqueue_now(add, 1, 2)

        async def scenario() -> None:
            handle = scheduler.aio.handle(first.id)
            assert handle == first.aio
            assert await handle.status() is JobStatus.PENDING
            async with scheduler.aio:
                assert await handle.result(timeout=30) == 3
                assert await handle.aio.result(timeout=30) == 3

        asyncio.run(scenario())

    def test_nothing_blocks_when_a_result_is_awaited_first(self, scheduler: Scheduler) -> None:
        """The store is opened in a thread also if waiting is the first thing a process does."""
        handle = scheduler.enqueue_now(add, 1, 2)
        scheduler.close()
        other = Scheduler(scheduler._core.url, allow=[__name__])

        async def scenario() -> None:
            with pytest.raises(TimeoutError):
                await other.aio.handle(handle.id).result(timeout=0.05)

        asyncio.run(scenario())
        other.close()


class TestShortVerbs:
    def test_each_names_its_awaited_form(self, scheduler: Scheduler) -> None:
        """Submissions, queries, verbs of handles and the node itself: the warning points to the caller's line."""
        scheduler.migrate()

        async def scenario() -> None:
            for verb, form in (
                (lambda: scheduler.enqueue_now(add, 1, 2), "await scheduler.aio.enqueue_now(…)"),
                (lambda: scheduler.enqueue(add, 1, 2).submit(), "await scheduler.aio.enqueue(…).submit(…)"),
                (lambda: scheduler.enqueue_many(add, [(1, 2)]), "await scheduler.aio.enqueue_many(…)"),
                (lambda: scheduler.jobs.counts(), "await scheduler.aio.jobs.counts(…)"),
                (lambda: scheduler.queues.list(), "await scheduler.aio.queues.list(…)"),
                (lambda: scheduler.health(), "await scheduler.aio.health(…)"),
                (lambda: scheduler.start(), "await scheduler.aio.start(…)"),
                (lambda: scheduler.stop(), "await scheduler.aio.stop(…)"),
            ):
                assert f"write `{form}` there" in await warned(verb)
            handle = await scheduler.aio.enqueue_now(add, 1, 2)
            assert "await handle.aio.cancel(…)" in await warned(handle.cancel)

        asyncio.run(scenario())

    def test_each_line_is_told_once(self, scheduler: Scheduler) -> None:
        """A loop that submits a thousand jobs warns once, whatever filters are in force."""
        event_loops._told.clear()

        async def scenario() -> None:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(5):
                    scheduler.enqueue_now(add, 1, 2)
                scheduler.enqueue_now(add, 1, 2)
            assert [one.category for one in caught] == [BlocksEventLoopWarning] * 2

        asyncio.run(scenario())

    def test_threads_and_awaited_verbs_are_silent(self, scheduler: Scheduler) -> None:
        """Nothing is said where nothing is blocked."""
        event_loops._told.clear()

        async def scenario() -> None:
            async with scheduler.aio:
                handle = await scheduler.aio.enqueue_now(add, 1, 2)
                assert await handle.aio.result(timeout=30) == 3
                await asyncio.to_thread(scheduler.enqueue_now, add, 1, 2)
                await scheduler.aio.jobs.counts()

        asyncio.run(scenario())  # warnings are errors in these tests

    def test_test_mode_is_silent(self, scheduler: Scheduler) -> None:
        """In memory nothing blocks: async tests use the sync verbs as they like."""
        event_loops._told.clear()

        async def scenario() -> None:
            with isolated(scheduler) as test:
                handle = scheduler.enqueue_now(add, 1, 2)
                await asyncio.to_thread(test.drain)
                assert handle.result() == 3

        asyncio.run(scenario())


async def reports() -> str:
    """What the sync face says inside of an ``async def`` job."""
    ctx = JobContext.current()
    event_loops._told.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ctx.progress(0.5)
        ctx.save()
        with ctx.transaction() as tx:
            tx.result = "\n".join(str(one.message) for one in caught)
    return "the transaction's result counts"


async def waits() -> str:
    try:
        current[0].handle(JobContext.current().job_id).result(timeout=30)
    except BlocksEventLoop as error:
        return str(error)
    return "waited"


current: list[Scheduler] = []


class TestInsideAJob:
    def test_the_context_names_its_awaited_form(self, scheduler: Scheduler) -> None:
        """progress, save and transaction of an ``async def`` job."""
        handle = scheduler.enqueue_now(reports)
        run_worker_until_idle(scheduler)
        said = handle.result(timeout=0)
        for form in (
            "await ctx.aio.progress(…)",
            "await ctx.aio.save(…)",
            "async with ctx.aio.transaction(): …",
        ):
            assert f"`{form}`" in said

    def test_an_async_job_cannot_wait_for_itself(self, scheduler: Scheduler) -> None:
        """The loop would stand still for good; the job is told instead."""
        current[:] = [scheduler]
        handle = scheduler.enqueue_now(waits)
        run_worker_until_idle(scheduler)
        assert "await handle.aio.result(…)" in handle.result(timeout=0)


def test_notebooks_are_left_alone(scheduler: Scheduler) -> None:
    """There a loop always runs, and a person waits."""
    handle = scheduler.enqueue_now(add, 1, 2)
    cell = "try:\n    handle.result(timeout=0.01)\nexcept TimeoutError:\n    told.append('not ended')\n"
    told: list[str] = []

    async def scenario() -> None:
        exec(cell, {"get_ipython": None, "handle": handle, "told": told})

    asyncio.run(scenario())
    assert told == ["not ended"]
