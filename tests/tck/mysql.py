"""The harness of the MySQL store, on a MariaDB server (or on whatever RATCHET_TEST_MYSQL_URL names)."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT

from ratchet.spi.store import JobStore
from tests.services.mariadb import MariaDB
from tests.tck.servers import SqlServerHarness

TABLES = """
    SELECT table_name FROM information_schema.tables
     WHERE table_schema = DATABASE() AND table_name LIKE 'scheduler\\_%'
"""


class MysqlHarness(SqlServerHarness):
    """A database on MySQL or MariaDB."""

    #: A call finds the connection dead after *answer_timeout*, connects anew and tries again.
    call_deadline = timedelta(seconds=5)

    def __init__(self, url: str | None = None) -> None:
        super().__init__(MariaDB, url, port=3306)
        parts = urlsplit(self.url)
        self.admin = pymysql.connect(
            host=self.server[0],
            port=self.server[1],
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=self.name,
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
