"""
MySQL 8 and MariaDB 10.6, on what they have in common.

What is one statement elsewhere is several here, under row locks (see `shapes`); `Database.run` retries the deadlocks
and lock timeouts that follow from it. Affected rows: our connections count the rows that an insert has really
inserted (no ``FOUND_ROWS``), and the number of rows that an update has matched is read from the server's answer. So
both are right on a caller's connection too, whatever its flag.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

import pymysql
from pymysql.constants import SERVER_STATUS

from ratchet.model.errors import CommitUnknown, ConfigurationError, Conflict, StoreError, StoreUnavailable
from ratchet.model.options import Options
from ratchet.model.storage import StoreSize, TableSize
from ratchet.spi.store import Capabilities
from ratchet.stores.sql.caller_transaction import caller_connection, refuse_autocommit, refuse_stranger
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.batch_counters import count_in_steps
from ratchet.stores.sql.dependants.edges import EdgeWriter
from ratchet.stores.sql.dialect import Dialect, Refusal
from ratchet.stores.sql.dialects.mysql import mysqlclient
from ratchet.stores.sql.dialects.mysql.certification import (
    BE_THE_ONLY_ONE,
    BEGIN_STREAMING,
    CHANGE_EVERYWHERE,
    CREATE_MIGRATION_TABLE,
    MIGRATION_TABLE,
    STILL_THE_ONLY_ONE,
)
from ratchet.stores.sql.dialects.mysql.claims import MysqlClaimPlan
from ratchet.stores.sql.dialects.mysql.connections import (
    LONGEST_IDLE,
    Address,
    Connection,
    Connections,
    Purpose,
    product_of,
)
from ratchet.stores.sql.dialects.mysql.errors import (
    NO_SUCH_SAVEPOINT,
    MysqlConstraints,
    blame,
    meaning,
    number_of,
)
from ratchet.stores.sql.dialects.mysql.locks import LOCKS
from ratchet.stores.sql.dialects.mysql.processes import end_transactions
from ratchet.stores.sql.dialects.mysql.scripts import forget_progress, run_script
from ratchet.stores.sql.dialects.mysql.session import CURRENT, MysqlSession
from ratchet.stores.sql.dialects.mysql.shapes import LISTED, PAIRS, column, shape_of
from ratchet.stores.sql.dialects.mysql.values import JSON_TYPES, Writer
from ratchet.stores.sql.errors import ConnectionLost, ConstraintViolated, LockTimeout, ReadOnlyServer
from ratchet.stores.sql.finish.completions import succeed_in_steps
from ratchet.stores.sql.rows.specs import RowWriter
from ratchet.stores.sql.statement import Statement, translate

_DRIVER = "pymysql.connections.Connection"
_LOCK_WAIT = 5  # seconds
_MIGRATION_WAIT = 3600  # seconds to wait for another migration; then it waits again
_MIGRATION_PAUSE = 0.2  # seconds until who waits for another server's migration looks again
_MIGRATION_LOCK_WAIT = (
    1  # seconds to wait for a table, the server's least: everybody else waits behind this one
)

_MESSAGE = 128  # characters that a trigger can say
_PAST_FENCE = "@ratchet_past_fence"  # a variable of the connection
_NO_TRIGGERS = {1142, 1227, 1419}  # no TRIGGER privilege, no SUPER, the binary log does not trust it

# Under READ COMMITTED every statement sees what was committed before it; under the others the first one decides.
_CALLER_SETTINGS = """
    SELECT DATABASE(), @@max_allowed_packet, @@innodb_lock_wait_timeout, @@sql_mode, {isolation},
           @@character_set_client, @@character_set_results
"""


TABLE_SIZES = """
    SELECT t.table_name, t.table_rows, t.data_length, t.index_length, t.data_free,
           (SELECT count(DISTINCT s.index_name) FROM information_schema.statistics s
             WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name) AS indexes
      FROM information_schema.tables t
     WHERE t.table_schema = COALESCE(:schema, DATABASE()) AND t.table_type = 'BASE TABLE'
       AND LEFT(t.table_name, 10) = 'scheduler_'
"""


class MysqlDialect(Dialect):
    """MySQL 8.0.19 or newer, MariaDB 10.6 or newer."""

    name = "mysql"
    upgrade_locks = LOCKS
    write_successes = staticmethod(succeed_in_steps)
    count_ends = staticmethod(count_in_steps)
    edge_writer = EdgeWriter()
    transactional_ddl = False
    seeks_ranges = False
    constraints = MysqlConstraints()
    words = {  # noqa: RUF012 - never changed
        "uuid": "BINARY(16)",
        "time": "DATETIME(6)",
        "bool": "UNSIGNED",
        "int": "SIGNED",
        "real": "DOUBLE",
        "text": "CHAR",
        "short text": "VARCHAR(255)",
        "greatest": "GREATEST",
        "least": "LEAST",
        "instr": "INSTR",
        "clock": "UTC_TIMESTAMP(6)",
        "priorities": "(SELECT 4 AS column1 UNION ALL SELECT 3 UNION ALL SELECT 2 UNION ALL SELECT 1 UNION ALL SELECT 0) p",
        "current": CURRENT,
        "unindexed": "concat",  # with a LIMIT it takes the order of a key for more than a small index
    }

    def __init__(self, url: str, options: Options) -> None:
        super().__init__()
        self.shape = lru_cache(maxsize=2048)(shape_of)
        self.schema = options.schema
        self.capabilities = Capabilities(wakeups=None, shows_values=True)
        connect, statement, answer = options.timeouts()
        self._connections = Connections(
            Address.of(url),
            size=options.pool_size,
            connect_timeout=connect,
            statement_timeout=statement,
            answer_timeout=answer,
        )
        self.claim_plan = MysqlClaimPlan(self._lock_name("claim"))
        self.row_writer = RowWriter()
        self._writer = Writer()
        self._savepoints = itertools.count(1)

    def _lock_name(self, purpose: str) -> str:
        # a lock's name has at most 64 characters, and is known in the whole server
        where = self.schema or self._connections.address.database
        return f"ratchet.{purpose}.{hashlib.sha256(where.encode()).hexdigest()[:24]}"

    # --- text ---------------------------------------------------------------------------------

    def _translate(self, sql: str) -> Statement:
        statement = translate(sql, self)
        for name in {part.partition(")")[0] for part in statement.text.split("%(")[1:]}:
            if name.endswith(PAIRS):
                statement.lists[name] = "text"
                statement.rowsets.setdefault(name.removesuffix(PAIRS), ())
            elif name.endswith(LISTED):
                statement.lists[name] = statement.lists[name.removesuffix(LISTED)] = "text"
        return statement

    def bind(self, name: str) -> str:
        return f"%({name})s"

    def literal(self, text: str) -> str:
        return text.replace("%", "%%")

    def table(self, name: str) -> str:
        return f"{_quoted(self.schema)}.{name}" if self.schema else name

    def member(self, name: str, kind: Kind, *, negated: bool) -> str:
        return f"{'NOT ' if negated else ''}IN %({name})s"

    def rowset(self, name: str, columns: Sequence[tuple[str, Kind]]) -> str:
        fields = ", ".join(
            f"{f'UNHEX(c{i})' if kind == 'uuid' else f'c{i}'} AS {column(label)}"
            for i, (label, kind) in enumerate(columns)
        )
        paths = ", ".join(
            f"c{i} {JSON_TYPES[kind]} PATH '$[{i}]' ERROR ON ERROR" for i, (_, kind) in enumerate(columns)
        )
        return f"(SELECT {fields} FROM JSON_TABLE(%({name})s, '$[*]' COLUMNS ({paths})) AS t) AS {name}"

    def lock(self, mode: str, of: str | None, *, skip_locked: bool) -> str:
        # FOR SHARE is MySQL's own word, and so is OF
        words = "FOR UPDATE" if mode.endswith("update") else "LOCK IN SHARE MODE"
        return f"{words}{' SKIP LOCKED' if skip_locked else ''}"

    # --- transactions -------------------------------------------------------------------------

    @contextmanager
    def writing(self, *, for_user: bool = False, claiming: bool = False) -> Iterator[MysqlSession]:
        with self._transaction("write", "START TRANSACTION", for_user=for_user) as session:
            try:
                yield session
            except BaseException as error:
                if for_user:
                    blame(error, session.connection.last_error)
                self._rollback(session)
                if isinstance(error, pymysql.Error) and not for_user:
                    raise meaning(error, "a statement of the driver") from error
                raise
            self._commit(session, for_user=for_user)
        session.committed()

    @contextmanager
    def reading(self) -> Iterator[MysqlSession]:
        with self._transaction("read", "START TRANSACTION READ ONLY") as session:
            try:
                yield session
            finally:
                self._rollback(session)

    @contextmanager
    def migrating(self) -> Iterator[MysqlSession]:
        connection = self._connections.take("write")
        self._declare(connection)
        try:
            connection._read_timeout = None
            product = product_of(connection.server_version)
            endless = "max_statement_time" if product == "MariaDB" else "max_execution_time"
            session = self._session(connection)
            session.plain(
                f"SET SESSION {endless} = 0, wait_timeout = {LONGEST_IDLE}, lock_wait_timeout = {_MIGRATION_LOCK_WAIT}"
            )
            name = self._lock_name("migrate")
            while (
                session.value("SELECT GET_LOCK(:name, :wait)", {"name": name, "wait": _MIGRATION_WAIT}) != 1
            ):
                pass
            self._enter_schema(session)
            with self._alone(session) if connection.certifies else nullcontext():
                yield session
                forget_progress(session)
        finally:
            connection.shut()  # which also frees the lock
            self._connections.give_back(connection)

    @contextmanager
    def _alone(self, session: MysqlSession) -> Iterator[None]:
        """Keep out who migrates through another server: a named lock is known to one of them."""
        session.plain(CHANGE_EVERYWHERE)
        if not self.has_table(session, MIGRATION_TABLE):
            session.plain(CREATE_MIGRATION_TABLE)
        holder = self._connections.another()
        try:
            holding = self._session(holder)
            holding.plain(f"SET SESSION wait_timeout = {LONGEST_IDLE}")
            self._enter_schema(holding)
            while not _is_alone(holding):
                time.sleep(_MIGRATION_PAUSE)
            yield
            holding.plain(STILL_THE_ONLY_ONE)
        finally:
            holder.shut()

    def end_transactions(self, process: str) -> bool:
        return end_transactions(self._connections, process)

    @contextmanager
    def _transaction(self, purpose: Purpose, begin: str, *, for_user: bool = False) -> Iterator[MysqlSession]:
        connection = self._begun(purpose, begin, for_user=for_user)
        session = self._session(connection)
        try:
            yield session
        except ConnectionLost as error:
            connection.shut()
            self._connections.discard_idle()
            if isinstance(error, ReadOnlyServer):
                error.found_at(str(self._connections.address))
            raise
        finally:
            self._finish(session, for_user=for_user)
            connection.last_error = None
            self._connections.give_back(connection, for_user=for_user)

    def _begun(self, purpose: Purpose, begin: str, *, for_user: bool) -> Connection:
        """A connection in a new transaction; one that died while it was idle is replaced."""
        for last in (False, True):
            connection = self._connections.take(purpose, for_user=for_user)
            try:
                if for_user:  # user code may think for as long as it likes between two statements
                    connection.query(f"SET SESSION wait_timeout = {LONGEST_IDLE}")
                connection.query(begin)
            except BaseException as error:
                connection.shut()
                self._connections.give_back(connection, for_user=for_user)
                found = meaning(error, begin) if isinstance(error, Exception) else error
                if isinstance(found, LockTimeout):  # there is no lock yet to wait for
                    found = StoreUnavailable(
                        f"the server at {self._connections.address} is behind the others of its cluster, and does not catch up: {found}"
                    )
                if last or not isinstance(found, ConnectionLost):
                    raise found from error
                self._connections.discard_idle()
            else:
                self._declare(connection)
                return connection
        raise StoreError("unreachable: the last try returns or raises")

    def _declare(self, connection: Connection) -> None:
        if connection.certifies:
            self.capabilities.several_writers = True
            self.capabilities.unsound = self._connections.unsound

    def _finish(self, session: MysqlSession, *, for_user: bool) -> None:
        connection: Connection = session.connection
        texts = list(session.afterwards)
        if for_user:
            texts.append(f"SET SESSION wait_timeout = {self._connections.idle}")
        try:
            for text in texts:
                if connection.open:
                    connection.query(text)
        except pymysql.Error:
            connection.shut()  # the server frees and forgets everything when the connection ends

    def _session(self, connection: Connection) -> MysqlSession:
        return MysqlSession(
            self, connection, most=connection.most, certifies=connection.certifies, writer=self._writer
        )

    def _commit(self, session: MysqlSession, *, for_user: bool) -> None:
        connection: Connection = session.connection
        try:
            if for_user:
                connection.ping(reconnect=False)  # its answer tells whether there still is a transaction
            if not connection.in_transaction:
                raise StoreError(
                    "the transaction was ended inside its block, by commit() or rollback(), by a statement that "
                    "changes the schema, or by a deadlock whose error was swallowed; what was done after that is "
                    "committed, what was done before may be lost: leave the block instead"
                )
            connection.query("COMMIT")
        except pymysql.Error as error:
            found = meaning(error, "COMMIT")
            if isinstance(found, Conflict):
                raise found from error
            connection.shut()
            raise CommitUnknown(
                f"the connection to MySQL was lost while committing, so the change may or may not have been "
                f"made: {found}"
            ) from error

    def _rollback(self, session: MysqlSession) -> None:
        connection: Connection = session.connection
        try:
            if connection.open:
                connection.query("ROLLBACK")
        except pymysql.Error:
            connection.shut()  # the server rolls back when the connection ends

    def where(self) -> str:
        return str(self._connections.address)

    # --- the caller's transaction -------------------------------------------------------------

    @contextmanager
    def enlist(self, within: object) -> Iterator[MysqlSession]:
        caller = caller_connection(within)
        connection: Any = caller.connection
        if mysqlclient.DRIVER in caller.names:
            connection = mysqlclient.Mysqlclient(connection)
        elif _DRIVER not in caller.names:
            raise refuse_stranger(within, "MySQL", "a connection of PyMySQL or mysqlclient", connection)
        _require_transaction(connection)
        caller.begin()
        session, wait, mode = self._caller_session(connection)
        savepoint = f"ratchet_{next(self._savepoints)}"
        strict = mode if "STRICT_" in mode else f"{mode},STRICT_ALL_TABLES".lstrip(",")
        session.plain(f"SAVEPOINT {savepoint}")
        session.plain(f"SET SESSION innodb_lock_wait_timeout = {_LOCK_WAIT}, sql_mode = '{strict}'")
        restore = f"SET SESSION innodb_lock_wait_timeout = {wait}, sql_mode = '{mode}'"
        try:
            yield session
        except BaseException as error:
            # the caller's transaction goes on as if this call had not been made
            try:
                session.plain(restore)
                session.plain(f"ROLLBACK TO SAVEPOINT {savepoint}")
            except ConnectionLost:
                pass  # the error that is being raised says so already
            except StoreError as problem:
                if problem.__cause__ is None or number_of(problem.__cause__) != NO_SUCH_SAVEPOINT:
                    raise
                raise Conflict(
                    "MySQL has rolled back the whole transaction because of a deadlock; begin it anew"
                ) from error
            raise
        session.plain(restore)
        session.plain(f"RELEASE SAVEPOINT {savepoint}")

    def _caller_session(self, connection: Any) -> tuple[MysqlSession, int, str]:
        version = connection.server_version
        isolation = "@@tx_isolation" if product_of(version) == "MariaDB" else "@@transaction_isolation"
        session = MysqlSession(self, connection, most=0, enlisted=True, writer=self._writer)
        (found,) = session.plain(_CALLER_SETTINGS.format(isolation=isolation)).rows
        database, most, wait, mode, level, *charsets = found
        self._require_same_database(database)
        if not {"utf8mb4", "utf8", "utf8mb3"}.issuperset(charsets) or connection.encoding != "utf8":
            raise ConfigurationError(
                f"within= got a connection with the character set {connection.charset}; connect with charset='utf8mb4'"
            )
        backslashes = "NO_BACKSLASH_ESCAPES" not in mode
        session = MysqlSession(
            self,
            connection,
            most=most,
            enlisted=True,
            snapshot=level.upper() not in ("READ-COMMITTED", "READ-UNCOMMITTED"),
            certifies=self._connections.certifies,
            writer=self._writer if backslashes else Writer(backslashes=False),
        )
        session.place = (self.schema or database,)
        return session, wait, mode

    def _require_same_database(self, theirs: str | None) -> None:
        ours = self._connections.address.database
        if self.schema is None and (theirs or "").lower() != ours.lower():
            raise ConfigurationError(
                f"within= got a connection to the database {theirs or '(none)'}, but this store is in {ours}; "
                f"select that one, or set the option schema to {ours!r}"
            )

    # --- schema -------------------------------------------------------------------------------

    def _enter_schema(self, session: MysqlSession) -> None:
        if self.schema is not None:
            session.plain(
                f"CREATE DATABASE IF NOT EXISTS {_quoted(self.schema)} DEFAULT CHARACTER SET utf8mb4"
            )
            session.plain(f"USE {_quoted(self.schema)}")

    def run_script(self, session: Session, script: str) -> None:
        assert isinstance(session, MysqlSession)
        run_script(session, script)

    def refuse(self, session: Session, refusal: Refusal) -> None:
        assert isinstance(session, MysqlSession)
        self.allow(session, refusal)
        signal = f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {refusal.message(_MESSAGE)}"
        condition = f"{_PAST_FENCE} IS NULL" if refusal.passable else refusal.condition
        body = f"IF {condition} THEN {signal}; END IF" if condition else signal
        try:
            session.plain(
                f"CREATE TRIGGER {refusal.name} BEFORE {refusal.event} ON {refusal.table} FOR EACH ROW BEGIN {body}; END"
            )
        except StoreError as error:
            if number_of(error.__cause__ or error) in _NO_TRIGGERS:
                raise StoreError(
                    "MySQL does not let this user make triggers, which keep nodes from the jobs while they are moved; grant "
                    "TRIGGER on the database and, where the binary log is on, set log_bin_trust_function_creators=1 for the move"
                ) from error
            raise

    def allow(self, session: Session, refusal: Refusal) -> None:
        assert isinstance(session, MysqlSession)
        session.plain(f"DROP TRIGGER IF EXISTS {refusal.name}")

    @contextmanager
    def past_fence(self, session: Session) -> Iterator[None]:
        assert isinstance(session, MysqlSession)
        session.plain(f"SET {_PAST_FENCE} = 1")
        try:
            yield
        finally:  # it belongs to the connection, which others use after this transaction
            session.plain(f"SET {_PAST_FENCE} = NULL")

    def has_table(self, session: Session, name: str) -> bool:
        where = {"schema": self.schema, "name": name}
        found = session.rows(
            "SELECT 1 FROM information_schema.tables "
            "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name",
            where,
        )
        return bool(found)

    def size(self, session: Session) -> StoreSize:
        rows = session.rows(TABLE_SIZES, {"schema": self.schema})
        tables = [
            TableSize(
                name=name,
                rows=int(count or 0),
                estimated=True,
                bytes=int(size or 0),
                indexes=int(indexes),
                index_bytes=int(index_bytes or 0),
            )
            for name, count, size, index_bytes, _, indexes in rows
        ]
        return StoreSize.of(tables, free_bytes=sum(int(free or 0) for *_, free, _ in rows))

    def coordinator(self) -> None:
        """None: there is nothing to listen to; pollers look every half second."""
        return

    def announce(self, session: Session) -> None:
        """Nothing: nobody listens."""

    def close(self) -> None:
        self._connections.close()


def _require_transaction(connection: Any) -> None:
    try:
        connection.ping()  # its answer tells whether there is a transaction
    except pymysql.Error as error:
        raise meaning(error, "ping") from error
    if connection.get_autocommit() and not connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
        raise refuse_autocommit("a MySQL connection")


def _is_alone(holding: MysqlSession) -> bool:
    """True if this transaction keeps others from migrating, on every server; False: one of them keeps us."""
    for statement in BEGIN_STREAMING:
        holding.plain(statement)
    try:
        holding.plain(BE_THE_ONLY_ONE)
    except (Conflict, ConstraintViolated):
        holding.plain("ROLLBACK")
        return False
    return True


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
