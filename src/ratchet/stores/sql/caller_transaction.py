"""
What a caller may pass as ``within=``, recognised by its class name so that no package is imported for it.

A driver's own connection, or a SQLAlchemy ``Session`` or ``Connection``, or a Django connection, that has one. The await
face brings connections of async drivers, and async sessions on them, as `LoopBound`. Inside ``AsyncSession.run_sync`` the connection is
SQLAlchemy's synchronous face of an async driver, which works the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ratchet.model.errors import ConfigurationError
from ratchet.spi.loop_bound import LoopBound, class_names, needs_loop, unbound

_SESSIONS = {"sqlalchemy.orm.session.Session", "sqlalchemy.orm.scoping.scoped_session"}
_CONNECTIONS = {"sqlalchemy.engine.base.Connection"}
_DJANGO = {"django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy"}
_ASYNC_SESSIONS = {
    "sqlalchemy.ext.asyncio.session.AsyncSession",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session",
}
_ASYNC_ENGINES = {"sqlalchemy.ext.asyncio.engine.AsyncConnection"}

Wait = Callable[[Awaitable[Any]], Any]


def _nothing() -> None:
    """A driver's own connection needs not be told."""


@dataclass(frozen=True, slots=True)
class CallerConnection:
    """A caller's connection, taken out of whatever it came in."""

    connection: Any  # the driver's, or SQLAlchemy's synchronous face of an async driver's
    names: set[str]
    #: Tells SQLAlchemy that a transaction is open, so that its commit() commits.
    begin: Callable[[], object] = _nothing
    #: Lets SQLAlchemy send a statement: with some drivers it begins the transaction only then.
    start: Callable[[], object] = _nothing
    #: Waits for what only the event loop of an async driver may do; None: the driver is not async.
    wait: Wait | None = None


def caller_connection(within: object) -> CallerConnection:
    """The driver connection inside *within*; `ConfigurationError` says what is accepted instead."""
    if isinstance(within, LoopBound):
        return _of_loop(within)
    names = class_names(within)
    if needs_loop(within):
        raise ConfigurationError(
            f"within= got an asynchronous connection ({_class_name(within)}), which only its event loop can use; use the await "
            f"face there: await scheduler.aio.enqueue(…).submit(within=connection)"
        )
    connection: Any = within
    if names & _DJANGO:  # ``django.db.connection`` stands for the wrapper of this thread
        connection.validate_no_broken_transaction()  # what Django's own cursors would do first
        connection.ensure_connection()
        connection = connection.connection
        names = class_names(connection)
    if names & _SESSIONS:
        connection = connection.connection()
        names = class_names(connection)
    if not names & _CONNECTIONS:
        return CallerConnection(connection, names)
    alchemy = connection
    connection = alchemy.connection.dbapi_connection
    return CallerConnection(
        connection,
        class_names(connection),
        begin=lambda: None if alchemy.in_transaction() else alchemy.begin(),
        start=lambda: alchemy.exec_driver_sql("SELECT 1"),
    )


def _of_loop(bound: LoopBound) -> CallerConnection:
    connection, wait = bound.connection, bound.wait
    if class_names(connection) & _ASYNC_SESSIONS:
        connection = wait(connection.connection())
    if not class_names(connection) & _ASYNC_ENGINES:
        return CallerConnection(connection, class_names(connection), wait=wait)
    alchemy = connection
    connection = wait(alchemy.get_raw_connection()).driver_connection
    return CallerConnection(
        connection,
        class_names(connection),
        begin=lambda: None if alchemy.in_transaction() else wait(alchemy.begin()),
        start=lambda: wait(alchemy.exec_driver_sql("SELECT 1")),
        wait=wait,
    )


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
    within = unbound(within)
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
