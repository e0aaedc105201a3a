"""A caller's own connection to PostgreSQL, as `within=` brings it: whether it can be joined, and by which cursor."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ratchet.model.errors import StoreError
from ratchet.stores.sql.caller_transaction import CallerConnection, refuse_autocommit, refuse_stranger
from ratchet.stores.sql.database import Row
from ratchet.stores.sql.dialects.postgresql.connections import ADAPTERS

_DRIVER = "psycopg.Connection"
_ADAPTER = "sqlalchemy.dialects.postgresql.psycopg.AsyncAdapt_psycopg_connection"


class OurCursor(psycopg.Cursor[Row]):
    """A cursor on a caller's connection with stock adapters, whatever the caller has registered."""

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


def caller_cursor(caller: CallerConnection, within: object) -> Any:
    """A cursor in the transaction of *caller*; a connection that is in none, or no psycopg's, is refused."""
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
    raise refuse_stranger(within, "PostgreSQL", "a psycopg.Connection")


def _require_transaction(connection: Any) -> None:
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise StoreError("within= got a connection whose transaction has failed; roll it back first")
    if connection.autocommit and status == TransactionStatus.IDLE:
        raise refuse_autocommit("a psycopg connection")
