"""Dead letters and alerts in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.alerts import alert_ids, alerts_about, cause_of
from ratchet.model.cursors import dead_letter_cursor, dead_letter_position
from ratchet.model.decision import ErrorRecord
from ratchet.model.job import Alert, DeadLetter, DeadLetterGroup, JobFilter, Page
from ratchet.model.status import JobStatus
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import Part, State, atomic

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryDeadLetters(Part):
    """Reads dead letters and alerts; `record_alert` is called by the end that makes a dead letter."""

    @atomic
    def dead_letters(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        rows = self._state.matching(where or JobFilter())
        failed = [
            (row.dead_lettered_at, row.job_id.int, row)
            for row in rows
            if row.status is JobStatus.FAILED and row.dead_lettered_at is not None
        ]
        failed.sort(key=lambda item: item[:2], reverse=True)
        if cursor is not None:
            failed_at, job_id = dead_letter_position(cursor)
            failed = [item for item in failed if item[:2] < (failed_at, job_id.int)]
        page = [_letter(self._state, row, failed_at) for failed_at, _, row in failed[:limit]]
        more = page and len(failed) > limit
        return Page(page, dead_letter_cursor(page[-1]) if more else None)

    @atomic
    def dead_letter_groups(
        self, where: JobFilter | None = None, *, limit: int = 100
    ) -> list[DeadLetterGroup]:
        groups: dict[tuple[str, str | None], list[Row]] = {}
        for row in self._state.matching(where or JobFilter()):
            if row.status is JobStatus.FAILED and row.dead_lettered_at is not None:
                groups.setdefault((row.spec.target, row.error_type), []).append(row)
        ordered = sorted(groups.items(), key=lambda one: (-len(one[1]), one[0][0], one[0][1] or ""))
        return [_group(target, error_type, rows) for (target, error_type), rows in ordered[:limit]]

    @atomic
    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        recent = [
            alert for alert in self._state.alerts.values() if since is None or alert.created_at >= since
        ]
        return sorted(recent, key=_age, reverse=True)[:limit]

    @atomic
    def alerts_of(self, job_id: UUID) -> list[Alert]:
        row = self._state.jobs.get(job_id)
        return [] if row is None else list(_alerts_about(self._state, row))


def _group(target: str, error_type: str | None, rows: list[Row]) -> DeadLetterGroup:
    by_time = sorted((row.dead_lettered_at, row.job_id.int, row) for row in rows if row.dead_lettered_at)
    (first_at, _, _), (last_at, _, latest) = by_time[0], by_time[-1]
    return DeadLetterGroup(
        target=target,
        error_type=error_type,
        message=latest.error,
        count=len(rows),
        first_at=first_at,
        last_at=last_at,
        sample=latest.job_id,
    )


def _alerts_about(state: State, row: Row) -> tuple[Alert, ...]:
    if row.archived_at is not None:
        return ()
    cause, failed_at = cause_of(row.spec.target, row.error_type), row.dead_lettered_at or _LONG_AGO
    return alerts_about(row.job_id, cause, failed_at, sorted(state.alerts.values(), key=_age))


def _age(alert: Alert) -> tuple[datetime, int]:
    return alert.created_at, alert.alert_id.int


def _letter(state: State, row: Row, failed_at: datetime) -> DeadLetter:
    return DeadLetter(
        job_id=row.job_id,
        target=row.spec.target,
        error=row.error,
        reason=row.dead_letter_reason or "",
        attempts=row.attempts,
        failed_at=failed_at,
        alerts=_alerts_about(state, row),
        crashes=row.crashes,
        error_type=row.error_type,
    )


def record_alert(
    state: State,
    row: Row,
    error: ErrorRecord,
    *,
    reason: str,
    error_hash: str | None,
    window: timedelta,
    now: datetime,
) -> bool:
    """Record an alert, or count the failure where there is one of the same cause within *window*; True: recorded."""
    cause = error_hash or cause_of(row.spec.target, error.type)
    ids = alert_ids(cause, now, window)
    known = [alert for alert_id in ids if (alert := state.alerts.get(alert_id)) is not None]
    latest = max((alert for alert in known if alert.created_at > now - window), key=_age, default=None)
    latest = latest or state.alerts.get(ids[0])
    if latest is not None:
        state.alerts.put(latest.alert_id, replace(latest, suppressed=latest.suppressed + 1))
        return False
    state.alerts.put(
        ids[0],
        Alert(
            alert_id=ids[0],
            job_id=row.job_id,
            target=row.spec.target,
            error_hash=cause,
            error=error.summary,
            reason=reason,
            created_at=now,
        ),
    )
    return True
