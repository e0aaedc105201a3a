"""What runs hold while their code is running (business keys, permits), and the row that each leaves behind."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.cluster import PermitRecord, resources_of
from ratchet.model.decision import ErrorRecord
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import Execution
from ratchet.stores.memory.rows import Cost, Reservation, Row
from ratchet.stores.memory.state import State


def reserve(state: State, row: Row, *, now: datetime) -> None:
    """Take the job's business key, or raise `BusinessKeyBusy`."""
    key = row.spec.business_key
    if key is None:
        return
    held = state.reservations.get(key)
    if held is not None and held.job_id != row.job_id:
        raise BusinessKeyBusy(key, held.job_id)
    state.reservations.put(key, Reservation(job_id=row.job_id, reserved_at=now))


def leave_key(state: State, row: Row, *, still_running: bool) -> None:
    """
    Free the job's business key; where the code of one of its runs is still running, the key stays taken until that ends.

    That may be an earlier run: one that timed out, could not be stopped, and was retried or canceled since.
    """
    key = row.spec.business_key
    held = None if key is None else state.reservations.get(key)
    if key is None or held is None or held.job_id != row.job_id:
        return
    claim_id = row.claim_id if still_running else latest_still_running(state, row.job_id)
    if claim_id is None:
        state.reservations.remove(key)
    else:
        node_id = row.node_id if still_running else state.still_running[row.job_id, claim_id]
        state.reservations.put(key, replace(held, claim_id=claim_id, node_id=node_id))


def latest_still_running(state: State, job_id: UUID) -> UUID | None:
    """The latest run of the job that has ended on record and whose code is still running; None: there is none."""
    claims = (claim_id for (holder, claim_id), _ in state.still_running.items() if holder == job_id)
    return max(claims, key=lambda claim_id: claim_id.int, default=None)


def leave_run(state: State, row: Row, *, still_running: bool) -> None:
    """The job's run has ended on record: free its permits, or remember that its code is still running."""
    if row.claim_id is None:
        return
    if still_running:
        state.still_running.put((row.job_id, row.claim_id), row.node_id or "")
    else:
        free_permits(state, row.job_id, row.claim_id)


def free_permits(state: State, job_id: UUID, claim_id: UUID) -> int:
    """Give back what a run holds of resources; how many permits that were."""
    row = state.jobs.get(job_id)
    names = state.permits_of.groups() if row is None else resources_of(row.stream)
    return sum(state.permits.remove((name, job_id, claim_id)) is not None for name in names)


def counted_resources_of(state: State, row: Row) -> list[str]:
    """The resources of which a new run of the job takes a permit: those that limit how many run at once."""
    limits = ((name, state.limits.get(name)) for name in resources_of(row.stream))
    return [name for name, limit in limits if limit is not None and limit.concurrent is not None]


def count_running(state: State, name: str) -> None:
    """Give each run of a resource its permit: from now on the resource is limited, and they use it."""
    for row in state.running_with(name):
        if row.claim_id is not None and (key := (name, row.job_id, row.claim_id)) not in state.permits:
            permit = PermitRecord(
                resource=name, job_id=row.job_id, claim_id=row.claim_id, node_id=row.node_id or ""
            )
            state.permits.put(key, permit)


def free_keys_and_permits(state: State, job_id: UUID, claim_id: UUID) -> bool:
    """The code of an ended run has really ended: free its permits and its key. False: that was known."""
    if state.still_running.remove((job_id, claim_id)) is None:
        return False
    free_permits(state, job_id, claim_id)
    for key, held in _reservations_of(state, job_id):
        if held.claim_id == claim_id:
            _pass_on(state, key, held)
    return True


def _reservations_of(state: State, job_id: UUID) -> list[tuple[str, Reservation]]:
    row = state.jobs.get(job_id)
    if row is None:  # it was deleted meanwhile: only the reservation itself still knows the key
        return [(key, held) for key, held in state.reservations.items() if held.job_id == job_id]
    key = row.spec.business_key
    held = None if key is None else state.reservations.get(key)
    return [] if key is None or held is None or held.job_id != job_id else [(key, held)]


def _pass_on(state: State, key: str, held: Reservation) -> None:
    """The code of one run has ended: free the key, unless the code of another run of the job is still running."""
    claim_id = latest_still_running(state, held.job_id)
    if claim_id is None:
        state.reservations.remove(key)
    else:
        node_id = state.still_running[held.job_id, claim_id]
        state.reservations.put(key, replace(held, claim_id=claim_id, node_id=node_id))


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
