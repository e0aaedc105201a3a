from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql

from tests.services.programs import find_program, install_packages
from tests.services.server import Server, database_name, made_here, with_database


class MariaDB(Server):
    """A MariaDB server; given by URL it may as well be MySQL."""

    name = "MariaDB"
    variable = "RATCHET_TEST_MYSQL_URL"
    users = ("mysql",)

    def __init__(self, url: str | None = None, *, options: Sequence[str] = ()) -> None:
        super().__init__(url)
        self.options = options

    @classmethod
    def install(cls) -> None:
        if find_program("mariadbd") is None or find_program("mariadb-install-db") is None:
            install_packages(cls.name, cls.variable, "mariadb-server")

    def prepare(self) -> None:
        self.run(
            [
                find_program("mariadb-install-db") or "mariadb-install-db",
                "--no-defaults",
                f"--datadir={self.directory / 'data'}",
                f"--tmpdir={self.directory}",  # as below: two that are prepared at once must not share one
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ]
        )

    def command(self) -> list[str]:
        return [
            find_program("mariadbd") or "mariadbd",
            "--no-defaults",
            f"--datadir={self.directory / 'data'}",
            f"--port={self.port}",
            "--bind-address=127.0.0.1",
            f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
            f"--tmpdir={self.directory}",  # a server that starts deletes what others have in a shared one
            "--skip-name-resolve",
            "--max-connections=300",
            "--character-set-server=utf8mb4",
            "--default-time-zone=+00:00",
            *self.options,
        ]

    def private_url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/"

    def answers(self) -> bool:
        try:
            self._execute("SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True

    def create_database(self) -> str:
        name = database_name()
        self._execute(f"CREATE DATABASE `{name}`")
        return with_database(self.url, name)

    def drop_database(self, url: str) -> None:
        name = made_here(url)
        # A session that still holds a lock on a table would make the drop wait for it.
        for (session,) in self._execute("SELECT id FROM information_schema.processlist WHERE db = %s", name):
            try:
                self._execute(f"KILL {int(session)}")
            except pymysql.err.Error:
                pass  # it ended in between
        self._execute(f"DROP DATABASE IF EXISTS `{name}`")

    def execute(self, statement: str, *arguments: Any) -> tuple[tuple[Any, ...], ...]:
        """The rows of one statement, on a connection of its own, as the server's administrator."""
        return self._execute(statement, *arguments)

    def _execute(self, statement: str, *arguments: Any) -> tuple[tuple[Any, ...], ...]:
        parts = urlsplit(self.url)
        connection = pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            autocommit=True,
            connect_timeout=5,
        )
        with connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return cursor.fetchall()
