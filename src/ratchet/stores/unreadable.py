"""
Rows that cannot be read: damaged, changed by hand, or written by a newer version.

One such row never fails what is done for others. A job of it is shown with what can be read and is a dead letter once it is
claimed; any other row is passed by. Each is logged at once and then once a minute, and `health` names them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from ratchet.model.claim import RowFault
from ratchet.model.cluster import UnreadableRow
from ratchet.model.errors import CommitUnknown, Conflict, StoreError, StoreUnavailable
from ratchet.spi.fault_log import FaultLog

R = TypeVar("R")
T = TypeVar("T")
S = TypeVar("S", bound=Struct)

#: Characters of a stored value that are shown.
SHOWN: Final = 80
#: Jobs that no claim reaches, and that a health check names.
MOST_NAMED: Final = 20
#: What stands for a time that must be there and cannot be read.
NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)

#: Types for `Shape`: what a value must be for the engine to work with it.
Count = Annotated[int, Meta(ge=0, lt=2**31 - 1)]
Micros = Annotated[int, Meta(ge=0)]
Time = Annotated[datetime, Meta(tz=True)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]

faults = FaultLog(logging.getLogger("ratchet.stores"))
_collected: ContextVar[list[UnreadableRow] | None] = ContextVar("_collected", default=None)


class Unread:
    """A stored value that is not what its column holds. Whoever works with it gets a TypeError."""

    __slots__ = ("raw",)

    def __init__(self, raw: object) -> None:
        self.raw = raw

    @property
    def is_past(self) -> bool:
        """True for a time before all that Python has: such a job is due, and sorts before all others."""
        if isinstance(self.raw, (int, float)):
            return self.raw < 0
        return isinstance(self.raw, str) and (self.raw.startswith("-") or self.raw.endswith("BC"))

    def __repr__(self) -> str:
        return f"unreadable {shown(self.raw)}"


def shown(value: object) -> str:
    """A stored value for people: short, on one line, without characters that a terminal obeys."""
    text = ascii(value.raw if isinstance(value, Unread) else value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def due_time(value: object) -> datetime | None:
    """A due time that was read, or what it amounts to: one before all times is over, any other that cannot be read never comes."""
    if isinstance(value, datetime):
        return value
    return NO_TIME if isinstance(value, Unread) and value.is_past else None


class Column:
    """One column of a `Shape`: its name, its type, and what stands for a value that cannot be read."""

    __slots__ = ("instead", "name", "parse", "type", "words")

    def __init__(
        self, name: str, kind: Any, instead: Any = None, *, parse: Callable[[Any], object] | None = None
    ) -> None:
        self.name = name
        self.type = kind
        self.instead = instead
        self.parse = parse  # raises for a text that cannot be read
        self.words = isinstance(kind, type) and issubclass(kind, str) and kind is not str


class Shape:
    """What the columns of a row must be. All rows of a result are checked at once, in C; a bad one is salvaged."""

    def __init__(self, *columns: Column) -> None:
        self._columns = columns
        row: Any = tuple.__class_getitem__(tuple(column.type for column in columns))
        # msgspec keeps what it has made of a Struct; of a tuple's type it makes it anew each time, which takes 60 to 200 µs here.
        self._one: Any = msgspec.defstruct("One", [("held", row)], array_like=True)
        self._all: Any = msgspec.defstruct("All", [("held", list.__class_getitem__(row))], array_like=True)

    def all(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """*rows* with words as enum members; ValidationError where one of them is not of this shape."""
        found: list[tuple[Any, ...]] = msgspec.convert((rows,), self._all).held
        return found

    def one(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """`all` of one row."""
        found: tuple[Any, ...] = msgspec.convert((row,), self._one).held
        return found

    def read(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """`all`, and of a row that is not of this shape what can be read."""
        try:
            return self.all(rows)
        except (ValueError, TypeError, OverflowError):
            return [self.salvage(row)[0] for row in rows]

    def salvage(self, row: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, str], bool]:
        """
        What can be read of *row*, the stored values of what cannot by column, and whether a newer version may have written them.

        A newer version may have words that this one does not know; what else it writes, it writes in new columns.
        """
        values: list[Any] = []
        bad: dict[str, str] = {}
        newer = True
        for column, stored in zip(self._columns, row, strict=True):
            try:
                value = msgspec.convert(stored, column.type)
                if column.parse is not None and value is not None:
                    column.parse(value)
            except (ValueError, TypeError, OverflowError, RecursionError):
                value = column.instead
                bad[column.name] = shown(stored)
                newer = newer and column.words and isinstance(stored, str) and stored.isidentifier()
            values.append(value)
        return tuple(values), bad, newer and bool(bad)


def unreadable(bad: Mapping[str, str], *, newer: bool) -> RowFault | None:
    """What a claim says of a job with these columns; None: all of it can be read."""
    if not bad:
        return None
    return RowFault(text=f"its row cannot be read: {columns_text(bad)}", may_be_newer=newer)


def columns_text(bad: Mapping[str, str]) -> str:
    """The columns and what stands there, for people."""
    return ", ".join(f"{name} is {value}" for name, value in bad.items())


def named_job(table: str, key: object, bad: Mapping[str, str]) -> UnreadableRow:
    """A job that no claim reaches, for a health check."""
    name = str(key) if isinstance(key, UUID) else shown(key)
    text = f"the row {name} of {table} cannot be read, so that no claim reaches the job: {columns_text(bad)}"
    return UnreadableRow(table=table, key=name, text=text)


def checked(record: S) -> S:
    """*record*, whose fields have the types that it says; ValidationError otherwise. Stores make records unchecked."""
    fields = msgspec.structs.asdict(record)
    return msgspec.convert(
        {name: checked(value) if isinstance(value, Struct) else value for name, value in fields.items()},
        type(record),
    )


def passed_by(table: str, key: object, error: BaseException) -> None:
    """A row of *table* could not be read and was left out."""
    if isinstance(error, (StoreUnavailable, Conflict, CommitUnknown)):
        raise error
    text = f"the row {shown(key)} of {table} cannot be read and is passed by: {_why(error)}"
    if (collected := _collected.get()) is not None:
        collected.append(UnreadableRow(table=table, key=shown(key), text=text))
        return
    faults.note(text)


def readable(rows: Iterable[R], read: Callable[[R], T], table: str, key: Callable[[R], object]) -> list[T]:
    """What *read* makes of each row; one that it cannot read is passed by."""
    found: list[T] = []
    for row in rows:
        try:
            value = read(row)
            found.append(checked(value) if isinstance(value, Struct) else value)
        except Exception as error:
            passed_by(table, key(row), error)
    return found


def require_readable(row: R, read: Callable[[R], S], table: str, key: object) -> S:
    """What *read* makes of the one row that was asked for; `StoreError` that names the row where it cannot be read."""
    try:
        return checked(read(row))
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(f"the row {shown(key)} of {table} cannot be read: {_why(error)}") from error


@contextmanager
def claim_made(made: bool = True) -> Iterator[None]:
    """
    In this block jobs are read that are claimed already, if any are *made*.

    Where the store cannot be reached now, they are held all the same: `CommitUnknown` says so, and no other error would.
    """
    try:
        yield
    except CommitUnknown:
        raise
    except StoreUnavailable as error:
        if not made:
            raise
        raise CommitUnknown(f"jobs were claimed, but could not be read: {error}") from error


@contextmanager
def collecting() -> Iterator[list[UnreadableRow]]:
    """In this block rows that are passed by are listed, not logged."""
    found: list[UnreadableRow] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def unreadable_rows(*reads: Callable[[], object]) -> list[UnreadableRow]:
    """The rows that these reads passed by."""
    with collecting() as found:
        for read in reads:
            read()
    return list({(one.table, one.key): one for one in found}.values())


def _why(error: BaseException) -> str:
    text = str(error) if str(error) else type(error).__name__
    return shown(text)[1:-1]
