"""
Runs that a tracer follows. A node without a tracer does not come through here at all.

`TracedTask` tells the tracer that an attempt begins when its call is ready to be made, surrounds the call, and tells how it ended when
it is decided what follows: only then it is known whether there will be another attempt.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from ratchet.engine.meters import LOST, OUTCOME_OF
from ratchet.engine.run import Run, RunEnd
from ratchet.engine.task import JobTask, Prepared, TaskTools
from ratchet.model.callbacks import plain_target
from ratchet.model.decision import (
    BadCheckpoint,
    CountCrash,
    ErrorRecord,
    Fail,
    Outcome,
    Postponed,
    Raised,
    Retry,
    TimedOut,
    Unreadable,
    Unstorable,
)
from ratchet.model.errors import JobTimeout
from ratchet.model.status import JobType
from ratchet.model.traces import Trace, trace_of
from ratchet.spi.tracer import Attempt, AttemptEnd, RemoteScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ratchet.spi.tracer import TracedAttempt, Tracer

_NO_TRACE = Trace({}, linked=True)


class _Followed:
    """An attempt that is under way."""

    __slots__ = ("began_at", "code_ended_at", "traced")

    def __init__(self, traced: TracedAttempt) -> None:
        self.traced = traced
        self.began_at = time.time()
        self.code_ended_at: float | None = None


class TracedTask(JobTask):
    """A `JobTask` whose attempts a tracer follows."""

    def __init__(self, tools: TaskTools, tracer: Tracer) -> None:
        super().__init__(tools)
        self._tracer = tracer
        self._followed: dict[Run, _Followed] = {}  # until it is decided what follows from them

    def prepare(self, run: Run) -> Prepared | Outcome:
        """Steps 1 to 8. What could not even be called has failed like any attempt."""
        prepared = super().prepare(run)
        # One that was given up meanwhile has ended already, and nobody would end it again.
        if isinstance(prepared, Prepared | Raised | Unreadable) and not run.finished:
            # Here, where no interruption is raised into the thread.
            traced = self._tracer.attempt(_attempt(run))
            if traced is not None:
                self._followed[run] = _Followed(traced)
        return prepared

    def invoke(self, run: Run, call: Prepared) -> Outcome:
        """Step 9, surrounded."""
        with self.scope(run):
            outcome = super().invoke(run, call)
            self._code_ended(run)
        return outcome

    async def invoke_async(self, run: Run, call: Prepared) -> Outcome:
        """Step 9 on the event loop, surrounded."""
        with self.scope(run):
            outcome = await super().invoke_async(run, call)
            self._code_ended(run)
        return outcome

    def scope(self, run: Run) -> AbstractContextManager[object]:
        """What surrounds the call; it can be interrupted, what the tracer does before and after it cannot."""
        followed = self._followed.get(run)
        return nullcontext() if followed is None else run.around(followed.traced.entered())

    def remote_scopes(self, run: Run) -> Sequence[RemoteScope]:
        """What surrounds its code in another process."""
        followed = self._followed.get(run)
        return () if followed is None else followed.traced.remote()

    def decide(self, end: RunEnd) -> None:
        """Step 10, of which the tracer is told."""
        super().decide(end)
        followed = self._followed.pop(end.run, None)
        if followed is not None:
            followed.traced.ended(_end(end, followed))

    def _code_ended(self, run: Run) -> None:
        followed = self._followed.get(run)
        if followed is not None:
            followed.code_ended_at = time.time()


def _attempt(run: Run) -> Attempt:
    claim, body = run.job.claim, run.job.body
    trace = trace_of(body.params) or _NO_TRACE
    return Attempt(
        job_id=claim.job_id,
        target=plain_target(body.target),
        queue=body.queue,
        type=claim.type,
        attempt=claim.attempt,
        max_retries=claim.max_retries,
        node_id=claim.node_id,
        created_at=body.created_at,
        scheduled_at=claim.scheduled_at,
        root_id=body.root_id,
        carrier=trace.carrier,
        linked=trace.linked or not _is_first(run),
        parent_id=body.parent_id,
        batch_id=body.batch_id,
        schedule=body.schedule,
    )


def _is_first(run: Run) -> bool:
    """True for the first attempt of a job that was to start at once, or when the job before it has ended."""
    claim, body = run.job.claim, run.job.body
    if claim.attempts or claim.crashes or claim.type is JobType.RECURRING_RUN:
        return False
    # It was put off, or is run again by hand. One that follows another gets its time when that has ended.
    follows = body.parent_id is not None or claim.type is JobType.WORKFLOW_JOIN
    return follows or claim.scheduled_at <= body.created_at


def _end(end: RunEnd, followed: _Followed) -> AttemptEnd:
    at = followed.code_ended_at or time.time()
    error = _error(end)
    return AttemptEnd(
        outcome=OUTCOME_OF.get(type(end.decision), LOST),
        will_retry=isinstance(end.decision, Retry),
        at=at,
        took=max(0.0, at - followed.began_at),
        error=error,
        exception=None if error is None else _exception(end.outcome, error),
    )


def _error(end: RunEnd) -> ErrorRecord | None:
    """Why the attempt failed; None if it did not. To try again later is no failure, unless there is no later."""
    match end.decision:
        case Fail(error=error):
            return error
        case Retry(error=error):
            return None if isinstance(end.outcome, Postponed) else error
        case CountCrash(detail=detail):
            return ErrorRecord(message=detail, type="Crash")
    return None


def _exception(outcome: Outcome, error: ErrorRecord) -> BaseException | None:
    match outcome:
        case Raised(raised) | BadCheckpoint(raised) | Unreadable(raised) | Unstorable(raised):
            return raised
        case TimedOut():
            return JobTimeout(error.message)
    return None
