"""
Tables that can be undone, and the indexes that follow them.

Rows are immutable and are only ever replaced: an undone change is the old row put back, and every
index hears of that as of any other change.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from ratchet.stores.memory.rows import Row

K = TypeVar("K")
V = TypeVar("V")
G = TypeVar("G")
K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

#: One row of one table: what a transaction that is still open holds locked.
RowName: TypeAlias = tuple[str, Any]


class Index(Protocol[K_contra, V_contra]):
    """Follows the rows of a table."""

    def follow(self, key: K_contra, old: V_contra | None, new: V_contra | None) -> None:
        """The row under *key* was *old* and now is *new*; None: there is none."""
        ...


class Journal:
    """What was changed since a mark, so that it can be undone; and who may not change what."""

    def __init__(self) -> None:
        self._entries: list[tuple[Table[Any, Any], Any, Any]] = []
        #: Asked before every change; raises where another transaction has the row.
        self.guard: Callable[[RowName], None] | None = None

    def note(self, table: Table[Any, Any], key: Any, old: Any) -> None:
        """Remember what *key* was before it changes."""
        if self.guard is not None:
            self.guard((table.name, key))
        self._entries.append((table, key, old))

    def undo(self) -> None:
        """Put everything back, latest first."""
        self.undo_to(0)

    def mark(self) -> int:
        """A point to return to."""
        return len(self._entries)

    def undo_to(self, mark: int) -> None:
        """Put back what was changed since *mark*, latest first."""
        while len(self._entries) > mark:
            table, key, old = self._entries.pop()
            table.restore(key, old)

    def keep(self) -> None:
        """What was changed stays changed."""
        self._entries.clear()

    def touched(self) -> set[RowName]:
        """The rows that were changed."""
        return {(table.name, key) for table, key, _ in self._entries}


class Table(Generic[K, V]):
    """Rows by key."""

    def __init__(self, name: str, journal: Journal, *indexes: Index[K, V]) -> None:
        self.name = name
        self._rows: dict[K, V] = {}
        self._journal = journal
        self._indexes = indexes

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def keys(self) -> list[K]:
        return list(self._rows)

    def values(self) -> list[V]:
        return list(self._rows.values())

    def items(self) -> list[tuple[K, V]]:
        return list(self._rows.items())

    def put(self, key: K, row: V) -> None:
        """Create or replace the row."""
        self._journal.note(self, key, self._rows.get(key))
        self._set(key, row)

    def remove(self, key: K) -> V | None:
        """Delete the row, if there is one; the row that was there."""
        old = self._rows.get(key)
        if old is not None:
            self._journal.note(self, key, old)
            self._set(key, None)
        return old

    def restore(self, key: K, row: V | None) -> None:
        """Undo a change: no note is taken of it."""
        self._set(key, row)

    def _set(self, key: K, new: V | None) -> None:
        old = self._rows.get(key)
        if new is None:
            self._rows.pop(key, None)
        else:
            self._rows[key] = new
        for index in self._indexes:
            index.follow(key, old, new)


class Group(Generic[K, V, G]):
    """An index: the keys of the rows for which *by* answers the same; None is not indexed."""

    def __init__(self, by: Callable[[V], G | None]) -> None:
        self._by = by
        self._members: dict[G, dict[K, None]] = {}

    def follow(self, key: K, old: V | None, new: V | None) -> None:
        before = None if old is None else self._by(old)
        after = None if new is None else self._by(new)
        if before == after:
            return
        if before is not None:
            members = self._members[before]
            del members[key]
            if not members:
                del self._members[before]
        if after is not None:
            self._members.setdefault(after, {})[key] = None

    def of(self, group: G) -> list[K]:
        """The keys in *group*."""
        return list(self._members.get(group, ()))

    def size(self, group: G) -> int:
        """How many keys are in *group*."""
        return len(self._members.get(group, ()))

    def groups(self) -> list[G]:
        """The groups that are not empty."""
        return list(self._members)


#: A PENDING job within its level: due time, id as a number, id.
QueueEntry: TypeAlias = tuple[datetime, int, UUID]


class Pending:
    """An index of the PENDING jobs: for each stream and priority, in order of (due time, id)."""

    def __init__(self) -> None:
        self._streams: dict[int, dict[int, list[QueueEntry]]] = {}

    def follow(self, key: UUID, old: Row | None, new: Row | None) -> None:
        before = None if old is None else old.queue_entry
        after = None if new is None else new.queue_entry
        if before == after:
            return
        if before is not None:
            stream, priority, entry = before
            level = self._streams[stream][priority]
            del level[bisect_left(level, entry)]
        if after is not None:
            stream, priority, entry = after
            insort(self._streams.setdefault(stream, {}).setdefault(priority, []), entry)

    def levels(self, stream_id: int) -> Iterator[tuple[int, list[QueueEntry]]]:
        """(priority, entries) of a stream; not to be changed."""
        for priority, level in self._streams.get(stream_id, {}).items():
            if level:
                yield priority, level

    def all(self) -> Iterator[UUID]:
        """Every PENDING job."""
        for levels in self._streams.values():
            for level in levels.values():
                yield from (job_id for _, _, job_id in level)
