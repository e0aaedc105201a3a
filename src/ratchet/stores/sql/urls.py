"""From a URL to a dialect."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ratchet.model.errors import ConfigurationError, MissingDriver
from ratchet.model.options import Options
from ratchet.stores.sql.dialect import Dialect

_MEMORY = ":memory:"


def sqlite_path(url: str) -> Path | None:
    """The file of a ``sqlite:///`` URL, made absolute now; None: in memory."""
    parts = urlsplit(url)
    if parts.netloc or parts.query or parts.fragment:
        raise ConfigurationError(
            f"{url!r} is no SQLite URL: write sqlite:///file.db (three slashes), sqlite:////absolute/file.db, "
            f"or sqlite:///:memory:, without parameters"
        )
    name = unquote(parts.path.removeprefix("/"))
    return None if name in ("", _MEMORY) else Path(name).absolute()


def sqlite_dialect(url: str, options: Options) -> Dialect:
    """SQLite needs no extra package."""
    from ratchet.stores.sql.dialects.sqlite import SqliteDialect

    return SqliteDialect(sqlite_path(url), options)


def postgresql_dialect(url: str, options: Options) -> Dialect:
    """PostgreSQL; `MissingDriver` names the extra if psycopg is not installed."""
    if find_spec("psycopg") is None:
        raise MissingDriver(
            "the PostgreSQL store needs psycopg, which is not installed: pip install 'ratchet-jobs[postgresql]'"
        )
    from ratchet.stores.sql.dialects.postgresql import PostgresqlDialect

    # SQLAlchemy's spelling names the driver as well; libpq knows the bare one only
    return PostgresqlDialect("postgresql://" + url.partition("://")[2], options)
