"""Writes any value into any column of a store, past everything that would refuse it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ClassVar, Protocol
from uuid import UUID

from bson import Binary, Int64
from bson.decimal128 import Decimal128

from ratchet.model.errors import StoreError, StoreUnavailable

#: As SQL text. What a product does not take for a column is refused by its types, and not written.
SQL_VALUES = (
    "NULL", "''", "'NONSENSE'", "'a b \x01'", "'[1, {}]'", "'\u00e9\u20ac'", "-1", "1.5", "99", "9223372036854775807", "-9223372036854775808",
    "'infinity'", "'-infinity'", "'0044-03-15 00:00:00 BC'", "'15000-01-01 00:00:00'", "'NaN'", "x'ff00'", "'0000-00-00 00:00:00'", "true",
    "CAST(x'ff41' AS TEXT)",
)  # fmt: skip
BSON_VALUES: tuple[Any, ...] = (
    None, "", "NONSENSE", "a b \x01", -1, 1.5, 99, Int64(2**63 - 1), Int64(-(2**63)), float("nan"), float("inf"), True, [], [1, {}], {}, {"a": 1},
    Binary(b"\xff"), Decimal128("1E+100"), datetime(2026, 1, 1), UUID(int=7),
)  # fmt: skip


class RawStore(Protocol):
    """One store, written to by hand."""

    is_fast: bool

    def columns(self, table: str) -> list[str]:
        """The columns of a table that are no part of its key."""
        ...

    def values(self) -> Sequence[Any]:
        """What to write."""
        ...

    def write(self, table: str, key: Any, column: str, value: Any) -> bool:
        """Write it; False where the product refuses it."""
        ...

    def stream_of(self, job_id: Any) -> int:
        """The number of the stream in which a job waits."""
        ...

    def delete_stream(self, stream_id: int) -> None:
        """Remove a stream's row."""
        ...


KEYS = {
    "scheduler_job": "job_id",
    "scheduler_job_queue": "job_id",
    "scheduler_recurring_job": "name",
    "scheduler_resource_limit": "resource",
    "scheduler_circuit_breaker": "service",
    "scheduler_queue": "queue",
    "scheduler_node": "node_id",
    "scheduler_batch": "parent_id",
    "scheduler_stream": "queue",
    "scheduler_dependency": "parent_id",
    "scheduler_signal": "signal_key",
}


class RawSql:
    """A SQL store, by statements of its own driver, without checks and triggers."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._dialect = store.database.dialect
        self.is_fast = store.name == "sqlite"
        with self._dialect.reading() as session:
            self._columns = {table: self._find_columns(session, table) for table in KEYS}
        self._drop_checks()

    def columns(self, table: str) -> list[str]:
        return [column for column in self._columns[table] if column != KEYS[table]]

    def values(self) -> Sequence[str]:
        return SQL_VALUES

    def write(self, table: str, key: Any, column: str, value: Any) -> bool:
        sql = f"UPDATE {table} SET {column} = {value.replace(':', chr(1))} WHERE {KEYS[table]} = :key"
        try:
            return self._changed(sql, key)
        except StoreUnavailable:
            raise
        except StoreError:
            return False

    def stream_of(self, job_id: Any) -> int:
        with self._dialect.reading() as session:
            sql = "SELECT stream_id FROM scheduler_job_queue WHERE job_id = :job_id"
            return int(session.value(sql, {"job_id": job_id}))

    def delete_stream(self, stream_id: int) -> None:
        assert self._changed("DELETE FROM scheduler_stream WHERE stream_id = :key", stream_id)

    def _changed(self, sql: str, key: Any) -> bool:
        with self._dialect.writing() as session:
            return self._execute(session, sql, key) > 0

    def _execute(self, session: Any, sql: str, key: Any) -> int:
        statement = self._dialect.statement(sql)
        text = statement.text
        statement.text = text.replace(chr(1), ":")
        try:
            found: int = session.execute(sql, {"key": key})
            return found
        finally:
            statement.text = text

    def _find_columns(self, session: Any, table: str) -> list[str]:
        if self._dialect.name == "sqlite":
            return [row[0] for row in session.rows(f"SELECT name FROM pragma_table_info('{table}')")]
        where = "table_schema = DATABASE()" if self._dialect.name == "mysql" else "table_schema = 'public'"
        sql = f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}' AND {where}"
        return [row[0] for row in session.rows(sql)]

    def _drop_checks(self) -> None:
        with self._dialect.migrating() as session:
            for statement in list(self._drops(session)):
                session.execute(statement)

    def _drops(self, session: Any) -> Iterator[str]:
        if self._dialect.name == "sqlite":
            for (name,) in session.rows("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
                yield f"DROP TRIGGER {name}"
        elif self._dialect.name == "postgresql":
            sql = "SELECT conrelid::text AS a, conname FROM pg_constraint WHERE contype = 'c'".replace(
                "conrelid::text", "CAST(CAST(conrelid AS regclass) AS text)"
            )
            for table, name in session.rows(sql):
                if table.startswith("scheduler_"):
                    yield f"ALTER TABLE {table} DROP CONSTRAINT {name}"
            for table, name in session.rows(TRIGGERS):
                yield f"DROP TRIGGER {name} ON {table}"
        else:
            sql = """SELECT table_name, constraint_name FROM information_schema.table_constraints
                      WHERE constraint_type = 'CHECK' AND table_schema = DATABASE()"""
            for table, name in session.rows(sql):
                yield f"ALTER TABLE {table} DROP CONSTRAINT {name}"


TRIGGERS = """
    SELECT CAST(CAST(tgrelid AS regclass) AS text), tgname FROM pg_trigger WHERE tgname LIKE 'ck\\_%' AND NOT tgisinternal
"""


class RawMongo:
    """A MongoDB store, document by document."""

    FIELDS: ClassVar = {
        "scheduler_job": "target payload type priority expires_at max_retries backoff backoff_base jitter timeout no_retry_for params tags "
        "idempotency_key business_key on_success on_failure parent_id batch_id schedule caller stream_id status created_at scheduled_at "
        "needs attempts crashes held_until started_at error result result_truncated state signal signal_due_at expiry_due_at paused_from "
        "superseded_by canceled_reason due_at links deadline_at root_id home_stream_id has_dependants has_conditions progress signal_key rev",
        # there is one document for each job, so that these are the same fields with other values
        "scheduler_job_queue": "stream_id priority status type attempts crashes max_retries timeout due_at node_id claim_id held_claim_id",
        "scheduler_recurring_job": "spec paused next_fire_at last_fire_at created_at updated_at",
        "scheduler_resource_limit": "concurrent rate period level refilled_at",
        "scheduler_circuit_breaker": "state until document version",
        "scheduler_queue": "paused paused_at",
        "scheduler_node": "name host pid version state beat beat_interval silence started_at last_beat_at info rescued_at",
    }  # fmt: skip

    is_fast = False

    def __init__(self, store: Any) -> None:
        self._store = store

    def columns(self, table: str) -> list[str]:
        return self.FIELDS.get(table, "").split()

    def values(self) -> Sequence[Any]:
        return BSON_VALUES

    def write(self, table: str, key: Any, column: str, value: Any) -> bool:
        collection = self._store.database.collections()[table.replace("scheduler_job_queue", "scheduler_job")]
        return collection.update_one({"_id": key}, {"$set": {column: value}}).matched_count > 0

    def stream_of(self, job_id: Any) -> int:
        return int(self._store.database.collections()["scheduler_job"].find_one({"_id": job_id})["stream_id"])

    def delete_stream(self, stream_id: int) -> None:
        assert (
            self._store.database.collections()["scheduler_stream"]
            .delete_one({"_id": stream_id})
            .deleted_count
        )


@contextmanager
def raw(store: Any) -> Iterator[RawStore]:
    """The store, to be written to by hand."""
    yield RawMongo(store) if store.name == "mongodb" else RawSql(store)
