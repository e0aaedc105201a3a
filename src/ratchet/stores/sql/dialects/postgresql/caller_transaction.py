"""A caller's own transaction on PostgreSQL, as `within=` brings it: whether and how it can be joined."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

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
from ratchet.stores.sql.dialects.postgresql.asyncpg import AsyncpgSession, asyncpg_connection
from ratchet.stores.sql.dialects.postgresql.connections import ADAPTERS
from ratchet.stores.sql.dialects.postgresql.session import PostgresqlSession
from ratchet.stores.sql.errors import ConnectionLost
from ratchet.stores.sql.loop_cursor import LoopCursor

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.postgresql.dialect import PostgresqlDialect

_SAVEPOINT = "ratchet"
_FAILED_TRANSACTION = "25P02"
_SETTINGS = "SELECT current_setting('lock_timeout'), current_database()::text, current_schemas(false)::text"
_DRIVER = "psycopg.Connection"
_ASYNC_DRIVER = "psycopg.AsyncConnection"
_ADAPTER = "sqlalchemy.dialects.postgresql.psycopg.AsyncAdapt_psycopg_connection"


class OurCursor(psycopg.Cursor[Row]):
    """
    A cursor on a caller's connection with stock adapters, whatever the caller has registered.

    What has no binds is not prepared, whatever the connection's ``prepare_threshold``: it may be several statements.
    """

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS

    def execute(self, query: Any, params: Any = None, **more: Any) -> Self:
        return super().execute(query, params, **more, prepare=None if params else False)


class OurAsyncCursor(psycopg.AsyncCursor[Row]):
    """The same on a connection that is async."""

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS

    async def execute(self, query: Any, params: Any = None, **more: Any) -> Self:
        return await super().execute(query, params, **more, prepare=None if params else False)


@contextmanager
def joined(dialect: PostgresqlDialect, within: object) -> Iterator[PostgresqlSession]:
    """A session on the transaction of *within*; where the block fails, that transaction goes on as if it had not begun."""
    caller = caller_connection(within)
    session = _session(dialect, caller, within)
    try:
        before, database, schemas = session.plain_row(_SETTINGS)
    except StoreError as error:
        if getattr(error.__cause__, "sqlstate", None) == _FAILED_TRANSACTION:
            raise _failed() from error.__cause__
        raise
    session.place = (database,) if dialect.schema else (database, schemas)
    restore = f"SET LOCAL lock_timeout = '{before}'; RELEASE SAVEPOINT {_SAVEPOINT}"
    session.plain(f"SAVEPOINT {_SAVEPOINT}; SET LOCAL lock_timeout = {dialect.lock_wait}")
    try:
        yield session
    except BaseException:
        try:
            session.plain(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}; {restore}")
        except ConnectionLost:
            pass  # the error that is being raised says so already
        raise
    session.plain(restore)


def _session(dialect: PostgresqlDialect, caller: CallerConnection, within: object) -> PostgresqlSession:
    """A session in the caller's transaction; a connection that is in none, or of a driver that is not known, is refused."""
    connection = caller.connection
    if _DRIVER in caller.names:
        _require_transaction(connection)
        caller.begin()
        # neither the caller's cursor_factory and row_factory, nor its adapters
        cursor: Any = OurCursor(connection, row_factory=tuple_row)
    elif caller.wait is not None and _ASYNC_DRIVER in caller.names:
        _require_transaction(connection)
        caller.begin()
        cursor = LoopCursor(OurAsyncCursor(connection, row_factory=tuple_row), caller.wait)
    elif _ADAPTER in caller.names:
        _require_transaction(connection.driver_connection)
        caller.begin()
        # inside of ``run_sync``, so SQLAlchemy is imported
        await_only = sys.modules["sqlalchemy.util"].await_only
        cursor = LoopCursor(OurAsyncCursor(connection.driver_connection, row_factory=tuple_row), await_only)
    elif driver := asyncpg_connection(caller):
        if not driver.connection.is_in_transaction():
            caller.start()
        if not driver.connection.is_in_transaction():
            raise refuse_autocommit("an asyncpg connection")
        caller.begin()
        return AsyncpgSession(dialect, driver)
    else:
        raise refuse_stranger(within, "PostgreSQL", "a connection of psycopg or asyncpg", connection)
    return PostgresqlSession(dialect, connection, cursor, enlisted=True)


def _require_transaction(connection: Any) -> None:
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise _failed()
    if connection.autocommit and status == TransactionStatus.IDLE:
        raise refuse_autocommit("a psycopg connection")


def _failed() -> StoreError:
    return StoreError("within= got a connection whose transaction has failed; roll it back first")
