"""The way back from RUNNING to PENDING: hand-back, retry, crash. The caller has locked the rows under their fence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from ratchet.model.claim import SUSPECT_AFTER
from ratchet.model.decision import ErrorRecord
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.edges import EndedJob
from ratchet.stores.sql.rows.failures import Failure, FailureNote, write_failed, write_runs
from ratchet.stores.sql.rows.keys_and_permits import free_permits
from ratchet.stores.sql.rows.locked import QueueRow, lock_cold_rows
from ratchet.stores.sql.rows.specs import tell_backdated
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

#: How long a job waits at most for the code of the run before it to end.
LONGEST_HOLD = timedelta(seconds=60)

REQUEUE = """
    UPDATE scheduler_job_queue
       SET status = 'PENDING', claim_id = NULL, picked_at = NULL, picked_by = back.picked_by,
           held_claim_id = back.held_claim_id, stream_id = back.stream_id, attempts = back.attempts,
           crashes = back.crashes, scheduled_time = back.scheduled_time
      FROM {rows back (job_id, stream_id, attempts, crashes, scheduled_time, picked_by, held_claim_id)}
     WHERE scheduler_job_queue.job_id = back.job_id
"""

# A job that has started once does not expire any more.
CLEAR_EXPIRY = """
    UPDATE scheduler_job
       SET expiry_due_at = NULL
     WHERE job_id {in ids uuid} AND expiry_due_at IS NOT NULL
"""

# The own due time of a job that is held back.
REMEMBER_DUE_TIMES = """
    UPDATE scheduler_job
       SET scheduled_at = back.due_at
      FROM {rows back (job_id, due_at)}
     WHERE scheduler_job.job_id = back.job_id
"""


class Crashes(Struct, frozen=True, kw_only=True):
    """What became of the jobs of crashed runs."""

    requeued: tuple[UUID, ...] = ()  # all that are PENDING again, suspects included
    suspects: tuple[UUID, ...] = ()
    dead_lettered: tuple[UUID, ...] = ()
    notes: tuple[FailureNote, ...] = ()  # for the alerts, which the caller writes last of all
    ended: tuple[EndedJob, ...] = ()  # pass them to `settle_edges`


def requeue(session: Session, rows: Sequence[QueueRow], now: datetime | None = None) -> None:
    """
    Make these locked RUNNING rows PENDING, with the stream, counts and due time they have now.

    The row loses its claim, so that the run can write nothing more. ``node_id`` is kept only
    with ``held_claim_id``. *now* is needed where they have a new due time.
    """
    if not rows:
        return
    back = [
        (
            row.job_id,
            row.stream_id,
            row.attempts,
            row.crashes,
            row.scheduled_at,
            row.node_id if row.held_claim_id is not None else None,
            row.held_claim_id,
        )
        for row in rows
    ]
    session.execute(REQUEUE, {"back": back})
    # due when it was claimed, or before: other claims may have started behind it since, whatever the clocks say
    session.backdated(
        {row.stream_id for row in rows if row.claimed_at is None or row.scheduled_at <= row.claimed_at}
    )
    if now is not None:
        tell_backdated(session, ((row.stream_id, row.scheduled_at) for row in rows), now)


def hand_back(session: Session, streams: StreamRegistry, held: Mapping[UUID, QueueRow]) -> None:
    """Return locked RUNNING rows to PENDING with their old due time, uncounted, and free their permits."""
    requeue(session, [replace(row, held_claim_id=None) for row in held.values()])
    free_permits(session, _permit_holders(session, streams, held))


def count_crashes(
    session: Session,
    streams: StreamRegistry,
    held: Mapping[UUID, QueueRow],
    *,
    detail: str,
    max_crashes: int,
    now: datetime,
    started_at: Mapping[UUID, datetime | None] | None = None,
    still_running: bool = False,
) -> Crashes:
    """
    Count one crash for each of these locked RUNNING rows, in this transaction.

    To PENDING with the old due time, to a suspect stream from the second crash on, or, at
    *max_crashes*, FAILED with everything but their dependants and alerts. The runs get CRASHED rows and lose their permits;
    *started_at* says when they started, where that is known better than by the claim. *still_running*: the code of
    these runs is, so they keep what they hold, and the jobs are held back until it ends.
    """
    dead = {job_id: row for job_id, row in held.items() if row.crashes + 1 >= max_crashes}
    back: list[QueueRow] = []
    suspects: list[UUID] = []
    for job_id, row in sorted(held.items()):
        if job_id not in dead:
            crashed = _crashed(session, streams, row)
            back.append(held_back(crashed, now) if still_running else crashed)
            if row.crashes + 1 >= SUSPECT_AFTER:
                suspects.append(job_id)
    requeue(session, back)
    if back:
        session.execute(CLEAR_EXPIRY, {"ids": [row.job_id for row in back]})
    if back and still_running:
        due_at = [(row.job_id, held[row.job_id].scheduled_at) for row in back]
        session.execute(REMEMBER_DUE_TIMES, {"back": due_at})
    jobs = lock_cold_rows(session, dead)
    failures = [
        Failure(
            job,
            ErrorRecord(message=detail, type="Crashed"),
            f"crashed {job.crashes + 1} times",
            crashed=True,
            still_running=still_running,
        )
        for job in jobs.values()
    ]
    write_failed(session, failures, now)
    starts = started_at or {}
    write_runs(
        session,
        [
            (
                job_id,
                row.claim_id,
                row.attempts + 1,
                row.node_id,
                row.scheduled_at,
                starts.get(job_id, row.claimed_at),
                now,
                ExecutionStatus.CRASHED,
                False,
                detail,
                "Crashed",
                None,
            )
            for job_id, row in sorted(held.items())
        ],
    )
    if not still_running:
        free_permits(session, _permit_holders(session, streams, held))
    return Crashes(
        requeued=tuple(row.job_id for row in back),
        suspects=tuple(suspects),
        dead_lettered=tuple(jobs),
        notes=tuple(one.note for one in failures),
        ended=tuple(EndedJob.of(job, JobStatus.FAILED) for job in jobs.values()),
    )


def held_back(row: QueueRow, now: datetime) -> QueueRow:
    """The row of a job that waits for the code of its last run to end; *row* has its own due time."""
    held_until = max(row.scheduled_at, now + LONGEST_HOLD)
    return replace(row, scheduled_at=held_until, held_claim_id=row.claim_id)


def _crashed(session: Session, streams: StreamRegistry, row: QueueRow) -> QueueRow:
    crashes = row.crashes + 1
    stream_id = row.stream_id
    if crashes >= SUSPECT_AFTER:
        stream_id = streams.id_of(session, replace(streams.key_of(stream_id, session), suspect=True))
    return replace(row, crashes=crashes, stream_id=stream_id, held_claim_id=None)


def _permit_holders(
    session: Session, streams: StreamRegistry, held: Mapping[UUID, QueueRow]
) -> list[tuple[UUID, UUID]]:
    """Those of these runs that may hold permits (job, claim)."""
    gated = {
        stream_id
        for stream_id in {row.stream_id for row in held.values()}
        if streams.needs_permit(stream_id, session)
    }
    return [
        (row.job_id, row.claim_id)
        for row in held.values()
        if row.claim_id is not None and row.stream_id in gated
    ]
