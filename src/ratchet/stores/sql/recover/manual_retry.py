"""Retries by hand: a failed job becomes PENDING again, and what its failure had canceled waits again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.places import without_target
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.batch_counters import BatchDeltas
from ratchet.stores.sql.dependants.edges import COUNT_EDGES
from ratchet.stores.sql.dependants.releases import enqueue, release_ready
from ratchet.stores.sql.finish.requeues import LONGEST_HOLD
from ratchet.stores.sql.rows.failures import LEAVE_QUEUE
from ratchet.stores.sql.rows.keys_and_permits import (
    find_holders,
    keep_own_keys,
    lock_still_running,
    reserve_keys,
)
from ratchet.stores.sql.rows.locked import LockedJob, lock_canceled_jobs, lock_jobs, lock_waiting_jobs
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

_WAITS_AGAIN = frozenset({JobStatus.PENDING, JobStatus.SUCCEEDED, JobStatus.FAILED})

RETRY_JOBS = """
    UPDATE scheduler_job
       SET status = 'PENDING', attempts = 0, crashes = 0, scheduled_at = :now, stream_id = again.stream_id,
           started_at = NULL, finished_at = NULL, node_id = NULL, error = NULL, error_type = NULL, result = NULL,
           result_truncated = false, progress = NULL, progress_message = NULL, paused_from = NULL, held_at = NULL,
           dead_letter_reason = NULL, dead_lettered_at = NULL
      FROM {rows again (job_id, stream_id)}
     WHERE scheduler_job.job_id = again.job_id
"""

# They are due since now; that is in their own rows.
HOLD_BACK = """
    UPDATE scheduler_job_queue
       SET held_claim_id = run.claim_id, picked_by = run.node_id, scheduled_time = :until
      FROM {rows run (job_id, claim_id, node_id)}
     WHERE scheduler_job_queue.job_id = run.job_id
"""

FIND_CHILDREN = "SELECT DISTINCT child_id FROM scheduler_dependency WHERE parent_id {in ids uuid}"

# An edge that is satisfied matters only where its child may still have to wait.
REOPEN_EDGES = """
    UPDATE scheduler_dependency
       SET state = 'OPEN'
     WHERE parent_id {in ids uuid} AND state <> 'OPEN' AND (state = 'BROKEN' OR child_id {in children uuid})
"""

REVIVE = """
    UPDATE scheduler_job
       SET status = 'WAITING', finished_at = NULL, canceled_reason = NULL, canceled_by = NULL, held_at = :now,
           expiry_due_at = CASE WHEN started_at IS NULL THEN expires_at END
     WHERE job_id {in ids uuid}
"""

REOPEN_BATCHES = """
    UPDATE scheduler_batch
       SET finished_at = NULL
     WHERE batch_id {in ids uuid} AND finished_at IS NOT NULL
    RETURNING batch_id, parent_id
"""

# The parent of a batch that is open again waits again, unless it is running.
WAIT_AGAIN = """
    UPDATE scheduler_job
       SET status = 'WAITING', attempts = 0, started_at = NULL, finished_at = NULL, node_id = NULL, error = NULL,
           error_type = NULL, result = NULL, result_truncated = false, paused_from = NULL, canceled_reason = NULL,
           canceled_by = NULL, dead_letter_reason = NULL, dead_lettered_at = NULL, held_at = :now
     WHERE job_id {in ids uuid}
"""


def retry_jobs(
    session: Session,
    streams: StreamRegistry,
    job_ids: Iterable[UUID],
    *,
    now: datetime,
    pass_over_busy: bool = False,
) -> list[UUID]:
    """
    FAILED (also paused from FAILED) to PENDING, in this transaction; the jobs for which that was done, in order.

    What their failure had canceled returns to WAITING, and their batches count them as open again. A job waits for
    the code of an earlier run that is still running. A business key that another job has taken since raises `BusinessKeyBusy`, or is passed over.
    """
    failed = [job for job in lock_jobs(session, job_ids).values() if job.has_failed]
    jobs = _take_keys_again(session, failed, now, pass_over_busy)
    if not jobs:
        return []
    ids = [job.job_id for job in jobs]
    again = [(job.job_id, _ordinary_stream(session, streams, job.stream_id)) for job in jobs]
    session.execute(RETRY_JOBS, {"again": again, "now": now})
    enqueue(session, ids)
    if runs := lock_still_running(session, ids):
        session.execute(HOLD_BACK, {"run": runs, "until": now + LONGEST_HOLD})
    session.backdated({stream_id for _, stream_id in again})
    deltas = BatchDeltas()
    for job in jobs:
        if job.batch_id is not None:
            deltas.count_end(job.batch_id, JobStatus.FAILED, job.job_id, by=-1)
    revive_dependants(session, ids, deltas, now)
    deltas.apply(session, now)
    _reopen_batches(session, deltas.batch_ids, now)
    return ids


def revive_dependants(
    session: Session, parent_ids: Sequence[UUID], deltas: BatchDeltas, now: datetime
) -> list[UUID]:
    """
    Return to WAITING the jobs below these that were canceled with them, as far as they can run again.

    The edges of the parents are open again. A child that still cannot get enough edges (another parent of it has
    failed) stays CANCELED; the retry of that parent will find it here. So does a child whose business key another live
    job has taken since.
    """
    revived: list[UUID] = []
    frontier: Sequence[UUID] = sorted(parent_ids)
    while frontier:
        children = [child_id for (child_id,) in session.rows(FIND_CHILDREN, {"ids": frontier})]
        canceled = lock_canceled_jobs(session, children)
        # A join that could do without this parent was not canceled: its edge is open again, too.
        reachable = [*canceled, *lock_waiting_jobs(session, children)]
        if not children:
            break
        session.hold("scheduler_job", "job_id", reachable)
        session.execute(REOPEN_EDGES, {"ids": frontier, "children": reachable})
        if not canceled:
            break
        counts = session.rows(COUNT_EDGES, {"ids": list(canceled)})
        able = sorted(
            child_id
            for child_id, satisfied, undecided in counts
            if int(satisfied) + int(undecided) >= canceled[child_id].needs
        )
        living = _take_keys_again(
            session, [canceled[child_id] for child_id in able], now, pass_over_busy=True
        )
        frontier = [job.job_id for job in living]
        if living:
            session.execute(REVIVE, {"ids": frontier, "now": now})
        for job in living:
            if job.batch_id is not None:
                deltas.count_end(job.batch_id, JobStatus.CANCELED, job.job_id, by=-1)
        revived += frontier
    release_ready(session, revived, now)
    return revived


def _take_keys_again(
    session: Session, jobs: Sequence[LockedJob], now: datetime, pass_over_busy: bool
) -> list[LockedJob]:
    """Those of *jobs* that have their business key again, or never had one."""
    wanted: dict[str, UUID] = {}
    for job in jobs:
        if job.business_key is not None:
            wanted.setdefault(job.business_key, job.job_id)
    if not wanted:
        return list(jobs)
    taken = _reserve_again(session, wanted, now)
    able: list[LockedJob] = []
    for job in jobs:
        if job.business_key is None or taken[job.business_key] == job.job_id:
            able.append(job)
        elif not pass_over_busy:
            raise BusinessKeyBusy(job.business_key, taken[job.business_key])
    return able


def _reserve_again(session: Session, wanted: Mapping[str, UUID], now: datetime) -> dict[str, UUID]:
    """Reserve each of these keys for its job, where nobody else has it; who has it now."""
    while True:  # again, where somebody frees one of them between our two statements
        others = wanted.keys() - reserve_keys(session, wanted, now)
        holders = find_holders(session, others) if others else {}
        own = sorted(holder.job_id for key, holder in holders.items() if holder.job_id == wanted[key])
        if len(holders) == len(others) and (not own or keep_own_keys(session, own, now)):
            return {key: holders[key].job_id if key in holders else job_id for key, job_id in wanted.items()}


def _ordinary_stream(session: Session, streams: StreamRegistry, stream_id: int) -> int:
    """The stream for a job that is no longer a suspect or parked."""
    key = streams.recorded_key(stream_id, session)
    ordinary = replace(key, suspect=False, parked_target=without_target(key.parked_target))
    return stream_id if ordinary == key else streams.id_of(session, ordinary)


def _reopen_batches(session: Session, batch_ids: Iterable[UUID], now: datetime) -> None:
    ids = sorted(batch_ids)
    if not ids:
        return
    reopened = session.rows(REOPEN_BATCHES, {"ids": ids})
    parents = lock_jobs(session, [parent_id for _, parent_id in reopened])
    resting = [job for job in parents.values() if job.status in _WAITS_AGAIN]
    resting = _take_keys_again(session, resting, now, pass_over_busy=True)
    if not resting:
        return
    waiting = [job.job_id for job in resting]
    if queued := [job.job_id for job in resting if job.queue is not None]:
        session.execute(LEAVE_QUEUE, {"ids": queued})
    session.execute(WAIT_AGAIN, {"ids": waiting, "now": now})
    deltas = BatchDeltas()
    revive_dependants(session, waiting, deltas, now)
    deltas.apply(session, now)
