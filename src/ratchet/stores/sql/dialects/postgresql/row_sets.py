"""
Row sets, folded: what is the same in every row is sent once.

Thousand jobs of one target differ in their ids and arguments alone; the other eight columns then cost
one value each, for the driver to send and for the server to read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from ratchet.model.clock import require_aware
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.dialects.postgresql.arrays import binary_array, plain
from ratchet.stores.sql.statement import Statement

#: Smaller sets are sent as they are: each way of folding is a text of its own, to be parsed and kept.
LEAST = 16

#: For each column: its own (-1), the same value in all rows (-2), or the column that it repeats.
Shape = tuple[int, ...]
_OWN = -1
_CONSTANT = -2


class Rowsets(Protocol):
    """How a row set is written where nothing is folded."""

    words: dict[str, str]

    def rowset(self, name: str, columns: Sequence[tuple[str, Kind]]) -> str:
        """A FROM item."""
        ...


def fold(
    dialect: Rowsets, statement: Statement, params: Mapping[str, object]
) -> tuple[str, dict[str, object]]:
    """The statement's text and its binds; ``<set>__<number>`` is an array, or the one value of its column."""
    binds: dict[str, object] = {}
    shapes: list[tuple[str, Shape]] = []
    for name, value in params.items():
        if kinds := statement.rowsets.get(name):
            columns: list[Sequence[Any]] = list(zip(*value, strict=True)) if value else [()] * len(kinds)  # type: ignore[misc]
            shape = _shape(columns, kinds)
            shapes.append((name, shape))
            for index, (column, kind, place) in enumerate(zip(columns, kinds, shape, strict=True)):
                if place == _OWN:
                    binds[f"{name}__{index}"] = binary_array(column, kind)
                elif place == _CONSTANT:
                    binds[f"{name}__{index}"] = _checked(column[0])
        elif kind_of_list := statement.lists.get(name):
            binds[name] = binary_array(list(value), kind_of_list)  # type: ignore[call-overload]
        else:
            binds[name] = _checked(value)
    return _text(dialect, statement, tuple(shapes)), binds


def _shape(columns: Sequence[Sequence[Any]], kinds: Sequence[Kind]) -> Shape:
    if len(columns[0]) < LEAST:
        return (_OWN,) * len(columns)
    found = [_OWN]
    for index in range(1, len(columns)):
        column = columns[index]
        first = column[0]
        if first == column[-1] and column.count(first) == len(column):
            found.append(_CONSTANT)
        elif kinds[index] == kinds[0] == "uuid" and first is columns[0][0] and column == columns[0]:
            found.append(0)
        else:
            found.append(_OWN)
    return tuple(found)


def _text(dialect: Rowsets, statement: Statement, shapes: tuple[tuple[str, Shape], ...]) -> str:
    text = statement.variants.get(shapes)
    if text is None:
        text = statement.text
        for name, shape in shapes:
            if any(place != _OWN for place in shape):
                columns = list(zip(statement.names[name], statement.rowsets[name], strict=True))
                text = text.replace(dialect.rowset(name, columns), _folded(dialect, name, columns, shape))
        statement.variants[shapes] = text
    return text


def _folded(dialect: Rowsets, name: str, columns: Sequence[tuple[str, Kind]], shape: Shape) -> str:
    selected, arrays, own = [], [], []
    for index, ((column, kind), place) in enumerate(zip(columns, shape, strict=True)):
        bind, word = f"%({name}__{index})s", dialect.words[kind]
        if place == _OWN:
            arrays.append(f"{bind}::{word}[]")
            own.append(column)
            selected.append(f"own.{column}")
        elif place == _CONSTANT:
            selected.append(f"{bind}::{word} AS {column}")
        else:
            selected.append(f"own.{columns[place][0]} AS {column}")
    source = f"unnest({', '.join(arrays)}) AS own({', '.join(own)})"
    return f"(SELECT {', '.join(selected)} FROM {source}) AS {name}"


def _checked(value: Any) -> Any:
    if type(value) is datetime and value.tzinfo is None:
        require_aware(value, "a time")  # psycopg would send it as the server's local time
    return plain(value)
