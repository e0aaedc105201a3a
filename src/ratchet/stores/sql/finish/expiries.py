"""Jobs whose time is over: they expired before their first start, or their signal did not come."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ratchet.model.decision import SIGNAL_TIMEOUT, CanceledJob, ErrorRecord
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.sql.dependants.callbacks import insert_failure_callbacks
from ratchet.stores.sql.dependants.cancellations import cancel_locked, fail_jobs
from ratchet.stores.sql.rows.failures import Cancellation, Failure, write_alerts
from ratchet.stores.sql.rows.locked import LockedJob, lock_jobs
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

EXPIRED = "expired"

# A RUNNING job has started: it keeps its expiry until its run ends, and is skipped.
FIND_EXPIRED = """
    SELECT j.job_id, j.expiry_due_at
      FROM scheduler_job j LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id
     WHERE j.expiry_due_at IS NOT NULL AND j.expiry_due_at <= :now
       AND (q.status IS NULL OR q.status = 'PENDING')
     ORDER BY j.expiry_due_at, j.job_id
     LIMIT :limit
"""

FIND_UNSIGNALED = """
    SELECT job_id, signal_due_at
      FROM scheduler_job
     WHERE signal_due_at IS NOT NULL AND signal_due_at <= :now AND status = 'WAITING'
     ORDER BY signal_due_at, job_id
     LIMIT :limit
"""

# Asked again under the locks.
FIND_STILL_DUE = """
    SELECT job_id, expiry_due_at, signal_due_at FROM scheduler_job WHERE job_id {in ids uuid}
"""

_EXPIRES = frozenset({JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING})


def expire_jobs(
    database: Database, streams: StreamRegistry, *, now: datetime, limit: int
) -> list[CanceledJob]:
    """
    Cancel jobs that have expired and fail those that waited too long for their signal, at most *limit*, with all that follows.

    Looks first without a lock, so that a sweep that finds nothing writes nothing; jobs that somebody
    else is changing at this moment are left to the next sweep. The longest overdue go first.
    """
    due = {"now": now, "limit": limit}

    def find(session: Session) -> list[Row]:
        return [*session.rows(FIND_EXPIRED, due), *session.rows(FIND_UNSIGNALED, due)]

    # a time that cannot be read never comes
    dated = [row for row in database.read(find) if isinstance(row[1], datetime)]
    found = sorted(dated, key=lambda row: (row[1], row[0]))
    ids = list(dict.fromkeys(job_id for job_id, _ in found))[:limit]
    if not ids:
        return []
    return database.run(lambda session: _end(session, streams, ids, now))


def _end(session: Session, streams: StreamRegistry, ids: list[UUID], now: datetime) -> list[CanceledJob]:
    jobs = lock_jobs(session, ids, skip_locked=True)
    cancellations: list[Cancellation] = []
    failures: list[Failure] = []
    rows = session.rows(FIND_STILL_DUE, {"ids": list(jobs)}) if jobs else []
    position = {job_id: number for number, job_id in enumerate(ids)}
    for job_id, expiry_due_at, signal_due_at in sorted(rows, key=lambda row: position[row[0]]):
        job = jobs[job_id]
        if (
            expiry_due_at is not None
            and expiry_due_at <= now
            and job.status in _EXPIRES
            and not job.has_failed
        ):
            cancellations.append(Cancellation(job, EXPIRED))
        elif signal_due_at is not None and signal_due_at <= now and job.status is JobStatus.WAITING:
            failures.append(_unsignaled(job))
    ended = cancel_locked(session, cancellations, now=now)
    gone = {one.job_id for one in ended}  # jobs that waited for an expired one have ended with it
    failures = [one for one in failures if one.job.job_id not in gone]
    effects = fail_jobs(session, failures, now=now)
    insert_failure_callbacks(session, streams, [one.job.job_id for one in failures], now=now)
    alerted = write_alerts(session, [one.note for one in failures], now)
    for one in failures:
        ended.append(
            CanceledJob(
                job_id=one.job.job_id,
                target=one.job.target,
                previous=JobStatus.WAITING,
                reason=SIGNAL_TIMEOUT,
                status=JobStatus.FAILED,
                alerted=one.job.job_id in alerted,
            )
        )
        ended.extend(effects.of(one.job.job_id).canceled)
    return ended


def _unsignaled(job: LockedJob) -> Failure:
    error = ErrorRecord(message=f"no signal {job.signal_key!r} arrived in time", type="SignalTimeout")
    return Failure(job, error, "signal timeout")
