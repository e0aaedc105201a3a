"""What must hold between the tables after every call."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from ratchet.model.composition import EdgeState
from ratchet.model.status import LIVE, JobStatus
from ratchet.stores.memory.changes import is_ready
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import State


def broken_invariants(state: State) -> list[str]:
    """One sentence for everything that is wrong."""
    return [
        *_queue(state),
        *_claims(state),
        *_keys(state),
        *_permits(state),
        *_edges(state),
        *_waiting(state),
        *_batches(state),
    ]


def _queue(state: State) -> Iterator[str]:
    """In the queue exactly while PENDING or RUNNING."""
    queued = set(state.pending.all())
    for row in state.jobs.values():
        if (row.job_id in queued) is not (row.status is JobStatus.PENDING):
            yield f"job {row.job_id} is {row.status}, and the queue says otherwise"
        if row.archived_at is not None and not row.status.is_terminal:
            yield f"job {row.job_id} is archived as {row.status}"
    for job_id in queued - set(state.jobs.keys()):
        yield f"job {job_id} is queued and does not exist"


def _claims(state: State) -> Iterator[str]:
    """A claim exactly while RUNNING."""
    for row in state.jobs.values():
        running = row.status is JobStatus.RUNNING
        if running is not (row.claim_id is not None and row.claimed_at is not None) or (
            running and row.node_id is None
        ):
            yield f"job {row.job_id} is {row.status} under claim {row.claim_id} of {row.node_id}"
        if running and (row.job_id, row.claim_id) in state.still_running:
            yield f"job {row.job_id} runs under claim {row.claim_id}, which has ended"
        # A run of a claim ahead that has started has its own token there (`mark_started`).
        started = running and row.held_claim_id == row.claim_id
        if (
            row.held_claim_id is not None
            and not started
            and (row.job_id, row.held_claim_id) not in state.still_running
        ):
            yield f"job {row.job_id} waits for run {row.held_claim_id}, which has ended"


def _keys(state: State) -> Iterator[str]:
    """A key is held by a live job, or by a run whose code is still running; every live job holds its key."""
    for key, held in state.reservations.items():
        row = state.jobs.get(held.job_id)
        if held.claim_id is not None:
            if (held.job_id, held.claim_id) not in state.still_running:
                yield f"business key {key!r} is held by run {held.claim_id} of {held.job_id}, which has ended"
        elif row is None or row.ended_as is not None:
            yield f"business key {key!r} is held by job {held.job_id}, which has ended"
    for row in state.jobs.values():
        business_key = row.spec.business_key
        if business_key is not None and row.status in LIVE and row.ended_as is None:
            reservation = state.reservations.get(business_key)
            if reservation is None or reservation.job_id != row.job_id or reservation.claim_id is not None:
                yield f"live job {row.job_id} does not hold its business key {business_key!r}"


def _permits(state: State) -> Iterator[str]:
    """A permit is held by a RUNNING job, or by a run whose code is still running."""
    for permit in state.permits.values():
        row = state.jobs.get(permit.job_id)
        holds = row is not None and row.claim_id == permit.claim_id
        if not holds and (permit.job_id, permit.claim_id) not in state.still_running:
            yield f"a permit of {permit.resource!r} is held by run {permit.claim_id}, which has ended"


def _edges(state: State) -> Iterator[str]:
    """Edges of an ended job are settled; those of a job that has not ended are not broken."""
    for edge in state.edges.values():
        parent, child = state.jobs.get(edge.parent_id), state.jobs.get(edge.child_id)
        name = f"edge {edge.parent_id} -> {edge.child_id}"
        if parent is None or child is None:
            yield f"{name} leads to or from a job that does not exist"
        elif parent.ended_as is not None and edge.state is EdgeState.OPEN:
            yield f"{name} is open, and its parent is {parent.status}"
        elif parent.ended_as is None and edge.state is EdgeState.BROKEN:
            yield f"{name} is broken, and its parent is {parent.status}"


def _waiting(state: State) -> Iterator[str]:
    """Whoever waits waits for something that can still come."""
    for row in _in_status(state, JobStatus.WAITING):
        open_edges = any(state.edges[key].state is EdgeState.OPEN for key in state.edges_in.of(row.job_id))
        open_batch = any(
            state.batches[batch_id].finished_at is None for batch_id in state.batches_of.of(row.job_id)
        )
        if is_ready(state, row) or not (open_edges or open_batch or row.awaits_signal):
            yield f"job {row.job_id} waits for nothing"


def _batches(state: State) -> Iterator[str]:
    """Counters are what can be counted, and a batch is finished exactly when it is complete."""
    for batch in state.batches.values():
        children = [state.jobs[job_id] for job_id in state.by_batch.of(batch.batch_id)]
        ends = [row.ended_as for row in children if row.job_id != batch.parent_id]
        counters = {
            JobStatus.SUCCEEDED: batch.completed,
            JobStatus.FAILED: batch.failed,
            JobStatus.CANCELED: batch.canceled,
        }
        for status, counter in counters.items():
            # children that were deleted or purged stay counted
            if ends.count(status) > counter or (len(ends) == batch.total and ends.count(status) != counter):
                yield f"batch {batch.batch_id} counts {counter} {status} of {ends.count(status)}"
        unended = batch.total - sum(counters.values())
        if ends.count(None) > unended:
            yield f"batch {batch.batch_id} has {ends.count(None)} unended children and room for {unended}"
        if (batch.finished_at is not None) is not (batch.sealed and unended == 0):
            yield f"batch {batch.batch_id} is finished at {batch.finished_at} with {unended} children unended"


def _in_status(state: State, status: JobStatus) -> list[Row]:
    job_ids: list[UUID] = state.by_status.of(status)
    return [state.jobs[job_id] for job_id in job_ids]
