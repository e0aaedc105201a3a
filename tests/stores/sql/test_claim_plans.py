"""The claim: at a cost that the backlog does not change."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ratchet.model.job import StreamKey
from ratchet.stores.sql.dialects.sqlite import claims as sqlite_claims
from ratchet.stores.sql.store import SqlStore, open_store
from tests.stores.backlog import NOW, claim, insert, spread
from tests.stores.counting import SqliteSteps
from tests.stores.sql_claim_plans import explain


@pytest.fixture
def postgresql(postgresql_url: str) -> Iterator[SqlStore]:
    """A store in a database of its own."""
    store = open_store(postgresql_url)
    store.migrate()
    yield store
    store.close()


class TestPlanOnPostgresql:
    @pytest.mark.parametrize("boost", [timedelta(minutes=15), None], ids=["boosted", "strict"])
    def test_the_backlog_does_not_change_it(
        self, postgresql: SqlStore, postgresql_url: str, boost: timedelta | None
    ) -> None:
        """
        A claim of 50 reads the same rows of the queue at 1,000 and at 100,000 pending, with stale and with
        fresh statistics, over five priorities, and as many buffers, but for one more level of the indexes.
        """
        store = postgresql
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute("ALTER TABLE scheduler_job_queue SET (autovacuum_enabled = off)")
            admin.execute("ALTER TABLE scheduler_job SET (autovacuum_enabled = off)")
            insert(store, spread(1000))
            plans = {"1,000, no statistics": explain(store, 50, boost_interval=boost)}
            admin.execute("ANALYZE")
            plans["1,000, fresh"] = explain(store, 50, boost_interval=boost)
            for seed in range(11):
                insert(store, spread(9000, seed=seed + 2))
            plans["100,000, stale"] = explain(store, 50, boost_interval=boost)
            admin.execute("ANALYZE")
            plans["100,000, fresh"] = explain(store, 50, boost_interval=boost)
        for name, plan in plans.items():
            scans = [
                scan for scan in plan.rows if scan.startswith(("Seq", "Bitmap")) and "scheduler_job" in scan
            ]
            assert scans == [], name
            # the first look reads three fifths of the limit in each of five branches
            assert plan.rows["Index Only Scan on scheduler_job_queue"] <= 5 * 50, name
            assert plan.rows["Index Scan on scheduler_job_queue"] <= 2 * 50, name
            assert plan.rows["Index Scan on scheduler_job"] == 50, name
        looked_at = [plan.rows["Index Only Scan on scheduler_job_queue"] for plan in plans.values()]
        assert max(looked_at) - min(looked_at) <= 10  # EXPLAIN rounds the average of each branch
        small, large = plans["1,000, fresh"].buffers, plans["100,000, fresh"].buffers
        assert large < small * 1.5
        assert plans["100,000, stale"].buffers < small * 1.5

    @pytest.mark.parametrize("priorities", [1, 5])
    def test_jobs_that_are_due_at_the_same_time_do_not_change_it(
        self, postgresql: SqlStore, priorities: int
    ) -> None:
        """
        A bulk shares its due time. A claim of 50 reads as many rows of 40,000 such jobs as of 1,000, and no more of the
        index to find them; where only one priority has jobs, it looks at the first of each branch and no further before
        it takes.
        """
        looked_at = []
        buffers = []
        for count in (1000, 39_000):
            insert(
                postgresql, [(n % priorities, NOW - timedelta(hours=1), StreamKey()) for n in range(count)]
            )
            plan = explain(postgresql, 50, boost_interval=timedelta(minutes=15))
            looked_at.append(plan.rows["Index Only Scan on scheduler_job_queue"])
            buffers.append(plan.looks)
            assert plan.rows["Index Scan on scheduler_job"] == 50
        assert looked_at[0] == looked_at[1]
        assert buffers[1] < buffers[0] * 1.6
        assert looked_at[1] <= (5 if priorities == 1 else 6 * 50)

    def test_closed_streams_cost_nothing(self, postgresql: SqlStore) -> None:
        """Twenty thousand jobs behind a paused queue are not looked at."""
        store = postgresql
        insert(store, [(4, NOW - timedelta(hours=2), StreamKey(queue="closed"))] * 20_000)
        insert(store, spread(1000))
        store.pause_queue("closed", now=NOW)
        plan = explain(store, 50)
        assert plan.rows["Index Only Scan on scheduler_job_queue"] <= 5 * 50
        closed = store.stream_registry.id_of(None, StreamKey(queue="closed"))
        assert [found for found in claim(store, 50) if found.stream_id == closed] == []


class TestPlanOnSqlite:
    def test_no_scan_and_no_sort(self) -> None:
        """Every access to a table of jobs, or of streams, is a search in an index, and the order is the index's own."""
        store = open_store("sqlite:///:memory:")
        insert(store, spread(2000, queues=8))  # to search among three rows costs more than to read them
        store.database.run(lambda session: session.execute("ANALYZE"))
        connection = store.database.dialect._connections.writer()
        statement = store.database.dialect.statement
        texts = [sqlite_claims.PEEK, sqlite_claims.PEEK_ON] + [
            statement(text).text
            for text in (
                sqlite_claims.TAKE,
                sqlite_claims.FIND_CLAIMED,
                sqlite_claims.FIND_HEADS,
            )
        ]
        for text in texts:
            steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", _Any())]
            assert not [step for step in steps if "TEMP B-TREE" in step], text
            for step in steps:
                if step.startswith("SCAN"):  # lists that were passed in, and the streams that were found
                    assert step.split()[1] in ("json_each", "CONSTANT", "w", "p", "5"), step
        peek = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sqlite_claims.PEEK}", _Any())]
        assert len(peek) == 1
        assert peek[0].startswith("SEARCH scheduler_job_queue USING COVERING INDEX idx_claim_executable")
        store.close()

    def test_steps_do_not_grow_with_the_backlog(self, tmp_path: Path) -> None:
        """The virtual machine takes as many steps for a claim at 1,000 pending as at 50,000."""
        steps = {}
        for count in (1000, 50_000):
            store = open_store(f"sqlite:///{tmp_path / f'{count}.db'}")
            insert(store, spread(count))
            claim(store, 50)
            with SqliteSteps(store.database.dialect._connections.writer()) as counted:
                assert len(claim(store, 50)) == 50
            steps[count] = counted.count
            store.close()
        assert steps[50_000] < steps[1000] * 1.2


class _Any(dict[str, Any]):
    """Some value for every bind: EXPLAIN does not look at them."""

    def __missing__(self, name: str) -> Any:
        return "[]" if name in ("queues", "parked_targets", "job_ids") else 1
