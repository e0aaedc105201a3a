"""
Lists and row sets as PostgreSQL array literals.

psycopg can send lists itself, at several microseconds per element; a bulk call has thousands.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from ratchet.model.clock import require_aware
from ratchet.model.errors import UnstorableData
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.statement import Plan, Statement, planned


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    text = str(value)
    if "\0" in text:
        raise UnstorableData("a text contains the character U+0000, which a SQL text cannot hold")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _int(value: Any) -> str:
    return str(int(value))


def _time(value: datetime) -> str:
    return value.isoformat() if value.tzinfo is not None else require_aware(value, "a time").isoformat()


def _hex(value: Any) -> str:
    text: str = value.hex
    return text


_BIND = re.compile(r"%(?:\((\w+)\)s|%)")

_ELEMENTS: dict[Kind, Callable[[Any], str]] = {
    "uuid": _hex,
    "time": _time,
    "bool": lambda value: "t" if value else "f",
    "int": _int,
    "real": lambda value: repr(float(value)),
    "text": _text,
}


def array(values: Sequence[Any], kind: Kind) -> str:
    """The literal of an array of these values."""
    element = _ELEMENTS[kind]
    return "{" + ",".join(["NULL" if value is None else element(value) for value in values]) + "}"


#: Makes an array: `array`, or `binary_array` where the connection knows how to send it.
Encode = Callable[[Sequence[Any], Kind], Any]


def arrays(rows: Sequence[Sequence[Any]], kinds: Sequence[Kind], encode: Encode = array) -> list[Any]:
    """One array per column of *rows*."""
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return [encode(column, kind) for column, kind in zip(columns, kinds, strict=True)]


def encode_params(
    statement: Statement, params: Mapping[str, object], encode: Encode = array
) -> Mapping[str, object]:
    """All binds of a statement; a row set becomes one array per column, named ``<set>__<number>``."""
    for value in params.values():
        if type(value) is datetime and value.tzinfo is None:
            require_aware(value, "a time")  # psycopg would send it as the server's local time
    if not statement.lists and not statement.rowsets:
        return params
    encoded: dict[str, object] = {}
    for name, value in params.items():
        if kind := statement.lists.get(name):
            encoded[name] = encode(list(value), kind)  # type: ignore[call-overload]
        elif kinds := statement.rowsets.get(name):
            for index, column in enumerate(arrays(value, kinds, encode)):  # type: ignore[arg-type]
                encoded[f"{name}__{index}"] = column
        else:
            encoded[name] = value
    return encoded


def numbered(statement: Statement) -> tuple[str, tuple[str, ...]]:
    """
    The text with PostgreSQL's own numbered binds, and their names in that order.

    For what goes past psycopg's cursor, which would read it for its binds each time: it remembers only what it
    found in those up to 4 KB, and a claim is longer.
    """
    if statement.numbered is None:
        order: dict[str, int] = {}

        def number(match: re.Match[str]) -> str:
            return "%" if match[1] is None else f"${order.setdefault(match[1], len(order) + 1)}"

        text = _BIND.sub(number, statement.text)
        statement.numbered = text, tuple(order)
    return statement.numbered


def require_zones(rows: Sequence[Sequence[Any]]) -> None:
    """Refuse rows that hold a time without a zone."""
    for row in rows:
        for value in row:
            if type(value) is datetime and value.tzinfo is None:
                require_aware(value, "a time")


def _in_utc(column: Iterable[Any]) -> list[Any]:
    # a caller's session may have a zone of its own
    return [None if value is None else value.astimezone(UTC) for value in column]


def times_of(labels: Sequence[str]) -> Plan:
    """The result columns that hold times."""
    return planned(labels, {"time": _in_utc})
