"""From a URL to a dialect."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ratchet.model.errors import ConfigurationError, MissingDriver
from ratchet.model.options import Options
from ratchet.model.store_url import StoreUrl, shown_url
from ratchet.stores.sql.dialect import Dialect

_MEMORY = ":memory:"
# Without a user: messages pass the sanitizer, which takes whatever stands before an @ for a secret.
_SUPPORTED = "sqlite:///file.db, sqlite:///:memory:, postgresql://host/database, mysql://host/database, mongodb://host/database"


def dialect_of(url: str, options: Options) -> Dialect:
    """The dialect of a URL; `ConfigurationError` for a URL of no store, `MissingDriver` for a missing extra."""
    if "://" not in url:
        raise ConfigurationError(f"the store's URL has no scheme (no ://); supported are {_SUPPORTED}")
    match StoreUrl.of(url).scheme:
        case "sqlite":
            return sqlite_dialect(url, options)
        case "postgresql" | "postgres" | "postgresql+psycopg":
            return postgresql_dialect(url, options)
        case "mysql" | "mariadb" | "mysql+pymysql" | "mariadb+pymysql":
            return mysql_dialect(url, options)
        case _:
            scheme = shown_url(url).partition("://")[0]
            raise ConfigurationError(f"there is no store for {scheme}:// URLs; supported are {_SUPPORTED}")


def sqlite_path(url: str) -> Path | None:
    """The file of a ``sqlite:///`` URL, made absolute now; None: in memory."""
    name = StoreUrl.of(url).path
    return None if name in ("", _MEMORY) else Path(name).absolute()


def sqlite_dialect(url: str, options: Options) -> Dialect:
    """SQLite needs no extra package."""
    from ratchet.stores.sql.dialects.sqlite.dialect import SqliteDialect

    return SqliteDialect(sqlite_path(url), options)


def postgresql_dialect(url: str, options: Options) -> Dialect:
    """PostgreSQL; `MissingDriver` names the extra if psycopg is not installed."""
    if find_spec("psycopg") is None:
        raise MissingDriver(
            "the PostgreSQL store needs psycopg, which is not installed: pip install 'ratchet-jobs[postgresql]'"
        )
    from ratchet.stores.sql.dialects.postgresql.dialect import PostgresqlDialect

    # SQLAlchemy's spelling names the driver as well; libpq knows the bare one only
    return PostgresqlDialect("postgresql://" + url.partition("://")[2], options)


def mysql_dialect(url: str, options: Options) -> Dialect:
    """MySQL and MariaDB; `MissingDriver` names the extra if PyMySQL is not installed."""
    if find_spec("pymysql") is None:
        raise MissingDriver(
            "the MySQL store needs PyMySQL, which is not installed: pip install 'ratchet-jobs[mysql]'"
        )
    from ratchet.stores.sql.dialects.mysql.dialect import MysqlDialect

    return MysqlDialect(url, options)
