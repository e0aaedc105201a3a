"""The await face: held to the sync one signature by signature, and never blocking the event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import time
import typing
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from ratchet import (
    RESULT,
    RESULTS,
    JobCanceledError,
    JobFailedError,
    JobStatus,
    Scheduler,
)
from ratchet.aio import AsyncScheduler
from ratchet.api import recurring as recurring_api
from ratchet.api.batches import builders as batches
from ratchet.api.batches import handles as batch_handles
from ratchet.api.observe import async_handles, async_queries, handles, queries
from ratchet.api.observe.nodes import Nodes
from ratchet.api.storage import Storage
from ratchet.api.submit import builders, joins
from ratchet.stores.memory import MemoryStore

P = typing.ParamSpec("P")

#: Verbs of the sync face that make no sense awaited: they declare, or block the main thread.
SYNC_ONLY = {
    Scheduler: {
        "job",
        "recurring",
        "off",
        "on",
        "add_meters",
        "add_tracer",
        "around",
        "configure",
        "discover",
        "run",
    },
    handles.JobHandle: set(),
    batch_handles.BatchHandle: set(),
    recurring_api.Schedule: set(),
}
#: Verbs that store nothing and therefore are plain functions on both faces; they lead to awaited verbs.
MAKERS = {
    "enqueue",
    "enqueue_by_name",
    "schedule",
    "join",
    "enqueue_batch",
    "streaming_batch",
    "handle",
    "acting_as",
}
#: What a maker returns here, and there.
LEADS_TO = {
    "JobBuilder": "AsyncJobBuilder",
    "JoinBuilder": "AsyncJoinBuilder",
    "BatchBuilder": "AsyncBatchBuilder",
    "StreamingBatchBuilder": "AsyncStreamingBatchBuilder",
}
FACES = [
    (Scheduler, AsyncScheduler),
    (handles.JobHandle, async_handles.AsyncJobHandle),
    (batch_handles.BatchHandle, async_handles.AsyncBatchHandle),
    (recurring_api.Schedule, async_handles.AsyncSchedule),
    (queries.Jobs, async_queries.AsyncJobs),
    (queries.DeadLetters, async_queries.AsyncDeadLetters),
    (Nodes, async_queries.AsyncNodes),
    (queries.Queues, async_queries.AsyncQueues),
    (queries.Limits, async_queries.AsyncLimits),
    (queries.Breakers, async_queries.AsyncBreakers),
    (queries.Schedules, async_queries.AsyncSchedules),
    (queries.Batches, async_queries.AsyncBatches),
    (Storage, async_queries.AsyncStorage),
    (builders.JobBuilder, builders.AsyncJobBuilder),
    (joins.JoinBuilder, joins.AsyncJoinBuilder),
    (batches.BatchBuilder, batches.AsyncBatchBuilder),
    (batches.StreamingBatchBuilder, batches.AsyncStreamingBatchBuilder),
]
PAIRS = [
    pytest.param(sync, face, name, id=f"{sync.__name__}.{name}")
    for sync, face in FACES
    for name, member in inspect.getmembers(sync, inspect.isfunction)
    if not name.startswith("_") and name not in SYNC_ONLY.get(sync, ())
]


def add(one: int, two: int) -> int:
    return one + two


def failing() -> None:
    raise ValueError("no")


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"


def collect(values: list[Any]) -> list[Any]:
    return values


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(store=MemoryStore(), allow=[__name__])
    yield made
    made.close()


def awaited(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test to its end."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class TestSameVerbs:
    @pytest.mark.parametrize(("sync", "face", "name"), PAIRS)
    def test_signature(self, sync: type, face: type, name: str) -> None:
        """Each verb has the same parameters, defaults and return type on both faces, and a docstring."""
        own, other = getattr(sync, name), getattr(face, name, None)
        assert other is not None, f"{face.__name__} lacks {name}"
        mine, theirs = inspect.signature(own), inspect.signature(other)
        assert list(theirs.parameters.values()) == list(mine.parameters.values())
        wanted = str(mine.return_annotation)
        if name == "handle":
            wanted = f"Async{wanted}"
        for here, there in LEADS_TO.items():
            if wanted == here or wanted.startswith(f"{here}["):
                wanted = wanted.replace(here, there, 1)
        assert str(theirs.return_annotation) == wanted
        assert inspect.getdoc(other)

    @pytest.mark.parametrize(("sync", "face", "name"), PAIRS)
    def test_what_touches_the_store_is_awaited(self, sync: type, face: type, name: str) -> None:
        """Verbs are coroutine functions; only makers, and what configures a builder, are not."""
        is_builder = sync.__name__.endswith("Builder")
        plain = name not in ("submit", "start") if is_builder else name in MAKERS
        assert inspect.iscoroutinefunction(getattr(face, name)) is not plain

    @pytest.mark.parametrize(("sync", "face"), FACES, ids=lambda cls: cls.__name__)
    def test_nothing_more(self, sync: type, face: type) -> None:
        """The await face invents no verb of its own."""
        extra = {name for name, _ in inspect.getmembers(face, inspect.isfunction) if not name.startswith("_")}
        assert extra <= {name for name, _ in inspect.getmembers(sync, inspect.isfunction)}


class TestAwaiting:
    @awaited
    async def test_submit_and_wait(self, scheduler: Scheduler) -> None:
        """Every way to submit has an awaited one, and results come back."""
        async with scheduler.aio as face:
            assert scheduler.running
            one = await face.enqueue_now(add, 1, 2)
            two = await face.enqueue(add, 3, 4).with_tags("t").submit()
            three = await scheduler.enqueue(add, 5, 6).aio.submit()
            four = await face.schedule(0, add, 7, 8).submit()
            many = await face.enqueue_many(add, [(1, 1), (2, 2)])
            several = await face.submit_all([scheduler.enqueue(add, 9, 9).then(add, RESULT, 1)])
            joined = await face.join([one, two]).then(collect, RESULTS).submit()
            batch = await face.enqueue_batch("b").for_each([1, 2], collect).submit()
            stream = await face.streaming_batch("s").from_iterable([1, 2, 3]).process(collect).start()
            found = await asyncio.gather(*(h.aio.result(10) for h in (one, two, three, four, *many)))
            assert found == [3, 7, 11, 15, 2, 4]
            assert await several[0].last.aio.result(timeout=10) == 19
            assert await joined.aio.result(timeout=10) == [3, 7]
            assert (await batch.aio.wait(timeout=10)).completed_items == 2
            assert (await stream.aio.wait(timeout=10)).completed_items == 3
            assert await batch.aio.results() == [1, 2]
            assert await one.aio.status() is JobStatus.SUCCEEDED
            assert (await face.jobs.get(two.id)).tags == ("t",)
            assert (await face.health()).ok
        assert not scheduler.running

    @awaited
    async def test_errors(self, scheduler: Scheduler) -> None:
        """Failure, cancellation and timeout are the same exceptions as on the sync face."""
        async with scheduler.aio as face:
            with pytest.raises(JobFailedError):
                await (await face.enqueue_now(failing)).aio.result(timeout=10)
            later = await face.schedule(3600, add, 1, 2).submit()
            with pytest.raises(TimeoutError, match="is PENDING"):
                await later.aio.result(timeout=0.05)
            assert await face.cancel_job(later.id)
            with pytest.raises(JobCanceledError):
                await later.aio.result(timeout=10)

    @awaited
    async def test_waiting_occupies_no_thread(self, scheduler: Scheduler) -> None:
        """A hundred coroutines wait while others submit: the threads of the await face stay free, and are few."""
        handles_ = await scheduler.aio.enqueue_many(nap, [(0,)] * 100)
        waits = [asyncio.create_task(handle.aio.result(timeout=30)) for handle in handles_]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(scheduler.aio.enqueue_now(add, 1, 2), timeout=5)
        assert sum(thread.name.startswith("ratchet-aio") for thread in threading.enumerate()) <= 8
        async with scheduler.aio:
            assert await asyncio.gather(*waits) == ["rested"] * 100

    @awaited
    async def test_a_canceled_wait_leaves_nothing(self, scheduler: Scheduler) -> None:
        """A coroutine that stops waiting is forgotten by the waiter."""
        handle = await scheduler.aio.schedule(3600, add, 1, 2).submit()
        task = asyncio.create_task(handle.aio.result())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        waiter = scheduler._core._waiter
        assert waiter is not None
        assert not waiter._waiting

    @awaited
    async def test_the_loop_goes_on(self, scheduler: Scheduler) -> None:
        """While a verb is in the store, the event loop turns."""

        class Slow(MemoryStore):
            def counts(self) -> Any:
                time.sleep(0.3)
                return super().counts()

        slow = Scheduler(store=Slow(), allow=[__name__])
        turns = 0
        asking = asyncio.create_task(slow.aio.jobs.counts())
        while not asking.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert turns >= 10
