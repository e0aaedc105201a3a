"""What fairness costs: a claim reads what it takes and looks once at each party, however many jobs wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ratchet.model.job import StreamKey
from ratchet.model.status import Priority
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.mysql.claims import MysqlClaimPlan
from ratchet.stores.sql.dialects.postgresql import fairness as postgresql_fairness
from ratchet.stores.sql.dialects.postgresql.claims import PostgresqlClaimPlan
from ratchet.stores.sql.dialects.postgresql.scan_start import ScanStarts
from ratchet.stores.sql.store import SqlStore, open_store
from tests.stores.backlog import NOW, Waiting, claim, insert, request
from tests.stores.counting import SqliteSteps, Statements
from tests.stores.mongo_store import opened

LIMIT = 40
LIVE = 20
EMPTY = 200


def tenants(large: int) -> list[Waiting]:
    """Twenty keys with work; one of them has very much."""
    jobs: list[Waiting] = [
        (2, NOW - timedelta(seconds=second), StreamKey(fairness_key=f"tenant-{number}"))
        for number in range(LIVE)
        for second in range(5)
    ]
    return jobs + [(2, NOW, StreamKey(fairness_key="tenant-0"))] * large


def make_empty_keys(store: SqlStore) -> None:
    """Streams of keys that have no jobs."""
    store.stream_registry.ids_of(None, [StreamKey(fairness_key=f"idle-{number}") for number in range(EMPTY)])


@pytest.fixture
def postgresql(postgresql_url: str) -> Iterator[SqlStore]:
    store = open_store(postgresql_url)
    store.migrate()
    yield store
    store.close()


@pytest.fixture
def mysql(mysql_url: str) -> Iterator[SqlStore]:
    store = open_store(mysql_url)
    store.migrate()
    yield store
    store.close()


class RolledBack(Exception):
    pass


def rows_read(store: SqlStore, text: str, params: dict[str, object]) -> tuple[int, set[str]]:
    """Rows of the queue that a statement reads, and by which kinds of scan; what it did is rolled back."""
    found: list[Any] = []

    def work(session: Session) -> None:
        found.append(session.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", params))
        raise RolledBack

    with pytest.raises(RolledBack):
        store.database.run(work, claiming=True)
    waiting = [(json.loads(found[0]) if isinstance(found[0], str) else found[0])[0]["Plan"]]
    rows, scans = 0, set()
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        if node.get("Relation Name") == "scheduler_job_queue" and node["Node Type"] != "ModifyTable":
            rows += round(node["Actual Rows"] * node["Actual Loops"])
            scans.add(node["Node Type"])
    return rows, scans


class TestPostgresql:
    def test_rows_follow_from_the_claim(self, postgresql: SqlStore, postgresql_url: str) -> None:
        """A head of each live key, an even share and what others give instead, and the take; by index only."""
        make_empty_keys(postgresql)
        asked = request(LIMIT)
        params = {**postgresql_fairness.claim_params(asked, NOW), **ScanStarts().params(()), "tell": True}
        for large in (0, 20_000):
            insert(postgresql, tenants(large))
            with psycopg.connect(postgresql_url, autocommit=True) as admin:
                admin.execute("ANALYZE")
            rows, scans = rows_read(postgresql, postgresql_fairness.CLAIM[True], params)
            assert rows <= 2 * (4 * LIMIT + 2 * LIVE)
            assert scans <= {"Index Scan", "Index Only Scan"}

    def test_one_statement(self, postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where keys run out before the claim is full, and where there is nothing."""
        make_empty_keys(postgresql)
        insert(postgresql, tenants(1000))
        sent = Statements(monkeypatch)

        def statements(limit: int) -> int:
            """Without the one that counts streams, once a minute."""
            return len([text for text in sent.of(lambda: claim(postgresql, limit)) if "count(*)" not in text])

        assert len(claim(postgresql, LIMIT)) == LIMIT  # the first one learns that there are keys
        assert statements(LIMIT) == 1
        assert statements(200) == 1
        while claim(postgresql, 1000):
            pass
        assert statements(LIMIT) == 1

    def test_a_claim_begins_where_the_last_one_saw_its_first_job(self, postgresql: SqlStore) -> None:
        """Not before what is claimed, nor in keys that are done; and what comes back before that is found all the same."""
        old = NOW - timedelta(minutes=1)
        keys = [StreamKey(fairness_key=f"tenant-{number}") for number in range(4)]
        insert(postgresql, [(2, old, key) for key in keys for _ in range(30)])
        plan = postgresql.database.dialect.claim_plan
        assert isinstance(plan, PostgresqlClaimPlan)
        claims = claim(postgresql, LIMIT)
        while found := claim(postgresql, LIMIT):
            claims += found
        assert len(claims) == 120
        starts = plan.starts.known(request(LIMIT))
        assert {start[:2] for start in starts} >= {(found.stream_id, 2) for found in claims}
        assert all(start[3] >= old for start in starts)
        returned = [claims[7], claims[70]]
        assert postgresql.hand_back(returned, now=NOW) == 2
        assert {found.job_id for found in claim(postgresql, LIMIT)} == {found.job_id for found in returned}

    def test_without_keys_it_is_one_statement(
        self, postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever does not use keys does not pay for them."""
        insert(postgresql, [(2, NOW, StreamKey())] * 100)
        sent = Statements(monkeypatch)
        assert len(sent.of(lambda: claim(postgresql, LIMIT))) == 1


class TestMysql:
    def test_rows_follow_from_the_claim(self, mysql: SqlStore) -> None:
        """As many rows are read at 20,000 pending jobs of one key as at a hundred, and one look at each empty key."""
        make_empty_keys(mysql)
        plan = mysql.database.dialect.claim_plan
        assert isinstance(plan, MysqlClaimPlan)

        def reads(session: Any) -> int:
            rows = session.plain("SHOW SESSION STATUS LIKE 'Handler_read%'").rows
            return sum(int(value) for _, value in rows)

        def measured(session: Any) -> int:
            before = reads(session)
            assert len(plan._claim(session, request(LIMIT), NOW)) == LIMIT
            return reads(session) - before

        counted = []
        for large in (100, 20_000):
            insert(mysql, tenants(large))
            counted.append(mysql.database.run(measured, claiming=True))
        assert counted[1] < counted[0] + 1_000, counted
        # for each empty key its row, five looks, and what the server counts for asking
        assert max(counted) < 30 * (EMPTY + LIVE + LIMIT), counted


class TestSqlite:
    def test_steps_follow_from_the_claim(self, tmp_path: Path) -> None:
        """The virtual machine takes as many steps at 20,000 pending jobs of one key as at a hundred."""
        steps = {}
        for large in (100, 20_000):
            store = open_store(f"sqlite:///{tmp_path / f'{large}.db'}")
            make_empty_keys(store)
            insert(store, tenants(large))
            claim(store, LIMIT)
            with SqliteSteps(store.database.dialect._connections.writer()) as counted:
                assert len(claim(store, LIMIT)) == LIMIT
            steps[large] = counted.count
            store.close()
        assert steps[20_000] < 2 * steps[100], steps

    def test_only_live_keys_are_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of two hundred empty keys no branch is opened."""
        store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
        make_empty_keys(store)
        insert(store, tenants(100))
        read: list[int] = []
        plan = store.database.dialect.claim_plan
        original = plan.read

        def noted(session: Session, wanted: Any, *args: Any) -> None:
            read.append(len(wanted))
            original(session, wanted, *args)

        monkeypatch.setattr(plan, "read", noted)
        assert len(claim(store, LIMIT)) == LIMIT
        assert sum(read) <= 2 * LIVE
        store.close()


class TestMongodb:
    def test_three_round_trips(self, mongodb_url: str) -> None:
        """Look, take, read, whatever the number of keys, with work or without, as long as the same have work."""
        with opened(mongodb_url) as steps:
            commands = steps.listened()
            for number in range(LIVE):
                steps.submit_many(15, fairness_key=f"tenant-{number}")
            for number in range(EMPTY):
                steps.store.database.streams.id_of(StreamKey(fairness_key=f"idle-{number}"))
            assert len(steps.claim(LIMIT)) == LIMIT
            commands.names.clear()
            assert len(steps.claim(LIMIT)) == LIMIT
            assert commands.names == ["aggregate", "update", "find"]

    def test_new_keys_and_new_priorities_are_seen(self, mongodb_url: str) -> None:
        """Wherever work appears that was not there at the last claim, the next one takes it."""
        with opened(mongodb_url) as steps:
            steps.submit_many(300, fairness_key="ann")
            assert len(steps.claim(10)) == 10
            urgent = steps.submit(fairness_key="ann", priority=Priority.CRITICAL)
            others = [steps.submit_many(150, fairness_key=key)[0] for key in ("bob", "carl", "dora", "eve")]
            assert [c.job_id for c in steps.claim(5)] == [urgent, *others]
            many = [steps.submit_many(120, fairness_key=f"k{number}")[0] for number in range(8)]
            assert [c.job_id for c in steps.claim(8, after="eve")] == many
