"""The cadence of a rate: never more than it says in any window, and little less while jobs wait."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.model.cadence import Cadence

BEGIN = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
AHEAD = 200 * MILLISECOND


class Line:
    """A rate as a store keeps it, and every start that it let through."""

    def __init__(self, rate: int, period: timedelta) -> None:
        full = Cadence.full(rate, period, BEGIN)
        self.rate, self.period = rate, period
        self.kept = (full.level, full.next_at)
        self.starts: list[datetime] = []

    def at(self, now: datetime, ahead: timedelta = timedelta()) -> Cadence:
        """What it lets through at *now*."""
        return Cadence.stored(self.rate, self.period, *self.kept, now, ahead)

    def claim(self, now: datetime, most: int, ahead: timedelta = timedelta()) -> int:
        """Claim at most so many starts; how many there were."""
        cadence = self.at(now, ahead)
        count = min(most, cadence.starts)
        for _ in range(count):
            self.starts.append(cadence.first)
            cadence = cadence.after(cadence.first)
        self.kept = (cadence.level, cadence.next_at)
        return count

    def most(self) -> int:
        """The most starts in any window of a period, wherever it begins: the extremes begin with a start."""
        starts = sorted(self.starts)
        return max(
            (bisect_left(starts, start + self.period) - place for place, start in enumerate(starts)),
            default=0,
        )


@settings(max_examples=200, deadline=None)
@given(
    rate=st.integers(1, 30),
    period=st.sampled_from([SECOND, 60 * SECOND, timedelta(milliseconds=100)]),
    ahead=st.sampled_from([0.0, 0.1, 0.5, 2.0]),
    claims=st.lists(st.tuples(st.floats(0, 1.6), st.integers(1, 40), st.booleans()), max_size=60),
)
def test_never_more_in_any_window(
    rate: int, period: timedelta, ahead: float, claims: list[tuple[float, int, bool]]
) -> None:
    """Whoever asks, when, how often, for how many, ahead or not: no window of a period has more than the rate."""
    line, now = Line(rate, period), BEGIN
    for passed, most, plans in claims:
        now += passed * passed * period
        line.claim(now, most, ahead * period if plans else timedelta())
    assert line.most() <= rate


@pytest.mark.parametrize(("rate", "period"), [(100, 1), (1000, 1), (7, 1), (100, 60), (3, 60), (1, 3600)])
def test_nearly_all_of_it_while_jobs_wait(rate: int, period: int) -> None:
    """Nodes that ask when they are told, up to 90 ms late: 95 % of the rate and more, and never above it."""
    line, dice, now = Line(rate, period * SECOND), Random(5), BEGIN
    until = BEGIN + (period + 20 * max(period, 1)) * SECOND
    while now < until:
        line.claim(now, 500, AHEAD)
        now = max(line.at(now, AHEAD).opens_at(), now + MILLISECOND) + 90 * MILLISECOND * dice.random()
    assert line.most() <= rate
    after_the_first = [start for start in line.starts if BEGIN + period * SECOND <= start < until]
    assert len(after_the_first) >= 0.95 * rate * 20 - 1


def test_starts_are_apart_while_jobs_wait() -> None:
    """After what nobody used is used up, one start follows the other after the same time."""
    line, now = Line(100, SECOND), BEGIN
    while now < BEGIN + 3 * SECOND:
        line.claim(now, 500, AHEAD)
        now = max(line.at(now, AHEAD).opens_at(), now + MILLISECOND)
    later = line.starts[100:]
    assert line.starts[:100] == [BEGIN] * 100
    assert {after - before for before, after in pairwise(later)} == {timedelta(microseconds=10_200)}


def test_a_period_after_the_last_start_it_is_whole() -> None:
    """Taken at once or one by one, it is all there again when a period has passed, and not before."""
    for at_once in (True, False):
        line = Line(4, 60 * SECOND)
        for minute in range(3):
            now = BEGIN + minute * 60 * SECOND
            assert line.at(now).starts == 4
            assert [line.claim(now, 4 if at_once else 1) for _ in range(1 if at_once else 4)] == (
                [4] if at_once else [1] * 4
            )
            assert line.claim(now, 4) == 0
            assert line.at(now + 59 * SECOND).starts == 0


def test_what_was_not_used_is_kept_for_later() -> None:
    """Ten per minute, one start: after half a minute several may start at once, not only one."""
    line = Line(10, 60 * SECOND)
    line.kept = (-1, BEGIN + 6 * SECOND)  # one start, at the beginning
    assert line.at(BEGIN + 30 * SECOND).starts == 5


def test_a_clock_that_is_behind_brings_nothing() -> None:
    """Time that one node has counted does not count again for another."""
    line = Line(10, SECOND)
    assert line.claim(BEGIN, 10) == 10
    assert line.claim(BEGIN - SECOND, 10) == 0
    assert line.at(BEGIN - SECOND).opens_at() == BEGIN + SECOND


def test_another_rate_keeps_what_is_owed() -> None:
    """Half a start that is owed stays half a start; and a much smaller rate holds nobody for more than its period."""
    line = Line(1, 60 * SECOND)
    line.claim(BEGIN, 1)
    faster = line.at(BEGIN + 30 * SECOND).resized(100, 60 * SECOND)
    assert faster.opens_at() == BEGIN + 30 * SECOND + 300 * MILLISECOND
    busy = Line(100, 60 * SECOND)
    busy.claim(BEGIN, 100)
    assert busy.at(BEGIN).resized(3, 60 * SECOND).opens_at() == BEGIN + 60 * SECOND
