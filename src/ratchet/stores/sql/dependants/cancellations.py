"""Cancels and fails jobs together with all that waits for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.decision import CanceledJob
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.batch_counters import BatchDeltas
from ratchet.stores.sql.dependants.edges import EffectsByJob, EndedJob, settle_edges
from ratchet.stores.sql.rows.failures import Cancellation, Failure, write_canceled, write_failed
from ratchet.stores.sql.rows.locked import LockedJob, lock_jobs

#: The states in which a person, expiry or a replacement may still cancel a job.
CANCELABLE = frozenset({JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING, JobStatus.RUNNING})


def cancel_jobs(
    session: Session, job_ids: Iterable[UUID], *, reason: str, now: datetime
) -> list[CanceledJob]:
    """
    Cancel those of these jobs that have not ended, and all their dependants, in this transaction.

    Each job is followed by its own cascade, depth-first.
    """
    jobs = [job for job in lock_jobs(session, job_ids).values() if job.status in CANCELABLE]
    return cancel_locked(session, [Cancellation(job, reason) for job in jobs], now=now)


def cancel_locked(
    session: Session, cancellations: Sequence[Cancellation], *, now: datetime
) -> list[CanceledJob]:
    """Cancel locked jobs, which the caller has found cancelable, and all their dependants."""
    if not cancellations:
        return []
    write_canceled(session, cancellations, now)
    deltas = BatchDeltas()
    ended: list[EndedJob] = []
    for one in cancellations:
        job = one.job
        if job.batch_id is not None and job.has_failed:  # it was counted when it failed
            deltas.count_end(job.batch_id, JobStatus.FAILED, job.job_id, by=-1)
        ended.append(EndedJob.of(job, JobStatus.CANCELED))
    effects = settle_edges(session, ended, now=now, deltas=deltas)
    canceled: list[CanceledJob] = []
    for one in cancellations:
        canceled.append(_canceled(one))
        canceled.extend(effects.of(one.job.job_id).canceled)
    return canceled


def fail_jobs(session: Session, failures: Sequence[Failure], *, now: datetime) -> EffectsByJob:
    """
    Fail locked jobs for good (dead letter, key, dependants, batch), in this transaction; what followed.

    The caller writes the alerts, last of all. Of a RUNNING job the caller also writes the execution row and frees the permits.
    """
    write_failed(session, failures, now)
    ended = [EndedJob.of(one.job, JobStatus.FAILED) for one in failures]
    return settle_edges(session, ended, now=now)


def lock_cancelable(session: Session, job_id: UUID, *, running: bool) -> LockedJob | None:
    """The job, locked, if it is PENDING, PAUSED or WAITING (or, with *running*, RUNNING)."""
    job = lock_jobs(session, [job_id]).get(job_id)
    if job is None or job.status not in CANCELABLE or (job.status is JobStatus.RUNNING and not running):
        return None
    return job


def _canceled(one: Cancellation) -> CanceledJob:
    job = one.job
    run = job.queue if job.status is JobStatus.RUNNING else None
    return CanceledJob(
        job_id=job.job_id,
        target=job.target,
        previous=job.status,
        reason=one.reason,
        claim_id=None if run is None else run.claim_id,
        node_id=None if run is None else run.node_id,
    )
