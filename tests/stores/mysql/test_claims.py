"""The claim on MySQL: what it reads, what it locks, and whom it waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from ratchet.model.job import StreamKey
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.mysql.claims import MysqlClaimPlan
from ratchet.stores.sql.store import SqlStore, open_store
from tests.stores.backlog import NOW, claim, in_order, insert, request, spread
from tests.stores.mysql_server import ask, connect
from tests.stores.sql_stores import at_once

BOOST = timedelta(minutes=15)


def plan(store: SqlStore) -> MysqlClaimPlan:
    found = store.database.dialect.claim_plan
    assert isinstance(found, MysqlClaimPlan)
    return found


def counted(store: SqlStore, work: Callable[[Session], Any]) -> tuple[Any, dict[str, int]]:
    """What *work* returns, and how often the server's handlers were called for it."""

    def status(session: Any) -> dict[str, int]:
        rows = session.plain("SHOW SESSION STATUS LIKE 'Handler\\_%'").rows
        return {name.removeprefix("Handler_"): int(value) for name, value in rows}

    def measured(session: Session) -> tuple[Any, dict[str, int]]:
        before = status(session)
        idle = status(session)  # asking has its price, too
        answer = work(session)
        after = status(session)
        return answer, {name: after[name] - 2 * idle[name] + before[name] for name in after}

    return store.database.run(measured, claiming=True)


class TestCost:
    def test_the_backlog_does_not_change_it(self, store: SqlStore, mysql_url: str) -> None:
        """A claim of 50 reads as many rows at 1,000 pending as at 40,000, with stale and with fresh statistics."""
        reads: dict[str, int] = {}

        def measure(name: str) -> None:
            rows, handlers = counted(store, lambda session: plan(store)._claim(session, request(50), NOW))
            assert len(rows) == 50
            reads[name] = sum(
                handlers[f"read_{how}"] for how in ("first", "key", "next", "prev", "rnd", "rnd_next")
            )

        insert(store, spread(1000))
        measure("1,000, no statistics")
        analyze(mysql_url)
        measure("1,000, fresh")
        for seed in range(10):
            insert(store, spread(4000, seed=seed + 2))
        measure("40,000, stale")
        analyze(mysql_url)
        measure("40,000, fresh")
        assert max(reads.values()) < 1200, reads
        assert max(reads.values()) < 1.3 * min(reads.values()), reads

    def test_many_keys_with_limits(self, store: SqlStore) -> None:
        """A claim among four times as many concurrency keys reads four times as many rows, not sixteen times."""
        reads: list[int] = []
        for first, last in ((0, 100), (100, 400)):
            names = [f"order-{number}" for number in range(first, last)]
            for name in names:
                store.set_limit(name, concurrent=10_000, now=NOW)
            insert(store, [(2, NOW - timedelta(hours=1), StreamKey(limit_key=name)) for name in names])
            rows, handlers = counted(store, lambda session: plan(store)._claim(session, request(1), NOW))
            assert len(rows) == 1
            reads.append(sum(count for name, count in handlers.items() if name.startswith("read_")))
        assert reads[1] < 8 * reads[0], reads

    def test_closed_streams_cost_nothing(self, store: SqlStore) -> None:
        """Jobs behind a paused queue are not looked at, however many they are."""
        insert(store, [(4, NOW - timedelta(hours=2), StreamKey(queue="closed"))] * 5000)
        insert(store, spread(1000))
        store.pause_queue("closed", now=NOW)
        rows, handlers = counted(store, lambda session: plan(store)._claim(session, request(50), NOW))
        assert len(rows) == 50
        assert handlers["read_next"] < 600

    @pytest.mark.parametrize("gated", [False, True])
    def test_an_idle_claim_writes_nothing(self, store: SqlStore, gated: bool) -> None:
        """Neither a row nor a lock on one, where nothing is due, nor where a limit is used up."""
        key = StreamKey(resource="gateway") if gated else StreamKey()
        insert(store, [(2, NOW + timedelta(hours=1), key)] * 100)
        if gated:
            store.set_limit("gateway", concurrent=0, now=NOW)
            insert(store, [(2, NOW, key)])
        trx = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = CONNECTION_ID() AND trx_rows_locked + trx_rows_modified > 0"

        def work(session: Any) -> tuple[list[Any], int]:
            found = plan(store)._claim(session, request(), NOW)
            return found, session.value(trx)

        (found, dirty), handlers = counted(store, work)
        assert (found, dirty) == ([], 0)
        assert handlers["update"] == handlers["delete"] == 0


def analyze(url: str) -> None:
    with closing(connect(url)) as connection:
        ask(connection, "ANALYZE TABLE scheduler_job_queue, scheduler_job, scheduler_stream")


class TestRivals:
    def test_claims_at_once_come_back_full(self, store: SqlStore, mysql_url: str) -> None:
        """Six nodes that claim at the same moment step on nobody's toes: almost no claim is short or empty."""
        jobs = insert(store, spread(6000, queues=3))
        stores = [open_store(mysql_url) for _ in range(6)]
        sizes: list[int] = []
        taken: list[Any] = []

        def empty_it(mine: SqlStore) -> None:
            while batch := claim(mine, 50):
                taken.extend(found.job_id for found in batch)
                if len(taken) < 5500:
                    sizes.append(len(batch))

        at_once(*[lambda mine=mine: empty_it(mine) for mine in stores])
        for mine in stores:
            mine.close()
        assert sorted(taken) == sorted(jobs)
        assert sum(size < 50 for size in sizes) <= len(sizes) // 20

    def test_a_locked_job_is_passed_over(self, store: SqlStore, mysql_url: str) -> None:
        """Somebody else has the first job in hand: the claim takes the others, at once, in order."""
        jobs = spread(20)
        ids = insert(store, jobs)
        order = in_order(list(zip(ids, jobs, strict=True)), BOOST)
        with closing(open_store(mysql_url)) as other, other.begin() as connection:
            connection.query(f"SELECT 1 FROM scheduler_job_queue WHERE job_id = x'{order[0].hex}' FOR UPDATE")  # type: ignore[attr-defined]
            started = time.monotonic()
            assert [found.job_id for found in claim(store, 5)] == order[1:5]
            assert time.monotonic() - started < 2
        assert claim(store, 1)[0].job_id == order[0]

    @pytest.mark.parametrize("change", ["reschedule", "cancel", "claim", "move"])
    def test_what_changed_since_the_look_is_not_taken(
        self, store: SqlStore, mysql_url: str, monkeypatch: pytest.MonkeyPatch, change: str
    ) -> None:
        """The look has no locks: a job that was moved, canceled or claimed behind it is found out under the lock."""
        (job_id,) = insert(store, [(2, NOW, StreamKey())])
        other = open_store(mysql_url)
        mine = plan(store)
        look = mine.read

        def look_and_lose(session: Any, wanted: Any, asked: Any, now: Any) -> None:
            look(session, wanted, asked, now)
            match change:
                case "reschedule":
                    assert other.reschedule(job_id, NOW + timedelta(hours=1), now=NOW)
                case "cancel":
                    assert other.cancel(job_id, reason="r", now=NOW)
                case "move":
                    closed = other.stream_registry.id_of(None, StreamKey(queue="other"))
                    other.database.run(
                        lambda s: s.execute(
                            "UPDATE scheduler_job_queue SET stream_id = :closed WHERE job_id = :job_id",
                            {"closed": closed, "job_id": job_id},
                        )
                    )
                case _:
                    monkeypatch.undo()
                    other.database.run(
                        lambda s: s.execute(
                            "UPDATE scheduler_job_queue SET status = 'RUNNING', picked_by = 'n2' WHERE job_id = :job_id",
                            {"job_id": job_id},
                        )
                    )

        monkeypatch.setattr(mine, "read", look_and_lose)
        assert claim(store) == []
        assert store.claims_of("n1") == {}
        other.close()

    def test_a_claim_that_stands_still_does_not_stop_the_others(
        self, store: SqlStore, mysql_url: str
    ) -> None:
        """A process that is stopped with the turn in its hand costs one short wait, not one for each claim."""
        insert(store, spread(30))
        with closing(open_store(mysql_url)) as other, other.begin() as connection:
            connection.query(f"SELECT GET_LOCK('{plan(store)._lock}.thread', 0)")  # type: ignore[attr-defined]
            started = time.monotonic()
            assert len(claim(store, 10)) == 10
            waited = time.monotonic() - started
            assert len(claim(store, 10)) == 10
            assert time.monotonic() - started - waited < 0.5
            assert 0.5 < waited < 3

    def test_the_turn_is_given_back(self, store: SqlStore, mysql_url: str) -> None:
        """After a claim, and after one that failed, nobody has it."""
        insert(store, spread(30))
        mine = plan(store)

        def fail(session: Session) -> None:
            mine._claim(session, request(5), NOW)
            raise LookupError

        with pytest.raises(LookupError):
            store.database.run(fail)
        assert len(claim(store, 5)) == 5
        free = f"SELECT IS_FREE_LOCK('{mine._lock}.thread') AS is_free"
        assert store.database.read(lambda session: session.value(free)) is True

    def test_submitting_and_completing_meanwhile(self, store: SqlStore, mysql_url: str) -> None:
        """Nothing that goes on beside claims deadlocks with them in a way that anybody hears of."""
        stores = [open_store(mysql_url) for _ in range(4)]
        stop = threading.Event()
        done: list[Any] = []

        def submit(mine: SqlStore) -> None:
            for seed in range(15):
                insert(mine, spread(40, seed=seed))
            stop.set()

        def work(mine: SqlStore) -> None:
            while not stop.is_set() or claimable(mine):
                for found in claim(mine, 20):
                    assert mine.hand_back([found], now=NOW) == 1
                    done.append(found.job_id)
                if len(done) > 300:
                    return

        at_once(*[lambda mine=mine: work(mine) for mine in stores[1:]], lambda: submit(stores[0]))
        for mine in stores:
            mine.close()
        assert len(done) > 300


def claimable(store: SqlStore) -> bool:
    return store.next_due_at(request(), now=NOW) is not None
