"""Where jobs may be kept: the file of those who name no store, and room for a trial beside a named one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from ratchet.model.options import Options
from ratchet.model.store_url import StoreUrl

#: The file in the current directory that is used where no store is named.
DEFAULT_FILE: Final = "ratchet.db"


def file_url(path: Path | str) -> str:
    """The URL of a store that is one file."""
    return f"sqlite:///{path}"


DEFAULT_URL: Final = file_url(DEFAULT_FILE)


def file_of(url: str) -> Path | None:
    """The file in which the store of a URL keeps its jobs; None: it has a server, or keeps them in memory."""
    parts = StoreUrl.of(url) if "://" in url else None
    path = parts.path if parts is not None and parts.scheme == "sqlite" else ""
    return Path(path) if path and path != ":memory:" else None


@dataclass(frozen=True)
class Room:
    """A store for a trial: how to open it, and whether it is new and will be removed."""

    url: str
    options: Options
    is_own: bool


@contextmanager
def trial_room(url: str, options: Options) -> Iterator[Room]:
    """
    Room for a trial on the database of *url*: new and removed at the end where the store can do that, else the store itself.

    PostgreSQL: a schema of its own. SQLite: a file in a new folder next to the named one.
    """
    name = f"ratchet_trial_{uuid.uuid4().hex[:8]}"
    if (file := file_of(url)) is not None:
        from tempfile import TemporaryDirectory  # it imports the modules of every archive format

        with TemporaryDirectory(dir=file.absolute().parent, prefix=name) as folder:
            yield Room(file_url(f"{folder}/trial.db"), options, is_own=True)
    elif url.startswith("postgres"):
        room = Room(url, options.replace(schema=name), is_own=True)
        try:
            yield room
        finally:
            _drop_schema(room, name)
    else:
        yield Room(url, options, is_own=False)


def _drop_schema(room: Room, name: str) -> None:
    from ratchet.stores.sql.store import open_store

    store = open_store(room.url, room.options)
    try:
        with store.begin() as connection:
            cast(Any, connection).execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    finally:
        store.close()
