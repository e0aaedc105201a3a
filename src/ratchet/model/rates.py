"""
The bucket of a rate, as a value: how many jobs may start now, and when the next one may.

It holds ``rate`` starts, fills evenly within ``period``, and is counted in whole microseconds times starts, so
that it never drifts: a start is ``period`` microseconds, and every microsecond brings ``rate``.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_MICROSECOND: Final = timedelta(microseconds=1)

#: While jobs wait for the rate, a start costs a fortieth more than one: nodes start what they claimed a few
#: milliseconds sooner or later, and no more than `rate` may begin in any period all the same. A rate below forty
#: is exact instead: a fortieth of it is less than one start.
MARGIN: Final = 40
#: Nobody has taken from an empty bucket for this share of its period: nobody was waiting, or every node stood still.
_PAUSE: Final = 4


class Bucket(Struct, frozen=True, kw_only=True):
    """What a rate lets through at one moment."""

    rate: int
    period: timedelta
    level: int
    filled_at: datetime
    trickles: bool = False  # it was empty, and what is in it has come since: jobs may be waiting for it

    @classmethod
    def full(cls, rate: int, period: timedelta, now: datetime) -> Bucket:
        """A bucket that nobody has taken from."""
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
    def tokens(self) -> float:
        """The level in starts."""
        return self.level / self.start

    def at(self, now: datetime) -> Bucket:
        """With what it has gained until *now*; a clock that went back, or another node's that is behind, adds nothing."""
        passed = max(now - self.filled_at, timedelta())
        full = self.start * self.rate
        level = min(self.level + passed // _MICROSECOND * self.rate, full)
        is_short = passed * _PAUSE < self.period
        return replace(
            self,
            level=level,
            filled_at=max(now, self.filled_at),
            trickles=self.rate >= MARGIN and self.level < self.start <= level < full and is_short,
        )

    def without(self, starts: int, *, spread: bool = True) -> Bucket:
        """After so many starts; not *spread*: each takes exactly its own, whoever waits."""
        cost = self.start + (self.start // MARGIN if spread and self.trickles else 0)
        return replace(self, level=self.level - starts * cost, trickles=False)

    def resized(self, rate: int, period: timedelta) -> Bucket:
        """Of another rate: the starts that were in it, as far as they fit."""
        if (rate, period) == (self.rate, self.period):
            return self
        whole = min(self.starts, rate)
        return replace(self, rate=rate, period=period, level=whole * (period // _MICROSECOND))

    def opens_at(self, ahead: int = 0) -> datetime:
        """When another job may start after *ahead* others; now or earlier where it may already."""
        missing = (ahead + 1) * self.start - self.level
        return self.filled_at + max(-(-missing // self.rate), 0) * _MICROSECOND
