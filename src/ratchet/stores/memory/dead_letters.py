"""Dead letters and alerts in memory."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.cursors import dead_letter_cursor, dead_letter_position
from ratchet.model.decision import ErrorRecord
from ratchet.model.job import Alert, DeadLetter, JobFilter, Page
from ratchet.model.status import JobStatus
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import Part, State, atomic

#: Repeats of an alert within this time are counted, not recorded.
ALERT_WINDOW = timedelta(hours=1)


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
    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        recent = [
            alert for alert in self._state.alerts.values() if since is None or alert.created_at >= since
        ]
        return sorted(recent, key=_age, reverse=True)[:limit]

    @atomic
    def alerts_of(self, job_id: UUID) -> list[Alert]:
        return _alerts_of(self._state, job_id)


def _alerts_of(state: State, job_id: UUID) -> list[Alert]:
    return sorted((state.alerts[alert_id] for alert_id in state.alerts_of.of(job_id)), key=_age)


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
        alerts=tuple(_alerts_of(state, row.job_id)),
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
    """Record an alert, or count it where the same job and error had one within *window*; True: recorded."""
    error_hash = error_hash or _hash(row, error)
    same = [alert for alert in _alerts_of(state, row.job_id) if alert.error_hash == error_hash]
    if same and same[-1].created_at > now - window:
        state.alerts.put(same[-1].alert_id, replace(same[-1], suppressed=same[-1].suppressed + 1))
        return False
    alert_id = state.new_id(now)
    state.alerts.put(
        alert_id,
        Alert(
            alert_id=alert_id,
            job_id=row.job_id,
            target=row.spec.target,
            error_hash=error_hash,
            error=error.summary,
            reason=reason,
            created_at=now,
        ),
    )
    return True


def _hash(row: Row, error: ErrorRecord) -> str:
    """What makes two errors the same error, for those that arise in the store."""
    parts = [error.type, row.spec.target]
    if error.type == "SignalTimeout" and row.spec.signal is not None:
        parts.append(row.spec.signal.key)
    elif error.type != "Crashed":  # whose message names the node, and says nothing about the job
        parts.append(error.message)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
