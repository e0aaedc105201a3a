"""What keeps jobs: one package per kind of database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ratchet.model.options import Options
    from ratchet.spi.store import JobStore


def open_store(url: str, options: Options | None = None) -> JobStore:
    """
    The store of a URL. Nothing is connected before its first use, and no other store's driver is imported.

    `ConfigurationError` for a URL of no store, `MissingDriver` for one whose extra is not installed.
    """
    from ratchet.stores.sql.store import open_store as open_sql_store

    return open_sql_store(url, options)


__all__ = ["open_store"]
