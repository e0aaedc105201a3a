"""How a run's end is written: everything that commits with it, under the fence of its claim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from ratchet.model.alerts import ALERT_WINDOW
from ratchet.model.claim import JobClaim
from ratchet.model.decision import (
    Completion,
    CompletionAnswer,
    CountCrash,
    ErrorRecord,
    Fail,
    HandBack,
    Reschedule,
    Retry,
    Succeed,
)
from ratchet.model.runs import run_outcome
from ratchet.model.status import JobStatus
from ratchet.stores.memory.changes import Effects, change, requeue, stream_after_crash
from ratchet.stores.memory.finish import EndedJob, end, fail, insert_failure_callback, settle_edges
from ratchet.stores.memory.insertion import InsertCall
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import record_run
from ratchet.stores.memory.state import State


def held_by(state: State, claim: JobClaim) -> Row | None:
    """The job, if *claim* holds it: the fence."""
    row = state.jobs.get(claim.job_id)
    if row is None or row.status is not JobStatus.RUNNING:
        return None
    return row if row.claim_id == claim.claim_id else None  # fence


class _Won(NamedTuple):
    """A completion whose claim held its job: what that brought, and whether an alert was recorded (None: no end)."""

    job_id: UUID
    effects: Effects
    alerted: bool | None

    def answer(self) -> CompletionAnswer:
        effects = self.effects
        return CompletionAnswer(
            job_id=self.job_id,
            won=True,
            alerted=bool(self.alerted),
            dead_lettered=self.alerted is not None,
            released=tuple(effects.released),
            canceled=tuple(effects.canceled),
            finished_batches=tuple(effects.finished_batches),
        )


def apply_completions(
    state: State, completions: Sequence[Completion], now: datetime, alert_window: timedelta
) -> list[CompletionAnswer]:
    """
    Completions, each whole, where its claim still holds its job; the answers in order.

    First all the ends, then what they mean for others. A job that is named again finds what was done before.
    """
    answers: dict[int, CompletionAnswer] = {}
    waiting = list(enumerate(completions))
    while waiting:
        first: dict[UUID, int] = {}
        for position, one in waiting:
            first.setdefault(one.claim.job_id, position)
        now_on = [(position, one) for position, one in waiting if first[one.claim.job_id] == position]
        now_on.sort(
            key=lambda item: item[1].claim.job_id.int
        )  # of several that finish a batch the last by id
        waiting = [(position, one) for position, one in waiting if first[one.claim.job_id] != position]
        written = [(position, one, _apply(state, one, now, alert_window)) for position, one in now_on]
        ended = [
            EndedJob(won.job_id, won.effects, {verdict.child_id: verdict for verdict in one.verdicts})
            for _, one, won in written
            if isinstance(won, _Won)
        ]
        settle_edges(state, [one for one in ended if _has_ended(state, one.job_id)], now=now)
        answers.update(
            (position, won.answer() if isinstance(won, _Won) else won) for position, _, won in written
        )
    return [answers[position] for position in range(len(completions))]


def _has_ended(state: State, job_id: UUID) -> bool:
    row = state.jobs.get(job_id)
    return row is not None and row.ended_as is not None


def _apply(
    state: State, completion: Completion, now: datetime, alert_window: timedelta
) -> CompletionAnswer | _Won:
    """One completion, without what its end means for others; an answer where its claim is lost."""
    claim, decision = completion.claim, completion.decision
    row = held_by(state, claim)
    if row is None:
        replayed = _has_ended_so(state, completion)
        return CompletionAnswer(job_id=claim.job_id, won=replayed, replayed=replayed)
    _record(state, row, completion, now)
    if completion.state is not None:
        row = change(state, row, Effects(), now=now, state=completion.state)
    if completion.started_at is not None and not isinstance(decision, CountCrash):
        # what has started can no longer expire
        row = change(state, row, Effects(), now=now, started_at=completion.started_at, expiry_due_at=None)
    effects, alerted = Effects(), None
    match decision:
        case Succeed():
            _succeed(state, row, completion, decision, effects, now)
        case Fail():
            alerted = _fail(state, row, completion, decision, effects, now, alert_window)
        case CountCrash():
            alerted = count_crash(
                state,
                row,
                effects,
                detail=decision.detail,
                max_crashes=decision.max_crashes,
                now=now,
                alert_window=alert_window,
                still_running=completion.still_running,
                calls_back=completion.callback is None,
            )
        case Retry():
            requeue(
                state,
                row,
                effects,
                now=now,
                at=decision.at,
                still_running=completion.still_running,
                attempts=row.attempts + 1,
                error=decision.error.summary,
                error_type=decision.error.type,
            )
        case Reschedule():
            requeue(state, row, effects, now=now, at=decision.at, still_running=completion.still_running)
        case HandBack():
            requeue(state, row, effects, now=now, at=row.due_at, still_running=completion.still_running)
    if completion.callback is not None:
        InsertCall(state, effects, now=now).store([completion.callback])
    return _Won(claim.job_id, effects, alerted)


def _succeed(
    state: State, row: Row, completion: Completion, decision: Succeed, effects: Effects, now: datetime
) -> None:
    end(
        state,
        row,
        JobStatus.SUCCEEDED,
        effects,
        now=now,
        still_running=completion.still_running,
        attempts=row.attempts + 1,
        finished_at=completion.finished_at or now,
        error=None,
        error_type=None,
        result=decision.result,
        result_truncated=decision.truncated,
    )


def _fail(
    state: State,
    row: Row,
    completion: Completion,
    decision: Fail,
    effects: Effects,
    now: datetime,
    alert_window: timedelta,
) -> bool:
    return fail(
        state,
        row,
        effects,
        error=decision.error,
        reason=decision.reason,
        error_hash=decision.error_hash,
        alert_window=alert_window,
        now=now,
        still_running=completion.still_running,
        attempts=row.attempts + 1,
        finished_at=completion.finished_at or now,
    )


def count_crash(
    state: State,
    row: Row,
    effects: Effects,
    *,
    detail: str,
    max_crashes: int,
    now: datetime,
    alert_window: timedelta = ALERT_WINDOW,
    still_running: bool = False,
    calls_back: bool = True,
) -> bool | None:
    """
    Count one crash: the job goes back to the queue, or fails where the budget is used up. Dependants are not settled.

    None: the job was requeued. Otherwise whether an alert was recorded.
    """
    crashes = row.crashes + 1
    if crashes >= max_crashes:
        error, reason = ErrorRecord(message=detail, type="Crashed"), f"crashed {crashes} times"
        alerted = fail(
            state,
            row,
            effects,
            error=error,
            reason=reason,
            now=now,
            alert_window=alert_window,
            still_running=still_running,
            crashes=crashes,
            started_at=row.claimed_at,
        )
        if calls_back:
            insert_failure_callback(state, row, error, reason=reason, now=now)
        return alerted
    requeue(
        state,
        row,
        effects,
        now=now,
        at=row.due_at,
        still_running=still_running,
        crashes=crashes,
        expiry_due_at=None,
        **stream_after_crash(state, row, crashes),
    )
    return None


def _record(state: State, row: Row, completion: Completion, now: datetime) -> None:
    if completion.started_at is None and isinstance(completion.decision, HandBack):
        return  # it never started, so there was no run
    status, counted, error = run_outcome(completion.decision)
    record_run(
        state,
        row,
        status,
        now=now,
        counted=counted,
        started_at=completion.started_at,
        finished_at=completion.finished_at,
        error=error,
    )


def _has_ended_so(state: State, completion: Completion) -> bool:
    """
    True where an earlier try of this very completion has committed.

    The run's row may also have been written by the call that took the job away: a cancel, a rescue, or
    a node that left. Those rows say something else.
    """
    run = state.executions.get((completion.claim.job_id, completion.claim.claim_id))
    status, _, error = run_outcome(completion.decision)
    return run is not None and (run.status, run.error) == (status, None if error is None else error.summary)
