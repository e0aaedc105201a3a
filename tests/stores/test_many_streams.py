"""What keys of the past cost: a claim and a look read what has waiting jobs, however many streams there ever were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ratchet.model.job import StreamKey
from ratchet.stores.sql.claiming.gates import next_opening
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.mysql.claims import MysqlClaimPlan
from ratchet.stores.sql.dialects.postgresql.claims import PostgresqlClaimPlan
from ratchet.stores.sql.dialects.postgresql.many_streams import FEW, FEW_STREAMS, ManyStreams
from ratchet.stores.sql.dialects.sqlite.claims import SqliteClaimPlan
from ratchet.stores.sql.rows.stream_registry import stream_key
from ratchet.stores.sql.store import SqlStore, open_store
from tests.stores.backlog import NOW, claim, insert, request
from tests.stores.counting import SqliteSteps
from tests.stores.mongo_store import opened

DEAD = (300, 3_000)
LIMIT = 20

COLUMNS = ("stream_key", "queue", "lane", "limit_key", "created_at")


def make_dead_streams(store: SqlStore, first: int, last: int) -> None:
    """Streams of keys that have no jobs, straight into the table."""
    keys = [StreamKey(limit_key=f"customer-{number}") for number in range(first, last)]
    rows = [(stream_key(key), key.queue, key.lane.value, key.limit_key, NOW) for key in keys]
    store.database.run(lambda session: session.insert_rows("scheduler_stream", COLUMNS, rows))


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    kind = request.param
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    found = open_store(url)
    found.migrate()
    yield found
    found.close()


def grown(store: SqlStore) -> Iterator[int]:
    """Three keys with jobs, among more and more that have none; each time after a claim that could learn of it."""
    insert(store, [(2, NOW, StreamKey(limit_key=f"live-{number}")) for number in range(3) for _ in range(50)])
    before = 0
    for dead in DEAD:
        make_dead_streams(store, before, dead)
        before = dead
        assert len(claim(store, LIMIT)) == LIMIT
        yield dead


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_sqlite(store: SqlStore) -> None:
    """As many steps of the virtual machine with 3,000 streams without jobs as with 300."""
    plan = store.database.dialect.claim_plan
    assert isinstance(plan, SqliteClaimPlan)

    def steps(work: Callable[[Session], object]) -> int:
        def counted(session: Session) -> int:
            with SqliteSteps(session.connection) as counted:
                work(session)
            return counted.count

        return store.database.run(counted)

    def work(session: Session) -> None:
        _, due = next_opening(session, request(LIMIT), NOW)
        assert len(plan._take(session, request(LIMIT), NOW, due)) == LIMIT

    few, many = (steps(work) for _ in grown(store))
    assert 0 < many < 1.5 * few, (few, many)


@pytest.mark.parametrize("store", ["mysql"], indirect=True)
def test_mysql(store: SqlStore) -> None:
    """A few hundred reads more with 2,700 streams more, not tens of thousands."""
    plan = store.database.dialect.claim_plan
    assert isinstance(plan, MysqlClaimPlan)

    def reads(session: Any) -> int:
        rows = session.plain("SHOW SESSION STATUS LIKE 'Handler_read%'").rows
        return sum(int(value) for _, value in rows)

    def counted(work: Callable[[Any], object]) -> int:
        def both(session: Any) -> int:
            before = reads(session)
            work(session)
            return reads(session) - before

        return store.database.run(both, claiming=True)

    found = []
    for _ in grown(store):
        assert plan.busy.are_many
        found.append(counted(lambda session: plan._claim(session, request(LIMIT), NOW)))
        found.append(counted(lambda session: plan.look(session, [request()], NOW)))
    assert max(found) < 1_500, found


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
class TestPostgresql:
    def test_rows_of_streams(self, store: SqlStore) -> None:
        """Of 3,000 streams the claim and the look read those with waiting jobs, by their number, and no other row."""
        make_dead_streams(store, 0, DEAD[-1])
        insert(
            store, [(2, NOW, StreamKey(limit_key=f"live-{number}")) for number in range(3) for _ in range(50)]
        )
        plan = store.database.dialect.claim_plan
        assert isinstance(plan, PostgresqlClaimPlan)
        assert [len(claim(store, LIMIT)) for _ in range(2)] == [LIMIT, LIMIT]
        assert plan.streams.are_many
        sql, params, _ = plan.heads([request()], NOW)
        lines = store.database.run(
            lambda session: [
                line for (line,) in session.rows(f"EXPLAIN (ANALYZE, TIMING OFF) {sql}", params)
            ],
            claiming=True,
        )
        scans = [line for line in lines if "scheduler_stream" in line]
        assert scans
        assert all("Index Scan using scheduler_stream_pkey" in line for line in scans), lines
        assert all("actual rows=1" in line for line in scans), lines

    def test_few_streams_are_not_counted(self, store: SqlStore) -> None:
        """As long as claims meet a few of them; where they meet none or many, once in a while."""
        seconds = 0.0
        streams = ManyStreams(lambda: seconds)
        asked: list[int] = []
        database: Any = type("Counting", (), {"read": lambda _, work: asked.append(1) or FEW_STREAMS + 1})()
        for met in (1, FEW_STREAMS):
            assert met in FEW
            streams.count(database)
        assert not asked
        assert not streams.are_many
        for met in (0, FEW_STREAMS + 1):
            assert met not in FEW
        streams.in_doubt = True
        streams.count(database)
        streams.count(database)
        assert len(asked) == 1
        assert streams.are_many
        seconds = 3600.0
        streams.count(database)
        assert len(asked) == 2

    def test_few_again(self, store: SqlStore) -> None:
        """What is many is counted again, and may be few one day."""
        seconds = 0.0
        plan = store.database.dialect.claim_plan
        assert isinstance(plan, PostgresqlClaimPlan)
        plan.streams = ManyStreams(lambda: seconds)
        plan.streams.are_many = True
        insert(store, [(2, NOW, StreamKey())] * 30)
        assert len(claim(store, LIMIT)) == LIMIT
        assert not plan.streams.are_many


def test_mongodb(mongodb_url: str) -> None:
    """A claim among 300 streams, each with a limit, is three round trips, and brings what belongs to its jobs."""
    with opened(mongodb_url) as steps:
        steps.insert([steps.spec(limit_key=f"customer-{number}") for number in range(DEAD[0])])
        steps.end_all(steps.claim())
        limits = [{"_id": f"customer-{number}", "concurrent": 5} for number in range(DEAD[0])]
        steps.collections["scheduler_resource_limit"].insert_many(limits)
        for number in range(3):
            steps.submit_many(30, queue=f"live-{number}")
        commands = steps.listened()
        assert len(steps.claim(LIMIT)) == LIMIT
        commands.forget()
        assert len(steps.claim(LIMIT)) == LIMIT
        assert commands.names == ["aggregate", "update", "find"]
        assert commands.documents < 6 * LIMIT
        commands.forget()
        assert steps.store.next_due_at(steps.request(), now=steps.now) is not None
        assert commands.documents < 6 * LIMIT
