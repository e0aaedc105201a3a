"""The bucket of a breaker's probes: exact totals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ratchet.model.rates import Bucket

BEGIN = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_it_holds_no_more_than_the_rate() -> None:
    """A day without jobs saves nothing up."""
    bucket = Bucket.full(10, timedelta(seconds=1), BEGIN).after(BEGIN).at(BEGIN + timedelta(days=1))
    assert bucket.starts == 10


def test_probes_cost_what_they_are() -> None:
    """One more per interval, to the microsecond, again and again."""
    bucket = Bucket.full(2, timedelta(minutes=2), BEGIN).after(BEGIN).after(BEGIN)
    for minute in range(1, 6):
        at = BEGIN + minute * timedelta(minutes=1)
        assert bucket.at(at - timedelta(microseconds=1)).starts == 0
        assert bucket.at(at).starts == 1
        assert bucket.opens_at() == at
        bucket = bucket.at(at).after(at)
