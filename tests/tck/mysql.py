"""The harness of the MySQL store, on a MariaDB server (or on whatever RATCHET_TEST_MYSQL_URL names)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from ratchet.model.options import Options
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.tck import Harness
from tests.services.mariadb import MariaDB

TABLES = """
    SELECT table_name FROM information_schema.tables
     WHERE table_schema = DATABASE() AND table_name LIKE 'scheduler\\_%'
"""


class MysqlHarness(Harness):
    """One database for the whole run, emptied before every contract."""

    #: A call finds the connection dead after *answer_timeout*, connects anew and tries again.
    call_deadline = timedelta(seconds=5)
    answer_timeout = 2.0

    def __init__(self, url: str | None = None) -> None:
        self.service = None if url else MariaDB.resolve().start()
        self.url = url or self.service.create_database()  # type: ignore[union-attr]  # one of the two is there
        parts = urlsplit(self.url)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 3306)
        self.handles: list[JobStore] = []
        store = self.reopen()
        store.migrate()
        self.capabilities = store.capabilities
        self.close()
        self.admin = pymysql.connect(
            host=self.server[0],
            port=self.server[1],
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=parts.path.strip("/"),
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )
        with self.admin.cursor() as cursor:
            # contracts are about what is committed, not about power cuts
            cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
            cursor.execute(TABLES)
            # one round trip; on tables this small TRUNCATE would cost more, for it makes new files
            self.empty = "; ".join(f"DELETE FROM {name}" for (name,) in cursor.fetchall())

    def open(self) -> JobStore:
        with self.admin.cursor() as cursor:
            cursor.execute(self.empty)
            while cursor.nextset():
                pass
        return self.reopen()

    def reopen(self) -> JobStore:
        return self._handle(self.url, Options())

    def via(self, host: str, port: int) -> JobStore:
        parts = urlsplit(self.url)
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
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
