"""From an entry of ``DATABASES`` to the URL of a store; user, password and options go along, escaped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ratchet.model.errors import ConfigurationError

#: Options of Django's PostgreSQL backend that are not libpq's.
_DJANGOS_OWN = {"assume_role", "isolation_level", "pool", "server_side_binding", "cursor_factory", "context"}
#: Django's names for what our MySQL URLs call otherwise, in ``OPTIONS["ssl"]``.
_SSL = {"ca": "ssl_ca", "cert": "ssl_cert", "key": "ssl_key"}
_FILES = ("read_default_file", "read_default_group")


def is_in_memory(entry: Mapping[str, Any]) -> bool:
    """True for an SQLite database without a file, such as Django's test database."""
    name = str(entry.get("NAME") or "")
    return _product(entry) == "sqlite" and (name == ":memory:" or "mode=memory" in name)


def url_of(alias: str, entry: Mapping[str, Any]) -> str:
    """The URL of the store in *entry*, ``DATABASES[alias]``; it may hold a password: never print it."""
    match _product(entry):
        case "sqlite":
            return _sqlite(alias, entry)
        case "postgresql":
            return _postgresql(entry)
        case "mysql":
            return _mysql(alias, entry)
        case _:
            raise ConfigurationError(
                f"DATABASES[{alias!r}] has the engine {entry.get('ENGINE')!r}; Ratchet keeps jobs in SQLite, PostgreSQL, MySQL "
                f"and MariaDB: name the alias of one of these in settings.RATCHET['database']"
            )


def _product(entry: Mapping[str, Any]) -> str:
    """By the last word of the engine's module, which engines that wrap Django's keep too; PostGIS is PostgreSQL."""
    words = str(entry.get("ENGINE") or "").lower().rpartition(".")[2]
    for word, product in (
        ("sqlite", "sqlite"),
        ("spatialite", "sqlite"),
        ("postg", "postgresql"),
        ("mysql", "mysql"),
    ):
        if word in words:
            return product
    return ""


def _sqlite(alias: str, entry: Mapping[str, Any]) -> str:
    name = str(entry.get("NAME") or "")
    if not name:
        raise ConfigurationError(f"DATABASES[{alias!r}] has no NAME: jobs need a file")
    if name.startswith("file:"):
        raise ConfigurationError(
            f"DATABASES[{alias!r}]['NAME'] is a file: URI; name the file itself for jobs to be kept in it"
        )
    return f"sqlite:///{quote(str(Path(name).absolute()))}"


def _postgresql(entry: Mapping[str, Any]) -> str:
    parameters = {
        name: str(value)
        for name, value in (entry.get("OPTIONS") or {}).items()
        if name not in _DJANGOS_OWN and isinstance(value, str | int | float | Path)
    }
    host = str(entry.get("HOST") or "")
    if host.startswith("/"):  # the folder of a socket
        parameters["host"], host = host, ""
    if entry.get("PORT") and not host:
        parameters["port"] = str(entry["PORT"])
    return _joined("postgresql", entry, host, parameters)


def _mysql(alias: str, entry: Mapping[str, Any]) -> str:
    options = entry.get("OPTIONS") or {}
    if named := [name for name in _FILES if options.get(name)]:
        raise ConfigurationError(
            f"DATABASES[{alias!r}]['OPTIONS'] reads its login from a file ({named[0]}), which Ratchet does not; put NAME, USER, "
            f"PASSWORD and HOST into DATABASES"
        )
    parameters: dict[str, str] = {}
    ssl = options.get("ssl")
    if isinstance(ssl, Mapping):
        parameters |= {_SSL[name]: str(value) for name, value in ssl.items() if name in _SSL}
    host = str(entry.get("HOST") or "") or "localhost"
    socket = options.get("unix_socket") or (host if host.startswith("/") else None)
    if socket:
        parameters["unix_socket"], host = str(socket), "localhost"
    return _joined("mysql", entry, host, parameters)


def _joined(scheme: str, entry: Mapping[str, Any], host: str, parameters: Mapping[str, str]) -> str:
    login = quote(str(entry.get("USER") or ""), safe="")
    if entry.get("PASSWORD"):
        login += ":" + quote(str(entry["PASSWORD"]), safe="")
    if ":" in host and not host.startswith("[") and "," not in host:
        host = f"[{host}]"  # an IPv6 address
    port = f":{entry['PORT']}" if entry.get("PORT") and host else ""
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters.items())
    name = quote(str(entry.get("NAME") or ""), safe="")
    return f"{scheme}://{login}{'@' if login else ''}{host}{port}/{name}{'?' if query else ''}{query}"
