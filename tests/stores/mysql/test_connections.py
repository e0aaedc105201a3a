"""Connections to MySQL and MariaDB: lost, silent, exhausted, forked."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.model.identifiers import new_id
from ratchet.model.options import Options
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.mysql.connections import Connection, Connections
from ratchet.stores.sql.errors import ConnectionLost, LockTimeout
from ratchet.stores.sql.store import SqlStore, open_store
from ratchet.tck.faults import Proxy
from tests.services.mariadb import MariaDB
from tests.stores.backlog import NOW, claim, insert, spread
from tests.stores.mysql_server import connect

INSERT = "INSERT INTO scheduler_queue (queue) VALUES ('{}')"


def admin(url: str) -> Any:
    return connect(url, autocommit=True)


def cut(url: str) -> None:
    """End every other session of the database, as a restart or a firewall would."""
    with closing(admin(url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        for (session,) in cursor.fetchall():
            cursor.execute(f"KILL {session}")


class TestLost:
    def test_while_idle(self, store: SqlStore, mysql_url: str) -> None:
        """Connections that died in the pool are replaced without a word, for writes, reads and blocks."""
        threads = [threading.Thread(target=store.queues) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cut(mysql_url)
        store.pause_queue("q", now=NOW)
        cut(mysql_url)
        assert [queue.name for queue in store.queues()] == ["q"]
        cut(mysql_url)
        with store.begin() as connection:
            connection.query(INSERT.format("r"))  # type: ignore[attr-defined]
        assert [queue.name for queue in store.queues()] == ["q", "r"]

    def test_in_the_middle(self, store: SqlStore, mysql_url: str) -> None:
        """Before the commit nothing can have been written: the work is done again on a new connection, once."""
        tries = []

        def work(session: Session) -> int:
            session.execute(INSERT.format("q"))
            tries.append(1)
            if len(tries) == 1:
                cut(mysql_url)
            return session.execute(INSERT.format("r"))

        assert store.database.run(work) == 1
        assert len(tries) == 2
        assert [queue.name for queue in store.queues()] == ["q", "r"]

    def test_in_the_middle_every_time(self, store: SqlStore, mysql_url: str) -> None:
        """It is not tried for ever."""
        tries = []

        def work(session: Session) -> None:
            tries.append(1)
            cut(mysql_url)
            session.execute("DO 1")

        with pytest.raises(StoreUnavailable) as caught:
            store.database.run(work)
        assert not isinstance(caught.value, CommitUnknown)
        assert len(tries) == 2

    def test_at_the_commit(self, store: SqlStore, mysql_url: str) -> None:
        """Nobody can know whether it was made, so it is said, and not done again."""
        tries = []

        def work(session: Session) -> None:
            tries.append(session.execute(INSERT.format("q")))
            cut(mysql_url)

        with pytest.raises(CommitUnknown):
            store.database.run(work)
        assert len(tries) == 1
        assert store.queues() == []

    def test_in_the_caller_s_transaction(self, store: SqlStore, mysql_url: str) -> None:
        """It is the caller's to begin again."""
        with closing(admin(mysql_url)) as connection:
            connection.begin()
            cut(mysql_url)
            with pytest.raises(StoreUnavailable):
                store.database.run(lambda session: session.execute("DO 1"), within=connection)
        assert store.queues() == []


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_restart_of_the_server(how: str) -> None:
    """While it is down callers are told at once; as soon as it is back the same store works, with all it had acknowledged."""
    server = MariaDB()
    server.start()
    try:
        with closing(open_store(server.create_database())) as store:
            store.migrate()
            insert(store, spread(20))
            getattr(server, how)()
            started = time.monotonic()
            with pytest.raises(StoreUnavailable):
                claim(store)
            assert time.monotonic() - started < 5
            server.start()
            assert len(claim(store)) == 10
            server.restart()
            assert len(claim(store)) == 10
    finally:
        server.close()


class TestDeadlines:
    def test_a_slow_statement_is_ended(self, mysql_url: str) -> None:
        """By the server, and the connection is fine afterwards."""
        with closing(open_store(mysql_url, Options(statement_timeout=timedelta(seconds=0.2)))) as store:
            store.migrate()
            slow = "SELECT count(*) FROM information_schema.columns a, information_schema.columns b WHERE SLEEP(0.1) = 0"
            with pytest.raises(StoreUnavailable, match="statement_timeout"):
                store.database.read(lambda session: session.rows(slow))
            assert store.queues() == []

    def test_a_server_that_does_not_answer(self, mysql_url: str) -> None:
        """A call ends soon after its deadline even when nothing comes back, and the commit's fate is unknown."""
        parts = urlsplit(mysql_url)
        with Proxy((parts.hostname or "127.0.0.1", parts.port or 3306)) as proxy:
            netloc = f"{parts.netloc.rpartition('@')[0]}@{proxy.address[0]}:{proxy.address[1]}"
            options = Options(statement_timeout=timedelta(seconds=0.5), connect_timeout=timedelta(seconds=1))
            with closing(open_store(parts._replace(netloc=netloc).geturl(), options)) as store:
                store.database.dialect._connections.answer_timeout = 0.8  # type: ignore[attr-defined]
                store.migrate()

                def work(session: Session) -> None:
                    session.execute(INSERT.format("q"))
                    proxy.silent = True

                started = time.monotonic()
                with pytest.raises(CommitUnknown):
                    store.database.run(work)
                assert time.monotonic() - started < 4
                with pytest.raises(StoreUnavailable):
                    store.queues()
                proxy.cut_all()
                proxy.silent = False
                assert store.queues() == []

    def test_a_transaction_that_stands_still_is_ended_by_the_server(self, mysql_url: str) -> None:
        """A process that was stopped with locks in its hand does not hold them for as long as it is stopped."""
        with closing(open_store(mysql_url, Options())) as store:
            store.migrate()
            store.database.dialect._connections.idle = 1  # type: ignore[attr-defined]
            store.close()  # the next connection is told

            def stand_still(session: Session) -> None:
                session.execute(INSERT.format("q"))
                time.sleep(2.5)
                session.execute(INSERT.format("r"))

            with pytest.raises(ConnectionLost):
                store.database.run(stand_still)
            with store.begin() as connection:  # but user code may think for as long as it likes
                connection.query(INSERT.format("s"))  # type: ignore[attr-defined]
                time.sleep(2.5)
            assert [queue.name for queue in store.queues()] == ["s"]


class TestPool:
    def test_no_more_than_its_size(self, mysql_url: str) -> None:
        """Readers and writers together; whoever waits for too long is told what to do."""
        options = Options(pool_size=3, connect_timeout=timedelta(seconds=0.3))
        with closing(open_store(mysql_url, options)) as store:
            store.migrate()
            dialect = store.database.dialect
            for _ in range(3):
                with dialect.reading(), dialect.writing(), dialect.reading():
                    assert sessions(mysql_url) == 3
                    with pytest.raises(StoreUnavailable, match="pool_size"):
                        store.queues()
                with dialect.writing(), dialect.writing(), dialect.writing():
                    assert sessions(mysql_url) == 3
                assert store.queues() == []
                assert sessions(mysql_url) <= 3

    def test_blocks_of_user_code_leave_room(self, mysql_url: str) -> None:
        """The engine's own calls go through while user blocks take what is theirs."""
        options = Options(pool_size=3, connect_timeout=timedelta(seconds=0.3))
        with closing(open_store(mysql_url, options)) as store:
            store.migrate()
            with store.begin():
                with pytest.raises(StoreUnavailable, match="pool_size"):
                    store.begin().__enter__()
                assert store.pause_queue("q", now=NOW)

    def test_a_forked_child_has_its_own(self, store: SqlStore) -> None:
        """The parent's sessions stay the parent's: both go on."""
        assert store.queues() == []
        child = os.fork()
        if child == 0:
            try:
                os._exit(0 if store.pause_queue("child", now=NOW) else 1)
            except BaseException:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert [queue.name for queue in store.queues()] == ["child"]

    def test_what_was_idle_for_long_is_replaced(self, store: SqlStore, mysql_url: str) -> None:
        """Before the server closes it."""
        store.queues()
        connections: Connections = store.database.dialect._connections  # type: ignore[attr-defined]
        (before,) = [one for one in connections._idle if one.purpose == "read"]
        before.used_at -= connections.idle
        store.queues()
        assert not before.open


def sessions(url: str) -> int:
    with closing(admin(url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        )
        (found,) = cursor.fetchone()
        return int(found)


class TestBusy:
    def test_a_deadlock_is_tried_again(self, store: SqlStore) -> None:
        """Two that lock crosswise both succeed, and nobody hears of it."""
        for queue in ("a", "b"):
            store.pause_queue(queue, now=NOW)
        barrier = threading.Barrier(2)
        tries: list[int] = []
        errors: list[BaseException] = []

        def swap(first: str, second: str) -> None:
            def work(session: Session) -> None:
                tries.append(1)
                touch = "UPDATE scheduler_queue SET paused_at = :now WHERE queue = :queue"
                session.execute(touch, {"queue": first, "now": NOW})
                if len(tries) <= 2:
                    barrier.wait(10)
                session.execute(touch, {"queue": second, "now": NOW})

            try:
                store.database.run(work)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=swap, args=pair) for pair in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert errors == []
        assert len(tries) == 3

    def test_a_lock_that_is_held_for_too_long(self, store: SqlStore, mysql_url: str) -> None:
        """The wait for it is bounded, and ends in a Conflict of its own kind."""
        store.pause_queue("held", now=NOW)
        with closing(admin(mysql_url)) as blocker, blocker.cursor() as cursor:
            blocker.begin()
            cursor.execute("SELECT 1 FROM scheduler_queue FOR UPDATE")
            store.database.RETRY_FOR = 0.0
            started = time.monotonic()
            with pytest.raises(LockTimeout):
                store.resume_queue("held", now=NOW)
            assert 4 < time.monotonic() - started < 8


def test_a_single_server_pays_nothing_for_clusters(store: SqlStore) -> None:
    """It is not taken for one of several that take writes, and holding a row sends nothing."""

    def questions(session: Any) -> int:
        ((_, count),) = session.plain("SHOW SESSION STATUS LIKE 'Questions'").rows
        return int(count)

    def hold(session: Session) -> int:
        before = questions(session)
        session.hold("scheduler_job", "job_id", [new_id()])
        return questions(session) - before

    assert store.database.run(hold) == 1  # the question itself
    assert not store.capabilities.several_writers
    assert store.capabilities.unsound == ()


def test_a_server_that_does_not_catch_up_is_unavailable(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of a cluster answers 1205 where it is too far behind to begin: that is no conflict, and names the server."""
    query = Connection.query

    def behind(self: Connection, sql: Any, unbuffered: bool = False) -> int:
        if str(sql).startswith("START TRANSACTION"):
            raise pymysql.err.OperationalError(1205, "Lock wait timeout exceeded; try restarting transaction")
        return query(self, sql, unbuffered)

    monkeypatch.setattr(Connection, "query", behind)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1.* is behind the others of its cluster"):
        store.counts()
