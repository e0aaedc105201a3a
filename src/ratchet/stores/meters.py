"""
Meters count the starts behind a limit: the cadence of a rate, or the bucket of a breaker's probes.

Both are stored as a number and a time, in the limit's own row.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from ratchet.model.cadence import Cadence
from ratchet.model.cluster import BREAKER_GATE
from ratchet.model.rates import Bucket

Meter: TypeAlias = Bucket | Cadence


def meter_of(
    name: str, rate: int, period: timedelta, kept: tuple[int, datetime], now: datetime, ahead: timedelta
) -> Meter:
    """The meter of a limit at *now*, from what was `kept` of it; starts may be planned that far *ahead*."""
    level, since = kept
    if name.startswith(BREAKER_GATE):
        return Bucket(rate=rate, period=period, level=level, filled_at=since).at(now)
    return Cadence.stored(rate, period, level, since, now, ahead)


def kept(meter: Meter) -> tuple[int, datetime]:
    """What is stored of a meter."""
    if isinstance(meter, Bucket):
        return meter.level, meter.filled_at
    return meter.level, meter.next_at


def pass_all(meters: Sequence[Meter]) -> tuple[datetime | None, list[Meter]]:
    """
    When one more job that passes all of these may start (None: at once), and the meters after it.

    A start that one of them delays counts at the later time for the others too; else these would let through too many
    at that moment.
    """
    if not meters:
        return None, []
    start = max(meter.first for meter in meters)
    planned = any(isinstance(meter, Cadence) and start > meter.now for meter in meters)
    return (start if planned else None), [meter.after(start) for meter in meters]
