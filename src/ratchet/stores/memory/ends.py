"""Ends of jobs, and what they bring: edges settled, dependants released, canceled or failed, depth-first."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.composition import Edge, EdgeKind, EdgeState
from ratchet.model.decision import CanceledJob, ErrorRecord, Verdict, VerdictKind
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.stores.memory.callbacks import insert_failure_callback
from ratchet.stores.memory.changes import Effects, change, outgoing, release, tally
from ratchet.stores.memory.dead_letters import ALERT_WINDOW, record_alert
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import leave_key, leave_run, record_run
from ratchet.stores.memory.state import State

NO_VERDICTS: Mapping[UUID, Verdict] = {}


def end(
    state: State,
    row: Row,
    status: JobStatus,
    effects: Effects,
    *,
    now: datetime,
    lingers: bool = False,
    verdicts: Mapping[UUID, Verdict] = NO_VERDICTS,
    **fields: Any,
) -> None:
    """End a job, and settle what depends on it."""
    _leave(state, row, status, effects, now=now, lingers=lingers, **fields)
    settle_edges(state, row.job_id, effects, now=now, verdicts=verdicts)


def _leave(
    state: State,
    row: Row,
    status: JobStatus,
    effects: Effects,
    *,
    now: datetime,
    lingers: bool,
    **fields: Any,
) -> None:
    leave_run(state, row, lingers=lingers)
    leave_key(state, row, lingers=lingers)
    ended = {
        "status": status,
        "finished_at": now,
        "claim_id": None,
        "claimed_at": None,
        "held_claim_id": None,
        "held_until": None,
        "scheduled_at": row.due_at,
        "expiry_due_at": None,
        "signal_due_at": None,
        "paused_from": None,
    }
    change(state, row, effects, now=now, **(ended | fields))


def cancel(
    state: State, row: Row, effects: Effects, *, reason: str, now: datetime, superseded_by: UUID | None = None
) -> None:
    """Cancel a job and, depth-first, all that depends on it. The code of a RUNNING one goes on for a while."""
    cancel_row(state, row, effects, reason=reason, now=now, superseded_by=superseded_by)
    settle_edges(state, row.job_id, effects, now=now)


def cancel_row(
    state: State,
    row: Row,
    effects: Effects,
    *,
    reason: str,
    now: datetime,
    canceled_by: UUID | None = None,
    superseded_by: UUID | None = None,
) -> None:
    """Cancel one job, without what depends on it."""
    running = row.status is JobStatus.RUNNING
    if running:
        record_run(
            state,
            row,
            ExecutionStatus.CANCELED,
            now=now,
            counted=False,
            started_at=row.claimed_at,
            detail=reason,
        )
    effects.canceled.append(
        CanceledJob(
            job_id=row.job_id,
            target=row.spec.target,
            previous=row.status,
            reason=reason,
            claim_id=row.claim_id if running else None,
            node_id=row.node_id if running else None,
        )
    )
    _leave(
        state,
        row,
        JobStatus.CANCELED,
        effects,
        now=now,
        lingers=running,
        started_at=row.claimed_at if running else row.started_at,
        canceled_reason=reason,
        canceled_by=canceled_by,
        superseded_by=superseded_by,
    )


def fail(
    state: State,
    row: Row,
    effects: Effects,
    *,
    error: ErrorRecord,
    reason: str,
    now: datetime,
    error_hash: str | None = None,
    alert_window: timedelta = ALERT_WINDOW,
    lingers: bool = False,
    verdicts: Mapping[UUID, Verdict] = NO_VERDICTS,
    **fields: Any,
) -> bool:
    """End a job as a dead letter, with all that depends on it; True where an alert was recorded."""
    alerted = _fail_row(
        state,
        row,
        effects,
        error=error,
        reason=reason,
        now=now,
        error_hash=error_hash,
        alert_window=alert_window,
        lingers=lingers,
        **fields,
    )
    settle_edges(state, row.job_id, effects, now=now, verdicts=verdicts)
    return alerted


def _fail_row(
    state: State,
    row: Row,
    effects: Effects,
    *,
    error: ErrorRecord,
    reason: str,
    now: datetime,
    error_hash: str | None = None,
    alert_window: timedelta = ALERT_WINDOW,
    lingers: bool = False,
    **fields: Any,
) -> bool:
    _leave(
        state,
        row,
        JobStatus.FAILED,
        effects,
        now=now,
        lingers=lingers,
        **(
            {
                "error": error.summary,
                "error_type": error.type,
                "dead_letter_reason": reason,
                "dead_lettered_at": now,
            }
            | fields
        ),
    )
    return record_alert(state, row, error, reason=reason, error_hash=error_hash, window=alert_window, now=now)


# --- dependants ---------------------------------------------------------------------------------


def settle_edges(
    state: State,
    job_id: UUID,
    effects: Effects,
    *,
    now: datetime,
    verdicts: Mapping[UUID, Verdict] = NO_VERDICTS,
) -> None:
    """A job has ended: settle its open edges; release, cancel or fail its dependants, depth-first."""
    waiting = outgoing(state, job_id)[::-1]
    while waiting:
        edge = waiting.pop()
        verdict = verdicts.get(edge.child_id) if edge.parent_id == job_id else None
        if settle_edge(state, edge, verdict, effects, now=now):
            waiting.extend(outgoing(state, edge.child_id)[::-1])


def settle_edge(
    state: State, edge: Edge, verdict: Verdict | None, effects: Effects, *, now: datetime
) -> bool:
    """Settle one edge of an ended parent; True where that ended the child."""
    parent = state.jobs.get(edge.parent_id)
    if parent is None or parent.ended_as is None or edge.state is not EdgeState.OPEN:
        return False
    settled, reason = _outcome(edge, parent.ended_as, verdict)
    state.edges.put((edge.parent_id, edge.child_id), replace(edge, state=settled))
    child = state.jobs.get(edge.child_id)
    if child is None or child.status is not JobStatus.WAITING:
        return False
    if verdict is not None and verdict.kind is VerdictKind.ERROR and edge.kind is EdgeKind.CONDITION:
        _fail_for_condition(state, child, verdict, effects, now=now)
        return True
    satisfied, still_open, needed = tally(state, child)
    if satisfied + still_open < needed:
        cancel_row(state, child, effects, reason=reason, now=now, canceled_by=parent.job_id)
        return True
    release(state, child, effects, now=now)
    return False


def _outcome(edge: Edge, ended_as: JobStatus, verdict: Verdict | None) -> tuple[EdgeState, str]:
    """What becomes of an edge, and why its child would be canceled."""
    if edge.kind is EdgeKind.END:
        return EdgeState.SATISFIED, ""
    if ended_as is JobStatus.CANCELED:
        return EdgeState.BROKEN, "parent_canceled"
    if edge.kind is EdgeKind.CONDITION:
        taken = verdict is not None and verdict.kind is VerdictKind.TAKEN
    else:
        taken = (edge.kind is EdgeKind.SUCCESS) is (ended_as is JobStatus.SUCCEEDED)
    if taken:
        return EdgeState.SATISFIED, ""
    failed = edge.kind is EdgeKind.SUCCESS and ended_as is JobStatus.FAILED
    return EdgeState.BROKEN, "parent_failed" if failed else "not_taken"


def _fail_for_condition(
    state: State, child: Row, verdict: Verdict, effects: Effects, *, now: datetime
) -> None:
    raised, reason = verdict.error, "condition failed"
    error = ErrorRecord(
        message="the condition of this branch failed" if raised is None else raised.message,
        type="ConditionFailed",
        traceback=None if raised is None else raised.traceback,
    )
    effects.canceled.append(
        CanceledJob(
            job_id=child.job_id,
            target=child.spec.target,
            previous=child.status,
            reason="condition_failed",
            status=JobStatus.FAILED,
        )
    )
    _fail_row(
        state,
        child,
        effects,
        error=error,
        reason=reason,
        now=now,
    )
    insert_failure_callback(state, child, error, reason=reason, now=now)
