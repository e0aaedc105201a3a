"""
Which failures share a dead-letter alert: those of one target and error type, for one window.

Nobody has to lock anything to find out: the id of an alert follows from its cause and from the time, so of several
nodes that are about to raise it, one inserts the row, and the others find that it is there.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import UUID

from ratchet.model.job import Alert

#: How long failures of the same cause are counted by the first alert about it.
ALERT_WINDOW = timedelta(hours=1)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

#: How far the times of two nodes may be apart.
_SKEW = timedelta(seconds=1)


def cause_of(target: str, error_type: str | None) -> str:
    """The error hash of a failure: what makes two of them the same alert."""
    return sha256(f"alert\n{target}\n{error_type or ''}".encode(errors="replace")).hexdigest()


def alert_ids(error_hash: str, now: datetime, window: timedelta) -> tuple[UUID, UUID, UUID]:
    """
    The id of an alert that is raised *now*, and those of the alerts before and after it.

    Time is cut into windows. An alert that is younger than a window was raised in this one or in the one before; in the
    next one only by a node whose clock is ahead. A new alert comes after a whole window, so it has a new id.
    """
    length = max(window // _MICROSECOND, 1)
    number = (now - _EPOCH) // _MICROSECOND // length
    current, before, after = (
        UUID(bytes=sha256(f"{error_hash}\n{one * length}".encode()).digest()[:16], version=5)
        for one in (number, number - 1, number + 1)
    )
    return current, before, after


def alerts_about(
    job_id: UUID, error_hash: str, failed_at: datetime, alerts: Iterable[Alert]
) -> tuple[Alert, ...]:
    """Of *alerts*, oldest first: those that the job raised itself, and the latest of its cause when it failed."""
    found: list[Alert] = []
    latest: Alert | None = None
    for alert in alerts:
        if alert.job_id == job_id:
            found.append(alert)
        if alert.error_hash == error_hash and alert.created_at <= failed_at + _SKEW:
            latest = alert
    if latest is not None and latest.job_id != job_id:
        found.append(latest)
    return tuple(sorted(found, key=lambda alert: (alert.created_at, alert.alert_id.int)))
