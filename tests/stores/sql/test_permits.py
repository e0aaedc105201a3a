"""Limits and breakers in SQL: what the conformance kit does not reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.model.cluster import BreakerRecord
from tests.stores.sql_stores import KINDS, SqlSteps, at_once, opened, times


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with opened(request.param, request, tmp_path) as found:
        yield found


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
