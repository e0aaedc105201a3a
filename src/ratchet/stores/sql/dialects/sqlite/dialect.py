"""
SQLite: one writer at a time, in this process and in all others.

Every write transaction is ``BEGIN IMMEDIATE`` under the fair write lock (`connections`), so that it never has
to upgrade a read lock and is never told "database is locked". Reads see a snapshot and wait for nobody.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

from ratchet.model.errors import ConfigurationError, StoreError, StoreUnavailable
from ratchet.model.options import Options
from ratchet.model.storage import StoreSize, TableSize
from ratchet.spi.store import Capabilities
from ratchet.stores.sql.caller_transaction import (
    CallerConnection,
    caller_connection,
    driver_of,
    refuse_autocommit,
    refuse_stranger,
)
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.database import Database, Session
from ratchet.stores.sql.dependants.batch_counters import count_in_steps
from ratchet.stores.sql.dependants.edges import EdgeWriter
from ratchet.stores.sql.dialect import Dialect, Refusal
from ratchet.stores.sql.dialects.sqlite.claims import SqliteClaimPlan
from ratchet.stores.sql.dialects.sqlite.connections import Connections, WriteLock
from ratchet.stores.sql.dialects.sqlite.errors import Location, SqliteConstraints, blame, meaning
from ratchet.stores.sql.dialects.sqlite.locks import LOCKS
from ratchet.stores.sql.dialects.sqlite.session import SqliteSession, encoded
from ratchet.stores.sql.dialects.sqlite.wakeups import SqliteWakeups
from ratchet.stores.sql.errors import ConstraintViolated, LockTimeout
from ratchet.stores.sql.finish.completions import succeed_in_steps
from ratchet.stores.sql.loop_cursor import LoopCursor
from ratchet.stores.sql.rows.specs import RowWriter, insert_texts
from ratchet.stores.sql.statement import translate

_DRIVER = "sqlite3.Connection"
_ASYNC_DRIVER = "aiosqlite.core.Connection"
_ADAPTER = "sqlalchemy.dialects.sqlite.aiosqlite.AsyncAdapt_aiosqlite_connection"
_SAVEPOINT = "ratchet"
_LONG_BLOCK = 2.0  # seconds
_PAST_FENCE = "past the fence"  # of a row that only its own transaction sees

log = logging.getLogger("ratchet.stores.sql")


TABLES = """
    SELECT t.name, (SELECT group_concat(i.name) FROM sqlite_master i WHERE i.type = 'index' AND i.tbl_name = t.name) AS indexes
      FROM sqlite_master t
     WHERE t.type = 'table' AND substr(t.name, 1, 10) = 'scheduler_'
"""
#: Rows of a table that are counted, at most: some milliseconds.
COUNTED_ROWS = 100_000
#: The bytes of each table are read from a file up to this size.
MEASURED_FILE = 256 * 1024 * 1024


def _taken(session: Session) -> dict[str, int]:
    """The bytes of each table and index; empty where SQLite was built without the table that tells it."""
    try:
        return dict(session.rows("SELECT name, sum(pgsize) AS size FROM dbstat GROUP BY name"))
    except StoreError:
        return {}


class SqliteRowWriter(RowWriter):
    """
    One plain job is one short transaction without a session.

    In memory, where nothing waits for a disk, a submission takes 16 % less time so.
    """

    def __init__(self, dialect: SqliteDialect) -> None:
        self._dialect = dialect

        @lru_cache(maxsize=256)
        def texts(given: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(translate(text, dialect).text for text in insert_texts(given))

        self._texts = texts

    def insert_one(self, database: Database, values: dict[str, object]) -> bool:
        texts = self._texts(tuple(values))
        try:
            database.attempt(lambda: self._dialect.write_once(texts, values))
        except (ConstraintViolated, LockTimeout):
            return False
        return True


class SqliteDialect(Dialect):
    """SQLite in a file, shared by any number of threads and processes, or in memory."""

    name = "sqlite"
    upgrade_locks = LOCKS
    write_successes = staticmethod(succeed_in_steps)
    count_ends = staticmethod(count_in_steps)
    edge_writer = EdgeWriter()
    migrates_itself = True
    one_writer = True
    constraints = SqliteConstraints()
    words = {  # noqa: RUF012 - never changed
        "uuid": "TEXT",
        "time": "INTEGER",
        "bool": "INTEGER",
        "int": "INTEGER",
        "real": "REAL",
        "text": "TEXT",
        "short text": "TEXT",
        "greatest": "max",
        "least": "min",
        "instr": "instr",
        # exact to the millisecond, which is what SQLite's clock gives
        "clock": "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)",
        "priorities": "(VALUES (4), (3), (2), (1), (0)) p",
        "current": "",
        "unindexed": "+",  # without statistics SQLite takes the order of a key for more than a small index
    }

    def __init__(self, path: Path | None, options: Options) -> None:
        super().__init__()
        self.path = path
        self.claim_plan = SqliteClaimPlan()
        self.capabilities = Capabilities(
            survives_restart=path is not None,
            several_processes=path is not None,
            concurrent_writers=False,
            wakeups="data_version" if path is not None else None,
            migrates_itself=True,
            commit_wakes=path is not None,
            shows_values=True,
        )
        self.row_writer = SqliteRowWriter(self)
        self._location = Location(path, options.sqlite_busy_timeout.total_seconds())
        self._connections = Connections(
            path, synchronous=options.sqlite_synchronous, busy_timeout=self._location.busy_timeout
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
        lock = self._take_write_lock()
        started = time.monotonic()
        try:
            connection = self._begin_writing()
            session = SqliteSession(self, connection, connection.cursor())
            try:
                yield session
                self._commit(connection)
            except BaseException as error:
                if for_user and not connection.in_transaction:
                    blame(error, self._location)
                self._rollback(connection)
                if isinstance(error, sqlite3.Error) and not for_user:
                    self.complain(error, "a statement of the driver")
                raise
            self._connections.after_commit()
        finally:
            lock.release()
            if for_user and (lasted := time.monotonic() - started) > _LONG_BLOCK:
                log.warning(
                    "a transaction kept every other writer of %s waiting for %.1f s", self.path, lasted
                )
        session.committed()

    def write_once(self, texts: Sequence[str], values: Mapping[str, object]) -> None:
        """Run statements that share their values, as one transaction (`writing`, without a session)."""
        try:
            binds = encoded(values)
        except Exception as error:
            self.complain(error, texts[0])
        lock = self._take_write_lock()
        try:
            connection = self._begin_writing()
            try:
                for text in texts:
                    self._execute(connection, text, binds)
                self._commit(connection)
            except BaseException:
                self._rollback(connection)
                raise
            self._connections.after_commit()
        finally:
            lock.release()

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
        if self._connections.write_lock.held_here:
            connection = self._connections.writer()
            yield SqliteSession(self, connection, connection.cursor())
            return
        lock = self._take_write_lock()
        try:
            connection = self._connections.writer()
            connection.execute("BEGIN")
            try:
                yield SqliteSession(self, connection, connection.cursor())
            finally:
                self._rollback(connection)
        finally:
            lock.release()

    @contextmanager
    def migrating(self) -> Iterator[SqliteSession]:
        with self.writing() as session:
            yield session

    def _take_write_lock(self) -> WriteLock:
        lock = self._connections.write_lock
        if lock.held_here:
            raise StoreError(
                "this thread already has a write transaction open on this SQLite database and would wait for "
                "itself; pass within= the connection of that transaction"
            )
        try:
            locked = lock.acquire(self._connections.busy_timeout)
        except OSError as error:
            raise StoreUnavailable(f"the lock file of {self.path} cannot be used: {error}") from error
        if not locked:
            raise StoreUnavailable(
                f"another transaction has held the write lock of {self.path or 'the database in memory'} for "
                f"{self._connections.busy_timeout:g} s; keep write transactions short, or raise sqlite_busy_timeout"
            )
        return lock

    def _begin_writing(self) -> sqlite3.Connection:
        try:
            connection = self._connections.writer()
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            self.complain(error, "BEGIN IMMEDIATE", waited=True)
        return connection

    def _execute(self, connection: sqlite3.Connection, text: str, binds: Mapping[str, object]) -> None:
        try:
            connection.execute(text, binds)
        except Exception as error:
            self.complain(error, text)

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

    def where(self) -> str:
        return str(self.path or "memory")

    # --- the caller's transaction -------------------------------------------------------------

    @contextmanager
    def enlist(self, within: object) -> Iterator[SqliteSession]:
        caller = caller_connection(within)
        if _DRIVER in caller.names:
            cursor: Any = sqlite3.Cursor(caller.connection)  # neither its factory nor its row_factory
            cursor.row_factory = None
        elif caller.wait is not None and _ASYNC_DRIVER in caller.names:
            cursor = LoopCursor(caller.wait(caller.connection.cursor()), caller.wait)
            cursor.cursor.row_factory = None
        elif _ADAPTER in caller.names:
            cursor = caller.connection.cursor()
        else:
            raise refuse_stranger(
                within, "SQLite", "a sqlite3.Connection or an aiosqlite.Connection", caller.connection
            )
        with _text_as_str(caller):
            self._join(caller, cursor)
            session = SqliteSession(self, caller.connection, cursor, enlisted=True)
            session_sql(self, cursor, f"SAVEPOINT {_SAVEPOINT}")
            try:
                yield session
            except BaseException:
                # the caller's transaction goes on as if this call had not been made
                session_sql(self, cursor, f"ROLLBACK TO {_SAVEPOINT}")
                session_sql(self, cursor, f"RELEASE {_SAVEPOINT}")
                raise
            session_sql(self, cursor, f"RELEASE {_SAVEPOINT}")

    def _join(self, caller: CallerConnection, cursor: Any) -> None:
        driver = driver_of(caller.connection)
        self._require_same_file(driver, cursor)
        if driver.in_transaction:
            caller.begin()
            return
        plain = getattr(driver, "_conn", driver)  # aiosqlite's has no attribute for autocommit
        if driver.isolation_level is None or getattr(plain, "autocommit", None) is True:
            raise refuse_autocommit("a sqlite3 connection")
        caller.begin()
        # A sqlite3 connection begins by itself only at its first write, and then as a reader that has to
        # upgrade, which may fail at once. Under the write lock no other node can be in the way.
        lock = self._take_write_lock()
        try:
            session_sql(self, cursor, "BEGIN IMMEDIATE")
        finally:
            lock.release()

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

    def refuse(self, session: Session, refusal: Refusal) -> None:
        self.allow(session, refusal)
        condition = refusal.condition
        if refusal.passable:
            condition = f"NOT EXISTS (SELECT 1 FROM scheduler_move WHERE move_id = '{_PAST_FENCE}')"
        when = f"WHEN {condition} " if condition else ""
        session_sql(
            self,
            session.connection,
            f"CREATE TRIGGER {refusal.name} BEFORE {refusal.event} ON {refusal.table} {when}"
            f"BEGIN SELECT RAISE(ABORT, {refusal.message()}); END",
        )

    def allow(self, session: Session, refusal: Refusal) -> None:
        session_sql(self, session.connection, f"DROP TRIGGER IF EXISTS {refusal.name}")

    @contextmanager
    def past_fence(self, session: Session) -> Iterator[None]:
        # A trigger can look at nothing of its connection; a row that is gone before the commit is seen by no other one.
        mark = {"move_id": _PAST_FENCE, "document": ""}
        session.execute("INSERT INTO scheduler_move (move_id, document) VALUES (:move_id, :document)", mark)
        yield
        session.execute("DELETE FROM scheduler_move WHERE move_id = :move_id", mark)

    def has_table(self, session: Session, name: str) -> bool:
        return bool(
            session.rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", {"name": name})
        )

    def size(self, session: Session) -> StoreSize:
        """
        Rows are counted up to a limit. What each table takes is read only from a file of moderate size: SQLite has to look
        at every page for that.
        """
        page, pages, free = (
            int(session.value(f"SELECT {name} FROM pragma_{name}"))
            for name in ("page_size", "page_count", "freelist_count")
        )
        taken = _taken(session) if page * pages <= MEASURED_FILE else {}
        tables = []
        for name, indexes in session.rows(TABLES):
            own = [taken[one] for one in str(indexes or "").split(",") if one in taken]
            rows = session.value(f"SELECT count(*) FROM (SELECT 1 FROM {name} LIMIT {COUNTED_ROWS})")
            tables.append(
                TableSize(
                    name=name,
                    rows=rows,
                    more=rows >= COUNTED_ROWS,
                    bytes=taken.get(name),
                    indexes=len(str(indexes).split(",")) if indexes else 0,
                    index_bytes=sum(own) if taken else None,
                )
            )
        whole = StoreSize.of(tables, free_bytes=free * page)
        return StoreSize(tables=whole.tables, bytes=page * pages, free_bytes=whole.free_bytes)

    def coordinator(self) -> SqliteWakeups | None:
        return SqliteWakeups(self.path) if self.path is not None else None

    def announce(self, session: Session) -> None:
        """Nothing: the commit itself is seen."""

    def close(self) -> None:
        self._connections.close()

    # --- errors -------------------------------------------------------------------------------

    def complain(self, error: Exception, text: str, *, waited: bool = False) -> NoReturn:
        """Raise what *error* means; *waited*: for the write lock, for as long as is allowed."""
        raise meaning(error, text, self._location, waited=waited) from error


def session_sql(dialect: SqliteDialect, cursor: Any, text: str) -> None:
    """Run one statement as it stands."""
    try:
        cursor.execute(text)
    except sqlite3.Error as error:
        dialect.complain(error, text)


@contextmanager
def _text_as_str(caller: CallerConnection) -> Iterator[None]:
    # a text_factory belongs to the connection, not to the cursor
    factory = getattr(caller.connection, "text_factory", str)
    if factory is str:
        yield
        return
    caller.connection.text_factory = str
    try:
        yield
    finally:
        caller.connection.text_factory = factory


def _same_file(one: str, other: Path) -> bool:
    try:
        return other.samefile(one)
    except OSError:
        return False
