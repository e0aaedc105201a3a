"""A caller's own transaction on PostgreSQL, as `within=` brings it: whether and how it can be joined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ratchet.model.errors import StoreError
from ratchet.stores.sql.caller_transaction import (
    CallerConnection,
    caller_connection,
    refuse_autocommit,
    refuse_stranger,
)
from ratchet.stores.sql.database import Row
from ratchet.stores.sql.dialects.postgresql.connections import ADAPTERS
from ratchet.stores.sql.dialects.postgresql.session import PostgresqlSession, run_plain
from ratchet.stores.sql.errors import ConnectionLost

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.postgresql.dialect import PostgresqlDialect

_SAVEPOINT = "ratchet"
_SETTINGS = "SELECT current_setting('lock_timeout'), current_database()::text, current_schemas(false)::text"
_DRIVER = "psycopg.Connection"
_ADAPTER = "sqlalchemy.dialects.postgresql.psycopg.AsyncAdapt_psycopg_connection"


class OurCursor(psycopg.Cursor[Row]):
    """A cursor on a caller's connection with stock adapters, whatever the caller has registered."""

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


@contextmanager
def joined(dialect: PostgresqlDialect, within: object) -> Iterator[PostgresqlSession]:
    """A session on the transaction of *within*; where the block fails, that transaction goes on as if it had not begun."""
    caller = caller_connection(within)
    cursor = _cursor(caller, within)
    run_plain(cursor, _SETTINGS)
    before, database, schemas = cursor.fetchone()
    session = PostgresqlSession(dialect, caller.connection, cursor, enlisted=True)
    session.place = (database,) if dialect.schema else (database, schemas)
    restore = f"SET LOCAL lock_timeout = '{before}'; RELEASE SAVEPOINT {_SAVEPOINT}"
    run_plain(cursor, f"SAVEPOINT {_SAVEPOINT}; SET LOCAL lock_timeout = {dialect.lock_wait}")
    try:
        yield session
    except BaseException:
        try:
            run_plain(cursor, f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}; {restore}")
        except ConnectionLost:
            pass  # the error that is being raised says so already
        raise
    run_plain(cursor, restore)


def _cursor(caller: CallerConnection, within: object) -> Any:
    """A cursor in the caller's transaction; a connection that is in none, or no psycopg's, is refused."""
    if _DRIVER in caller.names:
        connection = caller.connection
        _require_transaction(connection)
        caller.begin()
        # neither the caller's cursor_factory and row_factory, nor its adapters
        return OurCursor(connection, row_factory=tuple_row)
    if _ADAPTER in caller.names:
        _require_transaction(caller.connection.driver_connection)
        caller.begin()
        return caller.connection.cursor()
    raise refuse_stranger(within, "PostgreSQL", "a psycopg.Connection", caller.connection)


def _require_transaction(connection: Any) -> None:
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise StoreError("within= got a connection whose transaction has failed; roll it back first")
    if connection.autocommit and status == TransactionStatus.IDLE:
        raise refuse_autocommit("a psycopg connection")
