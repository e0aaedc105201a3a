"""PostgreSQL, directly or behind PgBouncer in transaction mode: its words, its schema, and its parts put together."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ratchet.model.options import Options
from ratchet.model.storage import StoreSize, TableSize
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.store import Capabilities
from ratchet.stores.sql.beside_writers import Index, beside_writers
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.batch_counters import count_at_once
from ratchet.stores.sql.dependants.edges import FusedEdgeWriter
from ratchet.stores.sql.dialect import Refusal
from ratchet.stores.sql.dialects.postgresql.caller_transaction import joined
from ratchet.stores.sql.dialects.postgresql.claims import PostgresqlClaimPlan
from ratchet.stores.sql.dialects.postgresql.errors import FENCE_STATE, PostgresqlConstraints
from ratchet.stores.sql.dialects.postgresql.locks import LOCKS
from ratchet.stores.sql.dialects.postgresql.processes import end_transactions
from ratchet.stores.sql.dialects.postgresql.row_writer import PostgresqlRowWriter
from ratchet.stores.sql.dialects.postgresql.session import (
    LOCK_WAIT,
    PostgresqlSession,
    PostgresqlTransactions,
    run_plain,
)
from ratchet.stores.sql.dialects.postgresql.wakeups import notify_within, postgresql_wakeups
from ratchet.stores.sql.finish.completions import succeed_at_once

log = logging.getLogger("ratchet.stores.sql")

QUEUE = "scheduler_job_queue"
_MIGRATION_LOCK = 0x72617463686574  # "ratchet"
#: Milliseconds; shorter than the server's deadlock_timeout, so that nobody else is chosen as the victim.
_MIGRATION_LOCK_WAIT = 300
_PAST_FENCE = "ratchet.past_fence"  # a setting of the transaction
_FENCE_FUNCTION = f"""
    CREATE OR REPLACE FUNCTION ratchet_fence() RETURNS trigger LANGUAGE plpgsql AS $fence$
    BEGIN
        RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = '{FENCE_STATE}';
    END
    $fence$
"""
#: An index of so few rows is built in the script's transaction: nobody notices.
_FEW_ROWS = 10_000
_BULK = 2500  # jobs per transaction; COPY and the disk like more, memory does not


TABLE_SIZES = """
    SELECT c.relname AS name, CASE WHEN c.reltuples < 0 THEN s.n_live_tup ELSE c.reltuples END AS live, pg_table_size(c.oid) AS size,
           (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid) AS indexes,
           pg_indexes_size(c.oid) AS index_bytes, COALESCE(s.n_dead_tup, 0) AS dead
      FROM pg_class c
      LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
     WHERE c.relnamespace = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = to_regclass(:ours))
       AND c.relkind = 'r' AND left(c.relname, 10) = 'scheduler_'
"""

INDEX_IS_VALID = "SELECT i.indisvalid AS is_valid FROM pg_index i WHERE i.indexrelid = to_regclass(:name)"
IS_BEING_BUILT = """
    SELECT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = to_regclass(:name)) AS is_built
"""


class PostgresqlDialect(PostgresqlTransactions):
    """PostgreSQL 12 or newer."""

    name = "postgresql"
    upgrade_locks = LOCKS
    write_successes = staticmethod(succeed_at_once)
    count_ends = staticmethod(count_at_once)
    edge_writer = FusedEdgeWriter()
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
        "unindexed": "",
    }

    def __init__(self, url: str, options: Options) -> None:
        super().__init__(url, options)
        self.claim_plan = PostgresqlClaimPlan()
        self.schema, self._url = options.schema, url
        self.lock_wait = LOCK_WAIT
        self._notify = options.notify
        self._connect_timeout = options.timeouts().connect
        self.capabilities = Capabilities(wakeups="notify", bulk=_BULK, sends=True, shows_values=True)
        self.row_writer = PostgresqlRowWriter(self.autocommit)

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

    # --- the caller's transaction -------------------------------------------------------------

    def where(self) -> str:
        return self._connections.where()

    def enlist(self, within: object) -> AbstractContextManager[PostgresqlSession]:
        return joined(self, within)

    # --- schema -------------------------------------------------------------------------------

    @contextmanager
    def migrating(self) -> Iterator[PostgresqlSession]:
        begin = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0"
        with self._transaction(begin, endless=True) as session:
            try:
                # of the transaction, not of the session: behind a pooler the session is not ours
                session.execute("SELECT pg_advisory_xact_lock(:lock)", {"lock": _MIGRATION_LOCK})
                run_plain(session.connection.cursor(), f"SET LOCAL lock_timeout = {_MIGRATION_LOCK_WAIT}")
                self._enter_schema(session)
                yield session
            except BaseException:
                self._rollback(session.connection)
                raise
            self._commit(session.connection)

    def _enter_schema(self, session: Session) -> None:
        if self.schema is None:
            return
        name = _quoted(self.schema)
        if not session.value("SELECT to_regnamespace(:name) IS NOT NULL AS is_there", {"name": name}):
            run_plain(session.connection.cursor(), f"CREATE SCHEMA {name}")
        run_plain(session.connection.cursor(), f"SET LOCAL search_path = {name}")

    def run_script(self, session: Session, script: str) -> None:
        run_plain(session.connection.cursor(), script)
        for index in beside_writers(script):
            some = f"SELECT count(*) FROM (SELECT 1 FROM {self.table(index.table)} LIMIT {_FEW_ROWS + 1}) n"
            if session.value(some) <= _FEW_ROWS:
                run_plain(session.connection.cursor(), index.statement)

    def build_indexes(self, indexes: Sequence[Index]) -> None:
        for index in indexes:
            name = self.table(index.name)
            with self.reading() as session:
                is_valid = session.value(INDEX_IS_VALID, {"name": name})
                if is_valid or session.value(IS_BEING_BUILT, {"name": name}):
                    continue
            connection = self._connections.take()
            deadline, connection.answer_timeout = connection.answer_timeout, None
            try:
                cursor = connection.cursor()
                run_plain(cursor, f"DROP INDEX CONCURRENTLY IF EXISTS {name}")  # one whose build was stopped
                words = f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {index.name} ON {self.table(index.table)}"
                run_plain(
                    cursor, index.statement.replace(f"CREATE INDEX {index.name} ON {index.table}", words)
                )
            except Exception as error:
                log.warning(
                    "the index %s could not be built (%s); everything works without it, but claims among thousands of keys "
                    "take longer; run `ratchet db upgrade` again",
                    index.name,
                    error,
                )
            finally:
                connection.answer_timeout = deadline
                self._connections.give_back(connection)

    def refuse(self, session: Session, refusal: Refusal) -> None:
        condition = refusal.condition
        if refusal.passable:
            condition = f"current_setting('{_PAST_FENCE}', true) IS DISTINCT FROM 'on'"
        when = f"WHEN ({condition}) " if condition else ""
        cursor = session.connection.cursor()
        run_plain(cursor, _FENCE_FUNCTION)
        run_plain(
            cursor,
            f"CREATE OR REPLACE TRIGGER {refusal.name} BEFORE {refusal.event} ON {self.table(refusal.table)} "
            f"FOR EACH ROW {when}EXECUTE FUNCTION ratchet_fence({refusal.message()})",
        )

    def allow(self, session: Session, refusal: Refusal) -> None:
        run_plain(
            session.connection.cursor(),
            f"DROP TRIGGER IF EXISTS {refusal.name} ON {self.table(refusal.table)}",
        )

    @contextmanager
    def past_fence(self, session: Session) -> Iterator[None]:
        cursor = session.connection.cursor()
        run_plain(
            cursor, f"SET LOCAL {_PAST_FENCE} = 'on'"
        )  # of the transaction: behind a pooler the session is not ours
        yield
        run_plain(cursor, f"SET LOCAL {_PAST_FENCE} = 'off'")

    def has_table(self, session: Session, name: str) -> bool:
        found = session.value("SELECT to_regclass(:name) IS NOT NULL AS is_there", {"name": self.table(name)})
        return bool(found)

    def size(self, session: Session) -> StoreSize:
        tables = [
            TableSize(
                name=name,
                rows=int(rows or 0),  # reltuples is -1 before the first VACUUM or ANALYZE
                estimated=True,
                bytes=size,
                indexes=indexes,
                index_bytes=index_bytes,
                dead_rows=dead,
            )
            for name, rows, size, indexes, index_bytes, dead in session.rows(
                TABLE_SIZES, {"ours": self.table("scheduler_job")}
            )
        ]
        return StoreSize.of(tables)

    def coordinator(self) -> ClusterCoordinator:
        return postgresql_wakeups(self._url, self.table(QUEUE), connect_timeout=self._connect_timeout)

    def announce(self, session: Session) -> None:
        if self._notify:
            notify_within(session)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
