"""What keeps jobs: one package per kind of database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ratchet.model.errors import ConfigurationError
from ratchet.model.options import Options

if TYPE_CHECKING:
    from ratchet.spi.store import JobStore

_SUPPORTED = "sqlite:///file.db, sqlite:///:memory:, postgresql://user@host/database"
_LATER = {
    "mysql": "MySQL and MariaDB",
    "mariadb": "MySQL and MariaDB",
    "mongodb": "MongoDB",
    "mongodb+srv": "MongoDB",
}


def open_store(url: str, options: Options | None = None) -> JobStore:
    """
    The store of a URL. Nothing is opened before its first use, and no driver is imported for another store.

    `ConfigurationError` for a URL of no store, `MissingDriver` for one whose extra is not installed.
    """
    from ratchet.stores.sql.store import SqlStore
    from ratchet.stores.sql.urls import postgresql_dialect, sqlite_dialect

    options = options if options is not None else Options()
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    match scheme:
        case "sqlite":
            return SqlStore(sqlite_dialect(url, options), options)
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return SqlStore(postgresql_dialect(url, options), options)
        case _ if scheme in _LATER:
            raise ConfigurationError(
                f"{_LATER[scheme]} ({scheme}://) is not supported yet in this version; supported are {_SUPPORTED}"
            )
        case "":
            raise ConfigurationError(
                f"the store's URL has no scheme (it has no ://); supported are {_SUPPORTED}"
            )
        case _:
            raise ConfigurationError(f"there is no store for {scheme}:// URLs; supported are {_SUPPORTED}")


__all__ = ["open_store"]
