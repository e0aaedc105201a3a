"""
PostgreSQL, directly or behind PgBouncer in transaction mode.

Whatever a transaction needs is set inside it (``SET LOCAL``), in the same round trip as its BEGIN: behind
a pooler the next transaction may run on another server connection, and somebody else's on this one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from ratchet.model.errors import CommitUnknown, Conflict, StoreError
from ratchet.model.options import Options
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.store import Capabilities
from ratchet.stores.sql.caller_transaction import caller_connection
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.dialect import Dialect
from ratchet.stores.sql.dialects.postgresql.arrays import binary_array
from ratchet.stores.sql.dialects.postgresql.autocommit import Exchange, LoneStatements
from ratchet.stores.sql.dialects.postgresql.caller_transaction import caller_cursor
from ratchet.stores.sql.dialects.postgresql.claims import PostgresqlClaimPlan
from ratchet.stores.sql.dialects.postgresql.connections import Connection, Connections, backend_of
from ratchet.stores.sql.dialects.postgresql.errors import PostgresqlConstraints, meaning
from ratchet.stores.sql.dialects.postgresql.processes import end_transactions
from ratchet.stores.sql.dialects.postgresql.row_writer import PostgresqlRowWriter
from ratchet.stores.sql.dialects.postgresql.session import PostgresqlSession
from ratchet.stores.sql.dialects.postgresql.values import encode_params, numbered
from ratchet.stores.sql.dialects.postgresql.wakeups import notify_within, postgresql_wakeups
from ratchet.stores.sql.errors import ConnectionLost

log = logging.getLogger("ratchet.stores.sql")

_SAVEPOINT = "ratchet"
QUEUE = "scheduler_job_queue"
_MIGRATION_LOCK = 0x72617463686574  # "ratchet"
_LOCK_WAIT = 5000  # milliseconds
_BULK = 2500  # jobs per transaction; COPY and the disk like more, memory does not


class PostgresqlDialect(Dialect):
    """PostgreSQL 12 or newer."""

    name = "postgresql"
    fuses_writes = True
    constraints = PostgresqlConstraints()
    end_transactions = end_transactions
    words = {  # noqa: RUF012 - never changed
        "uuid": "uuid",
        "time": "timestamptz",
        "bool": "boolean",
        "int": "bigint",
        "real": "double precision",
        "text": "text",
        "short text": "text",
        "greatest": "GREATEST",
        "least": "LEAST",
        "instr": "strpos",
        "clock": "clock_timestamp()",
        "priorities": "(VALUES (4), (3), (2), (1), (0)) p",
        "current": "",
    }

    def __init__(self, url: str, options: Options) -> None:
        super().__init__()
        self.claim_plan = PostgresqlClaimPlan()
        self.schema, self._url = options.schema, url
        self._lock_wait = _LOCK_WAIT
        self._notify = options.notify
        self._connect_timeout = options.connect_timeout.total_seconds()
        self.capabilities = Capabilities(wakeups="notify", bulk=_BULK, sends=True)
        statement_timeout = options.statement_timeout.total_seconds()
        self._connections = Connections(
            url,
            size=options.pool_size,
            connect_timeout=self._connect_timeout,
            statement_timeout=statement_timeout,
        )
        self._claimers = Connections(
            url,
            size=max(options.pool_size // 4, 2),
            connect_timeout=self._connect_timeout,
            statement_timeout=statement_timeout,
        )
        self.row_writer = PostgresqlRowWriter(LoneStatements(self, self._connections))
        deadline = max(int(statement_timeout * 1000), 1)
        # JIT has been seen to take 20 of a claim's 23 ms. A process that is stopped in the middle of one
        # of our transactions must not hold its locks for as long as it is stopped.
        local = (
            f"SET LOCAL statement_timeout = {deadline}; SET LOCAL lock_timeout = {min(_LOCK_WAIT, deadline)}; "
            f"SET LOCAL jit = off"
        )
        # Whatever a writing transaction looks for, it finds by an index. The statistics of a queue are always
        # wrong, and a planner that believes them reads 100,000 rows to find 500. A bitmap would take locks in
        # the order of the table; an index scan takes them in the order of ids, as everybody does.
        plan = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off"
        self._begin_write = f"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {local}; {plan}"
        self._begin_own = f"{self._begin_write}; SET LOCAL idle_in_transaction_session_timeout = {deadline}"
        # The claim's plan follows from its shape, not from statistics or values: it is made once for each
        # connection. Planning a claim takes longer than claiming twenty jobs.
        self._begin_claim = f"{self._begin_own}; SET LOCAL plan_cache_mode = force_generic_plan"
        self._settings = f"{local}; {plan}; SET LOCAL plan_cache_mode = force_generic_plan".replace(
            "LOCAL ", ""
        )
        self._begin_read = f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {local}"

    # --- text ---------------------------------------------------------------------------------

    def bind(self, name: str) -> str:
        return f"%({name})s"

    def literal(self, text: str) -> str:
        return text.replace("%", "%%")

    def table(self, name: str) -> str:
        # Not by search_path: a caller's transaction keeps its own.
        return f"{_quoted(self.schema)}.{name}" if self.schema else name

    def member(self, name: str, kind: Kind, *, negated: bool) -> str:
        # an array, not a row set: the planner then looks each element up in the index
        return f"{'<> ALL' if negated else '= ANY'} (%({name})s::{self.words[kind]}[])"

    def rowset(self, name: str, columns: Sequence[tuple[str, Kind]]) -> str:
        lists = ", ".join(f"%({name}__{i})s::{self.words[kind]}[]" for i, (_, kind) in enumerate(columns))
        return f"unnest({lists}) AS {name}({', '.join(column for column, _ in columns)})"

    def lock(self, mode: str, of: str | None, *, skip_locked: bool) -> str:
        return f"FOR {mode.upper()}{f' OF {of}' if of else ''}{' SKIP LOCKED' if skip_locked else ''}"

    # --- transactions -------------------------------------------------------------------------

    @contextmanager
    def writing(self, *, for_user: bool = False, claiming: bool = False) -> Iterator[PostgresqlSession]:
        # user code may think for as long as it likes between two statements
        begin = self._begin_write if for_user else self._begin_claim if claiming else self._begin_own
        with self._transaction(begin, for_user=for_user) as session:
            try:
                with _prepared(session.connection) if claiming else nullcontext():
                    yield session
                session.raise_epochs()
            except BaseException as error:
                self._rollback(session.connection)
                if isinstance(error, psycopg.Error) and not for_user:
                    raise meaning(error, "a statement of the driver") from error
                raise
            self._commit(session.connection)
        session.committed()

    def autocommit(
        self, sql: str, params: Mapping[str, object], *, harmless: bool = False
    ) -> list[Row] | None:
        """
        One round trip instead of three, and without a pooler prepared on the server: the plan is made once.

        Without BEGIN there is no SET LOCAL. A claim therefore has connections of its own, on which what it
        needs is set for good.
        """
        connections = self._claimers
        try:
            connection = connections.take_live()
        except StoreError:
            return None
        try:
            connection.patience = connections.patience
            if not _settle(connection, self._settings):
                return None
            statement = self.statement(sql)
            text, names = numbered(statement)
            binds = encode_params(statement, params, binary_array)
            if connection.exchange is None:
                connection.exchange = Exchange(connection, connections.patience)
            found: list[Row] = connection.exchange.rows(text, [binds[name] for name in names])
            return found
        except (StoreError, psycopg.Error) as error:
            connection.close()
            connections.discard_idle()
            if not harmless:
                raise CommitUnknown(f"a claim got no answer and may have been made: {error}") from error
            log.debug("a statement alone failed and is sent again in a transaction: %s", error)
            return None
        finally:
            connections.give_back(connection)

    @contextmanager
    def reading(self) -> Iterator[PostgresqlSession]:
        with self._transaction(self._begin_read) as session:
            try:
                yield session
            finally:
                self._rollback(session.connection)

    @contextmanager
    def migrating(self) -> Iterator[PostgresqlSession]:
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = 0"
        with self._transaction(begin, patient=True) as session:
            try:
                # of the transaction, not of the session: behind a pooler the session is not ours
                session.execute("SELECT pg_advisory_xact_lock(:lock)", {"lock": _MIGRATION_LOCK})
                self._enter_schema(session)
                yield session
            except BaseException:
                self._rollback(session.connection)
                raise
            self._commit(session.connection)

    @contextmanager
    def _transaction(
        self, begin: str, *, for_user: bool = False, patient: bool = False
    ) -> Iterator[PostgresqlSession]:
        connection = self._begun(begin, for_user=for_user)
        if patient:
            connection.patience = None
        try:
            yield PostgresqlSession(self, connection, connection.cursor())
        except ConnectionLost:
            connection.close()
            self._connections.discard_idle()
            raise
        finally:
            self._connections.give_back(connection, for_user=for_user)

    def _begun(self, begin: str, *, for_user: bool) -> Connection:
        """A connection in a new transaction; one that died while it was idle is replaced without a word."""
        connection = self._connections.take(for_user=for_user)
        try:
            self._begin(connection, begin)
        except ConnectionLost:
            connection.close()
            self._connections.discard_idle()
            self._connections.give_back(connection, for_user=for_user)
        except BaseException:
            self._connections.give_back(connection, for_user=for_user)
            raise
        else:
            return connection
        connection = self._connections.take(for_user=for_user)
        try:
            self._begin(connection, begin)
        except BaseException:
            self._connections.give_back(connection, for_user=for_user)
            raise
        return connection

    def _begin(self, connection: Connection, begin: str) -> None:
        connection.patience = self._connections.patience
        zone = connection.pgconn.parameter_status(b"TimeZone")
        text = begin if zone == b"UTC" else f"{begin}; SET LOCAL TimeZone = 'UTC'"
        try:
            connection.execute(text)
        except Exception as error:
            raise meaning(error, text) from error

    def _commit(self, connection: Connection) -> None:
        try:
            if connection.info.transaction_status == TransactionStatus.IDLE:
                raise StoreError(
                    "the transaction was ended inside its block: use neither commit() nor rollback() there, "
                    "leave the block instead"
                )
            tag = connection.execute("COMMIT").statusmessage
        except psycopg.Error as error:
            found = meaning(error, "COMMIT")
            if isinstance(found, Conflict):
                raise found from error
            connection.close()
            raise CommitUnknown(
                f"the connection to PostgreSQL was lost while committing, so the change may or may not have been "
                f"made: {found}"
            ) from error
        if tag != "COMMIT":
            raise StoreError(
                "nothing was committed: a statement in the transaction had failed, and its error was swallowed"
            )

    def _rollback(self, connection: Connection) -> None:
        try:
            if not connection.closed and connection.info.transaction_status != TransactionStatus.IDLE:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            connection.close()  # the server rolls back when the connection ends

    # --- the caller's transaction -------------------------------------------------------------

    @contextmanager
    def enlist(self, within: object) -> Iterator[PostgresqlSession]:
        caller = caller_connection(within)
        cursor = caller_cursor(caller, within)
        _plain(cursor, "SELECT current_setting('lock_timeout')")
        before = cursor.fetchone()[0]
        session = PostgresqlSession(self, caller.connection, cursor, enlisted=True)
        restore = f"SET LOCAL lock_timeout = '{before}'; RELEASE SAVEPOINT {_SAVEPOINT}"
        _plain(cursor, f"SAVEPOINT {_SAVEPOINT}; SET LOCAL lock_timeout = {self._lock_wait}")
        try:
            yield session
        except BaseException:
            # the caller's transaction goes on as if this call had not been made
            try:
                _plain(cursor, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}; {restore}")
            except ConnectionLost:
                pass  # the error that is on its way says so already
            raise
        _plain(cursor, restore)

    # --- schema -------------------------------------------------------------------------------

    def _enter_schema(self, session: Session) -> None:
        if self.schema is None:
            return
        name = _quoted(self.schema)
        if not session.value("SELECT to_regnamespace(:name) IS NOT NULL AS is_there", {"name": name}):
            _plain(session.connection.cursor(), f"CREATE SCHEMA {name}")
        _plain(session.connection.cursor(), f"SET LOCAL search_path = {name}")

    def run_script(self, session: Session, script: str) -> None:
        _plain(session.connection.cursor(), script)

    def has_table(self, session: Session, name: str) -> bool:
        found = session.value("SELECT to_regclass(:name) IS NOT NULL AS is_there", {"name": self.table(name)})
        return bool(found)

    def coordinator(self) -> ClusterCoordinator:
        return postgresql_wakeups(self._url, self.table(QUEUE), connect_timeout=self._connect_timeout)

    def announce(self, session: Session) -> None:
        if self._notify:
            notify_within(session)

    def close(self) -> None:
        self._connections.close()
        self._claimers.close()


@contextmanager
def _prepared(connection: Connection) -> Iterator[None]:
    """
    Inside the block statements are prepared on the server, unless a pooler is in between.

    A pooler hands the server's connections around, and with them what was prepared on them. It gives itself
    away: the process that answers is not the one that libpq was told of.
    """
    if connection.is_direct is None:
        connection.is_direct = backend_of(connection) == connection.info.backend_pid
    connection.prepare_threshold = 0 if connection.is_direct else None
    try:
        yield
    except BaseException:
        connection.is_direct = False  # whatever it was, a prepared statement must not be what repeats it
        raise
    finally:
        connection.prepare_threshold = None


def _settle(connection: Connection, settings: str) -> bool:
    """Make *settings* for as long as the connection lives; False where a pooler lends it to others meanwhile."""
    if connection.is_settled is None:
        connection.is_direct = backend_of(connection) == connection.info.backend_pid
        if connection.is_direct:
            zone = "SET TimeZone = 'UTC'; SET default_transaction_isolation = 'read committed'"
            connection.execute(f"{settings}; {zone}; SET default_transaction_read_only = off")
        connection.is_settled = connection.is_direct
    return connection.is_settled


def _plain(cursor: Any, text: str) -> None:
    try:
        cursor.execute(text)
    except Exception as error:
        raise meaning(error, text) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
