"""
The bucket of a breaker's probes, as a value: how many jobs may start now, and when the next one may.

It holds ``rate`` starts, fills evenly within ``period``, and is counted in whole microseconds times starts, so
that it never drifts: a start is ``period`` microseconds, and every microsecond brings ``rate``.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_MICROSECOND: Final = timedelta(microseconds=1)


class Bucket(Struct, frozen=True, kw_only=True):
    """What a breaker lets through at one moment."""

    rate: int
    period: timedelta
    level: int
    filled_at: datetime

    @classmethod
    def full(cls, rate: int, period: timedelta, now: datetime) -> Bucket:
        """A bucket from which nothing was taken."""
        return cls(rate=rate, period=period, level=rate * (period // _MICROSECOND), filled_at=now)

    @property
    def start(self) -> int:
        """What one start takes."""
        return self.period // _MICROSECOND

    @property
    def starts(self) -> int:
        """How many jobs may start now."""
        return max(self.level // self.start, 0)

    @property
    def first(self) -> datetime:
        """When the next job may start; now at the earliest."""
        return max(self.opens_at(), self.filled_at)

    def at(self, now: datetime) -> Bucket:
        """The bucket at *now*; a clock that was put back, or that of another node that is behind, adds nothing."""
        passed = max(now - self.filled_at, timedelta())
        level = min(self.level + passed // _MICROSECOND * self.rate, self.start * self.rate)
        return replace(self, level=level, filled_at=max(now, self.filled_at))

    def after(self, start: datetime) -> Bucket:
        """After one more start."""
        return replace(self, level=self.level - self.start)

    def opens_at(self, taken: int = 0) -> datetime:
        """When another job may start after *taken* others; now or earlier if it may start already."""
        missing = (taken + 1) * self.start - self.level
        return self.filled_at + max(-(-missing // self.rate), 0) * _MICROSECOND
