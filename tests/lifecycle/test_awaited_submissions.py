"""Coroutines that submit: whoever sends the job, the event loop or a thread, it is part of what surrounds it."""

from __future__ import annotations

import asyncio

from ratchet import JobContext, JobFilter, JobStatus, Scheduler

PATIENCE = 60
_scheduler: list[Scheduler] = []


async def child(number: int) -> int:
    return number


async def parent() -> list[int]:
    """Twice three children: one after the other, and at once."""
    (scheduler,) = _scheduler
    one_by_one = [await scheduler.aio.enqueue_now(child, number) for number in range(3)]
    at_once = await asyncio.gather(*(scheduler.aio.enqueue_now(child, number) for number in range(3, 6)))
    return [await handle.aio.result(PATIENCE) for handle in (*one_by_one, *at_once)]


async def torn() -> None:
    """What is submitted in the job's transaction is submitted if that commits."""
    (scheduler,) = _scheduler
    async with JobContext.current().aio.transaction():
        for number in range(3):
            await scheduler.aio.enqueue_now(child, number)
        raise ValueError("not this time")


async def whole() -> None:
    (scheduler,) = _scheduler
    async with JobContext.current().aio.transaction():
        for number in range(3):
            await scheduler.aio.enqueue_now(child, number)


def children(scheduler: Scheduler) -> int:
    return scheduler.jobs.count(JobFilter(targets=[f"{__name__}:child"]))


class TestJobsThatSubmit:
    def test_their_children_run(self, scheduler: Scheduler) -> None:
        _scheduler[:] = [scheduler]
        with scheduler:
            assert scheduler.enqueue_now(parent).result(PATIENCE) == [0, 1, 2, 3, 4, 5]
        assert children(scheduler) == 6

    def test_what_is_rolled_back_was_never_submitted(self, scheduler: Scheduler) -> None:
        """Also where a job before it has warmed everything up, so that the loop could send by itself."""
        _scheduler[:] = [scheduler]
        with scheduler:
            scheduler.enqueue_now(parent).result(PATIENCE)
            handle = scheduler.enqueue_now(torn)
            handle.wait(PATIENCE)
            assert handle.status() is JobStatus.FAILED
            assert children(scheduler) == 6
            scheduler.enqueue_now(whole).result(PATIENCE)
        assert children(scheduler) == 9
