"""`CodedTables`: makes the tables of a transaction from its collections, and knows how each is written back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct
from pymongo.cursor import Cursor

from ratchet.stores.memory.tables import Index, Journal
from ratchet.stores.mongo.documents.values import Codec, Document
from ratchet.stores.mongo.transaction.flush import Writer
from ratchet.stores.mongo.transaction.tables import CodedSource, LoadedTable

S = TypeVar("S", bound=Struct)
K = TypeVar("K")
V = TypeVar("V")

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
