"""
The cadence of a rate, as a value: how many jobs may start, and at which moment each.

No window of one period, wherever it begins, has more than ``rate`` starts. A time and a number are enough to know
that. ``next_at`` is when all starts so far are paid for, at one step (the period by the rate) each: of the starts
since any moment *x* there are never more than there are steps between *x* and ``next_at``. Time that passes beyond
it without a start is credit, at most ``rate`` starts, which may be taken at once; but they too move ``next_at`` on,
one step each, and so are paid for before the next one. Then, while jobs wait, starts are one step apart. Once the
credit is used up, the number says how many steps ``next_at`` is after the last start: a period after that one nothing
is left in any window, and the credit is whole again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_MICROSECOND: Final = timedelta(microseconds=1)

#: Whoever plans starts makes them a few milliseconds late, and other nodes' clocks differ by as much. What is planned
#: is therefore spread over a little more than a period: by a fiftieth of it, at most by so much.
SLACK: Final = 50
_MOST_SLACK: Final = timedelta(milliseconds=50)


class Cadence(Struct, frozen=True, kw_only=True):
    """What a rate lets through at one moment, to be started then or planned for so far *ahead*."""

    rate: int
    period: timedelta
    level: int  # above zero: starts that may be made at once; below: steps from the last start to `next_at`
    next_at: datetime
    now: datetime
    ahead: timedelta = timedelta()

    @classmethod
    def full(cls, rate: int, period: timedelta, now: datetime) -> Cadence:
        """Of a rate that nobody has used."""
        return cls(rate=rate, period=period, level=rate, next_at=now, now=now)

    @classmethod
    def stored(
        cls,
        rate: int,
        period: timedelta,
        level: int,
        next_at: datetime,
        now: datetime,
        ahead: timedelta = timedelta(),
    ) -> Cadence:
        """As it is at *now* for a claim that may plan so far *ahead*; a clock that is behind brings nothing."""
        kept = cls(rate=rate, period=period, level=level, next_at=next_at, now=now, ahead=ahead)
        step = kept.step
        if level < 0 and now >= next_at + (rate + level) * step:
            return replace(kept, level=rate)
        return (
            kept if now < next_at else replace(kept, level=min(max(level, 1 + (now - next_at) // step), rate))
        )

    @property
    def step(self) -> timedelta:
        """How far starts are apart."""
        slack = min(self.period / SLACK, _MOST_SLACK) if self.ahead else timedelta()
        return -(-(self.period + slack) // _MICROSECOND // self.rate) * _MICROSECOND

    @property
    def credit(self) -> int:
        """How many jobs may start at once."""
        return max(self.level, 0)

    @property
    def starts(self) -> int:
        """How many jobs may be claimed now; none while the next start is too far off, so that claims take several."""
        if self.opens_at() > self.now:
            return 0
        planned, until = max(self.next_at, self.now) + self.credit * self.step, self.now + self.ahead
        return self.credit + (0 if planned > until else 1 + (until - planned) // self.step)

    @property
    def first(self) -> datetime:
        """When the next job may start; now at the earliest."""
        return self.now if self.credit > 0 else max(self.next_at, self.now)

    def after(self, start: datetime) -> Cadence:
        """After one more start: at *start*, or at `first` if that is later."""
        begin = max(self.next_at, self.now, start) + self.step
        if self.level > 1:
            return replace(self, level=self.level - 1, next_at=begin)
        steps = (begin - max(start, self.first)) // self.step
        return replace(self, level=-min(max(steps, 1), self.rate), next_at=begin)

    def resized(self, rate: int, period: timedelta) -> Cadence:
        """Of another rate: with the credit that fits, and what is not yet paid for, at most a period of it."""
        if (rate, period) == (self.rate, self.period):
            return self
        changed = replace(self, rate=rate, period=period, level=min(self.credit, rate))
        owed = max(self.next_at - self.now, timedelta()) / self.step * changed.step
        return replace(changed, next_at=self.now + min(owed, period))

    def opens_at(self, taken: int = 0) -> datetime:
        """When another job may be claimed after so many others; now or earlier where it may already."""
        if taken < self.credit:
            return self.now
        return max(self.next_at, self.now) + taken * self.step - self.ahead / 2
