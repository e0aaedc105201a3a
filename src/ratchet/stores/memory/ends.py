"""
Ends of jobs, and what they bring: edges settled, dependants released, canceled or failed.

Level by level: first all that waits for the jobs that a call ends, then what waits for those that ended thereby. So
it does not depend on the order in which a call names its jobs which of several parents is a job's cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
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


class Ended(NamedTuple):
    """A job that has just ended, and where is noted what that brings."""

    job_id: UUID
    effects: Effects
    verdicts: Mapping[UUID, Verdict] = NO_VERDICTS


class _Arrival(NamedTuple):
    """What one edge says to its child: from which end, satisfied or broken, and why the child would be canceled."""

    parent: Ended
    state: EdgeState
    reason: str
    raised: Verdict | None  # its condition's, where that failed


def end(
    state: State,
    row: Row,
    status: JobStatus,
    effects: Effects,
    *,
    now: datetime,
    lingers: bool = False,
    **fields: Any,
) -> None:
    """End a job, without what depends on it."""
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
    """Cancel a job and all that depends on it. The code of a RUNNING one goes on for a while."""
    cancel_row(state, row, effects, reason=reason, now=now, superseded_by=superseded_by)
    settle_edges(state, [Ended(row.job_id, effects)], now=now)


def cancel_all(state: State, rows: Iterable[Row], *, reason: str, now: datetime) -> list[CanceledJob]:
    """Cancel jobs, each for this reason and not for another of them, and all that depends on them."""
    ended: list[Ended] = []
    for row in rows:
        ended.append(Ended(row.job_id, Effects()))
        cancel_row(state, row, ended[-1].effects, reason=reason, now=now)
    settle_edges(state, ended, now=now)
    return [job for one in ended for job in one.effects.canceled]


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
    end(
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
    **fields: Any,
) -> bool:
    """End a job as a dead letter, without what depends on it; True where an alert was recorded."""
    end(
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


def settle_edges(state: State, ended: Sequence[Ended], *, now: datetime) -> None:
    """
    Jobs have ended: settle their open edges; release, cancel or fail their dependants, and so on below those.

    What was canceled is noted depth-first below each of them, though it is decided level by level.
    """
    below: dict[UUID, list[CanceledJob]] = {}
    level: Sequence[Ended] = ended
    while level:
        level = _settle_level(state, level, below, now=now)
    for origin in ended:
        waiting = below.pop(origin.job_id, [])[::-1]
        while waiting:
            job = waiting.pop()
            origin.effects.canceled.append(job)
            waiting.extend(below.pop(job.job_id, [])[::-1])


def _settle_level(
    state: State, ended: Sequence[Ended], below: dict[UUID, list[CanceledJob]], *, now: datetime
) -> list[Ended]:
    """Settle the edges of these jobs; the jobs that ended thereby."""
    arrivals: dict[UUID, list[_Arrival]] = {}
    for one in sorted(ended, key=lambda one: one.job_id.int):
        parent = state.jobs.get(one.job_id)
        if parent is None or parent.ended_as is None:
            continue
        for edge in outgoing(state, one.job_id):
            if edge.state is EdgeState.OPEN:
                arrival = _arrival(one, edge, parent.ended_as)
                state.edges.put((edge.parent_id, edge.child_id), replace(edge, state=arrival.state))
                arrivals.setdefault(edge.child_id, []).append(arrival)
    following: list[Ended] = []
    for child_id, seen in arrivals.items():
        child = state.jobs.get(child_id)
        cause = None if child is None else _end_child(state, child, seen, now=now)
        if cause is not None:
            below.setdefault(cause.job_id, []).append(cause.effects.canceled.pop())
            following.append(Ended(child_id, cause.effects))
    return following


def _end_child(state: State, child: Row, arrivals: Sequence[_Arrival], *, now: datetime) -> Ended | None:
    """
    Release, cancel or fail a job that waits; the end that caused its own, None: it has not ended.

    Of several causes in one step the parent with the lowest id counts, mostly the one that was submitted first.
    """
    if child.status is not JobStatus.WAITING:
        return None
    for arrival in arrivals:
        if arrival.raised is not None:
            _fail_for_condition(state, child, arrival.raised, arrival.parent.effects, now=now)
            return arrival.parent
    satisfied, still_open, needed = tally(state, child)
    cause = next((arrival for arrival in arrivals if arrival.state is EdgeState.BROKEN), None)
    if satisfied + still_open < needed and cause is not None:
        parent = cause.parent
        cancel_row(state, child, parent.effects, reason=cause.reason, now=now, canceled_by=parent.job_id)
        return parent
    last = next((one for one in reversed(arrivals) if one.state is EdgeState.SATISFIED), arrivals[0])
    release(state, child, last.parent.effects, now=now)
    return None


def _arrival(parent: Ended, edge: Edge, ended_as: JobStatus) -> _Arrival:
    verdict = parent.verdicts.get(edge.child_id)
    settled, reason = _outcome(edge, ended_as, verdict)
    failed = verdict is not None and verdict.kind is VerdictKind.ERROR and edge.kind is EdgeKind.CONDITION
    return _Arrival(parent, settled, reason, verdict if failed else None)


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
    fail(
        state,
        child,
        effects,
        error=error,
        reason=reason,
        now=now,
    )
    insert_failure_callback(state, child, error, reason=reason, now=now)
