"""Dead letters and alerts in SQL; both are written by the transaction that fails the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from uuid import UUID

from msgspec import structs

from ratchet.model.alerts import alerts_about, cause_of
from ratchet.model.cursors import dead_letter_cursor, dead_letter_position
from ratchet.model.job import Alert, DeadLetter, DeadLetterGroup, JobFilter, Page
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.sql.rows.search import Criteria
from ratchet.stores.unreadable import NO_TIME, Column, Shape, Time, readable

_ALERTS = "scheduler_dlq_alert"

LETTER_COLUMNS = """
    j.job_id, j.dead_lettered_at, j.target, j.error, j.error_type, j.dead_letter_reason, j.attempts, j.crashes
"""

_NOBODY = UUID(int=0)

ALERT_COLUMNS = "alert_id, job_id, target, error_hash, error, reason, created_at, suppressed"

# There are few alerts, so those of a cause are found without an index.
FIND_ALERTS_ABOUT = f"""
    SELECT {ALERT_COLUMNS}
      FROM scheduler_dlq_alert
     WHERE job_id {{in ids uuid}} OR error_hash {{in causes text}}
     ORDER BY created_at, alert_id
"""

FIND_LETTER = f"SELECT {LETTER_COLUMNS} FROM scheduler_job j WHERE j.job_id = :job_id"

LATEST_ALERTS = f"""
    SELECT {ALERT_COLUMNS}
      FROM scheduler_dlq_alert
     WHERE created_at >= COALESCE(CAST(:since AS {{time}}), created_at)
     ORDER BY created_at DESC, alert_id DESC
     LIMIT :limit
"""


_LETTER = Shape(
    Column("job_id", UUID),
    Column("dead_lettered_at", Time, NO_TIME),
    Column("target", str, ""),
    Column("error", str | None),
    Column("error_type", str | None),
    Column("dead_letter_reason", str | None),
    Column("attempts", int, 0),
    Column("crashes", int, 0),
)


class SqlDeadLetters(SqlPart):
    """Reads dead letters and alerts."""

    def dead_letters(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """FAILED jobs, latest failure first, each with its alerts; those in the archive, which have none, only where *where* says so."""
        after = None if cursor is None else dead_letter_position(cursor)
        return self.database.read(lambda session: _find_page(session, where or JobFilter(), limit, after))

    def dead_letter_groups(
        self, where: JobFilter | None = None, *, limit: int = 100
    ) -> list[DeadLetterGroup]:
        """The matching FAILED jobs, by target and error type; most first."""
        return self.database.read(lambda session: _groups(session, where or JobFilter(), limit))

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        values = {"since": since, "limit": limit}
        rows = self.database.read(lambda session: session.rows(LATEST_ALERTS, values))
        return readable(rows, _alert, _ALERTS, itemgetter(0))

    def alerts_of(self, job_id: UUID) -> list[Alert]:
        """The alerts about one job, oldest first."""

        def find(session: Session) -> list[Alert]:
            found = session.rows(FIND_LETTER, {"job_id": job_id})
            return list(_alerts_about(session, [_LETTER.salvage(row)[0] for row in found]).get(job_id, ()))

        return self.database.read(find)


def _find_page(
    session: Session, where: JobFilter, limit: int, after: tuple[datetime, UUID] | None
) -> Page[DeadLetter]:
    if where.statuses is not None and JobStatus.FAILED not in {
        JobStatus(status) for status in where.statuses
    }:
        return Page([])
    where = replace(where, statuses=[JobStatus.FAILED])
    found = _letters(session, where, limit + 1, after, archived=False)
    live = {row[0] for row in found}
    if where.include_archived:
        found += _letters(session, where, limit + 1, after, archived=True)
        found.sort(key=lambda row: (row[1], row[0]), reverse=True)
    page = found[:limit]
    rows = [_LETTER.salvage(row)[0] for row in page]
    alerts = _alerts_about(session, [row for row in rows if row[0] in live])
    letters = [_letter(row, alerts.get(row[0], ())) for row in rows]
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
    sql = f"""
        SELECT {LETTER_COLUMNS}
          FROM {criteria.source}
         WHERE {criteria.text}
         ORDER BY j.dead_lettered_at DESC, j.job_id DESC
         LIMIT :limit
    """
    return session.rows(sql, {**criteria.binds, "limit": limit})


def _groups(session: Session, where: JobFilter, limit: int) -> list[DeadLetterGroup]:
    if where.statuses is not None and JobStatus.FAILED not in {JobStatus(one) for one in where.statuses}:
        return []
    where = replace(where, statuses=[JobStatus.FAILED])
    found: dict[tuple[str, str | None], DeadLetterGroup] = {}
    for archived in (False, True) if where.include_archived else (False,):
        for group in _groups_of(session, where, archived=archived):
            key = (group.target, group.error_type)
            found[key] = _joined(found[key], group) if key in found else group
    ordered = sorted(found.values(), key=lambda one: (-one.count, one.target, one.error_type or ""))
    return [_with_message(session, where, group) for group in ordered[:limit]]


def _groups_of(session: Session, where: JobFilter, *, archived: bool) -> list[DeadLetterGroup]:
    criteria = Criteria(where, archived=archived)
    sql = f"""
        SELECT j.target, j.error_type, count(*) AS jobs,
               min(j.dead_lettered_at) AS first_at, max(j.dead_lettered_at) AS last_at
          FROM {criteria.source}
         WHERE {criteria.text}
         GROUP BY j.target, j.error_type
    """
    return [
        DeadLetterGroup(
            target=target,
            error_type=error_type,
            message=None,
            count=int(jobs),
            first_at=first_at,
            last_at=last_at,
            sample=_NOBODY,
        )
        for target, error_type, jobs, first_at, last_at in session.rows(sql, criteria.binds)
    ]


def _joined(one: DeadLetterGroup, other: DeadLetterGroup) -> DeadLetterGroup:
    return structs.replace(
        one,
        count=one.count + other.count,
        first_at=min(one.first_at, other.first_at),
        last_at=max(one.last_at, other.last_at),
    )


def _with_message(session: Session, where: JobFilter, group: DeadLetterGroup) -> DeadLetterGroup:
    """*group* with the error and the id of its latest failure."""
    found: list[Row] = []
    for archived in (False, True) if where.include_archived else (False,):
        criteria = Criteria(where, archived=archived)
        criteria.add(
            "j.dead_lettered_at = :of_last AND j.target = :of_target",
            of_target=group.target,
            of_last=group.last_at,
        )
        if group.error_type is None:
            criteria.add("j.error_type IS NULL")
        else:
            criteria.add("j.error_type = :of_type", of_type=group.error_type)
        sql = f"""
            SELECT {LETTER_COLUMNS}
              FROM {criteria.source}
             WHERE {criteria.text}
             ORDER BY j.dead_lettered_at DESC, j.job_id DESC
             LIMIT 1
        """
        found += session.rows(sql, criteria.binds)
    if not found:
        return group
    latest = max(found, key=lambda row: (row[1], row[0]))
    return structs.replace(group, message=latest[3], sample=latest[0])


def _alerts_about(session: Session, letters: Sequence[Row]) -> dict[UUID, tuple[Alert, ...]]:
    if not letters:
        return {}
    causes = {row[0]: cause_of(row[2], row[4]) for row in letters}
    asked = {"ids": list(causes), "causes": sorted(set(causes.values()))}
    alerts = readable(session.rows(FIND_ALERTS_ABOUT, asked), _alert, _ALERTS, itemgetter(0))
    return {row[0]: alerts_about(row[0], causes[row[0]], row[1], alerts) for row in letters}


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
