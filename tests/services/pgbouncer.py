from __future__ import annotations

import os
import signal
from typing import Self
from urllib.parse import urlsplit

import psycopg

from tests.services.postgresql import PostgreSQL
from tests.services.programs import find_program, install_packages

CONFIGURATION = """\
[databases]
* = {upstream}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 20
max_client_conn = 500
admin_users = ratchet
"""


class PgBouncer(PostgreSQL):
    """
    PgBouncer, in transaction mode unless *mode* says otherwise, in front of the PostgreSQL at *upstream*.

    Startup parameters it does not know are refused, as with its default configuration.
    """

    name = "PgBouncer"
    variable = "RATCHET_TEST_PGBOUNCER_URL"
    users = ("postgres",)
    stop_signal = signal.SIGTERM

    def __init__(self, url: str | None = None, *, upstream: str = "", mode: str = "transaction") -> None:
        super().__init__(url)
        self.upstream = upstream
        self.mode = mode

    @classmethod
    def resolve(cls, *, upstream: str = "") -> Self:
        return cls(os.environ.get(cls.variable), upstream=upstream)

    @classmethod
    def install(cls) -> None:
        if find_program("pgbouncer") is None:
            install_packages(cls.name, cls.variable, "pgbouncer")

    def prepare(self) -> None:
        server = urlsplit(self.upstream)
        parts = {
            "host": server.hostname,
            "port": server.port or 5432,
            "user": server.username,
            "password": server.password,
        }
        upstream = " ".join(f"{name}={value}" for name, value in parts.items() if value)
        configuration = CONFIGURATION.format(upstream=upstream, port=self.port, mode=self.mode)
        (self.directory / "pgbouncer.ini").write_text(configuration)

    def command(self) -> list[str]:
        return [find_program("pgbouncer") or "pgbouncer", str(self.directory / "pgbouncer.ini")]

    def private_url(self) -> str:
        return f"postgresql://ratchet@127.0.0.1:{self.port}/postgres"

    def answers(self) -> bool:
        try:
            return super().answers()
        except psycopg.DatabaseError:  # PgBouncer's own refusals while it looks for PostgreSQL
            return False
