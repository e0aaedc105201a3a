"""What goes wrong in a database, told in our own words, by code and never by text."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ratchet.stores.sql.urls
from ratchet.model.errors import (
    ConfigurationError,
    Conflict,
    MissingDriver,
    SchemaOutOfDate,
    StoreError,
    StoreUnavailable,
    UnstorableData,
)
from ratchet.model.options import Options
from ratchet.stores import open_store as open_any_store
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.postgresql.errors import meaning
from ratchet.stores.sql.errors import (
    ConnectionLost,
    ConstraintViolated,
    LockTimeout,
    ReadOnlyServer,
    redacted,
)
from ratchet.stores.sql.store import SqlStore, open_store
from tests.stores.backlog import NOW


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: Any, tmp_path: Path) -> Iterator[SqlStore]:
    url = f"sqlite:///{tmp_path / 'x.db'}"
    store = open_store(request.getfixturevalue("postgresql_url") if request.param == "postgresql" else url)
    store.migrate()
    yield store
    store.close()


class TestMapping:
    def test_a_unique_key(self, store: SqlStore) -> None:
        """An internal error with the driver's as its cause, which the constraint detector can read."""

        def work(session: Session) -> None:
            for _ in range(2):
                session.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')")

        with pytest.raises(ConstraintViolated) as caught:
            store.database.run(work)
        cause = caught.value.__cause__
        assert isinstance(cause, sqlite3.IntegrityError | psycopg.IntegrityError)
        assert store.constraints.is_unique_violation(cause)
        assert not store.constraints.is_foreign_key_violation(cause)
        assert not store.constraints.is_unique_violation(ValueError("unique"))
        assert store.queues() == []

    def test_a_foreign_key(self, store: SqlStore) -> None:
        """Our tables have none; a user's own table may."""

        def work(session: Session) -> None:
            if store.name == "sqlite":
                session.execute("PRAGMA defer_foreign_keys = OFF")
            session.execute("CREATE TABLE child (queue {text} REFERENCES scheduler_queue (queue))")
            session.execute("INSERT INTO child (queue) VALUES ('none')")

        if store.name == "sqlite":
            connection = sqlite3.connect(":memory:")
            connection.executescript(
                "PRAGMA foreign_keys = ON; CREATE TABLE p (a PRIMARY KEY); CREATE TABLE c (a REFERENCES p (a));"
            )
            with pytest.raises(sqlite3.IntegrityError) as refused:
                connection.execute("INSERT INTO c VALUES (1)")
            connection.close()
            cause: BaseException | None = refused.value
        else:
            with pytest.raises(ConstraintViolated) as caught:
                store.database.run(work)
            cause = caught.value.__cause__
        assert cause is not None
        assert store.constraints.is_foreign_key_violation(cause)
        assert not store.constraints.is_unique_violation(cause)

    def test_a_missing_table(self, store: SqlStore) -> None:
        """Whoever dropped the schema is told which command makes it."""
        with (
            pytest.raises(SchemaOutOfDate, match="ratchet db upgrade")
            if store.name == "postgresql"
            else pytest.raises(StoreError)
        ):
            store.database.read(lambda session: session.rows("SELECT 1 FROM scheduler_nothing"))

    def test_a_mistake_in_the_sql(self, store: SqlStore) -> None:
        """It is a plain StoreError that shows the statement; nobody tries it again."""
        with pytest.raises(StoreError, match="SELEC 1") as caught:
            store.database.run(lambda session: session.execute("SELEC 1"))
        assert not isinstance(caught.value, Conflict | StoreUnavailable)

    def test_errors_of_the_work_pass_through(self, store: SqlStore) -> None:
        """What *work* itself raises is not touched, and everything is rolled back."""

        def work(session: Session) -> None:
            session.execute("INSERT INTO scheduler_queue (queue) VALUES ('q')")
            raise LookupError("mine")

        with pytest.raises(LookupError, match="mine"):
            store.database.run(work)
        assert store.queues() == []

    def test_what_happens_after_the_commit(self, store: SqlStore) -> None:
        """Actions run after a commit, in order, and never after a rollback."""
        done: list[str] = []

        def work(session: Session) -> None:
            session.on_commit(lambda: done.append("one"))
            session.on_commit(lambda: done.append("two"))
            assert done == []

        store.database.run(work)
        assert done == ["one", "two"]
        with pytest.raises(LookupError):
            store.database.run(lambda session: (session.on_commit(lambda: done.append("no")), _raise())[1])
        assert done == ["one", "two"]


def _raise() -> None:
    raise LookupError


def test_a_schema_that_was_dropped_on_sqlite(tmp_path: Path) -> None:
    """SQLite has one code for a missing table and a mistake in the SQL, so it is looked up."""
    store = open_store(f"sqlite:///{tmp_path / 'x.db'}")
    store.migrate()
    store.queues()
    connection = sqlite3.connect(tmp_path / "x.db")
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        connection.execute(f"DROP TABLE {name}")
    connection.commit()
    connection.close()
    with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
        store.queues()
    store.close()


class TestPostgresqlStates:
    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            ("22P02", UnstorableData),
            ("22021", UnstorableData),
            ("54000", UnstorableData),
            ("23505", ConstraintViolated),
            ("40001", Conflict),
            ("40P01", Conflict),
            ("55P03", LockTimeout),
            ("42P01", SchemaOutOfDate),
            ("42703", SchemaOutOfDate),
            ("57014", StoreUnavailable),
            ("57P01", ConnectionLost),
            ("08006", ConnectionLost),
            ("25006", ReadOnlyServer),
            ("53300", StoreUnavailable),
            ("42601", StoreError),
        ],
    )
    def test_by_code(self, state: str, expected: type[Exception]) -> None:
        """The code alone decides, whatever language the server speaks."""
        error = psycopg.errors.lookup(state)("etwas ist passiert")
        assert type(meaning(error, "SELECT 1")) is expected

    @pytest.mark.parametrize(
        ("message", "text"),
        [
            ("cannot set transaction read-write mode during recovery", "SET"),
            ("der Transaktionsmodus kann nicht gesetzt werden", "BEGIN READ WRITE"),
        ],
    )
    def test_a_standby_that_cannot_begin_to_write(self, message: str, text: str) -> None:
        """By the code and by what we asked for, or by the server's own words."""
        assert type(meaning(psycopg.errors.FeatureNotSupported(message), text)) is ReadOnlyServer
        assert type(meaning(psycopg.errors.FeatureNotSupported("no such thing"), "SELECT 1")) is StoreError

    def test_found_by_the_driver(self) -> None:
        """Before a server has said anything."""
        assert type(meaning(psycopg.DataError("cannot contain NUL"), "")) is UnstorableData
        assert type(meaning(psycopg.OperationalError("the connection is closed"), "")) is ConnectionLost
        assert type(meaning(psycopg.ProgrammingError("placeholders"), "")) is StoreError
        assert type(meaning(OverflowError("too big"), "")) is UnstorableData

    def test_a_deadlock_is_tried_again(self, postgresql_url: str) -> None:
        """Two transactions that wait for each other both end well, and neither caller sees it."""
        store = open_store(postgresql_url)
        store.migrate()
        for name in "ab":
            store.pause_queue(name, now=NOW)
        barrier = threading.Barrier(2)
        tries: list[str] = []
        errors: list[BaseException] = []

        def swap(first: str, second: str) -> None:
            def work(session: Session) -> None:
                tries.append(first)
                session.execute(
                    "UPDATE scheduler_queue SET paused = NOT paused WHERE queue = :q", {"q": first}
                )
                if len(tries) <= 2:
                    barrier.wait(10)
                session.execute(
                    "UPDATE scheduler_queue SET paused = NOT paused WHERE queue = :q", {"q": second}
                )

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
        assert [queue.paused for queue in store.queues()] == [True, True]
        store.close()


class TestOpening:
    @pytest.mark.parametrize("url", ["jobs.db", "", "redis://host", "oracle://host/db"])
    def test_urls_of_no_store(self, url: str) -> None:
        """The message lists what is supported."""
        with pytest.raises(ConfigurationError, match=r"sqlite:///file\.db"):
            open_any_store(url)

    def test_a_missing_driver_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The fix can be pasted into a shell."""
        monkeypatch.setattr(ratchet.stores.sql.urls, "find_spec", lambda name: None)
        with pytest.raises(MissingDriver, match=r"pip install 'ratchet-jobs\[postgresql\]'"):
            open_any_store("postgresql://host/db")

    def test_nothing_is_opened_before_the_first_use(self, tmp_path: Path) -> None:
        """A store of a server that is down, or of a file that does not exist, can be made."""
        open_any_store("postgresql://127.0.0.1:1/db").close()
        open_any_store(f"sqlite:///{tmp_path / 'x.db'}").close()
        assert list(tmp_path.iterdir()) in ([], [tmp_path / "x.db-gate"])

    def test_a_server_that_is_down(self) -> None:
        """The reason comes at once, with the address and without the password."""
        store = open_any_store("postgresql://ann:s3cret@127.0.0.1:1/db", Options(connect_timeout=5))
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/db.*refused") as caught:
            store.counts()
        assert "s3cret" not in str(caught.value)
        assert "s3cret" not in repr(caught.value.__cause__)

    @pytest.mark.parametrize(
        "text",
        [
            "postgresql://ann:s3cret@host/db?x=1",
            "could not parse 'postgresql://ann:s3cret@host:port/db'",
            "host=h password=s3cret dbname=d",
        ],
    )
    def test_passwords_are_not_shown(self, text: str) -> None:
        """Wherever a message quotes a URL or a connection string."""
        assert "s3cret" not in redacted(text)
        assert "***" in redacted(text)

    def test_a_url_that_cannot_be_read(self) -> None:
        """It is a configuration error, and does not repeat the password."""
        with pytest.raises(ConfigurationError) as caught:
            open_any_store("postgresql://ann:s3cret@host:no-port/db?nonsense=1")
        assert "s3cret" not in str(caught.value)
