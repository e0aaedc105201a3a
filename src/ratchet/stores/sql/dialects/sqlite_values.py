"""
Python values in SQLite's five types, and back.

A UUID is its text, which sorts like the UUID, can be read in the shell and travels in JSON. A time is
microseconds since 1970 in UTC: exact, sortable and fit for arithmetic. A bool is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID, SafeUUID

import msgspec

from ratchet.model.errors import UnstorableData
from ratchet.stores.sql.columns import Kind, kind_of
from ratchet.stores.sql.statement import Plan, Statement

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_blank = object.__new__
_assign = object.__setattr__
_UNKNOWN = SafeUUID.unknown


def micros(moment: datetime) -> int:
    """A time as microseconds since 1970."""
    return (moment - _EPOCH) // _MICROSECOND


def moment(micros: int) -> datetime:
    """The time of so many microseconds since 1970, aware and in UTC."""
    return _EPOCH + timedelta(microseconds=micros)


def uuid(text: str) -> UUID:
    """The UUID of a stored text; the same as ``UUID(text)`` at a third of the cost."""
    made = _blank(UUID)
    _assign(made, "int", int(text.replace("-", ""), 16))
    _assign(made, "is_safe", _UNKNOWN)
    return made


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
}


def encode(value: Any) -> Any:
    """One value as SQLite stores it."""
    encoder = _ENCODERS.get(type(value))
    if encoder is not None:
        return encoder(value)
    if isinstance(value, Enum):
        return encode(value.value)
    for kind in (datetime, UUID, str, int, float):
        if isinstance(value, kind):
            return _ENCODERS[kind](value)
    raise TypeError(f"{type(value).__name__} cannot be bound: {value!r}")


def encode_params(statement: Statement, params: Mapping[str, object]) -> dict[str, Any]:
    """All binds of a statement; lists and row sets become JSON."""
    encoded: dict[str, Any] = {}
    for name, value in params.items():
        if name in statement.lists:
            encoded[name] = _json([encode(item) for item in value])  # type: ignore[attr-defined]
        elif name in statement.rowsets:
            encoded[name] = _json([[encode(item) for item in row] for row in value])  # type: ignore[attr-defined]
        else:
            encoded[name] = encode(value)
    return encoded


def encode_rows(rows: Sequence[Sequence[object]]) -> list[tuple[Any, ...]]:
    """Rows to insert, value by value."""
    get = _ENCODERS.get
    return [tuple([get(type(value), encode)(value) for value in row]) for row in rows]


def _json(value: list[Any]) -> str:
    return msgspec.json.encode(value).decode()


_DECODERS: dict[Kind, Callable[[Any], Any]] = {"uuid": uuid, "time": moment, "bool": bool}


def plan_of(labels: Sequence[str]) -> Plan:
    """Which result columns need decoding, by their labels."""
    return tuple(
        (index, _DECODERS[kind]) for index, label in enumerate(labels) if (kind := kind_of(label)) in _DECODERS
    )
