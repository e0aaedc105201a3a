"""SQLite on a connection that belongs to somebody else, such as a framework's database in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ratchet.model.options import Options
from ratchet.stores.sql.dialects.sqlite.connections import Connections
from ratchet.stores.sql.dialects.sqlite.dialect import SqliteDialect
from ratchet.stores.sql.dialects.sqlite.session import SqliteSession


class BorrowedConnections(Connections):
    """Has none of its own: *borrow* gives the one of the calling thread, which is never closed here."""

    def __init__(self, borrow: Callable[[], sqlite3.Connection], *, busy_timeout: float) -> None:
        super().__init__(None, synchronous="off", busy_timeout=busy_timeout)
        self._borrow = borrow

    def writer(self) -> sqlite3.Connection:
        """The owner's connection."""
        return self._borrow()

    def is_writer(self, connection: object) -> bool:
        """True for the owner's connection: it is in the right database, whatever that is called."""
        return connection is self._borrow()


class BorrowedSqlite(SqliteDialect):
    """
    A store inside a database that only its owner's connections reach.

    Where the owner has a transaction open, everything is done inside it, and is seen there.
    """

    def __init__(self, borrow: Callable[[], sqlite3.Connection], options: Options) -> None:
        super().__init__(None, options)
        self._borrow = borrow
        self._connections = BorrowedConnections(borrow, busy_timeout=self._connections.busy_timeout)

    @contextmanager
    def writing(self, *, for_user: bool = False, claiming: bool = False) -> Iterator[SqliteSession]:
        connection = self._borrow()
        if connection.in_transaction:
            with self.enlist(connection) as session:
                yield session
        else:
            with super().writing(for_user=for_user, claiming=claiming) as session:
                yield session

    @contextmanager
    def reading(self) -> Iterator[SqliteSession]:
        connection = self._borrow()
        if connection.in_transaction:
            yield SqliteSession(self, connection, sqlite3.Cursor(connection))
        else:
            with super().reading() as session:
                yield session
