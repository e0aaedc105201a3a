"""
What a change of one job brings with it: keys, permits, batch counters, edges, dependants, alerts.

Every change of a job's status goes through `change`, so that the counters of its batch cannot be
forgotten; every end through `end`, `cancel_row` or `fail`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.claim import SUSPECT_AFTER
from ratchet.model.composition import BatchRecord, Edge, EdgeKind, EdgeState
from ratchet.model.decision import CanceledJob, ErrorRecord, Verdict, VerdictKind
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import Alert, Execution, ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.stores.memory.rows import Cost, Reservation, Row
from ratchet.stores.memory.state import State

#: How long a retry waits for the code of the run before it, which was told to stop and has not.
LINGER_LIMIT = timedelta(seconds=60)
#: Repeats of an alert within this time are counted, not recorded.
ALERT_WINDOW = timedelta(hours=1)

NO_VERDICTS: Mapping[UUID, Verdict] = {}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Effects:
    """What a call changed besides the job it was about, in order."""

    def __init__(self) -> None:
        self.released: list[UUID] = []
        self.canceled: list[CanceledJob] = []
        self.finished_batches: list[UUID] = []


# --- one job ------------------------------------------------------------------------------------


def change(state: State, row: Row, effects: Effects, *, now: datetime, **fields: Any) -> Row:
    """Replace fields of a job; its batch counts what that means."""
    after = replace(row, **fields)
    state.jobs.put(after.job_id, after)
    _count_child(state, row, after, effects, now)
    return after


def enqueue(state: State, row: Row, effects: Effects, *, now: datetime, at: datetime, **fields: Any) -> Row:
    """Make a job PENDING, due *at*, under nobody's claim."""
    blank = {"claim_id": None, "claimed_at": None, "node_id": None, "held_claim_id": None, "held_until": None}
    after = change(
        state, row, effects, now=now, **(blank | {"status": JobStatus.PENDING, "scheduled_at": at} | fields)
    )
    if after.due_at < now:
        state.backdated(after.stream_id)
    return after


def requeue(
    state: State, row: Row, effects: Effects, *, now: datetime, at: datetime, lingers: bool = False, **fields: Any
) -> Row:
    """RUNNING to PENDING. Where the code of the run goes on, the job waits for it."""
    leave_run(state, row, lingers=lingers)
    if lingers:
        fields |= {"held_claim_id": row.claim_id, "held_until": now + LINGER_LIMIT}
    return enqueue(state, row, effects, now=now, at=at, **fields)


def stream_after_crash(state: State, row: Row, crashes: int) -> dict[str, Any]:
    """The stream a job goes back to after a crash: from the second on it is a suspect."""
    if crashes < SUSPECT_AFTER or row.stream.suspect:
        return {}
    stream = replace(row.stream, suspect=True)
    return {"stream": stream, "stream_id": state.stream(stream)}


def release(state: State, row: Row, effects: Effects, *, now: datetime) -> None:
    """WAITING to PENDING, if there is nothing left to wait for."""
    if row.status is JobStatus.WAITING and is_ready(state, row):
        enqueue(state, row, effects, now=now, at=max(now, row.scheduled_at), signal_due_at=None)
        effects.released.append(row.job_id)


def is_ready(state: State, row: Row) -> bool:
    """True where its edges, its signal and its batch let a WAITING job go."""
    if row.awaits_signal:
        return False
    if any(state.batches[batch_id].finished_at is None for batch_id in state.batches_of.of(row.job_id)):
        return False
    satisfied, _, needed = tally(state, row)
    return satisfied >= needed


def tally(state: State, row: Row) -> tuple[int, int, int]:
    """Of a job's incoming edges: how many are satisfied, how many open, how many it needs."""
    edges = [state.edges[key] for key in state.edges_in.of(row.job_id)]
    satisfied = sum(edge.state is EdgeState.SATISFIED for edge in edges)
    still_open = sum(edge.state is EdgeState.OPEN for edge in edges)
    return satisfied, still_open, max(row.needs, 1) if edges else 0


def outgoing(state: State, parent_id: UUID) -> list[Edge]:
    """The edges out of a job, in definition order."""
    edges = [state.edges[key] for key in state.edges_out.of(parent_id)]
    return sorted(edges, key=lambda edge: (edge.position, edge.child_id.int))


# --- keys, permits, runs ------------------------------------------------------------------------


def reserve(state: State, row: Row, *, now: datetime) -> None:
    """Take the job's business key, or raise `BusinessKeyBusy`."""
    key = row.spec.business_key
    if key is None:
        return
    held = state.reservations.get(key)
    if held is not None and held.job_id != row.job_id:
        raise BusinessKeyBusy(key, held.job_id)
    state.reservations.put(key, Reservation(job_id=row.job_id, reserved_at=now))


def leave_key(state: State, row: Row, *, lingers: bool) -> None:
    """Free the job's business key; where the code of its run goes on, it stays taken until that ends."""
    key = row.spec.business_key
    if key is None:
        return
    held = state.reservations.get(key)
    if held is None or held.job_id != row.job_id or held.claim_id is not None:
        return
    if lingers:
        state.reservations.put(key, replace(held, claim_id=row.claim_id, node_id=row.node_id))
    else:
        state.reservations.remove(key)


def leave_run(state: State, row: Row, *, lingers: bool) -> None:
    """The job's run is over on record: free its permits, or remember that its code goes on."""
    if row.claim_id is None:
        return
    if lingers:
        state.lingering.put((row.job_id, row.claim_id), row.node_id or "")
    else:
        free_permits(state, row.job_id, row.claim_id)


def free_permits(state: State, job_id: UUID, claim_id: UUID) -> int:
    """Give back what a run holds of resources; how many permits that were."""
    row = state.jobs.get(job_id)
    names = state.permits_of.groups() if row is None else resources_of(row)
    return sum(state.permits.remove((name, job_id, claim_id)) is not None for name in names)


def resources_of(row: Row) -> list[str]:
    """The resources of which each run of the job takes a permit."""
    names = dict.fromkeys(name for name in (row.stream.resource, row.stream.limit_key) if name is not None)
    return list(names)


def settle_run(state: State, job_id: UUID, claim_id: UUID, effects: Effects, *, now: datetime) -> None:
    """The code of an ended run has really ended: free what waited for that."""
    if state.lingering.remove((job_id, claim_id)) is None:
        return
    free_permits(state, job_id, claim_id)
    row = state.jobs.get(job_id)
    for key, held in _reservations_of(state, row, claim_id):
        if held.job_id == job_id and held.claim_id == claim_id:
            state.reservations.remove(key)
    if row is not None and row.held_claim_id == claim_id:
        after = change(state, row, effects, now=now, held_claim_id=None, held_until=None)
        if after.due_at < now:
            state.backdated(after.stream_id)


def _reservations_of(state: State, row: Row | None, claim_id: UUID) -> list[tuple[str, Reservation]]:
    if row is None:  # it was deleted meanwhile: only the reservation itself still knows the key
        return [(key, held) for key, held in state.reservations.items() if held.claim_id == claim_id]
    key = row.spec.business_key
    held = None if key is None else state.reservations.get(key)
    return [] if key is None or held is None else [(key, held)]


def record_run(
    state: State,
    row: Row,
    status: str,
    *,
    now: datetime,
    counted: bool,
    started_at: datetime | None,
    finished_at: datetime | None = None,
    error: ErrorRecord | None = None,
    detail: str | None = None,
) -> None:
    """Write the execution row of the job's current run."""
    if row.claim_id is None:
        return
    finished = finished_at or now
    duration = None if started_at is None else max(finished - started_at, timedelta())
    state.executions.put(
        (row.job_id, row.claim_id),
        Execution(
            job_id=row.job_id,
            claim_id=row.claim_id,
            attempt=row.attempts + 1,
            node_id=row.node_id or "",
            started_at=started_at,
            finished_at=finished,
            duration=duration,
            queue_wait=None if started_at is None else max(started_at - row.due_at, timedelta()),
            status=status,
            error=error.summary if error is not None else detail,
            error_type=error.type if error is not None else None,
            traceback=error.traceback if error is not None else None,
            counted=counted,
        ),
    )
    if counted and row.spec.batch_id is not None and duration is not None:
        _add_cost(state, row.spec.batch_id, started_at, duration)


def _add_cost(state: State, batch_id: UUID, started_at: datetime | None, duration: timedelta) -> None:
    cost = state.costs.get(batch_id) or Cost()
    starts = [start for start in (cost.started_at, started_at) if start is not None]
    state.costs.put(
        batch_id,
        Cost(runs=cost.runs + 1, run_time=cost.run_time + duration, started_at=min(starts, default=None)),
    )


# --- ends ---------------------------------------------------------------------------------------


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
    state: State, row: Row, status: JobStatus, effects: Effects, *, now: datetime, lingers: bool, **fields: Any
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
            state, row, ExecutionStatus.CANCELED, now=now, counted=False, started_at=row.claimed_at, detail=reason
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
    return _alert(state, row, error, reason, error_hash or hash_of(error), alert_window, now)


def hash_of(error: ErrorRecord) -> str:
    """What makes two errors the same error, for those that arise in the store."""
    return hashlib.sha256(f"{error.type}: {error.message}".encode()).hexdigest()


def _alert(
    state: State,
    row: Row,
    error: ErrorRecord,
    reason: str,
    error_hash: str,
    window: timedelta,
    now: datetime,
) -> bool:
    same = [state.alerts[key] for key in state.alerts_of.of(row.job_id)]
    same = [alert for alert in same if alert.error_hash == error_hash and alert.created_at > now - window]
    if same:
        latest = max(same, key=lambda alert: (alert.created_at, alert.alert_id.int))
        state.alerts.put(latest.alert_id, replace(latest, suppressed=latest.suppressed + 1))
        return False
    alert_id = _alert_id(now, state.next_serial())
    state.alerts.put(
        alert_id,
        Alert(
            alert_id=alert_id,
            job_id=row.job_id,
            target=row.spec.target,
            error_hash=error_hash,
            error=error.summary,
            reason=reason,
            created_at=now,
        ),
    )
    return True


def _alert_id(now: datetime, serial: int) -> UUID:
    # a UUIDv7 without randomness: the store must do the same thing twice when it is asked twice
    milliseconds = (now - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=milliseconds << 80 | 0x7 << 76 | 0b10 << 62 | serial)


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


def settle_edge(state: State, edge: Edge, verdict: Verdict | None, effects: Effects, *, now: datetime) -> bool:
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


def _fail_for_condition(state: State, child: Row, verdict: Verdict, effects: Effects, *, now: datetime) -> None:
    error = verdict.error or ErrorRecord(message="the condition of this branch failed", type="ConditionFailed")
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
        error=ErrorRecord(message=error.message, type="ConditionFailed", traceback=error.traceback),
        reason="condition_failed",
        now=now,
    )


def revive(state: State, job_id: UUID, effects: Effects, *, now: datetime) -> None:
    """
    A job that had ended will end again: open what its end broke, and let its victims wait again.

    A dependant stays CANCELED where it still cannot be released (another parent stands against
    it), or where another live job has taken its business key since.
    """
    revived = {job_id}
    reopen = outgoing(state, job_id)[::-1]
    while reopen:
        edge = reopen.pop()
        if edge.state is EdgeState.BROKEN:
            state.edges.put((edge.parent_id, edge.child_id), replace(edge, state=EdgeState.OPEN))
        child = state.jobs.get(edge.child_id)
        if child is None or child.canceled_by not in revived or not _can_wait_again(state, child):
            continue
        reserve(state, child, now=now)
        wait_again(state, child, effects, now=now)
        revived.add(child.job_id)
        reopen.extend(outgoing(state, child.job_id)[::-1])


def _can_wait_again(state: State, child: Row) -> bool:
    if child.status is not JobStatus.CANCELED or child.archived_at is not None:
        return False
    satisfied, still_open, needed = tally(state, child)
    key = child.spec.business_key
    held = None if key is None else state.reservations.get(key)
    return satisfied + still_open >= needed and (held is None or held.job_id == child.job_id)


def wait_again(state: State, row: Row, effects: Effects, *, now: datetime) -> None:
    """Back to WAITING, as if it had never been released."""
    signal = row.spec.signal
    change(
        state,
        row,
        effects,
        now=now,
        status=JobStatus.WAITING,
        finished_at=None,
        node_id=None,
        error=None,
        error_type=None,
        result=None,
        result_truncated=False,
        attempts=0,
        crashes=0,
        paused_from=None,
        canceled_reason=None,
        canceled_by=None,
        dead_letter_reason=None,
        dead_lettered_at=None,
        expiry_due_at=row.spec.expires_at if row.started_at is None else None,
        signal_due_at=signal.deadline if signal is not None and row.signal is None else None,
    )


# --- batches ------------------------------------------------------------------------------------

_COUNTERS = {JobStatus.SUCCEEDED: "completed", JobStatus.FAILED: "failed", JobStatus.CANCELED: "canceled"}


def _count_child(state: State, before: Row, after: Row, effects: Effects, now: datetime) -> None:
    was, is_now = before.ended_as, after.ended_as
    batch_id = after.spec.batch_id
    batch = None if batch_id is None or was is is_now else state.batches.get(batch_id)
    if batch is None or batch.parent_id == after.job_id:
        return
    if was is not None:
        batch = replace(batch, **{_COUNTERS[was]: getattr(batch, _COUNTERS[was]) - 1})
    if is_now is not None:
        batch = replace(batch, **{_COUNTERS[is_now]: getattr(batch, _COUNTERS[is_now]) + 1})
    state.batches.put(batch.batch_id, batch)
    if is_now is None and batch.finished_at is not None:
        _reopen_batch(state, batch, effects, now=now)
    else:
        finish_batch(state, batch, effects, now=now)


def is_complete(batch: BatchRecord) -> bool:
    """True where all the children a batch will ever have have ended."""
    return batch.sealed and batch.completed + batch.failed + batch.canceled >= batch.total


def finish_batch(state: State, batch: BatchRecord, effects: Effects, *, now: datetime) -> bool:
    """Release the parent of a complete batch; True where this call did."""
    if batch.finished_at is not None or not is_complete(batch):
        return False
    state.batches.put(batch.batch_id, replace(batch, finished_at=now))
    effects.finished_batches.append(batch.batch_id)
    parent = state.jobs.get(batch.parent_id)
    if parent is not None:
        release(state, parent, effects, now=now)
    return True


def _reopen_batch(state: State, batch: BatchRecord, effects: Effects, *, now: datetime) -> None:
    """
    A child of a finished batch runs again, so its parent waits again.

    Not a parent that is RUNNING (it has read the counters; its end stands) or was canceled.
    """
    state.batches.put(batch.batch_id, replace(batch, finished_at=None))
    parent = state.jobs.get(batch.parent_id)
    if parent is None or parent.archived_at is not None:
        return
    if parent.status in (JobStatus.RUNNING, JobStatus.CANCELED, JobStatus.WAITING):
        return
    if parent.ended_as is not None:
        reserve(state, parent, now=now)
        wait_again(state, parent, effects, now=now)
        revive(state, parent.job_id, effects, now=now)
    else:
        wait_again(state, parent, effects, now=now)
