"""Among thousands of fairness keys that have work a claim looks at those whose turn is next, and takes what it always took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from ratchet.model.claim import ClaimRequest, party_of
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.status import Lane, Priority
from ratchet.spi.store import JobStore
from ratchet.stores import next_parties, open_store
from ratchet.stores.memory import MemoryStore
from ratchet.stores.next_parties import NextParties, Turns
from ratchet.stores.sql.claiming.gates import stream_params
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.mysql.claims import MysqlClaimPlan
from ratchet.stores.sql.dialects.postgresql import fairness
from ratchet.stores.sql.dialects.postgresql.claims import PostgresqlClaimPlan
from ratchet.stores.sql.dialects.sqlite.claims import SqliteClaimPlan
from ratchet.stores.sql.store import SqlStore
from tests.stores.backlog import NOW, request
from tests.stores.backlog import insert as insert_in_bulk
from tests.stores.counting import SqliteSteps
from tests.stores.mongo_store import opened

STORES = ("sqlite", "postgresql", "mysql", "mongodb")
LIMIT = 20
#: So many keys, and the one that was served last in a place where nothing was claimed yet.
KEYS = ((300, "key-00200"), (3_000, "key-02000"))


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the kind that the test names."""
    kind = request.param
    return f"sqlite:///{tmp_path / 'jobs.db'}" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")


def parties_of(store: Any) -> NextParties:
    """What a store knows of next parties."""
    if not isinstance(store, SqlStore):
        found = store.claims._parties
    elif isinstance(plan := store.database.dialect.claim_plan, PostgresqlClaimPlan):
        found = plan.fairness.parties
    else:
        assert isinstance(plan, SqliteClaimPlan | MysqlClaimPlan)
        found = plan.parties
    assert isinstance(found, NextParties)
    return found


def some_job(random: Random, keys: int, kinds: Sequence[str]) -> JobSpec:
    """A job of one of so many keys of these kinds, or of none; in one of two queues, of either kind of worker, due or not."""
    # some keys have many jobs, most have few
    names = {
        kind: f"{kind}-{min(random.randrange(keys) for _ in range(4)):03}"
        for kind in kinds
        if random.random() < 0.9
    }
    return JobSpec(
        job_id=new_id(),
        target="shop:work",
        payload="{}",
        priority=random.choice(list(Priority)),
        scheduled_at=NOW + timedelta(minutes=random.randrange(-40, 10)),
        stream=StreamKey(
            queue=random.choice(("one", "two")),
            lane=random.choice((Lane.THREAD, Lane.THREAD, Lane.THREAD, Lane.ASYNC)),
            **names,
        ),
    )


@pytest.mark.parametrize("url", STORES, indirect=True)
@pytest.mark.parametrize("kinds", [("fairness_key",), ("fairness_key", "limit_key")])
def test_claims_as_the_store_in_memory(
    url: str, kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The same jobs in the same order, whoever was served last, and whichever keys have nothing due.

    Of keys with several streams, with limits that are reached and limits that are not, of jobs without a key, in a paused queue,
    and where the round begins anew.
    """
    monkeypatch.setattr(next_parties, "MANY", 3)
    monkeypatch.setattr(next_parties, "_PAUSE", 0.0)
    found = 0
    with_store = open_store(url)
    with_store.migrate()
    find = NextParties.find

    def counted(*args: Any) -> Turns | None:
        nonlocal found
        turns = find(*args)
        found += turns is not None and not turns.is_all
        return turns

    monkeypatch.setattr(NextParties, "find", counted)
    stores: tuple[JobStore, JobStore] = (with_store, MemoryStore())
    random = Random(7)
    after: str | None = None
    for number in range(60):
        if number % 6 == 0:
            specs = [some_job(random, 150, kinds) for _ in range(500 if number == 0 else 150)]
            for store in stores:
                store.insert(specs, now=NOW)
                for key in range(0, 150, 2):  # one more may start, of some none
                    most = 0 if key % 5 == 4 else 1 + number // 6
                    store.set_limit(f"limit_key-{key:03}", concurrent=most, now=NOW)
        if number in (20, 30):
            for store in stores:
                pause = store.pause_queue if number == 20 else store.resume_queue
                pause("two", now=NOW)
        asked = ClaimRequest(
            node_id="n1",
            claim_id=new_id(),
            limit=random.choice((1, 3, 8, 8, 25)),
            boost_interval=random.choice((None, timedelta(minutes=10))),
            after=random.choice((after, after, after, None, "", "fairness_key-070", "zzz")),
        )
        expected, got = (store.claim_next_batch(asked, now=NOW) for store in reversed(stores))
        assert [one.claim.job_id for one in got] == [one.claim.job_id for one in expected], number
        after = party_of(got[-1].body.fairness_key) if got else after
    assert found > 10  # else this test says nothing
    with_store.close()


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    kind = request.param
    url = f"sqlite:///{tmp_path / 'jobs.db'}" if kind == "sqlite" else request.getfixturevalue(f"{kind}_url")
    found = open_store(url)
    assert isinstance(found, SqlStore)
    found.migrate()
    yield found
    found.close()


def grown(store: SqlStore) -> Iterator[ClaimRequest]:
    """A claim in the middle of more and more keys that all have work, each time after one that could learn of them."""
    before = 0
    for keys, after in KEYS:
        insert_in_bulk(
            store,
            [
                (2, NOW, StreamKey(fairness_key=f"key-{number:05}"))
                for number in range(before, keys)
                for _ in range(3)
            ],
        )
        before = keys
        asked = request(LIMIT, after=after)
        for earlier in (f"{after[:-2]}30", f"{after[:-2]}60"):
            assert len(store.claim_next_batch(request(LIMIT, after=earlier), now=NOW)) == LIMIT
        assert parties_of(store).are_many(asked)
        yield asked


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_sqlite(store: SqlStore) -> None:
    """As many steps of the virtual machine with 3,000 keys that have work as with 300."""
    plan = store.database.dialect.claim_plan
    assert isinstance(plan, SqliteClaimPlan)

    def steps(asked: ClaimRequest) -> int:
        def counted(session: Session) -> int:
            with SqliteSteps(session.connection) as counted:
                turns = plan._next_parties(session, asked, NOW)
                assert turns is not None
                rows = plan._take_in_turns(session, asked, NOW, turns)
            assert rows is not None
            assert len(rows) == LIMIT
            return counted.count

        return store.database.run(counted)

    few, many = (steps(asked) for asked in grown(store))
    assert 0 < many < 1.2 * few, (few, many)


@pytest.mark.parametrize("store", ["mysql"], indirect=True)
def test_mysql(store: SqlStore) -> None:
    """As many reads with 3,000 keys that have work as with 300."""
    plan = store.database.dialect.claim_plan
    assert isinstance(plan, MysqlClaimPlan)

    def reads(session: Any) -> int:
        rows = session.plain("SHOW SESSION STATUS LIKE 'Handler_read%'").rows
        return sum(int(value) for _, value in rows)

    def counted(asked: ClaimRequest) -> int:
        def claimed(session: Any) -> int:
            before = reads(session)
            assert len(plan._claim(session, asked, NOW)) == LIMIT
            return reads(session) - before

        return store.database.run(claimed, claiming=True)

    few, many = (counted(asked) for asked in grown(store))
    assert many < 1.2 * few, (few, many)


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_postgresql(store: SqlStore, postgresql_url: str) -> None:
    """Of 3,000 keys that have work the walk and the take read those that they need, by their indexes."""
    for asked in grown(store):
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute("ANALYZE")
        params = {**stream_params(asked, NOW), "page": LIMIT + 1, "after_key": "key-00180", "after_id": 0}
        walk = rows_read(store, fairness.WALKS["to_the_end"], params)
        assert walk["scheduler_stream"] <= LIMIT + 1
        assert walk["scheduler_job_queue"] <= 3 * (LIMIT + 1)
        turns = parties_of(store)
        assert turns.are_many(asked)
        among = store.database.read(lambda session: [one for (one,) in session.rows(AMONG)])
        params = {**fairness.claim_params(asked, NOW), **fairness._BEGINNINGS, "tell": False, "among": among}
        take = rows_read(store, fairness.CLAIMS_AMONG[True], params)
        assert take["scheduler_stream"] <= 2 * LIMIT
        assert take["scheduler_job_queue"] <= 6 * LIMIT


AMONG = f"SELECT stream_id FROM scheduler_stream WHERE fairness_key > 'key-00180' ORDER BY fairness_key LIMIT {LIMIT}"


class RolledBack(Exception):
    pass


def rows_read(store: SqlStore, text: str, params: dict[str, object]) -> dict[str, int]:
    """Rows that a statement reads, by table; what it did is rolled back. Nothing is read without an index."""
    found: list[Any] = []

    def work(session: Session) -> None:
        found.append(session.value(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", params))
        raise RolledBack

    with pytest.raises(RolledBack):
        store.database.run(work, claiming=True)
    waiting = [(json.loads(found[0]) if isinstance(found[0], str) else found[0])[0]["Plan"]]
    rows: dict[str, int] = {}
    while waiting:
        node = waiting.pop()
        waiting += node.get("Plans", [])
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            table, read = node["Relation Name"], node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            rows[table] = rows.get(table, 0) + round(read * node["Actual Loops"])
            if node["Actual Loops"] and table in ("scheduler_stream", "scheduler_job_queue"):
                assert node["Node Type"] in ("Index Scan", "Index Only Scan", "Bitmap Heap Scan"), node
    return rows


def test_mongodb(mongodb_url: str) -> None:
    """As many keys of indexes and documents are read with 3,000 keys that have work as with 300."""
    read = []
    with opened(mongodb_url) as steps:
        database, before = steps.store.database.client().get_default_database(), 0
        for keys, after in KEYS:
            names = [f"key-{number:05}" for number in range(before, keys)]
            steps.insert([steps.spec(fairness_key=name) for name in names for _ in range(3)])
            before = keys
            for earlier in (f"{after[:-2]}30", f"{after[:-2]}60"):
                assert len(steps.claim(LIMIT, after=earlier)) == LIMIT
            database.command("profile", 2)
            assert len(steps.claim(LIMIT, after=after)) == LIMIT
            database.command("profile", 0)
            read.append(
                sum(
                    one.get("keysExamined", 0) + one.get("docsExamined", 0)
                    for one in database["system.profile"].find({"ns": {"$not": {"$regex": "system"}}})
                )
            )
            database.drop_collection("system.profile")
    few, many = read
    assert 0 < many < 1.2 * few, read
