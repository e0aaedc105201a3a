"""
SQLite: one writer at a time, in this process and in all others.

Every write transaction is ``BEGIN IMMEDIATE`` behind the gate (`sqlite_gate`), so that it never has to
upgrade a read lock and is never told "database is locked". Reads see a snapshot and wait for nobody.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from ratchet.model.errors import (
    ConfigurationError,
    Conflict,
    SchemaOutOfDate,
    StoreError,
    StoreUnavailable,
    UnstorableData,
)
from ratchet.model.options import Options
from ratchet.spi.store import Capabilities
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.database import NO_PARAMS, Row, Session
from ratchet.stores.sql.dialect import Dialect
from ratchet.stores.sql.dialects.sqlite_claims import SqliteClaimPlan
from ratchet.stores.sql.dialects.sqlite_connections import Connections
from ratchet.stores.sql.dialects.sqlite_values import encode_params, encode_rows, plan_of
from ratchet.stores.sql.enlistment import Guest, guest_of, refuse_autocommit, refuse_stranger
from ratchet.stores.sql.errors import ConstraintViolated
from ratchet.stores.sql.statement import Statement, decode
from ratchet.stores.sql.wakeups.sqlite import SqliteWakeups

_DRIVER = "sqlite3.Connection"
_ADAPTER = "sqlalchemy.dialects.sqlite.aiosqlite.AsyncAdapt_aiosqlite_connection"
_SAVEPOINT = "ratchet"
_LONG_BLOCK = 2.0  # seconds

log = logging.getLogger("ratchet.stores.sql")


class SqliteConstraints:
    """Reads SQLite's extended error codes."""

    def is_unique_violation(self, error: BaseException) -> bool:
        """True if a unique key or primary key already exists."""
        return _code(error) in (
            sqlite3.SQLITE_CONSTRAINT_UNIQUE,
            sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
            sqlite3.SQLITE_CONSTRAINT_ROWID,
        )

    def is_foreign_key_violation(self, error: BaseException) -> bool:
        """True if a referenced row is missing, or still referenced."""
        return _code(error) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY


def _code(error: BaseException) -> int | None:
    return getattr(error, "sqlite_errorcode", None)


class SqliteSession(Session):
    """A transaction on a sqlite3 connection, or on SQLAlchemy's face of one."""

    def __init__(
        self, dialect: SqliteDialect, connection: Any, cursor: Any, *, enlisted: bool = False
    ) -> None:
        self.dialect: SqliteDialect = dialect
        self.enlisted = enlisted
        self._connection = connection
        self._cursor = cursor
        self._actions: list[Callable[[], None]] = []

    @property
    def connection(self) -> Any:
        return self._connection

    def execute(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> int:
        statement = self.dialect.statement(sql)
        try:
            self._cursor.execute(statement.text, encode_params(statement, params))
            changed: int = self._cursor.rowcount
            if self._cursor.description is not None:
                self._cursor.fetchall()  # a RETURNING that is not read to its end has not changed everything
                changed = self._cursor.rowcount
        except Exception as error:
            self.dialect.complain(error, statement.text)
        return max(changed, 0)

    def rows(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> list[Row]:
        statement = self.dialect.statement(sql)
        try:
            self._cursor.execute(statement.text, encode_params(statement, params))
            found: list[Row] = self._cursor.fetchall()
            return self._decoded(statement, found) if found else []
        except Exception as error:
            self.dialect.complain(error, statement.text)

    def _decoded(self, statement: Statement, found: list[Row]) -> list[Row]:
        if statement.plan is None:
            statement.plan = plan_of([column[0] for column in self._cursor.description])
        return decode(found, statement.plan) if statement.plan else list(found)

    def insert_rows(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        on_conflict_do_nothing: bool = False,
    ) -> int:
        if not rows:
            return 0
        text = (
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            f"{' ON CONFLICT DO NOTHING' if on_conflict_do_nothing else ''}"
        )
        try:
            self._cursor.executemany(text, encode_rows(rows))
        except Exception as error:
            self.dialect.complain(error, text)
        return max(int(self._cursor.rowcount), 0)

    def update_rows(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        if not rows:
            return 0
        key, *others = columns
        # numbered, so that the key may come first in each row
        values = ", ".join(f"{column} = ?{number}" for number, column in enumerate(others, 2))
        text = f"UPDATE {table} SET {values} WHERE {key} = ?1"
        try:
            self._cursor.executemany(text, encode_rows(rows))
        except Exception as error:
            self.dialect.complain(error, text)
        return max(int(self._cursor.rowcount), 0)

    def on_commit(self, action: Callable[[], None]) -> None:
        if not self.enlisted:
            self._actions.append(action)

    def committed(self) -> None:
        """Run what was to happen after the commit."""
        for action in self._actions:
            action()


class SqliteDialect(Dialect):
    """SQLite in a file, shared by any number of threads and processes, or in memory."""

    name = "sqlite"
    migrates_itself = True
    one_writer = True
    constraints = SqliteConstraints()
    claim_plan = SqliteClaimPlan()
    words = {  # noqa: RUF012 - never changed
        "uuid": "TEXT",
        "time": "INTEGER",
        "bool": "INTEGER",
        "int": "INTEGER",
        "real": "REAL",
        "text": "TEXT",
        "greatest": "max",
        "least": "min",
        "instr": "instr",
        # exact to the millisecond, which is what SQLite's clock gives
        "clock": "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)",
    }

    def __init__(self, path: Path | None, options: Options) -> None:
        super().__init__()
        self.path = path
        self.capabilities = Capabilities(
            survives_restart=path is not None,
            several_processes=path is not None,
            concurrent_writers=False,
            wakeups="data_version" if path is not None else None,
        )
        self._connections = Connections(
            path,
            synchronous=options.sqlite_synchronous,
            busy_timeout=options.sqlite_busy_timeout.total_seconds(),
        )

    # --- text ---------------------------------------------------------------------------------

    def bind(self, name: str) -> str:
        return f":{name}"

    def literal(self, text: str) -> str:
        return text

    def table(self, name: str) -> str:
        return name

    def member(self, name: str, kind: Kind, *, negated: bool) -> str:
        return f"{'NOT ' if negated else ''}IN (SELECT value FROM json_each(:{name}))"

    def rowset(self, name: str, columns: Sequence[tuple[str, Kind]]) -> str:
        fields = ", ".join(
            f"json_extract(value, '$[{i}]') AS {column}" for i, (column, _) in enumerate(columns)
        )
        return f"(SELECT {fields} FROM json_each(:{name})) AS {name}"

    def lock(self, mode: str, of: str | None, *, skip_locked: bool) -> str:
        return ""

    # --- transactions -------------------------------------------------------------------------

    @contextmanager
    def writing(self, *, for_user: bool = False, claiming: bool = False) -> Iterator[SqliteSession]:
        gate = self._enter()
        started = time.monotonic()
        try:
            connection = self._begin_writing()
            session = SqliteSession(self, connection, connection.cursor())
            try:
                yield session
                self._commit(connection)
            except BaseException as error:
                self._rollback(connection)
                if isinstance(error, sqlite3.Error) and not for_user:
                    self.complain(error, "a statement of the driver")
                raise
            self._connections.after_commit()
        finally:
            gate.leave()
            if for_user and (lasted := time.monotonic() - started) > _LONG_BLOCK:
                log.warning(
                    "a transaction kept every other writer of %s waiting for %.1f s", self.path, lasted
                )
        session.committed()

    @contextmanager
    def reading(self) -> Iterator[SqliteSession]:
        if self.path is None:
            with self._reading_memory() as session:
                yield session
            return
        try:
            connection = self._connections.reader()
        except sqlite3.Error as error:
            self.complain(error, "open")
        try:
            connection.execute("BEGIN")
            yield SqliteSession(self, connection, connection.cursor())
        finally:
            self._rollback(connection)
            self._connections.give_back(connection)

    @contextmanager
    def _reading_memory(self) -> Iterator[SqliteSession]:
        # The one connection there is. A thread that reads inside its own transaction sees that transaction.
        if self._connections.gate.held_here:
            connection = self._connections.writer()
            yield SqliteSession(self, connection, connection.cursor())
            return
        gate = self._enter()
        try:
            connection = self._connections.writer()
            connection.execute("BEGIN")
            try:
                yield SqliteSession(self, connection, connection.cursor())
            finally:
                self._rollback(connection)
        finally:
            gate.leave()

    @contextmanager
    def migrating(self) -> Iterator[SqliteSession]:
        with self.writing() as session:
            yield session

    def _enter(self) -> Any:
        gate = self._connections.gate
        if gate.held_here:
            raise StoreError(
                "this thread already has a write transaction open on this SQLite database and would wait for "
                "itself; pass within= the connection of that transaction"
            )
        try:
            passed = gate.enter(self._connections.busy_timeout)
        except OSError as error:
            raise StoreUnavailable(f"the lock file of {self.path} cannot be used: {error}") from error
        if not passed:
            raise StoreUnavailable(
                f"another transaction has held the write lock of {self.path or 'the database in memory'} for "
                f"{self._connections.busy_timeout:g} s; keep write transactions short, or raise sqlite_busy_timeout"
            )
        return gate

    def _begin_writing(self) -> sqlite3.Connection:
        try:
            connection = self._connections.writer()
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self.complain(error, "BEGIN IMMEDIATE", waited=True)
        return connection

    def _commit(self, connection: sqlite3.Connection) -> None:
        if not connection.in_transaction:
            raise StoreError(
                "the transaction was ended inside its block: use neither commit() nor rollback() nor "
                "'with connection:' there, leave the block instead"
            )
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.complain(error, "COMMIT")

    def _rollback(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error:
                pass  # SQLite has rolled back by itself (disk full, out of memory)

    # --- the caller's transaction -------------------------------------------------------------

    @contextmanager
    def enlist(self, within: object) -> Iterator[SqliteSession]:
        guest = guest_of(within)
        if _DRIVER in guest.names:
            cursor: Any = sqlite3.Cursor(guest.connection)  # neither its factory nor its row_factory
            cursor.row_factory = None
        elif _ADAPTER in guest.names:
            cursor = guest.connection.cursor()
        else:
            raise refuse_stranger(within, "SQLite", "a sqlite3.Connection")
        with _text_as_str(guest):
            self._join(guest, cursor)
            session = SqliteSession(self, guest.connection, cursor, enlisted=True)
            session_sql(self, cursor, f"SAVEPOINT {_SAVEPOINT}")
            try:
                yield session
            except BaseException:
                # the caller's transaction goes on as if this call had not been made
                session_sql(self, cursor, f"ROLLBACK TO {_SAVEPOINT}")
                session_sql(self, cursor, f"RELEASE {_SAVEPOINT}")
                raise
            session_sql(self, cursor, f"RELEASE {_SAVEPOINT}")

    def _join(self, guest: Guest, cursor: Any) -> None:
        driver = guest.connection if _DRIVER in guest.names else guest.connection.driver_connection
        self._require_same_file(driver, cursor)
        if driver.in_transaction:
            guest.begin()
            return
        if driver.isolation_level is None or getattr(driver, "autocommit", None) is True:
            raise refuse_autocommit("a sqlite3 connection")
        guest.begin()
        # A sqlite3 connection begins by itself only at its first write, and then as a reader that has to
        # upgrade, which may fail at once. Behind the gate no other node can be in the way.
        gate = self._enter()
        try:
            session_sql(self, cursor, "BEGIN IMMEDIATE")
        finally:
            gate.leave()

    def _require_same_file(self, driver: Any, cursor: Any) -> None:
        if self._connections.is_writer(driver):
            return
        cursor.execute("PRAGMA database_list")
        files = [row[2] for row in cursor.fetchall() if row[1] == "main"]
        theirs = files[0] if files else ""
        if self.path is None or not theirs or not _same_file(theirs, self.path):
            raise ConfigurationError(
                f"within= got a connection to {theirs or 'a database in memory'}, but this store is in "
                f"{self.path or 'memory'}; a transaction cannot span both"
            )

    # --- schema -------------------------------------------------------------------------------

    def run_script(self, session: Session, script: str) -> None:
        # executescript() would commit first
        text = ""
        for piece in re.split(r"(?<=;)", script):
            text += piece
            if sqlite3.complete_statement(text):
                session_sql(self, session.connection, text)
                text = ""
        if text.strip():
            session_sql(self, session.connection, text)

    def has_table(self, session: Session, name: str) -> bool:
        return bool(
            session.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", {"name": name})
        )

    def coordinator(self) -> SqliteWakeups | None:
        return SqliteWakeups(self.path) if self.path is not None else None

    def announce(self, session: Session) -> None:
        """Nothing: the commit itself is seen."""

    def close(self) -> None:
        self._connections.close()

    # --- errors -------------------------------------------------------------------------------

    def complain(self, error: Exception, text: str, *, waited: bool = False) -> NoReturn:
        """Raise what *error* means, by SQLite's code."""
        if isinstance(error, StoreError | ConfigurationError):
            raise error
        if isinstance(error, UnicodeError | OverflowError | sqlite3.DataError):
            raise UnstorableData(f"SQLite refused a value: {error}") from error
        code = _code(error)
        if code is None:
            raise StoreError(f"{type(error).__name__}: {error}, in: {text}") from error
        primary = code & 0xFF
        if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise self._busy(code, waited) from error
        if primary == sqlite3.SQLITE_CONSTRAINT:
            raise ConstraintViolated(f"SQLite refused a row ({error}), in: {text}") from error
        if primary in (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE):
            raise UnstorableData(f"SQLite refused a value: {error}") from error
        if primary == sqlite3.SQLITE_ERROR and not self._schema_exists():
            raise SchemaOutOfDate(
                f"the tables of Ratchet are missing in {self.path or 'memory'}; run `ratchet db upgrade`"
            ) from error
        if primary in _UNAVAILABLE:
            raise StoreUnavailable(f"the SQLite database {self.path} cannot be used: {error}") from error
        raise StoreError(f"SQLite: {error}, in: {text}") from error

    def _busy(self, code: int, waited: bool) -> StoreError:
        if waited:
            return StoreUnavailable(
                f"another program has held the write lock of {self.path} for {self._connections.busy_timeout:g} s; "
                f"keep write transactions short, or raise sqlite_busy_timeout"
            )
        if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
            return Conflict(
                "the transaction read the SQLite database before another one wrote to it, so it cannot write any "
                "more; roll it back and begin it with BEGIN IMMEDIATE"
            )
        return Conflict(f"the SQLite database {self.path} is locked by another transaction")

    def _schema_exists(self) -> bool:
        # The code for a missing table is the same as for a mistake in the SQL, so look.
        if self.path is None:
            return True
        try:
            probe = sqlite3.connect(self.path, timeout=0.1)
        except sqlite3.Error:
            return True
        try:
            return bool(
                probe.execute("SELECT 1 FROM sqlite_master WHERE name = 'ratchet_schema_version'").fetchone()
            )
        except sqlite3.Error:
            return True
        finally:
            probe.close()


_UNAVAILABLE = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}


def session_sql(dialect: SqliteDialect, cursor: Any, text: str) -> None:
    """Run one statement as it stands."""
    try:
        cursor.execute(text)
    except sqlite3.Error as error:
        dialect.complain(error, text)


@contextmanager
def _text_as_str(guest: Guest) -> Iterator[None]:
    # a text_factory belongs to the connection, not to the cursor
    factory = getattr(guest.connection, "text_factory", str)
    if factory is str:
        yield
        return
    guest.connection.text_factory = str
    try:
        yield
    finally:
        guest.connection.text_factory = factory


def _same_file(one: str, other: Path) -> bool:
    try:
        return other.samefile(one)
    except OSError:
        return False
