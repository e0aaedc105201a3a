"""MySQL and MariaDB: what their URLs may say, which texts they take, and what their errors mean."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit

import pymysql
import pytest

import ratchet.stores.sql.urls
from ratchet.model.errors import (
    ConfigurationError,
    Conflict,
    MissingDriver,
    SchemaOutOfDate,
    StoreUnavailable,
    UnstorableData,
)
from ratchet.model.identifiers import new_id
from ratchet.model.options import Options
from ratchet.stores import open_store as open_any_store
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dialects.mysql.connections import Address, Connections
from ratchet.stores.sql.dialects.mysql.errors import MysqlConstraints, meaning
from ratchet.stores.sql.errors import ConnectionLost, ConstraintViolated, LockTimeout, ReadOnlyServer
from ratchet.stores.sql.migrations import migrations_of
from ratchet.stores.sql.store import SqlStore, open_store
from tests.services.mariadb import MariaDB
from tests.stores.backlog import NOW, claim, insert, spread


class TestTexts:
    def test_trailing_spaces_and_case_make_another_key(self, store: SqlStore) -> None:
        """Texts are compared exactly, which the default collations of neither product do."""
        for name in ("a", "a ", "A", "ä", "a\u0308"):
            assert store.pause_queue(name, now=NOW)
            assert not store.pause_queue(name, now=NOW)
        assert len(store.queues()) == 5

    def test_too_long_is_an_error(self, store: SqlStore) -> None:
        """Nothing is cut off."""
        with pytest.raises(UnstorableData):
            store.pause_queue("x" * 256, now=NOW)
        assert store.queues() == []

    def test_a_statement_that_the_server_would_not_take(self, store: SqlStore) -> None:
        """One that is too long is refused before it is sent, and rows that can go apart go apart."""
        names = ("signal_id", "signal_key", "payload", "sent_at")
        rows = [(new_id(), "k", "x" * 90_000, NOW) for _ in range(60)]

        def work(session: Session) -> int:
            session._most = 1_000_000  # type: ignore[attr-defined]
            inserted = session.insert_rows("scheduler_signal", names, rows)
            changed = session.update_rows(
                "scheduler_signal",
                ("signal_id", "payload"),
                [(row[0], "y" * 80_000 + str(i)) for i, row in enumerate(rows)],
            )
            assert inserted == changed
            with pytest.raises(UnstorableData, match="max_allowed_packet"):
                session.execute("UPDATE scheduler_signal SET payload = :x", {"x": "x" * 2_000_000})
            return inserted

        assert store.database.run(work) == 60


class TestOpening:
    def test_a_missing_driver_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The fix can be pasted into a shell."""
        monkeypatch.setattr(ratchet.stores.sql.urls, "find_spec", lambda name: None)
        with pytest.raises(MissingDriver, match=r"pip install 'ratchet-jobs\[mysql\]'"):
            open_any_store("mysql://host/db")

    @pytest.mark.parametrize("scheme", ["mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"])
    def test_schemes(self, mysql_url: str, scheme: str) -> None:
        """Both names, and SQLAlchemy's spelling of them, open the same store; nothing is opened before its use."""
        open_any_store(f"{scheme}://127.0.0.1:1/db").close()
        with closing(open_store(mysql_url.replace("mysql:", f"{scheme}:"))) as store:
            with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
                store.queues()

    @pytest.mark.parametrize(
        "url", ["mysql://host", "mysql://host/", "mysql://h/a/b", "mysql://h:x/db", "mysql://h/d?a=1"]
    )
    def test_urls_that_say_too_little_or_too_much(self, url: str) -> None:
        """The message says what is missing or unknown."""
        with pytest.raises(ConfigurationError, match="MySQL URL"):
            open_any_store(url)

    def test_what_an_address_says(self) -> None:
        """Everything is unquoted; the password is in no message."""
        address = Address.of("mysql://us%40er:p%2Fw@db.host:33/shop?ssl_ca=/ca.pem&ssl_verify_identity=true")
        assert (address.hosts, address.database) == ((("db.host", 33),), "shop")
        assert (address.user, address.password) == ("us@er", "p/w")
        assert (address.tls.ca, address.tls.verify_cert, address.tls.verify_identity) == (
            "/ca.pem",
            True,
            True,
        )
        assert address.options == {}
        assert "p/w" not in f"{address} {address!r}"

    def test_a_server_that_is_not_there(self) -> None:
        """The caller learns at once where was looked, and not the password."""
        with closing(open_store("mysql://me:secret@127.0.0.1:1/db")) as store:
            with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1/db") as caught:
                store.queues()
        assert "secret" not in str(caught.value)

    def test_a_database_that_is_not_there(self, mysql_url: str) -> None:
        """The server's own words."""
        parts = urlsplit(mysql_url)
        with closing(open_store(parts._replace(path="/no_such_database").geturl())) as store:
            with pytest.raises(StoreUnavailable, match="no_such_database"):
                store.migrate()

    def test_a_schema_of_its_own(self, mysql_url: str, mariadb_server: MariaDB) -> None:
        """Two installations share a server in two databases; the one that is named is made on the way."""
        other = urlsplit(mariadb_server.create_database()).path.strip("/")
        mariadb_server._execute(f"DROP DATABASE `{other}`")
        with closing(open_store(mysql_url, Options(schema=other))) as store:
            assert store.migrate() == [migration.name for migration in migrations_of("mysql")]
            assert store.pause_queue("q", now=NOW)
            assert len(insert(store, spread(3))) == len(claim(store)) == 3
            assert [queue.name for queue in store.queues()] == ["q", "q0"]
        with closing(open_store(mysql_url)) as store, pytest.raises(SchemaOutOfDate):
            store.queues()
        mariadb_server._execute(f"DROP DATABASE `{other}`")

    @pytest.mark.parametrize(
        ("version", "fits"),
        [
            ("5.5.5-10.5.19-MariaDB", False),
            ("5.5.5-10.6.0-MariaDB-log", True),
            ("11.4.2-MariaDB", True),
            ("5.7.44", False),
            ("8.0.18", False),
            ("8.0.19", True),
            ("9.1.0-commercial", True),
        ],
    )
    def test_versions(self, store: SqlStore, version: str, fits: bool) -> None:
        """What is too old is refused by name, before anything is sent that it would not understand."""
        connections: Connections = store.database.dialect._connections  # type: ignore[attr-defined]
        connection = connections.take("write")
        connection.server_version = version
        if fits:
            connections._product(connection)
        else:
            with pytest.raises(ConfigurationError, match="or newer"):
                connections._product(connection)
        connection.shut()
        connections.give_back(connection)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1213, Conflict),
        (1205, LockTimeout),
        (1062, ConstraintViolated),
        (1406, UnstorableData),
        (1366, UnstorableData),
        (1146, SchemaOutOfDate),
        (2006, ConnectionLost),
        (2013, ConnectionLost),
        (1927, ConnectionLost),
        (1290, ReadOnlyServer),
        (1792, ReadOnlyServer),
        (1836, ReadOnlyServer),
        (1040, StoreUnavailable),
        (1969, StoreUnavailable),
    ],
)
def test_meanings(number: int, kind: type[Exception]) -> None:
    """By number, never by the text of the message."""
    error = pymysql.OperationalError(number, "whatever")
    assert type(meaning(error, "SELECT 1")) is kind
    assert MysqlConstraints().is_unique_violation(error) == (number == 1062)
