"""
Rows for COPY in PostgreSQL's binary format, from values that lie column by column.

The server writes many rows of a COPY at once, page by page, and has nothing to parse. What is the same in
every row is encoded once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from struct import Struct
from typing import Any

from ratchet.stores.sql.columns import Kind, kind_in
from ratchet.stores.sql.dialects.postgresql.arrays import ENCODERS, encoded_ids, narrow_int

_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_COUNT = Struct(">h")
_LENGTH = Struct(">i")
_NULL = _LENGTH.pack(-1)

#: The integer columns that are narrower than 64 bits, and their bytes. A test compares this with the catalog.
WIDTHS = {"priority": 2, "stream_id": 4, "max_retries": 4, "needs": 4}

Piece = bytes | list[bytes]


def copy_stream(table: str, names: Sequence[str], columns: Sequence[Sequence[Any]]) -> bytes:
    """Everything that a ``COPY … FROM STDIN (FORMAT BINARY)`` of these columns sends."""
    pieces: list[Piece] = [_COUNT.pack(len(names))]
    for name, column in zip(names, columns, strict=True):
        for piece in _pieces(kind_in(table, name), WIDTHS.get(name), column):
            last = pieces[-1]
            if isinstance(piece, bytes) and isinstance(last, bytes):
                pieces[-1] = last + piece
            else:
                pieces.append(piece)
    fields: list[Iterable[bytes]] = [repeat(piece) if isinstance(piece, bytes) else piece for piece in pieces]
    # at least one column differs from row to row: the key
    return b"".join(chain([_SIGNATURE], chain.from_iterable(zip(*fields, strict=False)), [_END]))


def _pieces(kind: Kind, width: int | None, column: Sequence[Any]) -> list[Piece]:
    """The bytes of one field, as far as they are the same in every row, and lists of those that are not."""
    encode: Callable[[Any], bytes] = ENCODERS[kind]
    if width is not None:
        encode = narrow_int(width)
    first = column[0]
    if kind != "uuid" and first == column[-1] and column.count(first) == len(column):
        return [_field(encode, first)]
    data = encoded_ids(column) if kind == "uuid" else None
    if data is None and kind != "text" and None not in column:
        data = list(map(encode, column))
    if data is not None:
        return [_LENGTH.pack(len(data[0])), data]
    return [[_field(encode, value) for value in column]]


def _field(encode: Callable[[Any], bytes], value: Any) -> bytes:
    if value is None:
        return _NULL
    data = encode(value)
    return _LENGTH.pack(len(data)) + data
