"""Connections to PostgreSQL: lost, silent, exhausted, forked, pooled by somebody else."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from ratchet.model.errors import CommitUnknown, StoreError, StoreUnavailable
from ratchet.model.options import Options
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.postgresql.connections import Connection
from ratchet.stores.sql.store import SqlStore, open_store
from ratchet.tck.faults import Proxy
from tests.services.postgresql import PostgreSQL
from tests.stores.backlog import NOW, claim, insert, spread

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


def cut(url: str) -> None:
    """End every other session of the database, as a restart or a firewall would."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(CUT)


class TestLost:
    def test_while_idle(self, store: SqlStore, postgresql_url: str) -> None:
        """Connections that died in the pool are replaced without a word, for writes, reads and blocks."""
        threads = [threading.Thread(target=store.queues) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for action in (
            lambda: store.pause_queue("q", now=NOW),
            store.queues,
            lambda: store.begin().__enter__(),
        ):
            cut(postgresql_url)
            if action is not store.queues:
                store.resume_queue("q", now=NOW)
                cut(postgresql_url)
            action()  # type: ignore[no-untyped-call]

    def test_in_the_middle(self, store: SqlStore, postgresql_url: str) -> None:
        """Before the commit nothing can have been written: the work is done again on a new connection, once."""
        tries = []

        def work(session: Session) -> int:
            session.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')")
            tries.append(1)
            if len(tries) == 1:
                cut(postgresql_url)
            return session.execute("INSERT INTO scheduler_queue (queue) VALUES ('r')")

        assert store.database.run(work) == 1
        assert len(tries) == 2
        assert [queue.name for queue in store.queues()] == ["q", "r"]

    def test_in_the_middle_every_time(self, store: SqlStore, postgresql_url: str) -> None:
        """It is not tried for ever."""
        tries = []

        def work(session: Session) -> None:
            tries.append(1)
            cut(postgresql_url)
            session.execute("SELECT 1")

        with pytest.raises(StoreUnavailable) as caught:
            store.database.run(work)
        assert not isinstance(caught.value, CommitUnknown)
        assert len(tries) == 2

    def test_at_the_commit(self, store: SqlStore, postgresql_url: str) -> None:
        """Nobody can know whether it was made, so it is said, and not done again."""
        tries = []

        def work(session: Session) -> None:
            tries.append(session.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')"))
            cut(postgresql_url)

        with pytest.raises(CommitUnknown):
            store.database.run(work)
        assert len(tries) == 1
        assert store.queues() == []

    def test_in_the_caller_s_transaction(self, store: SqlStore, postgresql_url: str) -> None:
        """It is the caller's to begin again."""
        connection = psycopg.connect(postgresql_url)
        connection.execute("SELECT 1")
        cut(postgresql_url)
        with pytest.raises(StoreUnavailable):
            store.database.run(lambda session: session.execute("SELECT 1"), within=connection)
        connection.close()
        assert store.queues() == []


@pytest.mark.slow
def test_a_restart_of_the_server() -> None:
    """While it is down callers are told at once; as soon as it is back the same store works."""
    server = PostgreSQL(fsync=False)
    server.start()
    try:
        with closing(open_store(server.create_database())) as store:
            store.migrate()
            insert(store, spread(20))
            server.stop()
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
    def test_a_slow_statement_is_ended(self, postgresql_url: str) -> None:
        """By the server, and the connection is fine afterwards."""
        with closing(open_store(postgresql_url, Options(statement_timeout=timedelta(seconds=0.2)))) as store:
            store.migrate()
            with pytest.raises(StoreUnavailable, match="statement_timeout"):
                store.database.run(lambda session: session.execute("SELECT pg_sleep(5)"))
            assert store.queues() == []

    def test_a_server_that_does_not_answer(self, postgresql_url: str, monkeypatch: Any) -> None:
        """A call ends soon after its deadline even when nothing comes back, and the commit's fate is unknown."""
        monkeypatch.setattr("ratchet.stores.sql.dialects.postgresql.connections._GRACE", 0.3)
        parts = urlsplit(postgresql_url)
        options = Options(statement_timeout=timedelta(seconds=0.5), connect_timeout=timedelta(seconds=2))
        with (
            Proxy((parts.hostname or "", parts.port or 5432)) as proxy,
            closing(
                open_store(postgresql_url.replace(f":{parts.port}/", f":{proxy.address[1]}/"), options)
            ) as store,
        ):
            store.migrate()
            started = time.monotonic()

            def work(session: Session) -> None:
                session.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')")
                proxy.silent = True

            with pytest.raises(CommitUnknown):
                store.database.run(work)
            assert time.monotonic() - started < 5
            with pytest.raises(StoreUnavailable):
                store.queues()
            proxy.cut_all()
            proxy.silent = False
            assert store.queues() == []

    def test_all_connections_in_use(self, postgresql_url: str) -> None:
        """User blocks can take all but two; the engine's own calls still find one; the error names the option."""
        options = Options(pool_size=4, connect_timeout=timedelta(seconds=0.3))
        with closing(open_store(postgresql_url, options)) as store:
            store.migrate()
            with store.begin(), store.begin():
                with pytest.raises(StoreUnavailable, match="pool_size"), store.begin():
                    pass
                assert store.pause_queue("q", now=NOW)
            with store.begin():
                pass


def test_a_forked_child_uses_connections_of_its_own(store: SqlStore) -> None:
    """Parent and child work side by side, and the child's end does not end the parent's sessions."""
    insert(store, spread(40))
    (mine,) = store.database.dialect._connections._idle  # type: ignore[attr-defined]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if len(claim(store, 20)) == 20 else 2
        finally:
            os._exit(status)
    _, code = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(code) == 0
    assert len(claim(store, 40)) == 20
    assert store.database.dialect._connections._idle == [mine]  # type: ignore[attr-defined]


class TestPgBouncer:
    @pytest.fixture
    def pooled(self, pgbouncer_url: str) -> Iterator[SqlStore]:
        store = open_store(pgbouncer_url)
        store.migrate()
        yield store
        store.close()

    def test_everything_in_transaction_mode(self, pooled: SqlStore) -> None:
        """Migration, bulk inserts, claims, limits, reads and blocks work where the server changes with each one."""
        pooled.check_schema()
        ids = insert(pooled, spread(300, queues=3))
        pooled.set_limit("gateway", concurrent=1, now=NOW)
        claimed = []
        while found := claim(pooled, 70):
            claimed += [job.job_id for job in found]
        assert sorted(claimed) == sorted(ids)
        with pooled.begin() as connection:
            pooled.database.run(
                lambda session: session.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')"),
                within=connection,
            )
        assert "q" in [queue.name for queue in pooled.queues()]

    def test_nothing_is_left_on_the_server_connection(self, pooled: SqlStore, pgbouncer_url: str) -> None:
        """Whoever gets the server next finds its own settings, no prepared statements and no locks."""
        claim(pooled, 5)
        insert(pooled, spread(50))
        with psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as other:
            rows = [
                other.execute(text).fetchone()
                for text in (
                    "SHOW statement_timeout",
                    "SHOW lock_timeout",
                    "SHOW enable_bitmapscan",
                    "SELECT count(*) FROM pg_prepared_statements",
                    # of this database: others on the server may be migrating theirs
                    "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
                    " WHERE l.locktype = 'advisory' AND d.datname = current_database()",
                )
            ]
        assert rows == [("0",), ("0",), ("on",), (0,), (0,)]

    def test_many_threads(self, pooled: SqlStore) -> None:
        """Eight threads share the pooler's servers and claim every job once."""
        ids = insert(pooled, spread(400))
        claimed: list[Any] = []

        def work() -> None:
            while found := claim(pooled, 10):
                claimed.extend(job.job_id for job in found)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(claimed) == sorted(ids)


class TestOwnAdapters:
    def test_a_program_that_changes_psycopg_s_global_ones(self, postgresql_url: str) -> None:
        """It changes its own connections, not ours."""
        script = (
            "import sys, psycopg\n"
            "from psycopg.types.string import TextLoader\n"
            "for name in ('uuid', 'timestamptz', 'bool'):\n"
            "    psycopg.adapters.register_loader(name, TextLoader)\n"
            "from tests.stores.backlog import NOW, claim, insert, spread\n"
            "from ratchet.stores.sql.store import open_store\n"
            "store = open_store(sys.argv[1]); store.migrate()\n"
            "ids = insert(store, spread(3))\n"
            "found = claim(store)\n"
            "assert {type(job.job_id).__name__ for job in found} == {'UUID'}\n"
            "assert all(job.scheduled_at <= NOW for job in found)\n"
            "store.close()\n"
        )
        import subprocess
        import sys
        from pathlib import Path

        subprocess.run(
            [sys.executable, "-c", script, postgresql_url],
            check=True,
            timeout=60,
            cwd=Path(__file__).parents[3],
        )

    def test_a_server_in_another_zone(self, store: SqlStore, postgresql_url: str) -> None:
        """Times come back in UTC whatever the database's zone is."""
        name = urlsplit(postgresql_url).path[1:]
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute(f"ALTER DATABASE \"{name}\" SET timezone = 'America/St_Johns'")  # type: ignore[arg-type]
        store.close()
        store.pause_queue("q", now=NOW)
        (queue,) = store.queues()
        assert queue.paused_at == NOW
        assert queue.paused_at is not None
        assert queue.paused_at.utcoffset() == timedelta(0)
        assert isinstance(store.database.dialect._connections._idle[0], Connection)  # type: ignore[attr-defined]


def test_a_block_reports_what_the_user_s_own_statement_raised(store: SqlStore) -> None:
    """Errors of user code in a block are the driver's, untouched; ours are ours."""
    with pytest.raises(psycopg.errors.UndefinedColumn), store.begin() as connection:
        connection.execute("SELECT no_such_column")  # type: ignore[attr-defined]
    with pytest.raises(StoreError), store.begin() as connection:
        store.database.run(lambda session: session.execute("SELEC 1"), within=connection)
