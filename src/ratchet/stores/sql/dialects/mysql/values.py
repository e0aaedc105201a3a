"""
Python values as MySQL literals, and result columns back as values.

PyMySQL has no binds in its protocol: it writes every value into the statement's text. So does this module, column by
column where there are many values, and also for UUIDs and times, which PyMySQL does not know.

A UUID is BINARY(16) in its own byte order, which sorts like the UUID. A time is DATETIME(6) in UTC. A row
set travels as one JSON text, which both products turn into rows (``JSON_TABLE``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from ratchet.model.clock import require_aware
from ratchet.model.errors import UnstorableData
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.dialects.mysql.shapes import LISTED, PAIRS
from ratchet.stores.sql.statement import Decoder, Plan, Statement, bools, planned

_to_json = msgspec.json.encode
_to_msgpack = msgspec.msgpack.encode
_to_uuids = msgspec.msgpack.Decoder(list[UUID | None])

#: A list of nothing; a membership in it is false, its negation true, also for NULL.
_NOTHING = "(SELECT NULL FROM DUAL WHERE 1 = 0)"

#: The words of JSON_TABLE for each kind. A UUID comes as hexadecimal digits; what does not fit is an error.
JSON_TYPES: dict[Kind, str] = {
    "uuid": "CHAR(32)",
    "time": "DATETIME(6)",
    "bool": "TINYINT",
    "int": "BIGINT",
    "real": "DOUBLE",
    "text": "LONGTEXT",
}


class Writer:
    """Writes values as literals for one kind of session: with or without backslash escapes."""

    def __init__(self, *, backslashes: bool = True) -> None:
        self._backslashes = backslashes
        self._literals: dict[type, Callable[[Any], str]] = {
            str: self.text,
            int: _whole,
            float: _real,
            bool: _flag,
            type(None): lambda _: "NULL",
            UUID: _uuid,
            datetime: _time,
        }

    def text(self, value: str) -> str:
        """A quoted text."""
        if "\0" in value:
            raise UnstorableData("a text contains the character U+0000, which a SQL text cannot hold")
        if self._backslashes and "\\" in value:
            value = value.replace("\\", "\\\\")
        return f"'{value.replace(chr(39), chr(39) * 2)}'" if "'" in value else f"'{value}'"

    def literal(self, value: Any) -> str:
        """One value."""
        write = self._literals.get(type(value))
        if write is not None:
            return write(value)
        if isinstance(value, Enum):
            return self.literal(value.value)
        for kind in (datetime, UUID, str, int, float):
            if isinstance(value, kind):
                return self._literals[kind](value)
        raise TypeError(f"{type(value).__name__} cannot be bound: {value!r}")

    def column(self, values: Sequence[Any]) -> list[str]:
        """Many values of one column."""
        kinds = set(map(type, values))
        if len(kinds) == 1:
            write = self._literals.get(kinds.pop())
            if write is not None:
                return [write(value) for value in values]
        return [self.literal(value) for value in values]

    def rows(self, rows: Sequence[Sequence[Any]]) -> list[str]:
        """Many rows, each in parentheses."""
        columns = [self.column(column) for column in zip(*rows, strict=True)]
        return [f"({','.join(row)})" for row in zip(*columns, strict=True)]

    def binds(self, statement: Statement, params: Mapping[str, object]) -> dict[str, str]:
        """What takes the places of a statement's binds."""
        written: dict[str, str] = {}
        for name, value in params.items():
            if name in statement.lists:
                values: list[Any] = list(value)  # type: ignore[call-overload]
                if (listed := f"{name}{LISTED}") in statement.lists:
                    written[listed] = self.text(_to_json(_json_column(values)).decode())
                written[name] = self._list(values)
            elif name in statement.rowsets:
                rows: Sequence[Sequence[Any]] = value  # type: ignore[assignment]
                if (pairs := f"{name}{PAIRS}") in statement.lists:
                    written[pairs] = f"({','.join(self.rows(rows))})" if rows else _NOTHING
                if statement.rowsets[name]:
                    written[name] = self.text(_json_rows(rows))
            else:
                written[name] = self.literal(value)
        return written

    def _list(self, values: list[Any]) -> str:
        return f"({','.join(self.column(values))})" if values else _NOTHING


def _uuid(value: UUID) -> str:
    return f"x'{value.hex}'"


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _whole(value: int) -> str:
    if not -(2**63) <= value < 2**63:
        raise UnstorableData(f"the number {value} has more than 64 bits")
    return str(value)


def _real(value: float) -> str:
    if not math.isfinite(value):
        raise UnstorableData(f"MySQL has no number {value!r}")
    return repr(value)


def moment(value: datetime) -> str:
    """A time as MySQL writes it."""
    if value.tzinfo is not UTC:
        value = require_aware(value, "a time").astimezone(UTC)
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


def _time(value: datetime) -> str:
    return f"TIMESTAMP'{moment(value)}'"


# --- row sets -----------------------------------------------------------------------------------

_PLAIN = {int, float, type(None)}


def _json_rows(rows: Sequence[Sequence[Any]]) -> str:
    columns = [_json_column(column) for column in zip(*rows, strict=True)]
    return _to_json(list(zip(*columns, strict=True))).decode()


def _json_column(column: Sequence[Any]) -> Sequence[Any]:
    if set(map(type, column)) <= _PLAIN:
        return column
    return [_json_value(value) for value in column]


def _json_value(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, UUID):
        return value.hex
    if isinstance(value, datetime):
        return moment(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and "\0" in value:
        raise UnstorableData("a text contains the character U+0000, which a SQL text cannot hold")
    return value


# --- results ------------------------------------------------------------------------------------


def _uuids(column: Iterable[Any]) -> list[Any]:
    # in C; an eighth of the time of a call of UUID for each
    return _to_uuids.decode(_to_msgpack(column))


def _moments(column: Iterable[Any]) -> list[Any]:
    parse = datetime.fromisoformat
    return [None if value is None else parse(value + "+00:00") for value in column]


_DECODERS: dict[Kind, Decoder] = {"uuid": _uuids, "time": _moments, "bool": bools}


def plan_of(labels: Sequence[str]) -> Plan:
    """Which result columns need decoding, by their labels."""
    return planned(labels, _DECODERS)
