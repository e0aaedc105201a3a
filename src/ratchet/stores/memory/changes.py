"""
Changes of one job, and what follows for those that wait for it: its batch, and the jobs behind it.

Every change of a job's row goes through `change`, so that the counters of its batch cannot be forgotten.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.claim import SUSPECT_AFTER
from ratchet.model.composition import BatchRecord, Edge, EdgeState
from ratchet.model.decision import CanceledJob
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus, Priority
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import free_keys_and_permits, leave_run, reserve
from ratchet.stores.memory.state import State

#: How long a retry waits for the code of the earlier run, which was told to stop and is still running.
STILL_RUNNING_LIMIT = timedelta(seconds=60)

_COUNTERS = {JobStatus.SUCCEEDED: "completed", JobStatus.FAILED: "failed", JobStatus.CANCELED: "canceled"}


class Effects:
    """What a call changed besides the job it was about, in order."""

    def __init__(self) -> None:
        self.released: list[UUID] = []
        self.canceled: list[CanceledJob] = []
        self.finished_batches: list[UUID] = []


def add_job(state: State, spec: JobSpec, *, now: datetime) -> Row:
    """Store a new job and take its business key, or raise `BusinessKeyBusy`."""
    waits = spec.status is JobStatus.WAITING
    row = Row(
        spec=spec,
        serial=state.next_serial(),
        root_id=spec.root_id or spec.job_id,
        stream_id=state.stream(spec.stream),
        stream=spec.stream,
        status=spec.status,
        created_at=now,
        scheduled_at=spec.scheduled_at,
        needs=spec.needs,
        expiry_due_at=spec.expires_at,
        signal_due_at=spec.signal.deadline if waits and spec.signal is not None else None,
    )
    reserve(state, row, now=now)
    state.jobs.put(spec.job_id, row)
    if not waits and row.scheduled_at < now:
        state.backdated(row.stream_id)
    return row


def change(state: State, row: Row, effects: Effects, /, *, now: datetime, **fields: Any) -> Row:
    """Replace fields of a job; its batch counts what that means."""
    after = replace(row, **fields)
    state.jobs.put(after.job_id, after)
    _count_child(state, row, after, effects, now)
    return after


def prioritize(state: State, row: Row, priority: Priority, *, now: datetime) -> Row:
    """Give a job another priority: the one thing of what was submitted that changes later."""
    return change(state, row, Effects(), now=now, spec=replace(row.spec, priority=Priority(priority)))


def enqueue(state: State, row: Row, effects: Effects, *, now: datetime, at: datetime, **fields: Any) -> Row:
    """Make a job PENDING, due *at*, without a claim."""
    blank = {"claim_id": None, "claimed_at": None, "node_id": None, "held_claim_id": None, "held_until": None}
    after = change(
        state, row, effects, now=now, **(blank | {"status": JobStatus.PENDING, "scheduled_at": at} | fields)
    )
    if after.due_at < now:
        state.backdated(after.stream_id)
    return after


def requeue(
    state: State,
    row: Row,
    effects: Effects,
    *,
    now: datetime,
    at: datetime,
    still_running: bool = False,
    **fields: Any,
) -> Row:
    """RUNNING to PENDING. Where the code of the run is still running, the job waits for it."""
    leave_run(state, row, still_running=still_running)
    if still_running:
        fields |= {"held_claim_id": row.claim_id, "held_until": now + STILL_RUNNING_LIMIT}
    return enqueue(state, row, effects, now=now, at=at, **fields)


def stream_after_crash(state: State, row: Row, crashes: int) -> dict[str, Any]:
    """The stream a job goes back to after a crash: from the second on it is a suspect."""
    if crashes < SUSPECT_AFTER or row.stream.suspect:
        return {}
    stream = replace(row.stream, suspect=True)
    return {"stream": stream, "stream_id": state.stream(stream)}


def settle_run(state: State, job_id: UUID, claim_id: UUID, effects: Effects, *, now: datetime) -> None:
    """The code of an ended run has really ended: free what waited for that, its retry included."""
    if not free_keys_and_permits(state, job_id, claim_id):
        return
    row = state.jobs.get(job_id)
    if row is not None and row.held_claim_id == claim_id:  # fence
        after = change(state, row, effects, now=now, held_claim_id=None, held_until=None)
        if after.due_at < now:
            state.backdated(after.stream_id)


# --- waiting ------------------------------------------------------------------------------------


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


def wait_again(state: State, row: Row, effects: Effects, *, now: datetime) -> None:
    """Back to WAITING, as if it had never been released."""
    signal = row.spec.signal
    change(
        state,
        row,
        effects,
        now=now,
        status=JobStatus.WAITING,
        held_claim_id=None,
        held_until=None,
        started_at=None,
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


def revive(state: State, job_id: UUID, effects: Effects, *, now: datetime) -> None:
    """
    A job that had ended will run again: open the edges that its end broke, and let the jobs wait again that it canceled.

    A dependant stays CANCELED where another parent still keeps it from being released, or where another
    live job has taken its business key since.
    """
    reopen = outgoing(state, job_id)[::-1]
    while reopen:
        edge = reopen.pop()
        child = state.jobs.get(edge.child_id)
        if edge.state is EdgeState.OPEN or (edge.state is EdgeState.SATISFIED and not _still_waits(child)):
            continue
        state.edges.put((edge.parent_id, edge.child_id), replace(edge, state=EdgeState.OPEN))
        # Where several parents failed, the retry that lets it be released again may be that of another
        # parent than the one that canceled it.
        if child is None or child.canceled_by is None or not _can_wait_again(state, child):
            continue
        reserve(state, child, now=now)
        wait_again(state, child, effects, now=now)
        reopen.extend(outgoing(state, child.job_id)[::-1])


def _still_waits(child: Row | None) -> bool:
    """True for a dependant whose edge was satisfied, but which something else holds back or has canceled."""
    if child is None or child.archived_at is not None:
        return False
    return child.status is JobStatus.WAITING or child.canceled_by is not None


def _can_wait_again(state: State, child: Row) -> bool:
    if child.status is not JobStatus.CANCELED or child.archived_at is not None:
        return False
    satisfied, still_open, needed = tally(state, child)
    key = child.spec.business_key
    held = None if key is None else state.reservations.get(key)
    return satisfied + still_open >= needed and (held is None or held.job_id == child.job_id)


# --- batches ------------------------------------------------------------------------------------


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
