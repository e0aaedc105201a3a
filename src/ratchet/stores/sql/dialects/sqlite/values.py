"""
Python values in SQLite's five types, and back.

A UUID is its text, which sorts like the UUID, can be read in the shell and travels in JSON. A time is
microseconds since 1970 in UTC: exact, sortable and fit for arithmetic. A bool is 0 or 1.

Bulk work goes column by column, because a whole column of UUIDs through msgspec costs a fifth of
converting them one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec

from ratchet.model.clock import require_aware
from ratchet.model.errors import UnstorableData
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.statement import Decoder, Plan, Statement, bools, planned

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_to_json = msgspec.json.encode
_from_json = msgspec.json.decode
_to_uuids = msgspec.json.Decoder(list[UUID | None])


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
            encoded[name] = value if type(value) is str else json_list(value)  # type: ignore[arg-type]
        elif name in statement.rowsets:
            encoded[name] = _to_json(encode_rows(value)).decode()  # type: ignore[arg-type]
        else:
            encoded[name] = encode(value)
    return encoded


def json_list(values: Iterable[object]) -> str:
    """A list bind, ready to be sent (more than once)."""
    return _to_json(_encode_column(list(values))).decode()


def encode_rows(rows: Sequence[Sequence[object]]) -> list[tuple[Any, ...]]:
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
    return [encode(value) for value in column]


def _uuids(column: Iterable[Any]) -> list[Any]:
    return _to_uuids.decode(_to_json(column))


def _moments(column: Iterable[Any]) -> list[Any]:
    return [None if value is None else _EPOCH + timedelta(0, 0, value) for value in column]


_DECODERS: dict[Kind, Decoder] = {"uuid": _uuids, "time": _moments, "bool": bools}


def plan_of(labels: Sequence[str]) -> Plan:
    """Which result columns need decoding, by their labels."""
    return planned(labels, _DECODERS)
