"""How jobs end without success: the rows of canceled and failed jobs, of their runs and of alerts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from ratchet.model.alerts import ALERT_WINDOW, alert_ids, cause_of
from ratchet.model.decision import ErrorRecord
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.rows.keys_and_permits import free_keys, keep_keys
from ratchet.stores.sql.rows.locked import LockedJob

LEAVE_QUEUE = "DELETE FROM scheduler_job_queue WHERE job_id {in ids uuid}"

CANCEL_JOBS = """
    UPDATE scheduler_job
       SET status = 'CANCELED', finished_at = :now, attempts = gone.attempts, crashes = gone.crashes,
           scheduled_at = gone.scheduled_at, started_at = gone.started_at, node_id = gone.node_id,
           canceled_reason = gone.canceled_reason, canceled_by = gone.canceled_by, superseded_by = gone.superseded_by,
           paused_from = NULL, held_at = NULL, dead_lettered_at = NULL, expiry_due_at = NULL, signal_due_at = NULL
      FROM {rows gone (job_id, attempts, crashes, scheduled_at, started_at, node_id, canceled_reason, canceled_by,
                       superseded_by)}
     WHERE scheduler_job.job_id = gone.job_id
"""

FAIL_JOBS = """
    UPDATE scheduler_job
       SET status = 'FAILED', finished_at = :now, attempts = dead.attempts, crashes = dead.crashes,
           scheduled_at = dead.scheduled_at, started_at = dead.started_at, node_id = dead.node_id,
           error = dead.error, error_type = dead.error_type, dead_letter_reason = dead.dead_letter_reason,
           dead_lettered_at = :now, held_at = NULL, expiry_due_at = NULL, signal_due_at = NULL
      FROM {rows dead (job_id, attempts, crashes, scheduled_at, started_at, node_id, error, error_type,
                       dead_letter_reason)}
     WHERE scheduler_job.job_id = dead.job_id
"""

FIND_RECENT_ALERTS = """
    SELECT alert_id, error_hash
      FROM scheduler_dlq_alert
     WHERE alert_id {in ids uuid} AND created_at > :since
     ORDER BY created_at
"""

FIND_WHO_RAISED = "SELECT job_id FROM scheduler_dlq_alert WHERE alert_id {in ids uuid}"

COUNT_SUPPRESSED = """
    UPDATE scheduler_dlq_alert SET suppressed = suppressed + :more WHERE alert_id = :alert_id
"""

EXECUTION_COLUMNS = (
    "job_id",
    "claim_id",
    "attempt",
    "node_id",
    "scheduled_at",
    "started_at",
    "finished_at",
    "status",
    "counted",
    "error",
    "error_type",
    "traceback",
)


class Cancellation(Struct, frozen=True):
    """One job to cancel, and why. ``canceled_by``: the job whose end caused it, and whose retry revives it."""

    job: LockedJob
    reason: str
    canceled_by: UUID | None = None
    superseded_by: UUID | None = None


class FailureNote(NamedTuple):
    """What an alert says of a failure."""

    job_id: UUID
    target: str
    error_hash: str
    error: str | None
    reason: str


class Failure(Struct, frozen=True):
    """One job to fail for good, and why."""

    job: LockedJob
    error: ErrorRecord
    reason: str
    crashed: bool = False  # counts one crash
    still_running: bool = False  # the code of its run

    @property
    def note(self) -> FailureNote:
        """What an alert says of it."""
        cause = cause_of(self.job.target, self.error.type)
        return FailureNote(self.job.job_id, self.job.target, cause, self.error.summary, self.reason)


def write_canceled(session: Session, cancellations: Sequence[Cancellation], now: datetime) -> None:
    """
    Make locked jobs CANCELED, with everything but their dependants (see `dependants.edges.settle_edges`).

    The run of a RUNNING job gets its row; its key and permits stay taken until its code has ended.
    """
    if not cancellations:
        return
    jobs = [one.job for one in cancellations]
    if queued := sorted(job.job_id for job in jobs if job.queue is not None):
        session.execute(LEAVE_QUEUE, {"ids": queued})
    session.execute(
        CANCEL_JOBS,
        {
            "gone": [
                (*_run_of(one.job), one.reason, one.canceled_by, one.superseded_by) for one in cancellations
            ],
            "now": now,
        },
    )
    write_runs(
        session,
        [_canceled_run(one, now) for one in cancellations if one.job.queue and one.job.queue.claim_id],
    )
    _let_go(session, jobs)


def write_failed(session: Session, failures: Sequence[Failure], now: datetime) -> None:
    """
    Make locked jobs FAILED, with everything but their dependants and the alerts (see `write_alerts`).

    A job that has a queue row loses it; for a RUNNING one the caller writes the run. Its node is dead
    or knows, so keys are freed, except the key of one whose code is still running.
    """
    if not failures:
        return
    jobs = [one.job for one in failures]
    if queued := sorted(job.job_id for job in jobs if job.queue is not None):
        session.execute(LEAVE_QUEUE, {"ids": queued})
    session.execute(
        FAIL_JOBS,
        {
            "dead": [_dead_row(one) for one in failures],
            "now": now,
        },
    )
    keyed = [one for one in failures if one.job.business_key is not None]
    keep_keys(
        session,
        [
            (one.job.job_id, *one.job.still_running)
            for one in keyed
            if one.still_running and one.job.still_running
        ],
    )
    free_keys(session, [one.job.job_id for one in keyed if not one.still_running])


def write_alerts(
    session: Session, failures: Iterable[FailureNote], now: datetime, *, window: timedelta = ALERT_WINDOW
) -> set[UUID]:
    """
    Record an alert for each error hash among *failures*; the jobs that raised one.

    Where there is one of the same hash that is younger than *window*, that one counts them instead. Every node whose
    jobs fail of one cause changes the same row, so this comes last in a transaction: it is locked only while that commits.
    """
    causes: dict[str, list[FailureNote]] = {}
    for one in failures:
        causes.setdefault(one.error_hash, []).append(one)
    if not causes:
        return set()
    ids = {error_hash: alert_ids(error_hash, now, window) for error_hash in causes}
    asked = {"ids": sorted(one for three in ids.values() for one in three), "since": now - window}
    recent = {
        error_hash.strip(): alert_id for alert_id, error_hash in session.rows(FIND_RECENT_ALERTS, asked)
    }
    new = {ids[error_hash][0]: those for error_hash, those in causes.items() if error_hash not in recent}
    raised = _raise_alerts(session, new, now)
    counts = {
        recent.get(error_hash, ids[error_hash][0]): len(those)
        for error_hash, those in causes.items()
        if those[0].job_id not in raised
    }
    for alert_id, more in sorted(counts.items()):
        session.execute(COUNT_SUPPRESSED, {"alert_id": alert_id, "more": more})
    return raised


def _raise_alerts(session: Session, new: Mapping[UUID, Sequence[FailureNote]], now: datetime) -> set[UUID]:
    """Insert these alerts, by id; the jobs for which nobody else was faster."""
    if not new:
        return set()
    session.insert_rows(
        "scheduler_dlq_alert",
        ("alert_id", "job_id", "target", "error_hash", "error", "reason", "created_at", "suppressed"),
        [(alert_id, *those[0], now, len(those) - 1) for alert_id, those in sorted(new.items())],
        on_conflict_do_nothing=True,
    )
    found = {job_id for (job_id,) in session.rows(FIND_WHO_RAISED, {"ids": sorted(new)})}
    return found & {those[0].job_id for those in new.values()}


def write_runs(session: Session, runs: Sequence[tuple[object, ...]]) -> None:
    """Insert execution rows, columns as in `EXECUTION_COLUMNS`."""
    if runs:
        session.insert_rows("scheduler_job_execution", EXECUTION_COLUMNS, runs, on_conflict_do_nothing=True)


def _run_of(job: LockedJob) -> tuple[object, ...]:
    started_at, node_id = job.started_at, job.node_id if job.has_failed else None
    if job.queue is not None and job.queue.claim_id is not None:
        started_at, node_id = job.queue.claimed_at, job.queue.node_id
    return (job.job_id, job.attempts, job.crashes, job.scheduled_at, started_at, node_id)


def _dead_row(one: Failure) -> tuple[object, ...]:
    job_id, attempts, _, *run = _run_of(one.job)
    crashes = one.job.crashes + one.crashed
    return (job_id, attempts, crashes, *run, one.error.summary, one.error.type, one.reason)


def _canceled_run(one: Cancellation, now: datetime) -> tuple[object, ...]:
    run = one.job.queue
    assert run is not None
    known = (run.job_id, run.claim_id, run.attempts + 1, run.node_id)
    return (*known, run.scheduled_at, run.claimed_at, now, "CANCELED", False, one.reason, None, None)


def _let_go(session: Session, jobs: Iterable[LockedJob]) -> None:
    freed: list[UUID] = []
    kept: list[tuple[UUID, UUID, str]] = []
    for job in jobs:
        if job.business_key is None:
            continue
        if job.still_running is not None:
            kept.append((job.job_id, *job.still_running))
        else:
            freed.append(job.job_id)
    keep_keys(session, kept)
    free_keys(session, freed)
