"""
The schema and its versions: ordered scripts, each applied once, whole or not at all.

A script and the row that records it commit together. A process that is killed in the middle leaves
the schema as it was before that script, and the next run goes on from there. Where the product commits
each change of the schema by itself, the dialect remembers how far the script has come instead.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

from ratchet.model.errors import ConfigurationError, SchemaChanged, SchemaOutOfDate, SchemaTooNew
from ratchet.stores.sql.database import Database, Session
from ratchet.stores.sql.dialect import Dialect

VERSION_TABLE = "ratchet_schema_version"

CREATE_VERSION_TABLE = """
    CREATE TABLE ratchet_schema_version (
        script      {short text} PRIMARY KEY,
        checksum    {short text} NOT NULL,
        applied_at  {time} NOT NULL
    )
"""
APPLIED = "SELECT script, checksum FROM ratchet_schema_version ORDER BY script"
RECORD = """
    INSERT INTO ratchet_schema_version (script, checksum, applied_at) VALUES (:script, :checksum, :applied_at)
"""
_NAME = re.compile(r"V(\d{3,})__\w+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One script."""

    name: str  # V001__initial
    text: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text; line endings do not matter."""
        return hashlib.sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()

    @property
    def version(self) -> int:
        """The number in the name."""
        return int(self.name[1:].partition("__")[0])


def migrations_of(dialect: str) -> list[Migration]:
    """The scripts of a dialect that ship with this version, in order."""
    folder = files("ratchet.stores.sql").joinpath("ddl", dialect, "migrations")
    found = [
        Migration(entry.name.removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in folder.iterdir()
        if _NAME.fullmatch(entry.name)
    ]
    return sorted(found, key=lambda migration: migration.version)


#: The products that have scripts, and other words for them.
PRODUCTS = ("mysql", "postgresql", "sqlite")
_ALSO = {"postgres": "postgresql", "mariadb": "mysql"}


def product_of(word: str) -> str:
    """The product that *word*, or the scheme of a URL, names; `ConfigurationError` if it has no scripts."""
    name = word.partition("+")[0].lower()
    product = _ALSO.get(name, name)
    if product not in PRODUCTS:
        raise ConfigurationError(f"there is no DDL for {product!r}; there is for {', '.join(PRODUCTS)}")
    return product


class SchemaMigrator:
    """Creates and upgrades the schema, and says whether it fits this version."""

    def __init__(self, database: Database, migrations: Sequence[Migration] | None = None) -> None:
        self._database = database
        self._dialect: Dialect = database.dialect
        self._migrations = list(migrations if migrations is not None else migrations_of(self._dialect.name))

    def migrate(self) -> list[str]:
        """
        Apply what is missing; the names of the scripts that this call applied.

        Each script has a transaction of its own, under a lock that lets one process in the world
        migrate at a time: whoever waited finds the work done.
        """
        applied: list[str] = []
        while (name := self._apply_next()) is not None:
            applied.append(name)
        return applied

    def check(self) -> None:
        """Nothing if the schema fits; otherwise `SchemaOutOfDate`, `SchemaTooNew` or `SchemaChanged`."""
        with self._dialect.reading() as session:
            applied = self._applied(session)
        self._refuse_foreign(applied)
        if missing := [migration.name for migration in self._migrations if migration.name not in applied]:
            state = f"lacks {', '.join(missing)}" if applied else "does not exist yet"
            raise SchemaOutOfDate(
                f"the schema of the {self._dialect.name} store {state}; run `ratchet db upgrade`, "
                f"call scheduler.migrate(), or set Options(auto_migrate=True)"
            )

    def status(self) -> list[tuple[str, bool]]:
        """Every script of this version, and whether it has been applied."""
        with self._dialect.reading() as session:
            applied = self._applied(session)
        return [(migration.name, migration.name in applied) for migration in self._migrations]

    def _apply_next(self) -> str | None:
        with self._dialect.migrating() as session:
            applied = self._applied(session)
            self._refuse_foreign(applied)
            for migration in self._migrations:
                if migration.name not in applied:
                    self._apply(session, migration, first=not applied)
                    return migration.name
        return None

    def _apply(self, session: Session, migration: Migration, *, first: bool) -> None:
        if first and not self._dialect.has_table(session, VERSION_TABLE):
            session.execute(CREATE_VERSION_TABLE)
        self._dialect.run_script(session, migration.text)
        now = datetime.now(UTC)
        session.execute(RECORD, {"script": migration.name, "checksum": migration.checksum, "applied_at": now})

    def _applied(self, session: Session) -> dict[str, str]:
        if not self._dialect.has_table(session, VERSION_TABLE):
            return {}
        return {script: checksum.strip() for script, checksum in session.rows(APPLIED)}

    def _refuse_foreign(self, applied: Mapping[str, str]) -> None:
        known = {migration.name: migration for migration in self._migrations}
        if newer := sorted(set(applied) - set(known)):
            raise SchemaTooNew(
                f"the schema of the {self._dialect.name} store has {', '.join(newer)}, which this version of "
                f"Ratchet does not know; it was upgraded by a newer one: upgrade this installation"
            )
        for name, checksum in applied.items():
            if checksum != known[name].checksum:
                raise SchemaChanged(
                    f"{name} was applied with checksum {checksum[:12]}…, but the script of this installation has "
                    f"{known[name].checksum[:12]}…; reinstall the package, scripts are never edited once released"
                )


def clean_install(dialect: Dialect) -> str:
    """
    One script that makes the whole schema at once, for people who apply DDL themselves.

    It records the migrations as applied, so that the migrator accepts the result. ``ddl/<product>/schema.sql`` is
    this text, written by `make docs`.
    """
    migrations = migrations_of(dialect.name)
    parts = [f"-- The schema of Ratchet up to {migrations[-1].name}, in one script."]
    parts += [migration.text.strip() for migration in migrations]
    parts.append(_plain(CREATE_VERSION_TABLE, dialect) + ";")
    parts += [
        f"INSERT INTO {VERSION_TABLE} (script, checksum, applied_at)\n"
        f"VALUES ('{migration.name}', '{migration.checksum}', {dialect.words['clock']});"
        for migration in migrations
    ]
    return "\n\n".join(parts) + "\n"


def _plain(sql: str, dialect: Dialect) -> str:
    lines = dialect.statement(sql).text.replace("%%", "%").strip("\n").splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines).strip()
