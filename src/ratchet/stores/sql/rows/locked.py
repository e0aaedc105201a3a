"""
Jobs under lock: what a transaction may change, and what it has to know to do so.

A job has a queue row exactly while its cold row says PENDING; only the queue row says RUNNING. Whoever
makes or removes a queue row changes the cold row's status in the same transaction, so a locked cold row
decides about a job that has no queue row.

Everybody locks in one order: queue rows by id, cold rows by id, dependants, batches, keys and permits.
Within a graph that order is not total (a dependant of one is a parent of another), so two transactions
that end overlapping parts of one graph may still deadlock; the database then ends one of them, and
`Database.run` tries it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from ratchet.model.claim import JobClaim
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.unreadable import NO_TIME, Column, Count, Shape, Time

QUEUE_COLUMNS: Final = """
    job_id, status, stream_id, attempts, crashes, scheduled_time, picked_by, picked_at, claim_id, held_claim_id
"""

JOB_COLUMNS: Final = """
    job_id, status, target, stream_id, attempts, crashes, scheduled_at, started_at, finished_at, node_id,
    business_key, batch_id, has_dependants, paused_from, needs, signal_key, signal IS NOT NULL AS is_signaled
"""

LOCK_QUEUE_ROWS = f"""
    SELECT {QUEUE_COLUMNS}
      FROM scheduler_job_queue
     WHERE job_id {{in ids uuid}}
     ORDER BY job_id
    {{for update}}
"""

LOCK_FREE_QUEUE_ROWS = f"""
    SELECT {QUEUE_COLUMNS}
      FROM scheduler_job_queue
     WHERE job_id {{in ids uuid}}
     ORDER BY job_id
    {{for update skip locked}}
"""

# The pairs are compared as pairs: one call may name an old and a new claim of the same job. "IS TRUE"
# keeps PostgreSQL from turning the membership into a join, whose plan would depend on statistics.
LOCK_HELD_ROWS = f"""
    SELECT {QUEUE_COLUMNS}
      FROM scheduler_job_queue
     WHERE job_id {{in ids uuid}} AND status = 'RUNNING'
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {{rows run (job_id, claim_id)}})) IS TRUE /* end fence */
     ORDER BY job_id
    {{for update}}
"""

LOCK_JOBS = f"""
    SELECT {JOB_COLUMNS}
      FROM scheduler_job
     WHERE job_id {{in ids uuid}}
     ORDER BY job_id
    {{for update}}
"""

LOCK_FREE_JOBS = f"""
    SELECT {JOB_COLUMNS}
      FROM scheduler_job
     WHERE job_id {{in ids uuid}}
     ORDER BY job_id
    {{for update skip locked}}
"""

LOCK_WAITING_JOBS = f"""
    SELECT {JOB_COLUMNS}
      FROM scheduler_job
     WHERE job_id {{in ids uuid}} AND status = 'WAITING'
     ORDER BY job_id
    {{for update}}
"""

# canceled_by is set on what a cascade canceled, and on nothing that a person canceled.
LOCK_CANCELED_JOBS = f"""
    SELECT {JOB_COLUMNS}
      FROM scheduler_job
     WHERE job_id {{in ids uuid}} AND status = 'CANCELED' AND canceled_by IS NOT NULL
     ORDER BY job_id
    {{for update}}
"""


class QueueRow(Struct, frozen=True):
    """A locked queue row, its fields in the order of `QUEUE_COLUMNS`."""

    job_id: UUID
    status: str
    stream_id: int
    attempts: int
    crashes: int
    scheduled_at: datetime
    node_id: str | None
    claimed_at: datetime | None
    claim_id: UUID | None
    held_claim_id: UUID | None  # a retry that waits for this earlier run's code to end; node_id is that run's


#: What a transaction works with where the row has something that cannot be read.
QUEUED = Shape(
    Column("job_id", UUID),
    Column("status", str, ""),
    Column("stream_id", int, 0),
    Column("attempts", Count, 0),
    Column("crashes", Count, 0),
    Column("scheduled_time", Time, NO_TIME),
    Column("picked_by", str | None),
    Column("picked_at", Time | None),
    Column("claim_id", UUID | None),
    Column("held_claim_id", UUID | None),
)
_COLD = Shape(
    Column("job_id", UUID),
    Column("status", str, ""),
    Column("target", str, ""),
    Column("stream_id", int, 0),
    Column("attempts", Count, 0),
    Column("crashes", Count, 0),
    Column("scheduled_at", Time, NO_TIME),
    Column("started_at", Time | None),
    Column("finished_at", Time | None),
    Column("node_id", str | None),
    Column("business_key", str | None),
    Column("batch_id", UUID | None),
    Column("has_dependants", bool, True),
    Column("paused_from", str | None),
    Column("needs", int, 0),
    Column("signal_key", str | None),
    Column("is_signaled", bool, False),
)


class LockedJob(Struct, frozen=True):
    """A locked job; status, attempts, crashes, stream and due time are the queue row's while there is one."""

    job_id: UUID
    status: JobStatus
    target: str
    stream_id: int
    attempts: int
    crashes: int
    scheduled_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    node_id: str | None
    business_key: str | None
    batch_id: UUID | None
    has_dependants: bool
    paused_from: str | None
    needs: int
    signal_key: str | None
    is_signaled: bool
    queue: QueueRow | None = None

    @property
    def has_failed(self) -> bool:
        """True for FAILED, and for PAUSED from FAILED: its end has been counted and its edges are settled."""
        return self.status is JobStatus.FAILED or self.paused_from == JobStatus.FAILED.value

    @property
    def still_running(self) -> tuple[UUID, str] | None:
        """Claim and node of a run whose code may be still running; None: there is none."""
        if self.queue is None or self.queue.node_id is None:
            return None
        claim_id = self.queue.claim_id or self.queue.held_claim_id
        return None if claim_id is None else (claim_id, self.queue.node_id)


def lock_jobs(
    session: Session, job_ids: Iterable[UUID], *, skip_locked: bool = False
) -> dict[UUID, LockedJob]:
    """
    The jobs with these ids, locked, by id in order; unknown ids are left out.

    With *skip_locked* also those that another transaction is changing at this moment.
    """
    ids = sorted(set(job_ids))
    if not ids:
        return {}
    queued = lock_queue_rows(session, ids, skip_locked=skip_locked)
    rows = _COLD.read(session.rows(LOCK_FREE_JOBS if skip_locked else LOCK_JOBS, {"ids": ids}))
    # released between the two statements: its queue row exists by now
    if late := [row[0] for row in rows if row[1] == "PENDING" and row[0] not in queued]:
        queued |= lock_queue_rows(session, late, skip_locked=skip_locked)
    jobs = (_locked(row, queued.get(row[0])) for row in rows if row[1] != "PENDING" or row[0] in queued)
    return {job.job_id: job for job in jobs}


def lock_queue_rows(
    session: Session, job_ids: Sequence[UUID], *, skip_locked: bool = False
) -> dict[UUID, QueueRow]:
    """The queue rows of these jobs, locked."""
    sql = LOCK_FREE_QUEUE_ROWS if skip_locked else LOCK_QUEUE_ROWS
    return {row[0]: QueueRow(*row) for row in QUEUED.read(session.rows(sql, {"ids": job_ids}))}


def lock_held_rows(session: Session, claims: Iterable[JobClaim]) -> dict[UUID, QueueRow]:
    """The queue rows that these claims still hold, locked; what is missing was canceled, rescued or has ended."""
    runs = sorted((claim.job_id, claim.claim_id) for claim in claims)
    if not runs:
        return {}
    rows = session.rows(LOCK_HELD_ROWS, {"ids": sorted({job_id for job_id, _ in runs}), "run": runs})
    return {row[0]: QueueRow(*row) for row in QUEUED.read(rows)}


def lock_cold_rows(session: Session, queued: dict[UUID, QueueRow]) -> dict[UUID, LockedJob]:
    """The jobs of these queue rows, which the caller has locked, with their cold rows locked too."""
    if not queued:
        return {}
    rows = _COLD.read(session.rows(LOCK_JOBS, {"ids": sorted(queued)}))
    return {row[0]: _locked(row, queued[row[0]]) for row in rows}


def lock_waiting_jobs(session: Session, job_ids: Iterable[UUID]) -> dict[UUID, LockedJob]:
    """Those of these jobs that are WAITING, locked; nobody else can release or cancel them now."""
    ids = sorted(set(job_ids))
    if not ids:
        return {}
    return {row[0]: _locked(row, None) for row in _COLD.read(session.rows(LOCK_WAITING_JOBS, {"ids": ids}))}


def lock_canceled_jobs(session: Session, job_ids: Iterable[UUID]) -> dict[UUID, LockedJob]:
    """Those of these jobs that the end of another job has canceled, locked."""
    ids = sorted(set(job_ids))
    if not ids:
        return {}
    return {row[0]: _locked(row, None) for row in _COLD.read(session.rows(LOCK_CANCELED_JOBS, {"ids": ids}))}


# A status that nobody knows is not one to end, release or retry.
_STATUSES: Final = {status.value: status for status in JobStatus}


def _locked(row: Row, queue: QueueRow | None) -> LockedJob:
    job_id, status, target, stream_id, attempts, crashes, scheduled_at, *rest = row
    if queue is not None:
        status, stream_id, scheduled_at = queue.status, queue.stream_id, queue.scheduled_at
        attempts, crashes = queue.attempts, queue.crashes
    fields: Row = (
        job_id,
        _STATUSES.get(status, JobStatus.PAUSED),
        target,
        stream_id,
        attempts,
        crashes,
        scheduled_at,
        *rest,
        queue,
    )
    return LockedJob(*fields)
