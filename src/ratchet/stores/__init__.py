"""What keeps jobs: one package per kind of database."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ratchet.model.errors import MissingDriver
from ratchet.stores.places import DEFAULT_FILE, DEFAULT_URL, file_of, file_url, trial_room

if TYPE_CHECKING:
    from ratchet.model.options import Options
    from ratchet.spi.store import JobStore


def open_store(url: str, options: Options | None = None) -> JobStore:
    """
    The store of a URL. Nothing is connected before its first use, and no other store's driver is imported.

    `ConfigurationError` for a URL of no store, `MissingDriver` for one whose extra is not installed.
    """
    if url.partition("://")[0].lower() in ("mongodb", "mongodb+srv"):
        return _open_mongo_store(url, options)
    from ratchet.stores.sql.store import open_store as open_sql_store

    return open_sql_store(url, options)


def _open_mongo_store(url: str, options: Options | None) -> JobStore:
    if find_spec("pymongo") is None:
        raise MissingDriver(
            "the MongoDB store needs pymongo, which is not installed: pip install 'ratchet-jobs[mongodb]'"
        )
    from ratchet.stores.mongo.store import MongoStore

    return MongoStore(url, options)


__all__ = ["DEFAULT_FILE", "DEFAULT_URL", "file_of", "file_url", "open_store", "trial_room"]
