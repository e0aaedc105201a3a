"""
A transaction on SQLite, and Python values in SQLite's five types.

A UUID is its text, which sorts like the UUID, can be read in the shell and travels in JSON. A time is
microseconds since 1970 in UTC: exact, sortable and fit for arithmetic. A bool is 0 or 1.

Bulk work goes column by column, because a whole column of UUIDs through msgspec costs a fifth of
converting them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from ratchet.model.clock import require_aware
from ratchet.model.errors import Conflict, UnstorableData
from ratchet.model.status import Priority
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.database import NO_PARAMS, Row, Session
from ratchet.stores.sql.statement import Decoder, Statement, bools, decode, planned
from ratchet.stores.unreadable import Unread

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.sqlite.dialect import SqliteDialect

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNDECODABLE = "Could not decode to UTF-8"
_to_json = msgspec.json.encode
_from_json = msgspec.json.decode
_to_uuids = msgspec.json.Decoder(list[UUID | None])


class SqliteSession(Session):
    """A transaction on a sqlite3 connection, or on SQLAlchemy's face of one."""

    def __init__(
        self, dialect: SqliteDialect, connection: Any, cursor: Any, *, enlisted: bool = False
    ) -> None:
        self.dialect: SqliteDialect = dialect
        self.enlisted = enlisted
        self._connection = connection
        self._cursor = cursor
        self._actions: list[Callable[[], None]] = []

    @property
    def connection(self) -> Any:
        return self._connection

    def execute(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> int:
        statement = self.dialect.statement(sql)
        try:
            self._cursor.execute(statement.text, _encode_params(statement, params))
            changed: int = self._cursor.rowcount
            if self._cursor.description is not None:
                self._cursor.fetchall()  # a RETURNING that is not read to its end has not changed everything
                changed = self._cursor.rowcount
        except Exception as error:
            self.dialect.complain(error, statement.text)
        return max(changed, 0)

    def rows(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> list[Row]:
        statement = self.dialect.statement(sql)
        try:
            self._cursor.execute(statement.text, _encode_params(statement, params))
            found: list[Row] = self._cursor.fetchall()
            return self._decoded(statement, found) if found else []
        except Exception as error:
            if _UNDECODABLE in str(error) and not self.enlisted:
                # A call for each text costs too much to be made always: once a text is damaged, on this connection.
                self._connection.text_factory = _damaged
                raise Conflict("a text in the SQLite database is not UTF-8; it is read once more") from error
            self.dialect.complain(error, statement.text)

    def _decoded(self, statement: Statement, found: list[Row]) -> list[Row]:
        if statement.plan is None:
            statement.plan = planned([column[0] for column in self._cursor.description], _DECODERS)
        return decode(found, statement.plan) if statement.plan else list(found)

    def insert_rows(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        on_conflict_do_nothing: bool = False,
    ) -> int:
        if not rows:
            return 0
        text = (
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            f"{' ON CONFLICT DO NOTHING' if on_conflict_do_nothing else ''}"
        )
        try:
            self._cursor.executemany(text, _encode_rows(rows))
        except Exception as error:
            self.dialect.complain(error, text)
        return max(int(self._cursor.rowcount), 0)

    def update_rows(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        if not rows:
            return 0
        key, *others = columns
        text = f"UPDATE {table} SET {' = ?, '.join(others)} = ? WHERE {key} = ?"
        # the key comes last in the statement; a numbered bind would be a named one from Python 3.12 on
        turned = [(*row[1:], row[0]) for row in _encode_rows(rows)]
        try:
            self._cursor.executemany(text, turned)
        except Exception as error:
            self.dialect.complain(error, text)
        return max(int(self._cursor.rowcount), 0)

    def on_commit(self, action: Callable[[], None]) -> None:
        if not self.enlisted:
            self._actions.append(action)

    def committed(self) -> None:
        """Run what was to happen after the commit."""
        for action in self._actions:
            action()


def _damaged(text: bytes) -> str:
    return text.decode(errors="backslashreplace")


def micros(moment: datetime) -> int:
    """A time as microseconds since 1970."""
    if moment.tzinfo is None:
        moment = require_aware(moment, "a time")  # refuses it, and says what to write instead
    return (moment - _EPOCH) // _MICROSECOND


def _text(value: str) -> str:
    # PostgreSQL refuses it, and the shell and C code would show half of the text.
    if "\0" in value:
        raise UnstorableData("a text contains the character U+0000, which a SQL text cannot hold")
    return value


def _same(value: Any) -> Any:
    return value


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    str: _text,
    int: _same,
    float: _same,
    type(None): _same,
    bool: int,
    UUID: str,
    datetime: micros,
    Priority: int,  # each submission has one
}


def _encode(value: Any) -> Any:
    """One value as SQLite stores it."""
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    if isinstance(value, Enum):
        return _encode(value.value)
    if isinstance(value, Unread):
        return value.raw
    for kind in (datetime, UUID, str, int, float):
        if isinstance(value, kind):
            return _ENCODERS[kind](value)
    raise TypeError(f"{type(value).__name__} cannot be bound: {value!r}")


def encoded(values: Mapping[str, object]) -> dict[str, Any]:
    """Binds, each a single value, as SQLite stores them."""
    known = _ENCODERS
    return {
        name: encode(value) if (encode := known.get(type(value))) is not None else _encode(value)
        for name, value in values.items()
    }


def _encode_params(statement: Statement, params: Mapping[str, object]) -> dict[str, Any]:
    """All binds of a statement; lists and row sets become JSON."""
    encoded: dict[str, Any] = {}
    for name, value in params.items():
        if name in statement.lists:
            encoded[name] = value if type(value) is str else json_list(value)  # type: ignore[arg-type]
        elif name in statement.rowsets:
            encoded[name] = _to_json(_encode_rows(value)).decode()  # type: ignore[arg-type]
        else:
            encoded[name] = _encode(value)
    return encoded


def json_list(values: Iterable[object]) -> str:
    """A list bind, ready to be sent (more than once)."""
    return _to_json(_encode_column(list(values))).decode()


def _encode_rows(rows: Sequence[Sequence[object]]) -> list[tuple[Any, ...]]:
    """Many rows, value by value."""
    return list(zip(*[_encode_column(column) for column in zip(*rows, strict=True)], strict=True))


def _encode_column(column: Sequence[Any]) -> Sequence[Any]:
    kinds = set(map(type, column))
    kinds.discard(type(None))
    if kinds <= {int, float}:
        return column
    if kinds == {UUID}:
        texts: list[Any] = _from_json(_to_json(column))
        return texts
    if kinds == {datetime}:
        return [None if value is None else micros(value) for value in column]
    return [_encode(value) for value in column]


def _uuids(column: Iterable[Any]) -> list[Any]:
    return _to_uuids.decode(_to_json(column))


def _moments(column: Iterable[Any]) -> list[Any]:
    return [None if value is None else _EPOCH + timedelta(0, 0, value) for value in column]


_DECODERS: dict[Kind, Decoder] = {"uuid": _uuids, "time": _moments, "bool": bools}
