"""Opens the stores that a move is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from ratchet.model.errors import SchemaOutOfDate
from ratchet.model.moves import MoveRefused
from ratchet.model.options import Options
from ratchet.model.store_url import StoreUrl
from ratchet.spi.movable import MovableStore
from ratchet.spi.store import JobStore
from ratchet.stores import file_of, open_store


@dataclass(frozen=True)
class Side:
    """A store that is moved, or filled: as every caller knows it, and as a move does. ``shown`` has no password."""

    store: JobStore
    movable: MovableStore
    options: Options
    shown: str


@contextmanager
def opened(url: str, options: Options, *, new: bool = False) -> Iterator[Side]:
    """
    The store of a URL, as it is stored: values that a codec has encoded are moved as they stand.

    *new*: the schema is made if it is missing. Otherwise there has to be one, of this version.
    """
    file = file_of(url)
    if not new and file is not None and not file.exists():
        raise MoveRefused(f"there is no database {file}; nothing was moved")
    store = open_store(url, options.replace(auto_migrate=new))
    try:
        if not hasattr(store, "neutral_rows"):
            raise MoveRefused(
                f"the store {shown(url)} cannot be moved: it has no neutral rows (ratchet.spi.movable)"
            )
        if new:
            store.migrate()
        else:
            store.check_schema()  # before anything is done to the other side
        yield Side(store, cast(MovableStore, store), options, shown(url))
    finally:
        store.close()


def exists(url: str, options: Options) -> bool:
    """True if there is a schema of Ratchet behind a URL; nothing is made."""
    file = file_of(url)
    if file is not None and not file.exists():
        return False
    store = open_store(url, options.replace(auto_migrate=False))
    try:
        store.check_schema()
    except SchemaOutOfDate:
        return False
    finally:
        store.close()
    return True


def shown(url: str) -> str:
    """A URL without its password and its parameters."""
    parts = StoreUrl.of(url)
    return f"{parts.scheme}://{parts.hosts}/{parts.path}"
