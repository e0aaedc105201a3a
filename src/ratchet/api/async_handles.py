"""The awaitable face of `JobHandle`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import UUID

from ratchet.api.graphs import JobGraph
from ratchet.api.reasons import Reason
from ratchet.api.threads import in_thread
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.job import Job, Progress
from ratchet.model.status import JobStatus

if TYPE_CHECKING:
    from ratchet.api.handles import JobHandle

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


def _seconds(timeout: Duration | None) -> float | None:
    return None if timeout is None else to_timedelta(timeout, "the timeout").total_seconds()
