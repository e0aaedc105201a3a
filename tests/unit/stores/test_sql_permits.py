"""Limits and breakers in SQL: what the conformance kit does not reach."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ratchet.model.cluster import BreakerRecord
from tests.unit.stores.sql_stores import KINDS, SqlSteps, at_once, opened, times

MINUTE = timedelta(minutes=1)


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened(request.param, request, tmp_path) as found:
        yield found


class TestSetLimit:
    def test_set_again_it_lets_no_burst_through(self, steps: SqlSteps) -> None:
        """Every node sets its limits when it starts: the bucket stays as empty as it was."""
        for _ in range(3):
            steps.store.set_limit("gateway", rate=2, period=MINUTE, now=steps.now)
        steps.submit_many(9, resource="gateway")
        assert len(steps.claim()) == 2
        steps.store.set_limit("gateway", rate=2, period=MINUTE, now=steps.now)
        assert steps.claim() == []

    def test_a_higher_rate_does_not_count_for_the_past(self, steps: SqlSteps) -> None:
        """Half a minute at one per minute is half a start; only from now on it is a hundred per minute."""
        steps.store.set_limit("gateway", rate=1, period=MINUTE, now=steps.now)
        steps.submit_many(200, resource="gateway")
        assert len(steps.claim()) == 1
        steps.advance(seconds=30)
        steps.store.set_limit("gateway", rate=100, period=MINUTE, now=steps.now)
        assert steps.claim() == []
        steps.advance(seconds=6)
        assert len(steps.claim()) == 10

    def test_a_lower_rate_holds_at_once(self, steps: SqlSteps) -> None:
        """A full bucket is cut to the new size."""
        steps.store.set_limit("gateway", rate=100, period=MINUTE, now=steps.now)
        steps.store.set_limit("gateway", rate=3, period=MINUTE, now=steps.now)
        steps.submit_many(9, resource="gateway")
        assert len(steps.claim()) == 3

    def test_a_first_rate_starts_full(self, steps: SqlSteps) -> None:
        """Also where the resource had a limit of another kind before."""
        steps.store.set_limit("gateway", concurrent=50, now=steps.now)
        steps.advance(hours=1)
        steps.store.set_limit("gateway", rate=3, period=MINUTE, now=steps.now)
        steps.submit_many(9, resource="gateway")
        assert len(steps.claim()) == 3


class TestBreakers:
    def test_one_of_many_saves(self, steps: SqlSteps) -> None:
        """Creating and changing: of eight who saw the same version one wins."""
        handles = [steps.store, steps.another()]
        record = BreakerRecord(service="bank", state="OPEN")
        for version in range(6):

            def save(version: int = version) -> bool:
                return handles[version % 2].save_breaker(record, expected_version=version, now=steps.now)

            assert sum(at_once(*times(8, save))) == 1
            stored = steps.store.breaker("bank")
            assert stored is not None
            assert stored.version == version + 1
