"""The bucket of a rate: even starts, exact totals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from ratchet.model.rates import Bucket

BEGIN = datetime(2026, 6, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)


def starts_of(
    bucket: Bucket, *, nodes: int, seconds: float, late: timedelta, seed: int, skew: timedelta = timedelta()
) -> list[datetime]:
    """When jobs start where *nodes* take whatever there is, each at the moment it was told, but *late*."""
    dice = Random(seed)
    behind = [skew * dice.random() for _ in range(nodes)]  # what their clocks lack
    polls = [BEGIN] * nodes
    starts: list[datetime] = []
    while min(polls) < BEGIN + timedelta(seconds=seconds):
        node = min(range(nodes), key=lambda number: polls[number])
        at = polls[node] + late * dice.random()
        seen = bucket.at(at - behind[node])
        starts += [at] * seen.starts
        bucket = seen.without(seen.starts) if seen.starts else bucket
        opens = bucket.at(at - behind[node]).opens_at() + behind[node]
        polls[node] = max(opens, at + 5 * MILLISECOND)
    return sorted(starts)


def counted(starts: list[datetime], period: timedelta, begin: datetime, end: datetime) -> list[int]:
    """How many start in each window of *period*, moved on in steps of a hundredth."""
    counts: list[int] = []
    first = last = 0
    while begin + period <= end:
        while first < len(starts) and starts[first] < begin:
            first += 1
        last = max(first, last)
        while last < len(starts) and starts[last] < begin + period:
            last += 1
        counts.append(last - first)
        begin += period / 100
    return counts


@pytest.mark.parametrize("seed", range(5))
def test_a_hundred_per_second(seed: int) -> None:
    """Three nodes up to 12 ms late for 30 s: 95 to 100 in every window of a second after the first."""
    bucket = Bucket.full(100, SECOND, BEGIN)
    starts = starts_of(bucket, nodes=3, seconds=31, late=12 * MILLISECOND, seed=seed)
    counts = counted(starts, SECOND, BEGIN + SECOND, BEGIN + 30 * SECOND)
    assert min(counts) >= 95
    assert max(counts) <= 100


@pytest.mark.parametrize("seed", range(3))
def test_clocks_that_differ(seed: int) -> None:
    """Nodes whose clocks lack up to 8 ms: what one has counted, no other counts again."""
    bucket = Bucket.full(100, SECOND, BEGIN)
    late, skew = 4 * MILLISECOND, 8 * MILLISECOND
    starts = starts_of(bucket, nodes=3, seconds=11, late=late, seed=seed, skew=skew)
    counts = counted(starts, SECOND, BEGIN + SECOND, BEGIN + 10 * SECOND)
    assert min(counts) >= 95
    assert max(counts) <= 100


@pytest.mark.parametrize(("rate", "period"), [(100, 60), (3, 60), (1000, 3600), (5, 1), (2000, 1)])
def test_other_rates(rate: int, period: int) -> None:
    """Long periods, few and many: never more than the rate (one, where few are late), never much less, nor with time."""
    bucket = Bucket.full(rate, timedelta(seconds=period), BEGIN)
    late = min(timedelta(seconds=period) / 200, 10 * MILLISECOND)
    starts = starts_of(bucket, nodes=2, seconds=period * 6, late=late, seed=1)
    window = timedelta(seconds=period)
    counts = counted(starts, window, BEGIN + window, BEGIN + 6 * window)
    assert max(counts) <= (rate if rate >= 40 else rate + 1)
    assert min(counts) >= min(rate * 0.95, rate - 1)


def test_a_period_brings_the_whole_rate() -> None:
    """However it was emptied, at once or one by one: after a period as many may start again."""
    for at_once in (True, False):
        bucket = Bucket.full(100, timedelta(minutes=1), BEGIN)
        for minute in range(1, 6):
            assert bucket.starts == 100
            for _ in range(1 if at_once else 100):
                bucket = bucket.at(bucket.filled_at).without(100 if at_once else 1)
            assert bucket.starts == 0
            bucket = bucket.at(BEGIN + minute * timedelta(minutes=1))


def test_it_holds_no_more_than_the_rate() -> None:
    """A day without jobs saves nothing up."""
    bucket = Bucket.full(10, SECOND, BEGIN).without(4).at(BEGIN + timedelta(days=1))
    assert bucket.starts == 10


def test_probes_cost_what_they_are() -> None:
    """Not spread: one more per interval, to the microsecond, again and again."""
    bucket = Bucket.full(2, timedelta(minutes=2), BEGIN).without(2, spread=False)
    for minute in range(1, 6):
        at = BEGIN + minute * timedelta(minutes=1)
        assert bucket.at(at - timedelta(microseconds=1)).starts == 0
        assert bucket.at(at).starts == 1
        bucket = bucket.at(at).without(1, spread=False)
