"""A search by time of creation reads the jobs of that time, not history."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ratchet.api.checks import CLOCKS_APART, within_ids
from ratchet.model.clock import ManualClock
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import JobFilter, JobSpec
from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.stores.mongo.documents.search import query_of
from ratchet.stores.mongo.schema import Names
from ratchet.stores.sql.rows.records import LIVE_JOBS
from ratchet.stores.sql.rows.search import Criteria
from tests.support.store_urls import KINDS, fresh_url

DAYS = 200
A_DAY = 10
START = datetime(2026, 1, 1, tzinfo=UTC)
#: Two days in the middle; with the allowance for clocks, the jobs of four.
WHERE = within_ids(
    JobFilter(created_after=START + timedelta(days=100), created_before=START + timedelta(days=102))
)
READ = int(A_DAY * (2 + 2 * CLOCKS_APART / timedelta(days=1)))


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JobStore]:
    """A history of many days, a few jobs each."""
    opened = open_store(fresh_url(request.param, request, tmp_path), Options())
    clock = ManualClock(START)
    ids = IdFactory.seeded(clock, 1)
    for _ in range(DAYS):
        now = clock.now()
        opened.insert(
            [
                JobSpec(
                    job_id=ids(),
                    target="shop:charge",
                    payload='{"args":[],"kwargs":{}}',
                    scheduled_at=now + timedelta(days=9999),
                )
                for _ in range(A_DAY)
            ],
            now=now,
        )
        clock.advance(timedelta(days=1))
    yield opened
    opened.close()


def test_only_that_time_is_read(store: Any) -> None:
    """The search finds every job of two days, and looks at the jobs of four, of two hundred."""
    found = store.find(WHERE, limit=100)
    assert len(found) == 2 * A_DAY == store.count(WHERE)
    if store.name == "mongodb":
        collections = store.database.collections()
        plan = collections[Names.JOBS].find(query_of(collections, WHERE)).sort("_id", -1).explain()
        assert plan["executionStats"]["totalDocsExamined"] <= READ
        return
    criteria = Criteria(WHERE, archived=False)
    sql = f"SELECT j.job_id FROM {LIVE_JOBS} WHERE {criteria.text} ORDER BY j.job_id DESC LIMIT 51"
    assert _reads_a_range(store, sql, criteria.binds)


def _reads_a_range(store: Any, sql: str, binds: dict[str, UUID | datetime]) -> bool:
    """True if the plan begins with a range of the table's key."""

    def explain(session: Any) -> bool:
        match store.name:
            case "sqlite":
                plan = [row[3] for row in session.rows(f"EXPLAIN QUERY PLAN {sql}", binds)]
                return "SEARCH j" in plan[0] and "job_id>? AND job_id<?" in plan[0]
            case "postgresql":
                session.execute("ANALYZE scheduler_job")
                plan = [row[0] for row in session.rows(f"EXPLAIN (COSTS off) {sql}", binds)]
                return any(
                    "Index Cond" in line and "job_id >=" in line and "job_id <=" in line for line in plan
                )
            case _:
                plan = [[str(value) for value in row] for row in session.rows(f"EXPLAIN {sql}", binds)]
                return any("j" in row and "range" in row and "PRIMARY" in row for row in plan)

    answer: bool = store.database.run(explain)
    return answer
