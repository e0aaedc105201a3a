"""``within=`` takes connections to the scheduler's own database only, and every one of those."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymongo
import pymysql
import pytest

from ratchet.model.errors import ConfigurationError, RatchetError
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter, JobSpec
from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import installation, open_store
from ratchet.stores.memory import MemoryStore
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL
from tests.services.server import with_database

AT = datetime(2026, 1, 1, tzinfo=UTC)


def submit(store: JobStore, within: Any) -> None:
    spec = JobSpec(job_id=new_id(), target="shop:charge", payload="{}", scheduled_at=AT)
    store.insert([spec], now=AT, within=within)


def stored(store: JobStore) -> int:
    return len(store.find(JobFilter(), limit=100))


def opened(url: str, **options: Any) -> JobStore:
    store = open_store(url, Options(**options))
    store.migrate()
    return store


def mysql_connection(url: str) -> Any:
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username or "",
        password=parts.password or "",
        database=parts.path.removeprefix("/"),
        charset="utf8mb4",
    )


class Pair:
    """Two databases of one product, each with the tables of a store."""

    def __init__(self, urls: list[str], connect: Callable[[str], Any]) -> None:
        self.urls, self.connect = urls, connect
        self.stores = [opened(url) for url in urls]


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    server: PostgreSQL | MariaDB | None = None
    if request.param == "sqlite":
        urls = [f"sqlite:///{tmp_path / name}.db" for name in ("ours", "theirs")]
        made = Pair(urls, lambda url: sqlite3.connect(url.removeprefix("sqlite:///")))
    elif request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
        assert isinstance(server, PostgreSQL)
        made = Pair([server.create_database(), server.create_database()], psycopg.connect)
    else:
        server = request.getfixturevalue("mariadb_server")
        assert isinstance(server, MariaDB)
        made = Pair([server.create_database(), server.create_database()], mysql_connection)
    yield made
    for store in made.stores:
        store.close()
    for url in made.urls if server is not None else ():
        server.drop_database(url)


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The connections that were compared with the store's own database."""
    seen: list[object] = []
    real = installation.Installation.require_same

    def compared(self: Any, connection: object, *rest: Any) -> None:
        seen.append(connection)
        real(self, connection, *rest)

    monkeypatch.setattr(installation.Installation, "require_same", compared)
    return seen


class TestTheProducts:
    def test_a_connection_to_another_database_is_refused(self, pair: Pair) -> None:
        """Although that one has the tables too; nothing is stored in either, and the caller's transaction goes on."""
        ours, theirs = pair.stores
        connection = pair.connect(pair.urls[1])
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE ledger (number integer)")
        connection.commit()
        cursor.execute("INSERT INTO ledger VALUES (1)")
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="within= got a connection to "):
                submit(ours, connection)
        with pytest.raises(ConfigurationError), ours.begin(within=connection):
            raise AssertionError("not reached")
        cursor.execute("INSERT INTO ledger VALUES (2)")
        connection.commit()
        cursor.execute("SELECT count(*) FROM ledger")
        assert cursor.fetchone() == (2,)
        connection.close()
        assert (stored(ours), stored(theirs)) == (0, 0)

    def test_a_connection_of_another_scheduler_is_refused(self, pair: Pair) -> None:
        """What another store's begin() yields is a connection to its database."""
        ours, theirs = pair.stores
        with theirs.begin() as connection:
            with pytest.raises(ConfigurationError):
                submit(ours, connection)
            submit(theirs, connection)
        assert (stored(ours), stored(theirs)) == (0, 1)

    def test_the_own_database_is_compared_once(self, pair: Pair, comparisons: list[object]) -> None:
        """Each connection at its first use; those of the store itself never."""
        store = pair.stores[0]
        connection = pair.connect(pair.urls[0])
        cursor = connection.cursor()
        for _ in range(3):
            cursor.execute("DELETE FROM scheduler_queue WHERE 1 = 0")
            submit(store, connection)
            connection.commit()
        assert len(comparisons) <= 1  # SQLite compares files instead
        with store.begin() as own:
            submit(store, own)
        assert len(comparisons) <= 1
        connection.close()
        assert stored(store) == 4


class TestPostgresql:
    def test_another_search_path_is_another_place(self, postgresql_url: str) -> None:
        """The tables of another schema are not ours; back in the right place, the same connection is taken again."""
        first, second = (opened(postgresql_url, schema=name) for name in ("first", "second"))
        plain = opened(f"{postgresql_url}?options=-csearch_path%3Dfirst", auto_migrate=False)
        with psycopg.connect(postgresql_url) as connection:
            connection.execute("SET search_path = first")
            submit(plain, connection)
            connection.execute("SET search_path = second")
            with pytest.raises(ConfigurationError, match="another database"):
                submit(plain, connection)
            connection.execute("SET search_path = pg_catalog")
            with pytest.raises(ConfigurationError, match="no tables of Ratchet"):
                submit(plain, connection)
            connection.execute("SET search_path = first")
            submit(plain, connection)
            submit(second, connection)  # a store with a schema of its own finds it from everywhere
        assert (stored(first), stored(second)) == (2, 1)
        for store in (first, second, plain):
            store.close()

    def test_a_pooler_is_no_other_database(self, pgbouncer_url: str, postgresql_server: PostgreSQL) -> None:
        """Behind PgBouncer, or around it, it is the same database."""
        direct = with_database(postgresql_server.url, urlsplit(pgbouncer_url).path.removeprefix("/"))
        for ours, theirs in ((pgbouncer_url, direct), (direct, pgbouncer_url)):
            store = opened(ours)
            with psycopg.connect(theirs, prepare_threshold=None) as connection:
                submit(store, connection)
            store.close()

    def test_a_role_that_may_not_read_the_version_is_taken(self, postgresql_url: str) -> None:
        """What cannot be compared is not refused, and the caller's transaction goes on."""
        store = opened(postgresql_url)
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            role = f"app_{new_id().hex}"
            admin.execute(f"CREATE ROLE {role}")
            admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
            admin.execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
            admin.execute(f"REVOKE ALL ON ratchet_schema_version FROM {role}")
        with psycopg.connect(postgresql_url) as connection:
            connection.execute(f"SET ROLE {role}")
            submit(store, connection)
        assert stored(store) == 1
        store.close()
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"DROP ROLE {role}")

    def test_tables_that_were_made_anew_are_still_ours(self, postgresql_url: str) -> None:
        """The store asks again before it refuses."""
        store = opened(postgresql_url)
        with psycopg.connect(postgresql_url) as connection:
            submit(store, connection)
        with psycopg.connect(postgresql_url, autocommit=True) as admin:
            admin.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        opened(postgresql_url).close()
        with psycopg.connect(postgresql_url) as connection:
            submit(store, connection)
        assert stored(store) == 1
        store.close()


class TestMysql:
    def test_a_database_of_the_same_name_on_another_server_is_refused(self, mysql_url: str) -> None:
        """The name alone says nothing."""
        store = opened(mysql_url)
        with MariaDB() as other:
            elsewhere = with_database(other.url, urlsplit(mysql_url).path.removeprefix("/"))
            admin = mysql_connection(other.create_database())
            admin.cursor().execute(f"CREATE DATABASE {urlsplit(elsewhere).path.removeprefix('/')}")
            admin.close()
            there = opened(elsewhere)
            connection = mysql_connection(elsewhere)
            connection.begin()
            with pytest.raises(ConfigurationError, match="another database"):
                submit(store, connection)
            connection.commit()
            connection.close()
            assert (stored(store), stored(there)) == (0, 0)
            there.close()
        store.close()


class TestMongodb:
    def test_a_session_of_another_deployment_is_refused(
        self, mongodb_url: str, comparisons: list[object]
    ) -> None:
        """With and without the collections of a store of the same name there."""
        store = opened(mongodb_url)
        with MongoDB() as other:
            elsewhere = with_database(other.url, urlsplit(mongodb_url).path.removeprefix("/"))
            client: Any = pymongo.MongoClient(elsewhere)
            with client.start_session() as session:
                with (
                    session.start_transaction(),
                    pytest.raises(ConfigurationError, match="no collections of Ratchet"),
                ):
                    submit(store, session)
                there = opened(elsewhere)
                with session.start_transaction():
                    with pytest.raises(ConfigurationError, match="another database"):
                        submit(store, session)
                    with pytest.raises(ConfigurationError), store.begin(within=session):
                        raise AssertionError("not reached")
            assert (stored(store), stored(there)) == (0, 0)
            there.close()
            client.close()
        store.close()

    def test_the_own_deployment_is_compared_once(self, mongodb_url: str, comparisons: list[object]) -> None:
        """Each client at its first use, however it spells the address; those of the store never."""
        store = opened(mongodb_url)
        with pymongo.MongoClient(mongodb_url.replace("127.0.0.1", "localhost")) as client:
            for _ in range(2):
                with client.start_session() as session, session.start_transaction():
                    submit(store, session)
        assert comparisons == [client]
        with store.begin() as own:
            submit(store, own)
        assert comparisons == [client]
        assert stored(store) == 3
        store.close()


def test_memory_takes_its_own_transactions_only() -> None:
    """A transaction of another store in memory is refused."""
    ours, theirs = MemoryStore(lambda: AT), MemoryStore(lambda: AT)
    with theirs.begin() as transaction, pytest.raises(RatchetError, match="of another store"):
        submit(ours, transaction)
