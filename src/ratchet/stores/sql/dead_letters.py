"""Dead letters and alerts in SQL; both are written by the transaction that fails the job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from ratchet.model.cursors import dead_letter_cursor, dead_letter_position
from ratchet.model.job import Alert, DeadLetter, JobFilter, Page
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.sql.rows.records import ARCHIVED_JOBS, LIVE_JOBS
from ratchet.stores.sql.rows.search import Criteria

LETTER_COLUMNS = """
    j.job_id, j.dead_lettered_at, j.target, j.error, j.error_type, j.dead_letter_reason, j.attempts, j.crashes
"""

ALERT_COLUMNS = "alert_id, job_id, target, error_hash, error, reason, created_at, suppressed"

FIND_ALERTS_OF = f"""
    SELECT {ALERT_COLUMNS}
      FROM scheduler_dlq_alert
     WHERE job_id {{in ids uuid}}
     ORDER BY job_id, created_at, alert_id
"""

LATEST_ALERTS = f"""
    SELECT {ALERT_COLUMNS}
      FROM scheduler_dlq_alert
     WHERE created_at >= COALESCE(CAST(:since AS {{time}}), created_at)
     ORDER BY created_at DESC, alert_id DESC
     LIMIT :limit
"""


class SqlDeadLetters(SqlPart):
    """Reads dead letters and alerts."""

    def dead_letters(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """FAILED jobs, latest failure first, each with its alerts; those in the archive only where *where* says so."""
        after = None if cursor is None else dead_letter_position(cursor)
        return self.database.read(lambda session: _find_page(session, where or JobFilter(), limit, after))

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        values = {"since": since, "limit": limit}
        return [
            _alert(row) for row in self.database.read(lambda session: session.rows(LATEST_ALERTS, values))
        ]

    def alerts_of(self, job_id: UUID) -> list[Alert]:
        """The alerts of one job, oldest first."""
        found = self.database.read(lambda session: _alerts_of(session, [job_id]))
        return found.get(job_id, [])


def _find_page(
    session: Session, where: JobFilter, limit: int, after: tuple[datetime, UUID] | None
) -> Page[DeadLetter]:
    if where.statuses is not None and JobStatus.FAILED not in {
        JobStatus(status) for status in where.statuses
    }:
        return Page([])
    where = replace(where, statuses=[JobStatus.FAILED])
    found = _letters(session, where, limit + 1, after, archived=False)
    if where.include_archived:
        found += _letters(session, where, limit + 1, after, archived=True)
        found.sort(key=lambda row: (row[1], row[0]), reverse=True)
    page = found[:limit]
    alerts = _alerts_of(session, [row[0] for row in page])
    letters = [_letter(row, alerts.get(row[0], ())) for row in page]
    more = bool(page) and len(found) > limit
    return Page(letters, dead_letter_cursor(letters[-1]) if more else None)


def _letters(
    session: Session, where: JobFilter, limit: int, after: tuple[datetime, UUID] | None, *, archived: bool
) -> list[Row]:
    criteria = Criteria(where, archived=archived)
    if after is not None:
        failed_at, job_id = after
        criteria.add(
            "(j.dead_lettered_at, j.job_id) < (CAST(:failed_at AS {time}), CAST(:after AS {uuid}))",
            failed_at=failed_at,
            after=job_id,
        )
    source = ARCHIVED_JOBS if archived else LIVE_JOBS
    sql = f"""
        SELECT {LETTER_COLUMNS}
          FROM {source}
         WHERE {criteria.text}
         ORDER BY j.dead_lettered_at DESC, j.job_id DESC
         LIMIT :limit
    """
    return session.rows(sql, {**criteria.binds, "limit": limit})


def _alerts_of(session: Session, job_ids: list[UUID]) -> dict[UUID, list[Alert]]:
    found: dict[UUID, list[Alert]] = {}
    if job_ids:
        for row in session.rows(FIND_ALERTS_OF, {"ids": job_ids}):
            found.setdefault(row[1], []).append(_alert(row))
    return found


def _letter(row: Row, alerts: Iterable[Alert]) -> DeadLetter:
    job_id, failed_at, target, error, error_type, reason, attempts, crashes = row
    return DeadLetter(
        job_id=job_id,
        target=target,
        error=error,
        reason=reason or "",
        attempts=attempts,
        failed_at=failed_at,
        alerts=tuple(alerts),
        crashes=crashes,
        error_type=error_type,
    )


def _alert(row: Row) -> Alert:
    alert_id, job_id, target, error_hash, error, reason, created_at, suppressed = row
    return Alert(
        alert_id=alert_id,
        job_id=job_id,
        target=target,
        error_hash=error_hash.strip(),
        error=error,
        reason=reason,
        created_at=created_at,
        suppressed=suppressed,
    )
