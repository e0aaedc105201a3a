"""`within=`: our statements on the caller's transaction, which stays the caller's."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.string import TextLoader
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session as OrmSession

from ratchet.model.errors import ConfigurationError, Conflict, StoreError
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.store import SqlStore, open_store

ADD = "INSERT INTO scheduler_queue (queue, paused, paused_at) VALUES (:queue, true, :at)"
LIST = "SELECT queue, paused, paused_at FROM scheduler_queue ORDER BY queue"
AT = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)


class Refused(Exception):
    pass


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param == "postgresql":
        found: str = request.getfixturevalue("postgresql_url")
        return found
    return f"sqlite:///{tmp_path / 'x.db'}"


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    store = open_store(url)
    store.migrate()
    yield store
    store.close()


def connect(url: str, **options: Any) -> Any:
    """A driver's own connection, as an application would have one."""
    if url.startswith("sqlite"):
        return sqlite3.connect(url.removeprefix("sqlite:///"), **options)
    return psycopg.connect(url, **options)


def add(queue: str) -> Callable[[Session], list[Any]]:
    def work(session: Session) -> list[Any]:
        assert session.enlisted
        session.execute(ADD, {"queue": queue, "at": AT})
        return session.rows(LIST)

    return work


def queues(store: SqlStore) -> list[str]:
    return [row[0] for row in store.database.read(lambda session: session.rows(LIST))]


def alchemy(url: str, *, awaited: bool = False) -> str:
    if url.startswith("sqlite"):
        return url.replace("sqlite:", "sqlite+aiosqlite:" if awaited else "sqlite+pysqlite:")
    return url.replace("postgresql:", "postgresql+psycopg:")


class TestDriverConnection:
    def test_commit_and_rollback_are_the_caller_s(self, store: SqlStore, url: str) -> None:
        """Seen inside, invisible outside until the caller commits; gone when the caller rolls back."""
        connection = connect(url)
        assert store.database.run(add("a"), within=connection) == [("a", True, AT)]
        assert queues(store) == []
        connection.rollback()
        assert queues(store) == []
        store.database.run(add("b"), within=connection)
        store.database.run(add("c"), within=connection)
        connection.commit()
        assert queues(store) == ["b", "c"]
        connection.close()

    def test_a_call_that_raises_leaves_the_transaction_as_it_was(self, store: SqlStore, url: str) -> None:
        """What the call wrote is undone, what the caller wrote is not, and the transaction goes on."""
        connection = connect(url)
        connection.execute("INSERT INTO scheduler_queue (queue) VALUES ('mine')")

        def work(session: Session) -> None:
            add("half")(session)
            raise Refused

        with pytest.raises(Refused):
            store.database.run(work, within=connection)
        with pytest.raises(StoreError):
            store.database.run(
                lambda session: session.execute("INSERT INTO scheduler_queue (no) VALUES (1)"),
                within=connection,
            )
        store.database.run(add("whole"), within=connection)
        connection.commit()
        connection.close()
        assert queues(store) == ["mine", "whole"]

    def test_begin_yields_a_connection_that_is_accepted(self, store: SqlStore) -> None:
        """The user's statements and ours commit together, or not at all."""
        with store.begin() as connection:
            connection.execute("INSERT INTO scheduler_queue (queue) VALUES ('mine')")  # type: ignore[attr-defined]
            store.database.run(add("ours"), within=connection)
            with store.begin(within=connection) as same:
                assert same is connection
        assert queues(store) == ["mine", "ours"]

        def refused() -> None:
            with store.begin() as connection:
                store.database.run(add("never"), within=connection)
                raise Refused

        with pytest.raises(Refused):
            refused()
        assert queues(store) == ["mine", "ours"]

    def test_ending_the_transaction_inside_its_block_is_an_error(self, store: SqlStore) -> None:
        """A commit() inside would let half of it stand when the rest fails, so it does not pass unnoticed."""
        with pytest.raises(StoreError, match="inside its block"):
            with store.begin() as connection:
                connection.execute("COMMIT")  # type: ignore[attr-defined]


class TestSqlite:
    @pytest.fixture(params=["sqlite"])
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path / 'x.db'}"

    def test_factories_of_the_caller(self, store: SqlStore, url: str) -> None:
        """Row and text factories and type detection of the caller change neither our rows nor stay changed."""
        connection = connect(url, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        assert store.database.run(add("a"), within=connection) == [("a", True, AT)]
        assert connection.row_factory is sqlite3.Row
        assert connection.text_factory is bytes
        connection.commit()
        assert bytes(connection.execute("SELECT queue FROM scheduler_queue").fetchone()["queue"]) == b"a"
        connection.close()

    def test_autocommit_is_refused(self, store: SqlStore, url: str) -> None:
        """Each statement would commit by itself; after BEGIN it is welcome."""
        connection = connect(url, isolation_level=None)
        with pytest.raises(ConfigurationError, match="autocommit"):
            store.database.run(add("a"), within=connection)
        connection.execute("BEGIN IMMEDIATE")
        store.database.run(add("a"), within=connection)
        connection.execute("COMMIT")
        assert queues(store) == ["a"]
        connection.close()

    def test_another_database_is_refused(self, store: SqlStore, tmp_path: Path) -> None:
        """A transaction cannot span two files, and the message names both."""
        for name in (str(tmp_path / "other.db"), ":memory:"):
            connection = sqlite3.connect(name)
            with pytest.raises(ConfigurationError, match="cannot span both"):
                store.database.run(add("a"), within=connection)
            connection.close()

    def test_a_snapshot_that_is_too_old(self, store: SqlStore, url: str) -> None:
        """A transaction that has read before others wrote is told what to do, and is not waited for."""
        connection = connect(url, isolation_level=None)
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM scheduler_queue").fetchall()
        store.pause_queue("x", now=AT)
        with pytest.raises(Conflict, match="BEGIN IMMEDIATE"):
            store.database.run(add("a"), within=connection)
        connection.execute("ROLLBACK")
        connection.close()

    def test_a_second_transaction_of_one_thread_does_not_wait_for_itself(self, store: SqlStore) -> None:
        """It is an error at once, with the way out."""
        with store.begin():
            with pytest.raises(StoreError, match="within="):
                store.pause_queue("x", now=AT)
        assert store.pause_queue("x", now=AT)

    def test_our_writers_wait_for_the_caller_s_transaction(self, store: SqlStore, url: str) -> None:
        """While the caller's transaction is open nobody else can write; when it ends they go on."""
        connection = connect(url, check_same_thread=False)
        store.database.run(add("a"), within=connection)
        done = threading.Event()
        writer = threading.Thread(target=lambda: (store.pause_queue("x", now=AT), done.set()))
        writer.start()
        assert not done.wait(0.3)
        connection.commit()
        assert done.wait(10)
        writer.join()
        connection.close()


class TestPostgresql:
    @pytest.fixture(params=["postgresql"])
    def url(self, postgresql_url: str) -> str:
        return postgresql_url

    def test_factories_adapters_and_zone_of_the_caller(self, store: SqlStore, url: str) -> None:
        """Row factory, cursor class, type adapters and time zone of the caller change nothing for us."""
        connection = connect(url, row_factory=dict_row, cursor_factory=psycopg.ClientCursor)
        connection.adapters.register_loader("timestamptz", TextLoader)
        connection.adapters.register_loader("bool", TextLoader)
        connection.execute("SET TIME ZONE 'Asia/Tokyo'")
        ((queue, paused, at),) = store.database.run(add("a"), within=connection)
        assert (queue, paused, at, at.tzinfo) == ("a", True, AT, UTC)
        assert connection.execute("SELECT paused FROM scheduler_queue").fetchone() == {"paused": "t"}
        connection.commit()
        connection.close()

    def test_autocommit_is_refused(self, store: SqlStore, url: str) -> None:
        """Each statement would commit by itself; inside a transaction block it is welcome."""
        connection = connect(url, autocommit=True)
        with pytest.raises(ConfigurationError, match="autocommit"):
            store.database.run(add("a"), within=connection)
        with connection.transaction():
            store.database.run(add("a"), within=connection)
        assert queues(store) == ["a"]
        connection.close()

    def test_settings_of_the_caller_s_transaction_stay(self, store: SqlStore, url: str) -> None:
        """The lock timeout that we need is gone again afterwards, also after an error."""
        connection = connect(url)
        connection.execute("SET LOCAL lock_timeout = '1234ms'")
        store.database.run(add("a"), within=connection)
        with pytest.raises(Refused):
            store.database.run(lambda session: _refuse(), within=connection)
        assert connection.execute("SHOW lock_timeout").fetchone() == ("1234ms",)
        connection.rollback()
        connection.close()

    def test_a_failed_transaction_is_refused(self, store: SqlStore, url: str) -> None:
        """The caller learns that its own transaction is the problem."""
        connection = connect(url)
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT no_such_column")
        with pytest.raises(StoreError, match="roll it back"):
            store.database.run(add("a"), within=connection)
        connection.rollback()
        store.database.run(add("a"), within=connection)
        connection.close()

    def test_a_swallowed_error_is_not_taken_for_a_commit(self, store: SqlStore) -> None:
        """PostgreSQL answers COMMIT of a failed transaction with ROLLBACK; the caller is told."""

        def swallow() -> None:
            with store.begin() as connection:
                store.database.run(add("a"), within=connection)
                with pytest.raises(psycopg.Error):
                    connection.execute("SELECT no_such_column")  # type: ignore[attr-defined]

        with pytest.raises(StoreError, match="nothing was committed"):
            swallow()
        assert queues(store) == []

    def test_a_key_held_by_another_transaction(self, store: SqlStore, url: str) -> None:
        """The wait for it is bounded and ends in Conflict; the caller's transaction is usable afterwards."""
        blocker, connection = connect(url), connect(url)
        blocker.execute("INSERT INTO scheduler_queue (queue) VALUES ('held')")
        store.database.dialect.lock_wait = 200  # type: ignore[attr-defined]
        with pytest.raises(Conflict):
            store.database.run(add("held"), within=connection)
        store.database.run(add("free"), within=connection)
        connection.commit()
        blocker.rollback()
        assert queues(store) == ["free"]
        connection.close()
        blocker.close()


def _refuse() -> None:
    raise Refused


class TestSqlalchemy:
    def test_session(self, store: SqlStore, url: str) -> None:
        """An ORM session's commit commits our rows; its rollback undoes them."""
        engine = create_engine(alchemy(url))
        with OrmSession(engine) as session:
            assert store.database.run(add("a"), within=session) == [("a", True, AT)]
            session.rollback()
            assert queues(store) == []
            session.execute(text("INSERT INTO scheduler_queue (queue) VALUES ('mine')"))
            store.database.run(add("b"), within=session)
            session.commit()
        engine.dispose()
        assert queues(store) == ["b", "mine"]

    def test_connection(self, store: SqlStore, url: str) -> None:
        """Its commit() commits, even where our statement was the first one on it."""
        engine = create_engine(alchemy(url))
        with engine.connect() as connection:
            store.database.run(add("a"), within=connection)
            connection.commit()
            store.database.run(add("b"), within=connection)
        with engine.begin() as connection:
            store.database.run(add("c"), within=connection)
        engine.dispose()
        assert queues(store) == ["a", "c"]

    def test_autocommit_is_refused(self, store: SqlStore, url: str) -> None:
        """SQLAlchemy's AUTOCOMMIT is the driver's."""
        engine = create_engine(alchemy(url), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            with pytest.raises(ConfigurationError, match="autocommit"):
                store.database.run(add("a"), within=connection)
        engine.dispose()

    def test_inside_run_sync(self, store: SqlStore, url: str) -> None:
        """The synchronous face that AsyncSession.run_sync gives is a session like any other."""

        async def main() -> None:
            engine = create_async_engine(alchemy(url, awaited=True))
            async with AsyncSession(engine) as session:
                found = await session.run_sync(lambda sync: store.database.run(add("a"), within=sync))
                assert found == [("a", True, AT)]
                await session.rollback()
                await session.run_sync(lambda sync: store.database.run(add("b"), within=sync))
                with pytest.raises(Refused):
                    await session.run_sync(lambda sync: store.database.run(lambda _: _refuse(), within=sync))
                await session.commit()
            await engine.dispose()

        asyncio.run(main())
        assert queues(store) == ["b"]

    def test_an_async_session_itself_is_refused(self, store: SqlStore, url: str) -> None:
        """The message shows the form that works."""
        engine = create_async_engine(alchemy(url, awaited=True))
        with pytest.raises(ConfigurationError, match=r"await scheduler\.aio"):
            store.database.run(add("a"), within=AsyncSession(engine))


def test_strangers_are_refused(store: SqlStore) -> None:
    """Anything else is named in the message, with what is accepted."""
    for stranger in (object(), "connection", 7):
        with pytest.raises(ConfigurationError, match=r"pass a .*Connection"):
            store.database.run(add("a"), within=stranger)


def test_no_package_is_imported_to_recognise_a_connection() -> None:
    """Recognition goes by class names: a program without SQLAlchemy stays one."""
    import subprocess
    import sys

    script = (
        "import sqlite3, sys, tempfile\n"
        "from ratchet.stores import open_store\n"
        "file = tempfile.mkdtemp() + '/x.db'\n"
        "store = open_store('sqlite:///' + file)\n"
        "store.migrate()\n"
        "connection = sqlite3.connect(file)\n"
        "with store.begin(within=connection): pass\n"
        "assert not {'sqlalchemy', 'psycopg', 'aiosqlite'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
