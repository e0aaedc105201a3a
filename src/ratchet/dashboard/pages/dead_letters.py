"""Dead letters by what went wrong."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.alerts import cause_of
from ratchet.model.job import Alert, DeadLetterGroup

HOURS = 24
MOST_GROUPS = 100
#: Alerts that the bars are made of: one an hour for each group.
MOST_ALERTS = 1000


def dead_letters(question: Question) -> Data:
    """Groups of one target and type of error, most first, with a sample of each and when they failed."""
    now = question.now
    groups = question.scheduler.dead_letters.summary(limit=MOST_GROUPS)
    alerts = question.scheduler.dead_letters.alerts(since=now - timedelta(hours=HOURS), limit=MOST_ALERTS)
    by_cause: dict[str, list[Alert]] = {}
    for alert in alerts:
        by_cause.setdefault(alert.error_hash, []).append(alert)
    return {
        "groups": [_group(group, by_cause, now) for group in groups],
        "total": sum(group.count for group in groups),
        "hours": HOURS,
        "most_groups": MOST_GROUPS,
    }


def _group(group: DeadLetterGroup, alerts: dict[str, list[Alert]], now: datetime) -> dict[str, Any]:
    found = alerts.get(cause_of(group.target, group.error_type), ())
    return {
        "target": group.target,
        "error_type": group.error_type,
        "message": group.message,
        "count": group.count,
        "first_at": group.first_at,
        "last_at": group.last_at,
        "sample": group.sample,
        "by_hour": _by_hour(found, now),
    }


def _by_hour(alerts: Iterable[Alert], now: datetime) -> list[int]:
    """Failures by the hour in which their alert was raised, oldest first."""
    counts = [0] * HOURS
    for alert in alerts:
        age = int((now - alert.created_at).total_seconds() // 3600)
        if 0 <= age < HOURS:
            counts[HOURS - 1 - age] += alert.count
    return counts
