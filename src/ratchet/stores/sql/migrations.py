"""
The schema and its versions: ordered scripts, each applied once, whole or not at all.

A script and the row that records it commit together. A process that is killed in the middle leaves
the schema as it was before that script, and the next run goes on from there. Where the product commits
each change of the schema by itself, the dialect remembers how far the script has come instead.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import TypeVar

from msgspec import structs

from ratchet.model.errors import (
    ConfigurationError,
    Conflict,
    SchemaChanged,
    SchemaOutOfDate,
    SchemaTooNew,
    StoreUnavailable,
)
from ratchet.model.upgrades import UpgradePlan
from ratchet.spi.store.audit import pending_entry
from ratchet.stores.sql.audit_entries import append_entry
from ratchet.stores.sql.beside_writers import at_once, beside_writers
from ratchet.stores.sql.database import Database, Session
from ratchet.stores.sql.dialect import Dialect

log = logging.getLogger("ratchet.stores.sql")

T = TypeVar("T")

#: How long an upgrade goes on trying to lock tables that other transactions use, and how long it lets them work in between.
PATIENCE = 600.0
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)

VERSION_TABLE = "ratchet_schema_version"
AUDIT_TABLE = "scheduler_audit"

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

#: The script since which the version table says which older code each later script serves.
SERVING = "V002__checks"
SERVED = "SELECT script, serves FROM ratchet_schema_version WHERE serves IS NOT NULL"
RECORD_SERVING = """
    INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
    VALUES (:script, :checksum, :applied_at, :serves)
"""
#: What was rolled back: scripts that were applied, and that code which cannot read ``serves`` must not see.
HIDDEN_TABLE = "ratchet_schema_hidden"
CREATE_HIDDEN_TABLE = """
    CREATE TABLE ratchet_schema_hidden (
        script      {short text} PRIMARY KEY,
        checksum    {short text} NOT NULL,
        applied_at  {time} NOT NULL,
        serves      INT
    )
"""
HIDE = """
    INSERT INTO ratchet_schema_hidden (script, checksum, applied_at, serves)
    SELECT script, checksum, applied_at, serves
      FROM ratchet_schema_version
     WHERE script <> :kept AND script NOT IN (SELECT script FROM ratchet_schema_hidden)
"""
FORGET_HIDDEN = "DELETE FROM ratchet_schema_version WHERE script <> :kept"
HIDDEN = "SELECT checksum FROM ratchet_schema_hidden WHERE script = :script"
SHOW_AGAIN = """
    INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
    SELECT script, checksum, applied_at, serves FROM ratchet_schema_hidden WHERE script = :script
"""
_SERVES = re.compile(r"-- serves: V(\d{3,})\n")


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

    @property
    def serves(self) -> int | None:
        """
        The number of the oldest script whose code works on this schema: ``-- serves: V002`` in the first line.

        None: only code that has this script itself.
        """
        found = _SERVES.match(self.text.replace("\r\n", "\n"))
        return None if found is None else int(found[1])


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
        self._has_audit = False  # as the last script left it
        self._migrations = list(migrations if migrations is not None else migrations_of(self._dialect.name))

    def migrate(self) -> list[str]:
        """
        Apply what is missing; the names of the scripts that this call applied.

        Each script has a transaction of its own, under a lock that lets one process in the world
        migrate at a time: whoever waited finds the work done.
        """
        applied: list[str] = []
        while (name := self.insist(lambda: self._apply_next(applied))) is not None:
            applied.append(name)
            pending = pending_entry.get()
            if pending is not None and self._has_audit:
                pending.settle(len(applied))
        self._dialect.build_indexes([index for one in self._migrations for index in beside_writers(one.text)])
        return applied

    def insist(self, attempt: Callable[[], T]) -> T:
        """
        What *attempt* returns, once nobody is in its way.

        While a change of a table waits for its lock, everybody who comes later waits behind it. So it waits for a moment only,
        gives up everything it has locked, lets the others work, and tries again.
        """
        give_up = time.monotonic() + PATIENCE
        for count in itertools.count():
            try:
                return attempt()
            except Conflict as error:
                if time.monotonic() > give_up:
                    raise StoreUnavailable(
                        f"the schema of Ratchet in {self._dialect.where()} could not be upgraded within {PATIENCE:g} s, because "
                        f"other transactions keep its tables locked ({error}); find the one that stays open for long, end it, "
                        f"and run `ratchet db upgrade` again"
                    ) from error
                log.warning("the upgrade of the schema waits for other transactions: %s", error)
                time.sleep(PAUSES[min(count, len(PAUSES) - 1)])
        raise AssertionError("unreachable")

    def check(self) -> None:
        """Nothing if the schema fits; otherwise `SchemaOutOfDate`, `SchemaTooNew` or `SchemaChanged`."""
        with self._dialect.reading() as session:
            applied = self._applied(session)
            self._refuse_foreign(session, applied)
        if missing := [migration.name for migration in self._migrations if migration.name not in applied]:
            state = f"lacks {', '.join(missing)}" if applied else "does not exist yet"
            raise SchemaOutOfDate(
                f"the schema of Ratchet in {self._dialect.where()} {state}; run `ratchet db upgrade` with the URL of "
                f"this database, or set the option auto_migrate (RATCHET_AUTO_MIGRATE=true)"
            )

    def status(self) -> list[tuple[str, bool]]:
        """Every script of this version, and whether it has been applied."""
        with self._dialect.reading() as session:
            applied = self._applied(session)
        return [(migration.name, migration.name in applied) for migration in self._migrations]

    def plan(self) -> UpgradePlan:
        """What `migrate` would do now; nothing is changed. The errors of `check`, but for a schema that is out of date."""
        from ratchet.stores.sql.upgrade_plan import planned  # for a question that people ask now and then

        with self._dialect.reading() as session:
            applied = self._applied(session)
            self._refuse_foreign(session, applied)
            missing = [migration for migration in self._migrations if migration.name not in applied]
            sizes = self._dialect.size(session).tables if missing and applied else ()
        return planned(
            missing,
            self._dialect.upgrade_locks,
            newest=max(
                (migration.version for migration in self._migrations if migration.name in applied), default=0
            ),
            knows_serving=SERVING in applied,
            transactional=self._dialect.transactional_ddl,
            rows={VERSION_TABLE: len(applied), **{table.name: table.rows for table in sizes}},
        )

    def _apply_next(self, before: Sequence[str] = ()) -> str | None:
        with self._dialect.migrating() as session:
            applied = self._applied(session)
            self._refuse_foreign(session, applied)
            for migration in self._migrations:
                if migration.name not in applied:
                    self._apply(session, migration, first=not applied)
                    self._audit(session, [*before, migration.name])
                    return migration.name
        return None

    def roll_back(self) -> list[str]:
        """
        Let code of 0.1.0 start on this schema again; the scripts that it does not see any more.

        Tables and columns stay as they are, and `migrate` shows the scripts again without running them. Code since V002 reads
        which scripts serve it, and needs nothing of this.
        """
        with self._dialect.migrating() as session:
            applied = self._applied(session)
            self._refuse_foreign(session, applied)
            oldest = self._migrations[0]
            later = [one for one in self._migrations[1:] if one.name in applied]
            if refusing := [one.name for one in later if one.serves is None or one.serves > oldest.version]:
                raise SchemaTooNew(
                    f"the schema of Ratchet in {self._dialect.where()} cannot serve code of 0.1.0 any more: it has "
                    f"{', '.join(refusing)}; roll back to a version that it serves"
                )
            if later:
                if not self._dialect.has_table(session, HIDDEN_TABLE):
                    session.execute(CREATE_HIDDEN_TABLE)
                # in this order: a process that is killed in between, where nothing holds both together, has lost nothing
                session.execute(HIDE, {"kept": oldest.name})
                session.execute(FORGET_HIDDEN, {"kept": oldest.name})
        return [migration.name for migration in later]

    def _was_hidden(self, session: Session, migration: Migration) -> bool:
        """True if the script was applied and then hidden by `roll_back`: it is only shown again."""
        if not self._dialect.has_table(session, HIDDEN_TABLE):
            return False
        where = {"script": migration.name}
        if [checksum.strip() for (checksum,) in session.rows(HIDDEN, where)] != [migration.checksum]:
            return False
        session.execute(SHOW_AGAIN, where)
        return True

    def _apply(self, session: Session, migration: Migration, *, first: bool) -> None:
        if not first and self._was_hidden(session, migration):
            return
        if first and not self._dialect.has_table(session, VERSION_TABLE):
            session.execute(CREATE_VERSION_TABLE)
        self._dialect.run_script(session, migration.text)
        record = {
            "script": migration.name,
            "checksum": migration.checksum,
            "applied_at": datetime.now(UTC),
        }
        if migration.serves is None:
            session.execute(RECORD, record)
        else:
            session.execute(RECORD_SERVING, {**record, "serves": migration.serves})

    def _audit(self, session: Session, applied: Sequence[str]) -> None:
        """Write down who upgrades the schema, from the script on that makes the audit log."""
        pending = pending_entry.get()
        self._has_audit = self._dialect.has_table(session, AUDIT_TABLE)
        if pending is not None and self._has_audit:
            entry = structs.replace(pending.entry(len(applied)), reason=", ".join(applied))
            append_entry(session, entry, not pending.is_written)

    def _applied(self, session: Session) -> dict[str, str]:
        if not self._dialect.has_table(session, VERSION_TABLE):
            return {}
        return {script: checksum.strip() for script, checksum in session.rows(APPLIED)}

    def _refuse_foreign(self, session: Session, applied: Mapping[str, str]) -> None:
        known = {migration.name: migration for migration in self._migrations}
        newer = set(applied) - set(known)
        if newer and SERVING in applied and known:
            # A newer version has upgraded the schema, and says whether code of this version still works on it.
            ours = max(migration.version for migration in self._migrations)
            newer -= {script for script, serves in session.rows(SERVED) if serves <= ours}
        if newer:
            raise SchemaTooNew(
                f"the schema of Ratchet in {self._dialect.where()} has {', '.join(sorted(newer))}, which this version of "
                f"Ratchet does not know; it was upgraded by a newer one: upgrade this installation"
            )
        for name, checksum in applied.items():
            if name in known and checksum != known[name].checksum:
                raise SchemaChanged(
                    f"{name} was applied to {self._dialect.where()} with checksum {checksum[:12]}…, but the script of this installation has "
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
    parts.append(_plain(CREATE_VERSION_TABLE, dialect) + ";")
    parts += [at_once(migration.text).strip() for migration in migrations]
    parts += [
        f"INSERT INTO {VERSION_TABLE} (script, checksum, applied_at, serves)\n"
        f"VALUES ('{migration.name}', '{migration.checksum}', {dialect.words['clock']}, {migration.serves or 'NULL'});"
        for migration in migrations
    ]
    return "\n\n".join(parts) + "\n"


def _plain(sql: str, dialect: Dialect) -> str:
    lines = dialect.statement(sql).text.replace("%%", "%").strip("\n").splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines).strip()
