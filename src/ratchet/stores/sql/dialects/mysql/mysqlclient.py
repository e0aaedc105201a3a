"""A caller's mysqlclient connection, with what a session uses of PyMySQL's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants import FIELD_TYPE, SERVER_STATUS

from ratchet.stores.sql.dialects.mysql.errors import NO_SUCH_SAVEPOINT, number_of

DRIVER = "MySQLdb.connections.Connection"

_BINARY = 128  # a flag of a column, which the driver compares with its character set
_SAVEPOINT = "ratchet_probe"
_TEXTS = (
    FIELD_TYPE.STRING,
    FIELD_TYPE.VAR_STRING,
    FIELD_TYPE.VARCHAR,
    FIELD_TYPE.TINY_BLOB,
    FIELD_TYPE.BLOB,
    FIELD_TYPE.MEDIUM_BLOB,
    FIELD_TYPE.LONG_BLOB,
)
_TIMES = (FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP, FIELD_TYPE.DATE, FIELD_TYPE.TIME)


@dataclass(frozen=True, slots=True)
class Result:
    """The server's answer to a statement."""

    rows: tuple[tuple[Any, ...], ...] | None
    description: tuple[tuple[Any, ...], ...]
    affected_rows: int
    message: bytes


class Mysqlclient:
    """Turns to the driver for one call; what the caller has set on the connection stays as it is."""

    def __init__(self, connection: Any) -> None:
        self.driver_connection = connection
        #: How numbers are read, by the type of their column.
        self.decoders: dict[int, Callable[[Any], Any]] = {}
        self._result: Result | None = None
        self.client_flag: int = connection.client_flag
        self.encoding: str = connection.encoding
        self.charset: str = connection.character_set_name()
        self.server_version: str = connection.get_server_info()

    def query(self, text: str) -> None:
        """Run one statement; its answer is kept."""
        connection = self.driver_connection
        theirs = connection.converter
        connection.converter = {
            **self.decoders,
            **dict.fromkeys(_TEXTS, ((_BINARY, bytes), (None, str))),
            **dict.fromkeys(_TIMES, str),
        }
        try:
            connection.query(text.encode())
            found = connection.store_result()
            self._result = Result(
                rows=None if found is None else found.fetch_row(0),
                description=() if found is None else found.describe(),
                affected_rows=connection.affected_rows(),
                message=(connection.info() or "").encode(),
            )
        except Exception as error:
            raise _translated(error) from error
        finally:
            connection.converter = theirs

    def ping(self) -> None:
        """Fail if the server cannot be reached."""
        try:
            self.driver_connection.ping()
        except Exception as error:
            raise _translated(error) from error

    def get_autocommit(self) -> bool:
        """True if each statement commits by itself, unless a transaction was begun."""
        return bool(self.driver_connection.get_autocommit())

    @property
    def server_status(self) -> int:
        """Whether a transaction is open. The driver does not tell; but a savepoint outlives its statement only in one."""
        try:
            self.query(f"SAVEPOINT {_SAVEPOINT}")
            self.query(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except pymysql.Error as error:
            if number_of(error) == NO_SUCH_SAVEPOINT:
                return 0
            raise
        return int(SERVER_STATUS.SERVER_STATUS_IN_TRANS)


def _translated(error: Exception) -> Exception:
    """The same error as PyMySQL would raise it."""
    if not any(cls.__name__ == "MySQLError" for cls in type(error).__mro__):
        return error
    cls = getattr(pymysql, type(error).__name__, pymysql.OperationalError)
    found: Exception = cls(*error.args)
    return found
