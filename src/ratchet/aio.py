"""
The await face: the verbs of `Scheduler`, awaitable.

The core is synchronous and stays so; each verb runs on one of a few threads. Waiting for a result
occupies none of them. A test compares both faces, signature by signature.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload
from uuid import UUID

from ratchet.api.batches.builders import AsyncBatchBuilder, AsyncStreamingBatchBuilder
from ratchet.api.observe.async_queries import (
    AsyncBatches,
    AsyncBreakers,
    AsyncDeadLetters,
    AsyncJobs,
    AsyncLimits,
    AsyncNodes,
    AsyncQueues,
    AsyncSchedules,
)
from ratchet.api.observe.handles import JobHandle
from ratchet.api.observe.health import Health
from ratchet.api.observe.reasons import Reason
from ratchet.api.recurring import FIRE_ONCE, Misfire, Overlap, Schedule
from ratchet.api.submit.builders import AsyncJobBuilder, GraphDraft
from ratchet.api.submit.immediate import submit_soon
from ratchet.api.submit.joins import AsyncJoinBuilder, Join
from ratchet.api.threads import in_thread, joining
from ratchet.engine.waiter import ResultWaiter, _Wait
from ratchet.model.durations import Duration
from ratchet.model.job import JobFilter, JobResultRow

if TYPE_CHECKING:
    from ratchet.scheduler import Scheduler

P = ParamSpec("P")
R = TypeVar("R")


class AwaitableResults(ResultWaiter):
    """A `ResultWaiter` that coroutines can wait for as well, without a thread each."""

    async def ended(self, job_id: UUID, timeout: float | None) -> JobResultRow | None:
        """The row of a job once it has ended; None when *timeout* seconds are over first."""
        promise = _Promise()
        with self._lock:
            self._waiting.setdefault(job_id, []).append(promise)
            self._ensure_thread()
        self._wakeup.set()
        try:
            return await asyncio.wait_for(asyncio.wrap_future(promise.future), timeout)
        except TimeoutError:
            return None
        finally:
            self._forget(job_id, promise)


class _Promise(_Wait):
    """A wait whose end is told to a future."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        super().__init__()
        self.future: Future[JobResultRow] = Future()
        self.done = _Telling(self)


class _Telling(threading.Event):
    """Fulfills the promise when it is set."""

    def __init__(self, promise: _Promise) -> None:
        super().__init__()
        self._promise = promise

    def set(self) -> None:
        super().set()
        row, future = self._promise.row, self._promise.future
        if row is not None and future.set_running_or_notify_cancel():
            future.set_result(row)


class AsyncScheduler:
    """The verbs of `Scheduler`, awaitable: ``await scheduler.aio.enqueue_now(charge, 42)``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.jobs = AsyncJobs(scheduler.jobs)
        self.dead_letters = AsyncDeadLetters(scheduler.dead_letters)
        self.nodes = AsyncNodes(scheduler.nodes)
        self.queues = AsyncQueues(scheduler.queues)
        self.limits = AsyncLimits(scheduler.limits)
        self.breakers = AsyncBreakers(scheduler.breakers)
        self.schedules = AsyncSchedules(scheduler.schedules)
        self.batches = AsyncBatches(scheduler.batches)

    # --- submit ---

    @overload
    def enqueue(
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobBuilder[R]: ...
    @overload
    def enqueue(self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncJobBuilder[R]: ...
    @overload
    def enqueue(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobBuilder[R]: ...
    def enqueue(self, target: Any, /, *args: Any, **kwargs: Any) -> AsyncJobBuilder[Any]:
        """A builder whose ``submit()`` is awaited; see `Scheduler.enqueue`."""
        return AsyncJobBuilder(self._scheduler.backend, target, args, kwargs)

    @overload
    async def enqueue_now(
        self, target: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    @overload
    async def enqueue_now(
        self, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    @overload
    async def enqueue_now(
        self, target: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> JobHandle[R]: ...
    async def enqueue_now(self, target: Any, /, *args: Any, **kwargs: Any) -> JobHandle[Any]:
        """See `Scheduler.enqueue_now`."""
        return await submit_soon(self._scheduler.backend, target, args, kwargs)

    @overload
    def schedule(
        self,
        when: Duration | datetime,
        target: Callable[P, Coroutine[Any, Any, R]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> AsyncJobBuilder[R]: ...
    @overload
    def schedule(
        self, when: Duration | datetime, target: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncJobBuilder[R]: ...
    @overload
    def schedule(
        self,
        when: Duration | datetime,
        target: Callable[Concatenate[Any, P], R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> AsyncJobBuilder[R]: ...
    def schedule(
        self, when: Duration | datetime, target: Any, /, *args: Any, **kwargs: Any
    ) -> AsyncJobBuilder[Any]:
        """A builder whose ``submit()`` is awaited; see `Scheduler.schedule`."""
        builder: AsyncJobBuilder[Any] = self.enqueue(target, *args, **kwargs)
        return builder.at(when) if isinstance(when, datetime) else builder.with_delay(when)

    async def enqueue_many(
        self,
        target: Callable[..., Any],
        arguments: Iterable[Sequence[Any]],
        *,
        within: object | None = None,
    ) -> list[JobHandle[Any]]:
        """See `Scheduler.enqueue_many`."""
        return await joining(lambda own: self._scheduler.enqueue_many(target, arguments, within=own), within)

    async def submit_all(
        self, builders: Iterable[GraphDraft[Any]], *, within: object | None = None
    ) -> list[JobHandle[Any]]:
        """See `Scheduler.submit_all`."""
        return await joining(lambda own: self._scheduler.submit_all(builders, within=own), within)

    def join(self, jobs: Iterable[Any], join: Join = Join.ALL) -> AsyncJoinBuilder:
        """See `Scheduler.join`."""
        return AsyncJoinBuilder(self._scheduler.backend, jobs, join)

    def enqueue_batch(self, name: str) -> AsyncBatchBuilder:
        """See `Scheduler.enqueue_batch`."""
        return AsyncBatchBuilder(self._scheduler.backend, name)

    def streaming_batch(self, name: str) -> AsyncStreamingBatchBuilder:
        """See `Scheduler.streaming_batch`."""
        return AsyncStreamingBatchBuilder(self._scheduler.backend, name)

    # --- control ---

    def handle(self, job_id: UUID | str) -> JobHandle[Any]:
        """See `Scheduler.handle`; its verbs are awaited through ``handle.aio``."""
        return self._scheduler.handle(job_id)

    async def cancel_job(self, job_id: UUID | str, *, reason: str = "requested") -> bool:
        """See `Scheduler.cancel_job`."""
        return await in_thread(self._scheduler.cancel_job, job_id, reason=reason)

    async def pause_job(self, job_id: UUID | str) -> bool:
        """See `Scheduler.pause_job`."""
        return await in_thread(self._scheduler.pause_job, job_id)

    async def resume_job(self, job_id: UUID | str) -> bool:
        """See `Scheduler.resume_job`."""
        return await in_thread(self._scheduler.resume_job, job_id)

    async def retry_job(self, job_id: UUID | str) -> bool:
        """See `Scheduler.retry_job`."""
        return await in_thread(self._scheduler.retry_job, job_id)

    async def retry_jobs(self, where: JobFilter, *, limit: int | None = None) -> int:
        """See `Scheduler.retry_jobs`."""
        return await in_thread(self._scheduler.retry_jobs, where, limit=limit)

    async def cancel_jobs(self, where: JobFilter, *, limit: int | None = None) -> int:
        """See `Scheduler.cancel_jobs`."""
        return await in_thread(self._scheduler.cancel_jobs, where, limit=limit)

    async def reschedule_job(self, job_id: UUID | str, at: datetime | Duration) -> bool:
        """See `Scheduler.reschedule_job`."""
        return await in_thread(self._scheduler.reschedule_job, job_id, at)

    async def replace(
        self,
        job_id: UUID | str,
        target: Callable[..., Any],
        /,
        *args: Any,
        delay: Duration | None = None,
        at: datetime | None = None,
        **kwargs: Any,
    ) -> JobHandle[Any] | None:
        """See `Scheduler.replace`."""
        return await in_thread(self._scheduler.replace, job_id, target, *args, delay=delay, at=at, **kwargs)

    async def explain(self, job_id: UUID | str) -> list[Reason]:
        """See `Scheduler.explain`."""
        return await in_thread(self._scheduler.explain, job_id)

    async def signal(
        self,
        key: str,
        payload: Any = None,
        *,
        job_id: UUID | str | None = None,
        rejected: str | None = None,
    ) -> int:
        """See `Scheduler.signal`."""
        return await in_thread(self._scheduler.signal, key, payload, job_id=job_id, rejected=rejected)

    async def schedule_recurring(
        self,
        expression: str | timedelta,
        target: Callable[..., Any],
        /,
        *args: Any,
        name: str | None = None,
        zone: str = "UTC",
        misfire: Misfire = FIRE_ONCE,
        overlap: Overlap = Overlap.SKIP,
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        jitter: Duration = 0,
        **kwargs: Any,
    ) -> Schedule:
        """See `Scheduler.schedule_recurring`."""
        return await in_thread(
            self._scheduler.schedule_recurring,
            expression,
            target,
            *args,
            name=name,
            zone=zone,
            misfire=misfire,
            overlap=overlap,
            starts_at=starts_at,
            ends_at=ends_at,
            jitter=jitter,
            **kwargs,
        )

    # --- run ---

    async def health(self) -> Health:
        """See `Scheduler.health`."""
        return await in_thread(self._scheduler.health)

    async def migrate(self) -> list[str]:
        """See `Scheduler.migrate`."""
        return await in_thread(self._scheduler.migrate)

    async def start(self) -> None:
        """See `Scheduler.start`."""
        await in_thread(self._scheduler.start)

    async def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """See `Scheduler.stop`."""
        return await in_thread(self._scheduler.stop, drain=drain, timeout=timeout)

    async def close(self) -> None:
        """See `Scheduler.close`."""
        await in_thread(self._scheduler.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
