"""The awaitable faces of handles: ``handle.aio``."""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

from ratchet.api.batches.handles import BatchHandle
from ratchet.api.observe.handles import JobHandle
from ratchet.api.recurring import Schedule
from ratchet.api.threads import AwaitFace, awaited, in_thread
from ratchet.model.durations import Duration
from ratchet.model.results import BatchContext
from ratchet.model.status import JobStatus

R = TypeVar("R")


class AsyncJobHandle(AwaitFace[JobHandle[R]]):
    """A `JobHandle` whose verbs are awaited; waiting occupies no thread."""

    __slots__ = ()

    def __init__(self, handle: JobHandle[R]) -> None:
        super().__init__(handle)

    @property
    def id(self) -> UUID:
        """The job's id."""
        return self._sync.id

    @property
    def duplicate(self) -> bool:
        """True if a key named an older job, so that nothing was stored."""
        return self._sync.duplicate

    @property
    def aio(self) -> AsyncJobHandle[R]:
        """Itself: what a handle from ``scheduler`` and one from ``scheduler.aio`` have in common."""
        return self

    def __repr__(self) -> str:
        return f"Async{self._sync!r}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncJobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def wait(self, timeout: Duration | None = None) -> JobStatus:
        """See `JobHandle.wait`."""
        handle = self._sync
        row = await handle._await_end(timeout)
        return (await in_thread(handle._ended, row, timeout)).status

    async def result(self, timeout: Duration | None = None) -> R:
        """See `JobHandle.result`."""
        handle = self._sync
        row = await handle._await_end(timeout)
        ended = await in_thread(handle._ended, row, timeout) if row is None else row
        return await in_thread(handle._outcome, ended)

    status = awaited(JobHandle[R].status)
    job = awaited(JobHandle[R].job)
    progress = awaited(JobHandle[R].progress)
    explain = awaited(JobHandle[R].explain)
    graph = awaited(JobHandle[R].graph)
    cancel = awaited(JobHandle[R].cancel)
    pause = awaited(JobHandle[R].pause)
    resume = awaited(JobHandle[R].resume)
    retry = awaited(JobHandle[R].retry)
    set_priority = awaited(JobHandle[R].set_priority)


class AsyncBatchHandle(AwaitFace[BatchHandle]):
    """A `BatchHandle` whose verbs are awaited; waiting occupies no thread."""

    __slots__ = ()

    def __init__(self, handle: BatchHandle) -> None:
        super().__init__(handle)

    @property
    def id(self) -> UUID:
        """The batch's id."""
        return self._sync.id

    @property
    def name(self) -> str:
        """What the batch was called."""
        return self._sync.name

    async def wait(self, timeout: Duration | None = None) -> BatchContext:
        """See `BatchHandle.wait`."""
        parent = await in_thread(lambda: self._sync.parent)
        await parent.aio.wait(timeout)
        return await self.context()

    record = awaited(BatchHandle.record)
    context = awaited(BatchHandle.context)
    cancel = awaited(BatchHandle.cancel)
    retry_failed = awaited(BatchHandle.retry_failed)
    jobs = awaited(BatchHandle.jobs)
    results = awaited(BatchHandle.results)
    metrics = awaited(BatchHandle.metrics)


class AsyncSchedule(AwaitFace[Schedule]):
    """A `Schedule` whose verbs are awaited."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """What the schedule is called."""
        return self._sync.name

    record = awaited(Schedule.record)
    pause = awaited(Schedule.pause)
    resume = awaited(Schedule.resume)
    trigger = awaited(Schedule.trigger)
    change = awaited(Schedule.change)
    remove = awaited(Schedule.remove)
    runs = awaited(Schedule.runs)
    fires = awaited(Schedule.fires)
    next_fires = awaited(Schedule.next_fires)
