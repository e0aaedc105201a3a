"""The harness of the PostgreSQL store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import psycopg

from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.tck import Harness
from tests.services.postgresql import PostgreSQL

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'scheduler_%'"


class PostgresqlHarness(Harness):
    """One database for the whole run, emptied before every contract."""

    #: A call finds the connection dead after *answer_timeout*, connects anew (libpq waits two seconds at least), tries again.
    call_deadline = timedelta(seconds=5)
    answer_timeout = 2.0

    def __init__(self, url: str | None = None) -> None:
        self.service = None if url else PostgreSQL.resolve().start()
        self.url = url or self.service.create_database()  # type: ignore[union-attr]  # one of the two is there
        parts = urlsplit(self.url)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self.handles: list[JobStore] = []
        store = self.reopen()
        store.migrate()
        self.capabilities = store.capabilities
        self.close()
        self.admin = psycopg.connect(self.url, autocommit=True)
        # contracts are about what is committed, not about power cuts
        self.admin.execute(f"ALTER DATABASE {parts.path.strip('/')} SET synchronous_commit = off")
        names = [name for (name,) in self.admin.execute(TABLES)]
        # one round trip; on tables this small TRUNCATE would cost more, for it makes new files
        self.empty = "; ".join(f"DELETE FROM {name}" for name in names)

    def open(self) -> JobStore:
        self.admin.execute(self.empty)
        return self.reopen()

    def reopen(self) -> JobStore:
        return self._handle(self.url, Options())

    def via(self, host: str, port: int) -> JobStore:
        parts = urlsplit(self.url)
        user = f"{parts.username}@" if parts.username else ""
        url = parts._replace(netloc=f"{user}{host}:{port}").geturl()
        store = self._handle(url, Options(statement_timeout=1, connect_timeout=1))
        dialect: Any = store
        # five seconds of grace are for production
        dialect.database.dialect._connections.answer_timeout = self.answer_timeout
        return store

    def _handle(self, url: str, options: Options) -> JobStore:
        store = open_store(url, options)
        self.handles.append(store)
        return store

    def close(self) -> None:
        while self.handles:
            self.handles.pop().close()

    def shutdown(self) -> None:
        self.admin.close()
        if self.service is not None:
            self.service.drop_database(self.url)
