"""
What a caller may pass as ``within=``, recognised by its class name so that no package is imported for it.

A driver's own connection, or a SQLAlchemy ``Session`` or ``Connection``, or a Django connection, that has one. Inside
``AsyncSession.run_sync`` the connection is SQLAlchemy's synchronous face of an async driver, which
works the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ratchet.model.errors import ConfigurationError

_SESSIONS = {"sqlalchemy.orm.session.Session", "sqlalchemy.orm.scoping.scoped_session"}
_CONNECTIONS = {"sqlalchemy.engine.base.Connection"}
_DJANGO = {"django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy"}
_ASYNC = {
    "sqlalchemy.ext.asyncio.session.AsyncSession": "await session.run_sync(lambda s: … within=s)",
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": "await connection.run_sync(lambda c: … within=c)",
    "psycopg.AsyncConnection": "a synchronous psycopg.Connection",
    "aiosqlite.core.Connection": "a sqlite3.Connection",
    "asyncpg.connection.Connection": "a psycopg.Connection",
}


def class_names(thing: object) -> set[str]:
    """The full names of the classes that *thing* is an instance of."""
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in type(thing).__mro__}


@dataclass(frozen=True, slots=True)
class CallerConnection:
    """A caller's connection, taken out of whatever it came in."""

    connection: Any  # the driver's, or SQLAlchemy's synchronous face of an async driver's
    names: set[str]
    #: Tells SQLAlchemy that a transaction is open, so that its commit() commits.
    begin: Callable[[], object]


def caller_connection(within: object) -> CallerConnection:
    """The driver connection inside *within*; `ConfigurationError` says what is accepted instead."""
    names = class_names(within)
    for name, instead in _ASYNC.items():
        if name in names:
            raise ConfigurationError(
                f"within= got an asynchronous {name.rpartition('.')[2]}; use the await face (scheduler.aio), "
                f"or pass {instead}"
            )
    begin: Callable[[], object] = lambda: None  # noqa: E731 - the default of a field
    connection: Any = within
    if names & _DJANGO:  # ``django.db.connection`` stands for the wrapper of this thread
        connection.validate_no_broken_transaction()  # what Django's own cursors would do first
        connection.ensure_connection()
        connection = connection.connection
        names = class_names(connection)
    if names & _SESSIONS:
        connection = connection.connection()
        names = class_names(connection)
    if names & _CONNECTIONS:
        alchemy = connection
        connection = alchemy.connection.dbapi_connection
        names = class_names(connection)

        def begin() -> object:
            return None if alchemy.in_transaction() else alchemy.begin()

    return CallerConnection(connection, names, begin)


def driver_of(connection: Any) -> Any:
    """The driver's own connection, which lives as long as the connection does, behind SQLAlchemy's face of it."""
    return getattr(connection, "driver_connection", connection)


def refuse_autocommit(what: str) -> ConfigurationError:
    """The error for a connection whose writes would be committed one by one."""
    return ConfigurationError(
        f"within= got {what} in autocommit mode without an open transaction, so each statement would commit "
        f"by itself; begin a transaction on it first"
    )


def refuse_stranger(
    within: object, store: str, accepted: str, connection: object | None = None
) -> ConfigurationError:
    """The error for something that is no connection of this store; *connection* is the driver's inside of it."""
    driver = within if connection is None else driver_of(connection)
    if driver is not within:
        return ConfigurationError(
            f"within= got a {type(within).__qualname__} on the driver {_class_name(driver)}, which cannot join a "
            f"transaction of the {store} store; let its engine use {accepted}, or pass one"
        )
    return ConfigurationError(
        f"within= got a {_class_name(within)}, which cannot join a transaction of the {store} store; "
        f"pass {accepted}, or a SQLAlchemy Session or Connection on one"
    )


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
