"""The harness of the PostgreSQL store."""

from __future__ import annotations

from datetime import timedelta

import psycopg

from ratchet.spi.store import JobStore
from tests.services.postgresql import PostgreSQL
from tests.tck.servers import SqlServerHarness

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename LIKE 'scheduler_%'"


class PostgresqlHarness(SqlServerHarness):
    """A database on PostgreSQL."""

    #: A call finds the connection dead after *answer_timeout*, connects anew (libpq waits two seconds at least), tries again.
    call_deadline = timedelta(seconds=5)

    def __init__(self, url: str | None = None) -> None:
        super().__init__(PostgreSQL, url, port=5432)
        self.admin = psycopg.connect(self.url, autocommit=True)
        # contracts are about what is committed, not about power cuts
        self.admin.execute(f"ALTER DATABASE {self.name} SET synchronous_commit = off")
        names = [name for (name,) in self.admin.execute(TABLES)]
        # one round trip; on tables this small TRUNCATE would cost more, for it makes new files
        self.empty = "; ".join(f"DELETE FROM {name}" for name in names)

    def open(self) -> JobStore:
        self.admin.execute(self.empty)
        return self.reopen()
