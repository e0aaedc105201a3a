"""
How jobs end, and what that means for others: edges are settled, dependants released, canceled or failed.

The dependants are settled generation by generation: first those of the jobs that a call ends, then those of the
jobs that ended because of that. So it does not depend on the order in which a call names its jobs which of
several parents is the cause of a job's end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.alerts import ALERT_WINDOW
from ratchet.model.callbacks import callback_spec, failure_facts
from ratchet.model.composition import EdgeState
from ratchet.model.decision import CanceledJob, ErrorRecord, Verdict
from ratchet.model.edge_outcome import CONDITION_FAILED, CONDITION_FAILED_REASON, EdgeOutcome, edge_outcome
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.stores.memory.changes import Effects, add_job, change, outgoing, release, tally
from ratchet.stores.memory.dead_letters import record_alert
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import leave_key, leave_run, record_run
from ratchet.stores.memory.state import State

NO_VERDICTS: Mapping[UUID, Verdict] = {}


class EndedJob(NamedTuple):
    """A job that has just ended, and where to note what follows from that."""

    job_id: UUID
    effects: Effects
    verdicts: Mapping[UUID, Verdict] = NO_VERDICTS


class _SettledEdge(NamedTuple):
    """An edge that was settled, and the end of a parent that settled it."""

    parent: EndedJob
    outcome: EdgeOutcome


def end(
    state: State,
    row: Row,
    status: JobStatus,
    effects: Effects,
    *,
    now: datetime,
    still_running: bool = False,
    **fields: Any,
) -> None:
    """End a job, without what depends on it."""
    leave_run(state, row, still_running=still_running)
    leave_key(state, row, still_running=still_running)
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
    """Cancel a job and all that depends on it. The code of a RUNNING one is still running for a while."""
    cancel_row(state, row, effects, reason=reason, now=now, superseded_by=superseded_by)
    settle_edges(state, [EndedJob(row.job_id, effects)], now=now)


def cancel_all(state: State, rows: Iterable[Row], *, reason: str, now: datetime) -> list[CanceledJob]:
    """Cancel jobs, each of them for this reason, and all that depends on them."""
    ended: list[EndedJob] = []
    for row in rows:
        ended.append(EndedJob(row.job_id, Effects()))
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
        still_running=running,
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
    still_running: bool = False,
    **fields: Any,
) -> bool:
    """End a job as a dead letter, without what depends on it; True where an alert was recorded."""
    end(
        state,
        row,
        JobStatus.FAILED,
        effects,
        now=now,
        still_running=still_running,
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


def insert_failure_callback(
    state: State, row: Row, error: ErrorRecord, *, reason: str, now: datetime
) -> None:
    """Store the ``on_failure`` callback, if there is one, of a job that was failed by the store and not by a worker."""
    spec = row.spec
    if spec.on_failure is None:
        return
    callback = callback_spec(
        callback_id=state.new_id(now),
        target=spec.on_failure,
        payload=failure_facts(error.message, error.type, reason, row.attempts),
        job_id=row.job_id,
        stream=row.stream,
        priority=spec.priority,
        params=spec.params,
        caller=spec.caller,
        now=now,
    )
    add_job(state, callback, now=now)


# --- dependants ---------------------------------------------------------------------------------


def settle_edges(state: State, ended: Sequence[EndedJob], *, now: datetime) -> None:
    """
    Jobs have ended: settle their open edges; release, cancel or fail their dependants, and so on below those.

    Canceled jobs are noted depth-first below each of them, though they are decided generation by generation.
    """
    below: dict[UUID, list[CanceledJob]] = {}
    generation: Sequence[EndedJob] = ended
    while generation:
        generation = _settle_generation(state, generation, below, now=now)
    for origin in ended:
        waiting = below.pop(origin.job_id, [])[::-1]
        while waiting:
            job = waiting.pop()
            origin.effects.canceled.append(job)
            waiting.extend(below.pop(job.job_id, [])[::-1])


def _settle_generation(
    state: State, ended: Sequence[EndedJob], below: dict[UUID, list[CanceledJob]], *, now: datetime
) -> list[EndedJob]:
    """Settle the edges of these jobs; the jobs that ended because of that."""
    settled: dict[UUID, list[_SettledEdge]] = {}
    for one in sorted(ended, key=lambda one: one.job_id.int):
        parent = state.jobs.get(one.job_id)
        if parent is None or parent.ended_as is None:
            continue
        for edge in outgoing(state, one.job_id):
            if edge.state is EdgeState.OPEN:
                outcome = edge_outcome(edge.kind, parent.ended_as, one.verdicts.get(edge.child_id))
                state.edges.put((edge.parent_id, edge.child_id), replace(edge, state=outcome.state))
                settled.setdefault(edge.child_id, []).append(_SettledEdge(one, outcome))
    following: list[EndedJob] = []
    for child_id, edges in settled.items():
        child = state.jobs.get(child_id)
        cause = None if child is None else _end_child(state, child, edges, now=now)
        if cause is not None:
            below.setdefault(cause.job_id, []).append(cause.effects.canceled.pop())
            following.append(EndedJob(child_id, cause.effects))
    return following


def _end_child(state: State, child: Row, edges: Sequence[_SettledEdge], *, now: datetime) -> EndedJob | None:
    """
    Release, cancel or fail a job that waits; the end that caused its own, None: it has not ended.

    Where several parents could be the cause at once, it is the one with the lowest id: mostly the one that was
    submitted first.
    """
    if child.status is not JobStatus.WAITING:
        return None
    for parent, outcome in edges:
        if outcome.error is not None:
            _fail_for_condition(state, child, outcome.error, parent.effects, now=now)
            return parent
    satisfied, still_open, needed = tally(state, child)
    broken = next((edge for edge in edges if edge.outcome.state is EdgeState.BROKEN), None)
    if satisfied + still_open < needed and broken is not None:
        parent, reason = broken.parent, broken.outcome.reason
        cancel_row(state, child, parent.effects, reason=reason, now=now, canceled_by=parent.job_id)
        return parent
    last = next((edge for edge in reversed(edges) if edge.outcome.state is EdgeState.SATISFIED), edges[0])
    release(state, child, last.parent.effects, now=now)
    return None


def _fail_for_condition(
    state: State, child: Row, error: ErrorRecord, effects: Effects, *, now: datetime
) -> None:
    alerted = fail(state, child, effects, error=error, reason=CONDITION_FAILED_REASON, now=now)
    effects.canceled.append(
        CanceledJob(
            job_id=child.job_id,
            target=child.spec.target,
            previous=child.status,
            reason=CONDITION_FAILED,
            status=JobStatus.FAILED,
            alerted=alerted,
        )
    )
    insert_failure_callback(state, child, error, reason=CONDITION_FAILED_REASON, now=now)
