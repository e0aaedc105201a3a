"""
The cadence of a rate, as a value: how many jobs may start, and when each of them may.

No window of one period, wherever it begins, has more than ``rate`` starts. Two values are enough to ensure that, a
time and a number. Each start costs one step (the period divided by the rate), and ``next_at`` is the time when all
starts so far are paid for: since any moment *x* there are never more starts than steps between *x* and ``next_at``.

Time that passes after ``next_at`` without a start becomes credit, for at most ``rate`` starts, which may be made at
once. They too move ``next_at`` on by one step each, so they are paid for before the next start. After that, while jobs
wait, starts are one step apart. Once the credit is used up, the number says how many steps ``next_at`` is after the
last start: one period after that start no window has a start left in it, and the credit is full again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

_MICROSECOND: Final = timedelta(microseconds=1)

#: Planned starts are made a few milliseconds late, and the clocks of nodes differ by as much. They are therefore
#: spread over a little more than a period: a fiftieth of it more, and at most 50 ms.
SLACK: Final = 50
_MOST_SLACK: Final = timedelta(milliseconds=50)


class Cadence(Struct, frozen=True, kw_only=True):
    """What a rate lets through at one moment, to start at once or within the time *ahead*."""

    rate: int
    period: timedelta
    level: int  # above zero: starts that may be made at once; below: steps from the last start to `next_at`
    next_at: datetime
    now: datetime
    ahead: timedelta = timedelta()

    @classmethod
    def full(cls, rate: int, period: timedelta, now: datetime) -> Cadence:
        """The cadence of a rate that has not been used yet."""
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
        """The stored cadence at *now*, for a claim that may plan *ahead*; a clock that is behind adds no credit."""
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
        """The cadence after a change of the rate: the credit that fits it, and what is not paid for yet, at most a period."""
        if (rate, period) == (self.rate, self.period):
            return self
        changed = replace(self, rate=rate, period=period, level=min(self.credit, rate))
        owed = max(self.next_at - self.now, timedelta()) / self.step * changed.step
        return replace(changed, next_at=self.now + min(owed, period))

    def opens_at(self, taken: int = 0) -> datetime:
        """When another job may be claimed after *taken* others; now or earlier if it may be claimed already."""
        if taken < self.credit:
            return self.now
        return max(self.next_at, self.now) + taken * self.step - self.ahead / 2
