"""
The await face: the verbs of `Scheduler`, awaitable.

The core is synchronous. `awaited` runs each verb on one of a few threads; waiting for a result
occupies none of them. A test compares the signatures of both faces.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast, overload
from uuid import UUID

from ratchet.api.batches.builders import AsyncBatchBuilder, AsyncStreamingBatchBuilder
from ratchet.api.observe.async_handles import AsyncJobHandle
from ratchet.api.observe.async_queries import (
    AsyncAudit,
    AsyncBatches,
    AsyncBreakers,
    AsyncDeadLetters,
    AsyncJobs,
    AsyncLimits,
    AsyncNodes,
    AsyncQueues,
    AsyncSchedules,
    AsyncStorage,
)
from ratchet.api.observe.handles import JobHandle
from ratchet.api.recurring import Schedule
from ratchet.api.submit.builders import AsyncJobBuilder
from ratchet.api.submit.immediate import submit_soon
from ratchet.api.submit.joins import AsyncJoinBuilder, Join
from ratchet.api.threads import AwaitFace, awaited
from ratchet.engine.waiter import ResultWaiter, _Wait
from ratchet.model.audit import AuditSource
from ratchet.model.durations import Duration
from ratchet.model.errors import JobNotFound
from ratchet.model.job import JobResultRow
from ratchet.scheduler.scheduler import Scheduler

P = ParamSpec("P")
R = TypeVar("R")


class AwaitableResults(ResultWaiter):
    """A `ResultWaiter` that coroutines can wait for as well, without a thread each."""

    async def ended(
        self, job_id: UUID, timeout: float | None, *, uncommitted: bool = False
    ) -> JobResultRow | None:
        """The row of a job once it has ended; None when *timeout* seconds are over first. `JobNotFound` as in `wait`."""
        promise = _Promise(job_id, uncommitted=uncommitted)
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

    def __init__(self, job_id: UUID, *, uncommitted: bool) -> None:
        super().__init__(job_id, uncommitted=uncommitted)
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
        if not future.set_running_or_notify_cancel():
            return
        if row is None:
            future.set_exception(JobNotFound(self._promise.job_id))
        else:
            future.set_result(row)


class AsyncScheduler(AwaitFace[Scheduler]):
    """The verbs of `Scheduler`, awaitable: ``await scheduler.aio.enqueue_now(charge, 42)``."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.jobs = AsyncJobs(scheduler.jobs)
        self.dead_letters = AsyncDeadLetters(scheduler.dead_letters)
        self.nodes = AsyncNodes(scheduler.nodes)
        self.queues = AsyncQueues(scheduler.queues)
        self.limits = AsyncLimits(scheduler.limits)
        self.breakers = AsyncBreakers(scheduler.breakers)
        self.schedules = AsyncSchedules(scheduler.schedules)
        self.batches = AsyncBatches(scheduler.batches)
        self.storage = AsyncStorage(scheduler.storage)
        self.audit = AsyncAudit(scheduler.audit)

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
        return AsyncJobBuilder(self._sync.backend, target, args, kwargs)

    def enqueue_by_name(self, name: str, /, *args: Any, **kwargs: Any) -> AsyncJobBuilder[Any]:
        """A builder whose ``submit()`` is awaited; see `Scheduler.enqueue_by_name`."""
        return AsyncJobBuilder(self._sync.backend, self._sync._core.parts.registry.named(name), args, kwargs)

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
        return await submit_soon(self._sync.backend, target, args, kwargs)

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

    enqueue_many = awaited(Scheduler.enqueue_many)
    submit_all = awaited(Scheduler.submit_all)

    def join(self, jobs: Iterable[Any], join: Join = Join.ALL) -> AsyncJoinBuilder:
        """See `Scheduler.join`."""
        return AsyncJoinBuilder(self._sync.backend, jobs, join)

    def enqueue_batch(self, name: str) -> AsyncBatchBuilder:
        """See `Scheduler.enqueue_batch`."""
        return AsyncBatchBuilder(self._sync.backend, name)

    def streaming_batch(self, name: str) -> AsyncStreamingBatchBuilder:
        """See `Scheduler.streaming_batch`."""
        return AsyncStreamingBatchBuilder(self._sync.backend, name)

    # --- control ---

    def acting_as(
        self, principal: str | None, *, source: AuditSource | str = AuditSource.API
    ) -> AbstractContextManager[None]:
        """See `Scheduler.acting_as`."""
        return self._sync.acting_as(principal, source=source)

    def handle(self, job_id: UUID | str) -> AsyncJobHandle[Any]:
        """See `Scheduler.handle`; its verbs are awaited."""
        return self._sync.handle(job_id).aio

    cancel_job = awaited(Scheduler.cancel_job)
    pause_job = awaited(Scheduler.pause_job)
    resume_job = awaited(Scheduler.resume_job)
    retry_job = awaited(Scheduler.retry_job)
    retry_jobs = awaited(Scheduler.retry_jobs)
    cancel_jobs = awaited(Scheduler.cancel_jobs)
    reschedule_job = awaited(Scheduler.reschedule_job)
    set_priority = awaited(Scheduler.set_priority)
    replace = awaited(Scheduler.replace)
    explain = awaited(Scheduler.explain)
    signal = awaited(Scheduler.signal)
    # Its overloads cannot be carried over, so that a type checker knows only what it returns.
    schedule_recurring = awaited(
        cast("Callable[Concatenate[Scheduler, ...], Schedule]", Scheduler.schedule_recurring)
    )

    # --- run ---

    health = awaited(Scheduler.health)
    migrate = awaited(Scheduler.migrate)
    start = awaited(Scheduler.start)
    stop = awaited(Scheduler.stop)
    close = awaited(Scheduler.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()
