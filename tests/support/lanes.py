"""Lanes without a store: jobs that call one function, and a completer that remembers what became of them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.resilience import NoOpResilience
from ratchet.defaults.retry_policy import DefaultRetryPolicy
from ratchet.engine.decide import Decider
from ratchet.engine.lanes.event_loop import EventLoopLane
from ratchet.engine.lanes.processes import ProcessLane
from ratchet.engine.lanes.threads import ThreadLane
from ratchet.engine.run import Run
from ratchet.engine.task import JobTask, TaskTools
from ratchet.model.claim import ClaimedJob, JobBody, JobClaim
from ratchet.model.clock import SystemClock
from ratchet.model.decision import Outcome
from ratchet.model.identifiers import new_id
from ratchet.model.payload import ParameterTypes, encode
from ratchet.model.status import JobType, Lane, Priority
from ratchet.spi.invocation_resolver import Invocation
from ratchet.spi.store import JobStore


class OneFunction:
    """Resolves every target to one function."""

    def __init__(self, function: Callable[..., Any], *, is_coroutine: bool = False) -> None:
        self._invocation = Invocation(
            target="stand:function",
            function=function,
            is_coroutine=is_coroutine,
            lane=Lane.THREAD,
            parameters=ParameterTypes.of(function),
        )

    def resolve(self, target: str) -> Invocation:
        return self._invocation

    def describe(self, *_: Any) -> Any:
        raise AssertionError("nothing is submitted here")


class Remembering:
    """A completer that keeps what it is given."""

    def __init__(self) -> None:
        self.outcomes: dict[UUID, Outcome] = {}
        self.count = 0
        self._changed = threading.Condition()

    def put(self, run: Run, outcome: Outcome) -> None:
        with self._changed:
            self.outcomes[run.job_id] = outcome
            self.count += 1
            self._changed.notify_all()

    def wait_for(self, count: int, timeout: float = 10.0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, timeout), (
                f"only {self.count} of {count} ended"
            )


def tools_for(function: Callable[..., Any], *, is_coroutine: bool = False) -> TaskTools:
    """What runs share, without a store."""
    return TaskTools(
        store=cast(JobStore, object()),
        clock=SystemClock(),
        ids=new_id,
        decider=Decider(retry_policy=DefaultRetryPolicy(), sanitizer=DefaultErrorSanitizer(), max_crashes=3),
        invocations=OneFunction(function, is_coroutine=is_coroutine),
        instances=DefaultInstanceResolver(),
        sanitizer=DefaultErrorSanitizer(),
        resilience=NoOpResilience(),
    )


def task_for(tools: TaskTools) -> JobTask:
    return JobTask(tools)


def claimed(*, timeout: timedelta | None = None, args: tuple[Any, ...] = (), **overrides: Any) -> ClaimedJob:
    """A claimed job, as a store would return it."""
    job_id = new_id()
    now = datetime.now(UTC)
    claim = {
        "job_id": job_id,
        "claim_id": new_id(),
        "node_id": "node",
        "stream_id": 1,
        "type": JobType.SINGLE,
        "priority": Priority.NORMAL,
        "scheduled_at": now,
        "claimed_at": now,
        "attempts": 0,
        "crashes": 0,
        "max_retries": 0,
        "timeout": timeout,
    }
    body = {
        "job_id": job_id,
        "target": "stand:function",
        "payload": encode(args, {}),
        "created_at": now,
        "root_id": job_id,
        "queue": "default",
    }
    for name, value in overrides.items():
        (claim if name in claim else body)[name] = value
    return ClaimedJob(claim=JobClaim(**cast(Any, claim)), body=JobBody(**cast(Any, body)))


def run_of(tools: TaskTools, **overrides: Any) -> Run:
    """A run that a lane can accept."""
    return Run(claimed(**overrides), tools, tools.clock.monotonic())


def thread_lane(function: Any, slots: int = 4, **more: Any) -> tuple[ThreadLane, Remembering, Any]:
    """A lane of threads that is running, its completer, and what its runs share."""
    return _started(ThreadLane, tools_for(function), slots, **more)


def loop_lane(function: Any, slots: int = 50) -> tuple[EventLoopLane, Remembering, Any]:
    """The same with an event loop."""
    return _started(EventLoopLane, tools_for(function, is_coroutine=True), slots)


def process_lane(function: Any, slots: int = 1) -> tuple[ProcessLane, Remembering, Any]:
    """The same with processes."""
    return _started(ProcessLane, tools_for(function), slots)


def _started(kind: Any, tools: TaskTools, slots: int, **more: Any) -> tuple[Any, Remembering, TaskTools]:
    completer = Remembering()
    lane = kind(
        slots=slots,
        task=task_for(tools),
        completer=completer,
        clock=tools.clock,
        executor=DefaultExecutorProvider(),
        **more,
    )
    lane.start()
    return lane, completer, tools
