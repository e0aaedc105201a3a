"""Executions, rates, logs and the archive in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from uuid import UUID

from ratchet.model.flow import QueuedSample, RunSample
from ratchet.model.flow_history import FlowPeriod
from ratchet.model.job import Execution, LogEntry, LogLine
from ratchet.model.storage import Kept
from ratchet.stores.bounded_scan import STEP, Stretch, Walk
from ratchet.stores.sql.database import Database, Row, Session, SqlPart
from ratchet.stores.sql.rows.flow_periods import (
    find_periods,
    insert_periods,
    merge_slot,
    oldest_minute,
    purge_periods,
)
from ratchet.stores.sql.rows.samples import between, queued_samples, run_samples
from ratchet.stores.sql.rows.stream_registry import StreamRegistry
from ratchet.stores.unreadable import readable

#: Every column of scheduler_job; scheduler_job_archive has the same and archived_at.
JOB_COLUMNS = """
    job_id, root_id, target, payload, params, job_type, priority, stream_id, status, created_at, scheduled_at,
    expires_at, max_retries, backoff, backoff_base_us, jitter, timeout_us, no_retry_for, idempotency_key,
    business_key, on_success, on_failure, parent_id, batch_id, schedule, caller, needs, has_dependants,
    has_conditions, signal_key, signal, attempts, crashes, started_at, finished_at, node_id, error, error_type,
    result, result_truncated, progress, progress_message, state, paused_from, superseded_by, canceled_reason,
    canceled_by, dead_letter_reason, held_at, dead_lettered_at, expiry_due_at, signal_due_at
"""

LIST_RUNS = """
    SELECT job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, status, counted,
           error, error_type, traceback
      FROM scheduler_job_execution
     WHERE job_id = :job_id AND (counted OR CAST(:uncounted AS {bool}))
     ORDER BY COALESCE(finished_at, started_at, scheduled_at), claim_id
"""

OLDEST_RUNS = """
    SELECT e.job_id, e.claim_id, COALESCE(e.finished_at, e.started_at, e.scheduled_at) AS finished_at,
           COALESCE(j.created_at, a.created_at) AS created_at,
           (j.job_id IS NULL OR j.status IN ('SUCCEEDED', 'FAILED', 'CANCELED')) AS has_ended
      FROM (SELECT job_id, claim_id, finished_at, started_at, scheduled_at
              FROM scheduler_job_execution
             WHERE job_id >= CAST(:job_id AS {uuid})
               AND (job_id, claim_id) > (CAST(:job_id AS {uuid}), CAST(:claim_id AS {uuid}))
             ORDER BY job_id, claim_id
             LIMIT :step) e
      LEFT JOIN scheduler_job j ON j.job_id = e.job_id
      LEFT JOIN scheduler_job_archive a ON a.job_id = e.job_id
     ORDER BY e.job_id, e.claim_id
"""

DELETE_RUNS = """
    DELETE FROM scheduler_job_execution
     WHERE job_id {in ids uuid}
       AND ((job_id, claim_id) IN (SELECT r.job_id, r.claim_id FROM {rows r (job_id, claim_id)})) IS TRUE
"""

# A run has lost its job when it was rescued (CRASHED), or when it holds it no longer and has left no
# row of its own. Where a job has no rows at all they were purged; then none of its lines is lost.
LIST_LINES = """
    SELECT l.logged_at, l.level, l.logger, l.message, l.attempt,
           CASE WHEN e.status IS NOT NULL THEN e.status = 'CRASHED'
                WHEN q.claim_id = l.claim_id THEN false
                ELSE q.job_id IS NOT NULL
                     OR EXISTS (SELECT 1 FROM scheduler_job_execution o WHERE o.job_id = l.job_id)
            END AS is_lost
      FROM scheduler_job_log l
      LEFT JOIN scheduler_job_execution e ON e.job_id = l.job_id AND e.claim_id = l.claim_id
      LEFT JOIN scheduler_job_queue q ON q.job_id = l.job_id
     WHERE l.job_id = :job_id
     ORDER BY l.claim_id DESC, l.sequence DESC
     LIMIT :limit
"""

LOG_COLUMNS = ("job_id", "claim_id", "sequence", "attempt", "logged_at", "level", "logger", "message")

OLD_LINES = """
    SELECT job_id, claim_id, sequence
      FROM scheduler_job_log
     WHERE logged_at < :before
     LIMIT :limit
    {for update skip locked}
"""

DELETE_LINES = """
    DELETE FROM scheduler_job_log
     WHERE job_id {in ids uuid}
       AND ((job_id, claim_id, sequence) IN (SELECT r.job_id, r.claim_id, r.sequence
                                               FROM {rows r (job_id, claim_id, sequence)})) IS TRUE
"""

OLDEST_JOBS = """
    SELECT job_id, created_at, status, finished_at
      FROM scheduler_job
     WHERE job_id > :position
     ORDER BY job_id
     LIMIT :step
"""

#: How many are old, of each kind. There is no index for the time at which a job or a run has ended: among the first ids.
COUNT_OLD = {
    Kept.JOBS: """
        SELECT count(*) FROM (SELECT status, finished_at FROM scheduler_job ORDER BY job_id LIMIT :limit) o
         WHERE o.status IN ('SUCCEEDED', 'CANCELED') AND o.finished_at < :before
    """,
    Kept.DEAD_LETTERS: """
        SELECT count(*)
          FROM (SELECT job_id FROM scheduler_job
                 WHERE dead_lettered_at IS NOT NULL AND dead_lettered_at < :before AND status = 'FAILED'
                 LIMIT :limit) o
    """,
    Kept.LOGS: """
        SELECT count(*) FROM (SELECT job_id FROM scheduler_job_log WHERE logged_at < :before LIMIT :limit) o
    """,
    Kept.EXECUTIONS: """
        SELECT count(*)
          FROM (SELECT finished_at FROM scheduler_job_execution ORDER BY job_id, claim_id LIMIT :limit) o
         WHERE o.finished_at < :before
    """,
    Kept.ARCHIVE: """
        SELECT count(*)
          FROM (SELECT job_id FROM scheduler_job_archive WHERE archived_at < :before LIMIT :limit) o
    """,
}

# There is no index for the earliest time of creation, so this is the earliest among the first ids.
OLDEST_CREATED_AT = """
    SELECT min(o.created_at) AS created_at
      FROM (SELECT created_at FROM scheduler_job ORDER BY job_id LIMIT :step) o
"""

OLDEST_ARCHIVED_AT = """
    SELECT archived_at FROM scheduler_job_archive ORDER BY archived_at LIMIT 1
"""

LOCK_OLD_JOBS = """
    SELECT job_id
      FROM scheduler_job
     WHERE job_id {in ids uuid} AND status IN ('SUCCEEDED', 'CANCELED') AND finished_at < :before
     ORDER BY job_id
    {for update skip locked}
"""

#: True for a job that nothing unfinished needs. The last condition keeps what a retry of a dead letter would need again;
#: `find_archivable` says what else may bring a job back.
IS_ARCHIVABLE = """
           NOT EXISTS (SELECT 1 FROM scheduler_batch b WHERE b.batch_id = j.batch_id AND b.finished_at IS NULL)
       AND (j.job_type <> 'BATCH_PARENT'
            OR NOT EXISTS (SELECT 1 FROM scheduler_batch b WHERE b.parent_id = j.job_id AND b.finished_at IS NULL))
       AND NOT EXISTS (SELECT 1
                         FROM scheduler_dependency d
                         JOIN scheduler_job c ON c.job_id = d.child_id
                        WHERE d.parent_id = j.job_id
                          AND (c.status IN ('PENDING', 'WAITING')
                               OR (c.status = 'PAUSED' AND c.paused_from <> 'FAILED')))
       AND NOT EXISTS (SELECT 1
                         FROM scheduler_job f
                        WHERE f.job_id = j.canceled_by
                          AND (f.status = 'FAILED' OR (f.status = 'PAUSED' AND f.paused_from = 'FAILED')))
"""

# Asked while the jobs are locked; a submission of a new dependant must take the same locks.
FIND_ARCHIVABLE = f"""
    SELECT j.job_id, j.job_type, j.canceled_by
      FROM scheduler_job j
     WHERE j.job_id {{in ids uuid}} AND {IS_ARCHIVABLE}
     ORDER BY j.job_id
"""

_HAS_FAILED = "(p.status = 'FAILED' OR (p.status = 'PAUSED' AND p.paused_from = 'FAILED'))"

# A batch opens again when one of its failed children is retried; its parent then waits again.
FIND_PARENTS_TO_REOPEN = f"""
    SELECT b.parent_id
      FROM scheduler_batch b
     WHERE b.parent_id {{in ids uuid}}
       AND (b.finished_at IS NULL
            OR (b.failed > 0
                AND EXISTS (SELECT 1 FROM scheduler_job p WHERE p.batch_id = b.batch_id AND {_HAS_FAILED})))
"""

# The parents from which a canceled job may come back: failed ones, parents of batches, canceled ones.
FIND_ABOVE = f"""
    SELECT d.child_id, d.parent_id, {_HAS_FAILED} AS has_failed, p.job_type, p.canceled_by
      FROM scheduler_dependency d
      JOIN scheduler_job p ON p.job_id = d.parent_id
     WHERE d.child_id {{in ids uuid}}
       AND ({_HAS_FAILED} OR p.job_type = 'BATCH_PARENT' OR (p.status = 'CANCELED' AND p.canceled_by IS NOT NULL))
"""

COPY_TO_ARCHIVE = f"""
    INSERT INTO scheduler_job_archive ({JOB_COLUMNS}, archived_at)
    SELECT {JOB_COLUMNS}, CAST(:now AS {{time}}) FROM scheduler_job WHERE job_id {{in ids uuid}}
"""

DELETE_JOBS = """
    DELETE FROM scheduler_job WHERE job_id {in ids uuid}
"""

LOCK_OLD_ARCHIVED = """
    SELECT job_id, job_type
      FROM scheduler_job_archive
     WHERE archived_at < :before
     ORDER BY archived_at, job_id
     LIMIT :limit
    {for update skip locked}
"""

FIND_BATCHES_OF_PARENTS = """
    SELECT batch_id FROM scheduler_batch WHERE parent_id {in ids uuid}
"""

# Everything that is known of an archived job, the job itself last.
FORGET_ARCHIVED = (
    "DELETE FROM scheduler_job_tag WHERE job_id {in ids uuid}",
    "DELETE FROM scheduler_job_execution WHERE job_id {in ids uuid}",
    "DELETE FROM scheduler_job_log WHERE job_id {in ids uuid}",
    "DELETE FROM scheduler_workflow_condition WHERE parent_id {in ids uuid}",
    "DELETE FROM scheduler_dependency WHERE parent_id {in ids uuid}",
    "DELETE FROM scheduler_dependency WHERE child_id {in ids uuid}",
    "DELETE FROM scheduler_job_archive WHERE job_id {in ids uuid}",
)

FORGET_BATCHES = (
    "DELETE FROM scheduler_batch_metrics WHERE batch_id {in ids uuid}",
    "DELETE FROM scheduler_batch WHERE batch_id {in ids uuid}",
)

#: Levels of canceled jobs that are looked at above one that may be archived. What is below more of them waits until
#: those above are in the archive.
_LEVELS = 50

_NIL = UUID(int=0)


def find_archivable(session: Session, job_ids: Sequence[UUID]) -> list[UUID]:
    """
    Those of these ended jobs, locked by the caller, that nothing needs and no retry can bring back; in order.

    A retry can bring back the parent of a batch with failed children, and what was canceled below such a parent or
    below a failed job: also a join of which another parent has failed.
    """
    rows = session.rows(FIND_ARCHIVABLE, {"ids": list(job_ids)}) if job_ids else []
    kept = _parents_to_reopen(session, [job_id for job_id, kind, _ in rows if kind == "BATCH_PARENT"])
    kept |= _may_wait_again(session, [job_id for job_id, _, canceled_by in rows if canceled_by is not None])
    return [job_id for job_id, _, _ in rows if job_id not in kept]


def _parents_to_reopen(session: Session, job_ids: Sequence[UUID]) -> set[UUID]:
    rows = session.rows(FIND_PARENTS_TO_REOPEN, {"ids": sorted(set(job_ids))}) if job_ids else []
    return {parent_id for (parent_id,) in rows}


def _may_wait_again(session: Session, job_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these canceled jobs that the retry of a job above them may revive, and others from their families."""
    below: dict[UUID, list[UUID]] = {}
    seen, level, kept = set(job_ids), sorted(job_ids), set[UUID]()
    for _ in range(_LEVELS):
        if not level:
            break
        rows = session.rows(FIND_ABOVE, {"ids": level})
        reopen = _parents_to_reopen(session, [row[1] for row in rows if row[3] == "BATCH_PARENT"])
        for child_id, parent_id, has_failed, _, _ in rows:
            below.setdefault(parent_id, []).append(child_id)
            if has_failed or parent_id in reopen:
                kept.add(parent_id)
        level = sorted({row[1] for row in rows if row[4] is not None} - seen - kept)
        seen.update(level)
    waiting = [*kept, *level]
    while waiting:
        for child_id in below.get(waiting.pop(), ()):
            if child_id not in kept:
                kept.add(child_id)
                waiting.append(child_id)
    return kept


def archive_jobs(session: Session, job_ids: Sequence[UUID], *, now: datetime) -> None:
    """Move cold rows that the caller has locked to the archive; their runs, tags and logs stay where they are."""
    if job_ids:
        session.execute(COPY_TO_ARCHIVE, {"ids": list(job_ids), "now": now})
        session.execute(DELETE_JOBS, {"ids": list(job_ids)})


class SqlHistory(SqlPart):
    """What jobs did, and where they go when they are done."""

    def __init__(self, database: Database, streams: StreamRegistry) -> None:
        super().__init__(database, streams)
        self._archiving: Walk[UUID] = Walk()
        self._purging_runs: Walk[tuple[UUID, UUID]] = Walk()

    # --- executions ---------------------------------------------------------------------------

    def executions(self, job_id: UUID, *, uncounted: bool = False) -> list[Execution]:
        """The runs of a job, oldest first; with *uncounted* also crashed, handed-back and canceled ones."""
        values = {"job_id": job_id, "uncounted": uncounted}
        rows = self.database.read(lambda session: session.rows(LIST_RUNS, values))
        return readable(rows, _execution, "scheduler_job_execution", itemgetter(slice(2)))

    def run_samples(self, *, limit: int) -> list[RunSample]:
        """The newest runs that have ended, by the ids of their jobs, newest first; at most *limit*."""
        keys_of = self.stream_registry.recorded_keys
        return self.database.read(
            lambda session: run_samples(session, lambda ids: keys_of(ids, session, committed=True), limit)
        )

    def queued_samples(self, *, limit: int) -> list[QueuedSample]:
        """Jobs that are PENDING or RUNNING, at most *limit*."""
        keys_of = self.stream_registry.recorded_keys
        return self.database.read(
            lambda session: queued_samples(session, lambda ids: keys_of(ids, session, committed=True), limit)
        )

    def purge_executions(self, *, before: datetime, limit: int) -> int:
        """Delete runs of ended jobs that finished before *before*; at most *limit*."""

        def step(position: tuple[UUID, UUID] | None, room: int) -> Stretch[tuple[UUID, UUID]]:
            job_id, claim_id = position or (_NIL, _NIL)
            values = {"job_id": job_id, "claim_id": claim_id, "step": STEP}
            runs = self.database.read(lambda session: session.rows(OLDEST_RUNS, values))
            old = [
                (job_id, claim_id)
                for job_id, claim_id, finished_at, _, ended in runs
                if ended and isinstance(finished_at, datetime) and finished_at < before
            ][:room]
            removed = self.change(lambda session: _delete_runs(session, old)) if old else 0
            if len(old) == room:
                return Stretch(old[-1], len(runs), removed)
            # a run is younger than its job, so behind jobs that are too young nothing is left to do
            beyond = len(runs) == STEP and any(
                not isinstance(created, datetime) or created < before for _, _, _, created, _ in runs
            )
            return Stretch(runs[-1][:2] if beyond else None, len(runs), removed)

        return self._purging_runs.remove(step, limit)

    # --- rates --------------------------------------------------------------------------------

    def record_flow(self, periods: Sequence[FlowPeriod]) -> int:
        """Store what flowed; a period that is there already is left alone. How many were not."""
        return self.database.run(lambda session: insert_periods(session, periods)) if periods else 0

    def flow(self, *, since: datetime, until: datetime, only: str | None = None) -> list[FlowPeriod]:
        """The periods that began in this time, oldest first; with *only* no other queue is in them."""
        return self.database.read(lambda session: find_periods(session, since, until, only))

    def merge_flow(self, *, before: datetime) -> int:
        """Merge the oldest minutes that began before *before* into one period; how many minutes."""
        # The look takes no lock, and most find nothing.
        at = self.database.read(lambda session: oldest_minute(session, before))
        return 0 if at is None else self.database.run(lambda session: merge_slot(session, at))

    def purge_flow(self, *, before: datetime, limit: int) -> int:
        """Delete periods that began before *before*; at most *limit*."""
        return self.database.run(lambda session: purge_periods(session, before, limit))

    # --- logs ---------------------------------------------------------------------------------

    def append_logs(self, entries: Sequence[LogEntry], *, now: datetime) -> None:
        """Store lines; a line that is already there (job, claim, sequence) is left alone."""
        if not entries:
            return
        lines = [_line_values(entry) for entry in entries]
        self.database.run(
            lambda session: session.insert_rows(
                "scheduler_job_log", LOG_COLUMNS, lines, on_conflict_do_nothing=True
            )
        )

    def logs(self, job_id: UUID, *, limit: int = 1000) -> list[LogLine]:
        """
        The newest *limit* lines of a job, run by run, each run's in the order they were logged.

        Lines of a run that lost the job (its node was declared dead while it ran) are ``lost``.
        """
        values = {"job_id": job_id, "limit": limit}
        rows = self.database.read(lambda session: session.rows(LIST_LINES, values))
        return readable(reversed(rows), _log_line, "scheduler_job_log", itemgetter(slice(2)))

    def purge_logs(self, *, before: datetime, limit: int) -> int:
        """Delete lines older than *before*; at most *limit*."""

        def purge(session: Session) -> int:
            lines = session.rows(OLD_LINES, {"before": before, "limit": limit})
            if not lines:
                return 0
            return session.execute(DELETE_LINES, {"ids": sorted({line[0] for line in lines}), "r": lines})

        return self.change(purge)

    # --- archive ------------------------------------------------------------------------------

    def archive(self, *, before: datetime, limit: int, now: datetime) -> int:
        """
        Move SUCCEEDED and CANCELED jobs that finished before *before* to the archive; at most *limit*.

        Not while a job that has not ended depends on them, their batch is open, or a dead letter can
        still be retried that would bring them back. A walk in the order of ids: no index covers the
        time at which a job ended, because every success would have to pay for it.
        """

        def step(position: UUID | None, room: int) -> Stretch[UUID]:
            values = {"position": position or _NIL, "step": STEP}
            jobs = self.database.read(lambda session: session.rows(OLDEST_JOBS, values))
            old = [
                job_id
                for job_id, _, status, finished_at in jobs
                if status in ("SUCCEEDED", "CANCELED")
                and isinstance(finished_at, datetime)
                and finished_at < before
            ][:room]
            removed = self.change(lambda session: _archive_old(session, old, before, now)) if old else 0
            if len(old) == room:
                return Stretch(old[-1], len(jobs), removed)
            # no job ends before it was created
            beyond = len(jobs) == STEP and any(
                not isinstance(created, datetime) or created < before for _, created, _, _ in jobs
            )
            return Stretch(jobs[-1][0] if beyond else None, len(jobs), removed)

        return self._archiving.remove(step, limit)

    def purge_archive(self, *, before: datetime, limit: int) -> int:
        """Delete archived jobs that were archived before *before*, with all that is known of them; at most *limit*."""

        def purge(session: Session) -> int:
            jobs = session.rows(LOCK_OLD_ARCHIVED, {"before": before, "limit": limit})
            if not jobs:
                return 0
            parents = [job_id for job_id, job_type in jobs if job_type == "BATCH_PARENT"]
            if parents:
                batches = [
                    batch_id for (batch_id,) in session.rows(FIND_BATCHES_OF_PARENTS, {"ids": parents})
                ]
                for statement in FORGET_BATCHES:
                    session.execute(statement, {"ids": batches})
            for statement in FORGET_ARCHIVED:
                session.execute(statement, {"ids": [job_id for job_id, _ in jobs]})
            return len(jobs)

        return self.change(purge)

    def count_old(self, kind: Kept, *, before: datetime, limit: int) -> int:
        """How many rows of a kind are older than *before*: at most *limit*, of jobs and runs among the first *limit* ids."""
        values = {"before": before, "limit": limit}
        found: int = self.database.read(lambda session: session.value(COUNT_OLD[kind], values))
        return found

    def oldest_created_at(self) -> datetime | None:
        """When the oldest job outside the archive was created, as far as the first ids tell; None: there is none."""
        return self._time(OLDEST_CREATED_AT, {"step": STEP})

    def oldest_archived_at(self) -> datetime | None:
        """When the job that has been in the archive longest was archived; None: it is empty."""
        return self._time(OLDEST_ARCHIVED_AT, {})

    def _time(self, sql: str, values: dict[str, object]) -> datetime | None:
        rows = self.database.read(lambda session: session.rows(sql, values))
        found = rows[0][0] if rows else None
        return found if isinstance(found, datetime) else None


def _delete_runs(session: Session, runs: list[tuple[UUID, UUID]]) -> int:
    return session.execute(DELETE_RUNS, {"ids": sorted({job_id for job_id, _ in runs}), "r": runs})


def _archive_old(session: Session, job_ids: list[UUID], before: datetime, now: datetime) -> int:
    locked = [job_id for (job_id,) in session.rows(LOCK_OLD_JOBS, {"ids": job_ids, "before": before})]
    free = find_archivable(session, locked)
    archive_jobs(session, free, now=now)
    return len(free)


def _execution(row: Row) -> Execution:
    (job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, status, counted, *rest) = row
    error, error_type, traceback = rest
    return Execution(
        job_id=job_id,
        claim_id=claim_id,
        attempt=attempt,
        node_id=node_id,
        started_at=started_at,
        finished_at=finished_at,
        duration=between(started_at, finished_at),
        queue_wait=between(scheduled_at, started_at),
        status=status,
        error=error,
        traceback=traceback,
        counted=counted,
        error_type=error_type,
    )


def _line_values(entry: LogEntry) -> tuple[object, ...]:
    # One bad line must not spoil the others: what a column cannot hold is replaced or cut.
    return (
        entry.job_id,
        entry.claim_id,
        entry.sequence,
        entry.attempt,
        entry.at,
        _storable(entry.level)[:16],
        _storable(entry.logger)[:255],
        _storable(entry.message),
    )


def _storable(text: str) -> str:
    return text.replace("\0", "\\u0000").encode(errors="backslashreplace").decode()


def _log_line(row: Row) -> LogLine:
    at, level, logger, message, attempt, lost = row
    return LogLine(at=at, level=level, logger=logger, message=message, attempt=attempt, lost=lost)
