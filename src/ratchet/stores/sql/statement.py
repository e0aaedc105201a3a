"""SQL text and its translation into a dialect. The language is described in `database`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.stores.sql.columns import Kind, is_kind, kind_of
from ratchet.stores.unreadable import Unread

if TYPE_CHECKING:
    from ratchet.stores.sql.dialect import Dialect

#: Decodes a whole result column.
Decoder = Callable[[Iterable[Any]], list[Any]]
Plan = tuple[tuple[int, Decoder], ...]

_TOKEN = re.compile(
    r"""
      (?P<literal> '(?:[^']|'')*' | "[^"]*" | --[^\n]* )
    | (?P<cast> :: )
    | :(?P<bind> [A-Za-z_]\w* )
    | \{(?P<macro> [^{}]* )\}
    | (?P<brace> [{}] )
    | (?P<percent> % )
    | (?<![.\w])(?P<table> (?: scheduler_\w+ | ratchet_schema_version ))\b
    """,
    re.VERBOSE,
)
_MEMBER = re.compile(r"(?P<negated>not )?in (?P<name>\w+) (?P<kind>\w+)")
_ROWS = re.compile(r"rows (?P<name>\w+) \((?P<columns>[\w\s,]+)\)")
_LOCK = re.compile(
    r"for (?P<mode>update|no key update|share|key share)(?: of (?P<of>\w+))?(?P<skip> skip locked)?"
)


class Statement:
    """One statement in the words of one product, and what its list binds hold."""

    __slots__ = ("lists", "names", "numbered", "plan", "rowsets", "text", "variants")

    def __init__(self) -> None:
        self.text = ""
        self.lists: dict[str, Kind] = {}
        self.rowsets: dict[str, tuple[Kind, ...]] = {}
        self.names: dict[str, tuple[str, ...]] = {}  # of the columns of each row set
        #: The text in other forms, by whatever a dialect tells them apart.
        self.variants: dict[object, str] = {}
        #: The text with numbered binds, and their names in that order; made by a dialect that has use for it.
        self.numbered: tuple[str, tuple[str, ...]] | None = None
        #: How to decode its rows; made when the first of them arrive, because only then the labels are known.
        self.plan: Plan | None = None


def translate(sql: str, dialect: Dialect) -> Statement:
    """*sql* for *dialect*. ValueError for a macro that does not exist: a mistake in the text, not in the data."""
    statement = Statement()

    def piece(match: re.Match[str]) -> str:
        if literal := match["literal"]:
            return dialect.literal(literal)
        if bind := match["bind"]:
            return dialect.bind(bind)
        if (macro := match["macro"]) is not None:
            return _expand(" ".join(macro.split()), statement, dialect)
        if match["percent"]:
            return dialect.literal("%")
        if table := match["table"]:
            return dialect.table(table)
        raise ValueError(f"{match[0]!r} is not portable SQL (see ratchet.stores.sql.database), in: {sql}")

    statement.text = _TOKEN.sub(piece, sql)
    return statement


def _expand(macro: str, statement: Statement, dialect: Dialect) -> str:
    if (word := dialect.words.get(macro)) is not None:
        return word
    if match := _MEMBER.fullmatch(macro):
        kind = _kind(match["kind"])
        statement.lists[match["name"]] = kind
        return dialect.member(match["name"], kind, negated=bool(match["negated"]))
    if match := _ROWS.fullmatch(macro):
        columns = [_column(column) for column in match["columns"].split(",")]
        statement.rowsets[match["name"]] = tuple(kind for _, kind in columns)
        statement.names[match["name"]] = tuple(column for column, _ in columns)
        return dialect.rowset(match["name"], columns)
    if match := _LOCK.fullmatch(macro):
        return dialect.lock(match["mode"], match["of"], skip_locked=bool(match["skip"]))
    raise ValueError(f"{{{macro}}} is not a macro of ratchet.stores.sql.database")


def _column(text: str) -> tuple[str, Kind]:
    name, *kind = text.split()
    return name, _kind(kind[0]) if kind else kind_of(name)


def _kind(word: str) -> Kind:
    if not is_kind(word):
        raise ValueError(f"{word!r} is not a kind of value: uuid time bool int real text")
    return word


def bools(column: Iterable[Any]) -> list[Any]:
    """The decoder of a column of bools that a driver gives as numbers."""
    return [None if value is None else bool(value) for value in column]


def planned(labels: Sequence[str], decoders: Mapping[Kind, Decoder]) -> Plan:
    """Which columns of a result need decoding, by their labels."""
    return tuple(
        (index, decoders[kind]) for index, label in enumerate(labels) if (kind := kind_of(label)) in decoders
    )


def decode(rows: Sequence[tuple[Any, ...]], plan: Plan) -> list[tuple[Any, ...]]:
    """
    *rows* with the columns of *plan* decoded, column by column: many times faster than row by row.

    A value that cannot be decoded is an `Unread`.
    """
    columns: list[Any] = list(zip(*rows, strict=True))
    for index, decoder in plan:
        try:
            columns[index] = decoder(columns[index])
        except Exception:
            columns[index] = [_decoded(decoder, value) for value in columns[index]]
    return list(zip(*columns, strict=True))


def _decoded(decoder: Decoder, value: Any) -> Any:
    try:
        return decoder([value])[0]
    except Exception:
        return Unread(value)
