"""
Tables whose rows are read when they are first looked at, and written when the work is done.

They have the methods of the in-memory store's tables. So the rules that are written for those (what the end of a
job means, who is released, who keeps a key) hold here without being written again. A row is read once; what was
changed is found by comparing it with what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct
from pymongo.cursor import Cursor

from ratchet.stores.memory.rows import Reservation, Row
from ratchet.stores.memory.tables import Group, Index, Journal, Table
from ratchet.stores.mongo.documents.jobs import WITHOUT_BODY, row_of
from ratchet.stores.mongo.documents.values import Codec, Document
from ratchet.stores.mongo.schema import BATCH, Names

if TYPE_CHECKING:
    from ratchet.stores.mongo.transaction.work import Work

S = TypeVar("S", bound=Struct)

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
G = TypeVar("G")


class Source(Protocol[K, V_co]):
    """Where the rows of a table come from."""

    def read(self, query: Mapping[str, Any], latest: int | None = None) -> Iterable[tuple[K, V_co]]:
        """The rows that match; with *latest*, so many of those with the highest id."""
        ...

    def identity(self, key: K) -> Any:
        """The ``_id`` of a key."""
        ...


class LoadedTable(Table[K, V]):
    """Rows by key, read on demand. With *fresh*, a row that is put without having been read is new."""

    def __init__(
        self, name: str, journal: Journal, source: Source[K, V], *indexes: Index[K, V], fresh: bool = False
    ) -> None:
        super().__init__(name, journal, *indexes)
        self.source = source
        self._fresh = fresh
        self._known: set[K] = set()
        self._original: dict[K, V] = {}
        for index in indexes:
            if isinstance(index, LoadedGroup):
                index.table = self

    # --- reading --------------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        if key not in self._known:
            self.load((key,))
        return super().get(key)

    def __getitem__(self, key: K) -> V:
        row = self.get(key)
        if row is None:
            raise KeyError(key)
        return row

    def __contains__(self, key: object) -> bool:
        return self.get(key) is not None  # type: ignore[arg-type]  # callers have a key of this table

    def load(self, keys: Iterable[K]) -> None:
        """Read these rows together, as far as they are not known."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if not missing:
            return
        for key, row in self.source.read({"_id": {"$in": [self.source.identity(key) for key in missing]}}):
            self.absorb(key, row)
        self._known.update(missing)

    def absorb(self, key: K, row: V) -> None:
        """A row as it is stored; what is known of it already counts more."""
        if key not in self._known:
            self._known.add(key)
            self._original[key] = row
            self._set(key, row)

    def assume_absent(self, keys: Iterable[K]) -> None:
        """There are no such rows: the caller knows."""
        self._known.update(keys)

    def load_all(self, query: Mapping[str, Any] | None = None) -> None:
        """Read the whole collection, or all that match."""
        for key, row in self.source.read(query or {}):
            self.absorb(key, row)

    # --- changing -------------------------------------------------------------------------------

    def put(self, key: K, row: V) -> None:
        if self._fresh:
            self._known.add(key)
        elif key not in self._known:
            self.load((key,))
        super().put(key, row)

    def remove(self, key: K) -> V | None:
        self.get(key)
        return super().remove(key)

    def changed(self) -> Iterator[tuple[K, V | None, V | None]]:
        """(key, as it was stored, as it is now) of every row that is another one now."""
        for key in self._known:
            was, now = self._original.get(key), self._rows.get(key)
            if was is not now:
                yield key, was, now


class LoadedGroup(Group[K, V, G]):
    """An index that reads the rows of a group when it is first asked for; *field* holds the group in documents."""

    table: LoadedTable[K, V]

    def __init__(
        self,
        by: Callable[[V], G | None],
        field: str,
        narrow: Document | None = None,
        *,
        stored: Callable[[G], Any] | None = None,
        latest: int | None = None,
        asked: Callable[[G], None] | None = None,
    ) -> None:
        super().__init__(by)
        self._field = field
        self._narrow = narrow or {}
        self._stored = stored  # how the field spells a group; None: as it is
        self._latest = latest  # only so many of the newest documents are looked at
        self._asked = asked  # called with every group that is looked at
        self._complete: set[G] = set()

    def of(self, group: G) -> list[K]:
        if self._asked is not None:
            self._asked(group)
        self.load((group,))
        return super().of(group)

    def size(self, group: G) -> int:
        self.load((group,))
        return super().size(group)

    def load(self, groups: Iterable[G]) -> None:
        """Read these groups together, as far as they are not known."""
        missing = [group for group in dict.fromkeys(groups) if group not in self._complete]
        if not missing:
            return
        spelled = missing if self._stored is None else [self._stored(group) for group in missing]
        if self._latest is None:
            self._absorb({self._field: {"$in": spelled}, **self._narrow})
        else:
            for one in spelled:
                self._absorb({self._field: one, **self._narrow}, self._latest)
        self._complete.update(missing)

    def groups(self) -> list[G]:
        """Every group that is not empty: reads them all, so it is for small collections."""
        self._absorb(self._narrow)
        return super().groups()

    def _absorb(self, query: Mapping[str, Any], latest: int | None = None) -> None:
        for key, row in self.table.source.read(query, latest):
            self.table.absorb(key, row)

    def known(self, groups: Iterable[G]) -> Iterator[K]:
        """The keys in these groups, as far as they have been read."""
        for group in groups:
            yield from self._members.get(group, ())

    def assume_complete(self, groups: Iterable[G]) -> None:
        """Nothing more of these groups is stored: the caller knows."""
        self._complete.update(groups)


class CodedSource(Generic[K, V]):
    """Rows of a collection, by two functions between documents and rows."""

    def __init__(
        self,
        find: Callable[[Mapping[str, Any]], Cursor[Document]],
        decode: Callable[[Document], tuple[K, V]],
        identity: Callable[[K], Any],
    ) -> None:
        self._find = find
        self._decode = decode
        self._identity = identity

    def read(self, query: Mapping[str, Any], latest: int | None = None) -> Iterable[tuple[K, V]]:
        """The rows that match."""
        found = self._find(query)
        if latest is not None:
            found = found.sort("_id", -1).limit(latest)
        return (self._decode(document) for document in found)

    def identity(self, key: K) -> Any:
        """The ``_id`` of a key."""
        return self._identity(key)


# --- tables that differ from others -------------------------------------------------------------


class WholeTable(LoadedTable[K, V]):
    """A small collection that may be read whole: runs whose code is still running, locks."""

    _read = False

    def items(self) -> list[tuple[K, V]]:
        if not self._read:
            self.load_all()
            self._read = True
        return super().items()


class ReservationTable(LoadedTable[str, Reservation]):
    """Business keys."""

    def items(self) -> list[tuple[str, Reservation]]:
        """Those that still running code holds: asked only about a job that has been deleted."""
        self.load_all({"claim_id": {"$exists": True}})
        return super().items()


class JobTable(LoadedTable[UUID, Row]):
    """Jobs, wherever they live; without what is large and decides nothing."""

    def __init__(self, name: str, journal: Journal, work: Work, *indexes: Index[UUID, Row]) -> None:
        self._work = work
        source = CodedSource(self._find, self._decode, lambda job_id: job_id)
        super().__init__(name, journal, source, *indexes)

    def load(self, keys: Iterable[UUID]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._known]
        if not missing:
            return
        super().load(missing)
        if elsewhere := [key for key in missing if key not in self._rows]:
            archive = self._work.collection(Names.ARCHIVE)
            for document in archive.find(
                {"_id": {"$in": elsewhere}}, WITHOUT_BODY, session=self._work.session
            ):
                self._known.discard(document["_id"])
                self.absorb(*self._decode(document))

    def _find(self, query: Mapping[str, Any]) -> Cursor[Document]:
        jobs = self._work.collection(Names.JOBS)
        return jobs.find(query, WITHOUT_BODY, session=self._work.session, batch_size=BATCH)

    def _decode(self, document: Document) -> tuple[UUID, Row]:
        self._work.seen(document)
        return document["_id"], row_of(document, self._work.stream_key)


# --- how the tables of a transaction are made ---------------------------------------------------

#: A table, the collection it is stored in, and how a row of it is written.
Writer = tuple[LoadedTable[Any, Any], str, Callable[[Any, Any], Document]]
#: Finds the documents of a collection that match a query.
Find = Callable[[str, Mapping[str, Any]], Cursor[Document]]


class CodedTables:
    """The tables of one transaction; the order in which they are made is the order in which they are written."""

    def __init__(self, journal: Journal, find: Find, writers: list[Writer]) -> None:
        self._journal = journal
        self._find = find
        self._writers = writers

    def rows(
        self,
        name: str,
        collection: str,
        codec: Codec[S],
        key_of: Callable[[S], Any],
        identity: tuple[str, ...] = (),
        *indexes: Index[Any, S],
        fresh: bool = False,
    ) -> LoadedTable[Any, S]:
        """Rows that hold their own key; *identity* names its parts, if it has several."""

        def decode(document: Document) -> tuple[Any, S]:
            row = codec.value(document)
            return key_of(row), row

        named = (lambda key: dict(zip(identity, key, strict=True))) if identity else _same
        source = self._source(collection, decode, named)
        table = LoadedTable(name, self._journal, source, *indexes, fresh=fresh)
        self._writers.append((table, collection, lambda _, row: codec.document(row)))
        return table

    def keyed(
        self,
        name: str,
        collection: str,
        codec: Codec[S],
        *indexes: Index[Any, S],
        kind: type[LoadedTable[Any, S]] = LoadedTable,
    ) -> LoadedTable[Any, S]:
        """Rows that do not hold their own key."""
        return self.custom(
            name,
            collection,
            lambda document: (document["_id"], codec.value(document)),
            lambda key, row: {"_id": key, **codec.document(row)},
            _same,
            *indexes,
            kind=kind,
        )

    def custom(
        self,
        name: str,
        collection: str,
        decode: Callable[[Document], tuple[K, V]],
        encode: Callable[[K, V], Document],
        identity: Callable[[K], Any],
        *indexes: Index[K, V],
        kind: type[LoadedTable[K, V]] = LoadedTable,
    ) -> LoadedTable[K, V]:
        """Rows whose documents are like no others."""
        table = kind(name, self._journal, self._source(collection, decode, identity), *indexes)
        self._writers.append((table, collection, encode))
        return table

    def _source(
        self, collection: str, decode: Callable[[Document], tuple[K, V]], identity: Callable[[K], Any]
    ) -> CodedSource[K, V]:
        return CodedSource(lambda query: self._find(collection, query), decode, identity)


def _same(key: K) -> K:
    return key
