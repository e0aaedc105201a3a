"""The awaitable faces of handles."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from ratchet.api.observe.graphs import JobGraph
from ratchet.api.observe.reasons import Reason
from ratchet.api.threads import in_thread
from ratchet.model.composition import BatchMetrics, FireRecord, ScheduleRecord
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.job import Job, JobFilter, Page, Progress
from ratchet.model.results import BatchContext
from ratchet.model.status import JobStatus

if TYPE_CHECKING:
    from ratchet.api.batches.handles import BatchHandle
    from ratchet.api.observe.handles import JobHandle
    from ratchet.api.recurring import Schedule

R = TypeVar("R")


class AsyncJobHandle(Generic[R]):
    """A `JobHandle` whose verbs are awaited; waiting occupies no thread."""

    __slots__ = ("_handle",)

    def __init__(self, handle: JobHandle[R]) -> None:
        self._handle = handle

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self._handle.id

    @property
    def duplicate(self) -> bool:
        """True where a key named an older job and nothing was stored."""
        return self._handle.duplicate

    async def status(self) -> JobStatus:
        """See `JobHandle.status`."""
        return await in_thread(self._handle.status)

    async def job(self) -> Job:
        """See `JobHandle.job`."""
        return await in_thread(self._handle.job)

    async def progress(self) -> Progress | None:
        """See `JobHandle.progress`."""
        return await in_thread(self._handle.progress)

    async def explain(self) -> list[Reason]:
        """See `JobHandle.explain`."""
        return await in_thread(self._handle.explain)

    async def graph(self) -> JobGraph:
        """See `JobHandle.graph`."""
        return await in_thread(self._handle.graph)

    async def wait(self, timeout: Duration | None = None) -> JobStatus:
        """See `JobHandle.wait`."""
        handle = self._handle
        row = await handle._backend.await_end(handle.id, _seconds(timeout))
        return (await in_thread(handle._ended, row, timeout)).status

    async def result(self, timeout: Duration | None = None) -> R:
        """See `JobHandle.result`."""
        handle = self._handle
        row = await handle._backend.await_end(handle.id, _seconds(timeout))
        ended = await in_thread(handle._ended, row, timeout) if row is None else row
        return await in_thread(handle._outcome, ended)

    async def cancel(self, reason: str = "requested") -> bool:
        """See `JobHandle.cancel`."""
        return await in_thread(self._handle.cancel, reason)

    async def pause(self) -> bool:
        """See `JobHandle.pause`."""
        return await in_thread(self._handle.pause)

    async def resume(self) -> bool:
        """See `JobHandle.resume`."""
        return await in_thread(self._handle.resume)

    async def retry(self) -> bool:
        """See `JobHandle.retry`."""
        return await in_thread(self._handle.retry)


class AsyncBatchHandle:
    """A `BatchHandle` whose verbs are awaited."""

    __slots__ = ("_handle",)

    def __init__(self, handle: BatchHandle) -> None:
        self._handle = handle

    @property
    def id(self) -> UUID:
        """The batch's id."""
        return self._handle.id

    @property
    def name(self) -> str:
        """What the batch was called."""
        return self._handle.name

    async def context(self) -> BatchContext:
        """See `BatchHandle.context`."""
        return await in_thread(self._handle.context)

    async def wait(self, timeout: Duration | None = None) -> BatchContext:
        """See `BatchHandle.wait`."""
        parent = await in_thread(lambda: self._handle.parent)
        await parent.aio.wait(timeout)
        return await self.context()

    async def cancel(self, reason: str = "requested") -> bool:
        """See `BatchHandle.cancel`."""
        return await in_thread(self._handle.cancel, reason)

    async def retry_failed(self) -> int:
        """See `BatchHandle.retry_failed`."""
        return await in_thread(self._handle.retry_failed)

    async def jobs(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Job]:
        """See `BatchHandle.jobs`."""
        return await in_thread(self._handle.jobs, where, limit=limit, cursor=cursor)

    async def results(self) -> list[Any]:
        """See `BatchHandle.results`."""
        return await in_thread(self._handle.results)

    async def metrics(self) -> BatchMetrics | None:
        """See `BatchHandle.metrics`."""
        return await in_thread(self._handle.metrics)


class AsyncSchedule:
    """A `Schedule` whose verbs are awaited."""

    __slots__ = ("_schedule",)

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    @property
    def name(self) -> str:
        """What the schedule is called."""
        return self._schedule.name

    async def record(self) -> ScheduleRecord:
        """See `Schedule.record`."""
        return await in_thread(self._schedule.record)

    async def pause(self) -> bool:
        """See `Schedule.pause`."""
        return await in_thread(self._schedule.pause)

    async def resume(self) -> bool:
        """See `Schedule.resume`."""
        return await in_thread(self._schedule.resume)

    async def trigger(self) -> JobHandle[Any]:
        """See `Schedule.trigger`."""
        return await in_thread(self._schedule.trigger)

    async def remove(self) -> bool:
        """See `Schedule.remove`."""
        return await in_thread(self._schedule.remove)

    async def runs(self, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """See `Schedule.runs`."""
        return await in_thread(self._schedule.runs, limit=limit, cursor=cursor)

    async def fires(self, limit: int = 50) -> list[FireRecord]:
        """See `Schedule.fires`."""
        return await in_thread(self._schedule.fires, limit)

    async def next_fires(self, count: int = 10) -> list[datetime]:
        """See `Schedule.next_fires`."""
        return await in_thread(self._schedule.next_fires, count)


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else to_timedelta(timeout, "the timeout").total_seconds()
