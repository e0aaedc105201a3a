"""Limits and breakers in SQL: what the conformance kit does not reach."""

from __future__ import annotations

from ratchet.model.cluster import BreakerRecord
from tests.stores.sql_stores import SqlSteps, at_once, times


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
