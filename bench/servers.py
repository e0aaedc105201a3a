"""Where the subjects keep their jobs: new databases on one server, or files in one directory."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import psycopg
import pymongo
import pymysql
from psycopg import sql


class Place(Protocol):
    """A database of its own, for one contender."""

    url: str

    def ask(self, query: str) -> Any:
        """The one value that *query* gives."""
        ...


class PostgresqlPlace:
    """A new database on a server."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._name = f"ratchet_bench_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(self._name)))
        self.url = urlunsplit(urlsplit(server)._replace(path=f"/{self._name}"))
        self.connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=0)

    def ask(self, query: str) -> Any:
        """The one value that *query* gives."""
        row = self.connection.execute(query).fetchone()
        return None if row is None else row[0]

    def settle(self) -> None:
        """Finish what earlier rounds left to the background, so that the next one does not pay for it."""
        self.connection.execute("VACUUM ANALYZE")
        self.connection.execute("CHECKPOINT")

    def close(self) -> None:
        """Drop the database."""
        self.connection.close()
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(
                sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(self._name))
            )


class SqlitePlace:
    """A new file."""

    def __init__(self, folder: str) -> None:
        self._folder = tempfile.TemporaryDirectory(dir=folder, prefix="ratchet-bench-")
        self._path = Path(self._folder.name) / "jobs.db"
        self.url = f"sqlite:///{self._path}"
        self._connection: sqlite3.Connection | None = None

    def ask(self, query: str) -> Any:
        """The one value that *query* gives."""
        if self._connection is None:
            self._connection = sqlite3.connect(self._path, isolation_level=None)
        row = self._connection.execute(query).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Remove the file."""
        if self._connection is not None:
            self._connection.close()
        self._folder.cleanup()


class MariadbPlace:
    """A new database on a MariaDB server."""

    def __init__(self, server: str) -> None:
        self._name = f"ratchet_bench_{uuid.uuid4().hex[:12]}"
        self.url = urlunsplit(urlsplit(server)._replace(path=f"/{self._name}"))
        parts = urlsplit(server)
        self._connection = pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            autocommit=True,
        )
        self.ask(f"CREATE DATABASE `{self._name}`")
        self.ask(f"USE `{self._name}`")

    def ask(self, query: str) -> Any:
        """The one value that *query* gives."""
        with self._connection.cursor() as cursor:
            cursor.execute(query)
            row = cursor.fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Drop the database."""
        self.ask(f"DROP DATABASE `{self._name}`")
        self._connection.close()


class MongodbPlace:
    """A new database on a replica set."""

    def __init__(self, server: str) -> None:
        self._name = f"ratchet_bench_{uuid.uuid4().hex[:12]}"
        self.url = urlunsplit(urlsplit(server)._replace(path=f"/{self._name}"))
        self._client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(server)

    def ask(self, query: str) -> Any:
        """Whether any of these documents exists: ``[[collection, index, filter], …]``, as JSON."""
        database = self._client[self._name]
        return any(
            database[collection].find_one(wanted, hint=index) is not None
            for collection, index, wanted in json.loads(query)
        )

    def close(self) -> None:
        """Drop the database."""
        self._client.drop_database(self._name)
        self._client.close()


MADE: dict[str, Callable[[str], PostgresqlPlace | SqlitePlace | MariadbPlace | MongodbPlace]] = {
    "postgresql": PostgresqlPlace,
    "sqlite": SqlitePlace,
    "mariadb": MariadbPlace,
    "mongodb": MongodbPlace,
}


class Places:
    """Makes places of one kind, and removes them."""

    def __init__(self, store: str, at: str) -> None:
        self.store = store
        self.at = at

    @contextmanager
    def new(self) -> Iterator[PostgresqlPlace | SqlitePlace | MariadbPlace | MongodbPlace]:
        """A place that is removed at the end."""
        place = MADE[self.store](self.at)
        try:
            yield place
        finally:
            place.close()


@contextmanager
def postgresql_server(url: str | None) -> Iterator[str]:
    """The URL of a durable PostgreSQL server: the one given, or one of our own with fsync on."""
    if url is not None:
        require_durable(url)
        yield url
        return
    from tests.services.postgresql import PostgreSQL

    os.environ.pop(PostgreSQL.variable, None)
    options = {
        "shared_preload_libraries": "pg_stat_statements",
        "shared_buffers": "256MB",
        "max_wal_size": "4GB",
        "synchronous_commit": "on",
    }
    with PostgreSQL(options=options) as server:
        require_durable(server.url)
        yield server.url


@contextmanager
def mariadb_server(url: str | None) -> Iterator[str]:
    """The URL of a MariaDB server whose commits are durable: the one given, or one of our own."""
    if url is not None:
        yield url
        return
    from tests.services.mariadb import MariaDB

    with MariaDB() as server:  # its default writes the log with every commit; there is no binary log
        yield server.url


@contextmanager
def mongodb_server(url: str | None) -> Iterator[str]:
    """The URL of a replica set: the one given, or one of our own with a single node."""
    if url is not None:
        yield url
        return
    from tests.services.mongodb import MongoDB

    with MongoDB() as server:
        yield server.url


def require_durable(url: str) -> None:
    """Refuse a server that forgets: its numbers would mean nothing."""
    with psycopg.connect(url) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            row = connection.execute(f"SHOW {setting}").fetchone()
            if row is None or row[0] != "on":
                raise SystemExit(
                    f"{setting} is not on; a bench without durability says nothing about this system"
                )
