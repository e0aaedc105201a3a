"""What PostgreSQL's errors mean, by SQLSTATE."""

from __future__ import annotations

import psycopg

from ratchet.model.errors import (
    ConfigurationError,
    Conflict,
    RatchetError,
    SchemaOutOfDate,
    StoreError,
    StoreUnavailable,
    UnstorableData,
    blame_store,
    led_to,
)
from ratchet.stores.sql.errors import (
    AccessDenied,
    ConnectionLost,
    ConstraintViolated,
    LockTimeout,
    ReadOnlyServer,
    fenced,
    redacted,
)

FENCE_STATE = "RTF01"  # ours: what a fenced store refuses
_CONFLICTS = {"40001", "40P01"}  # serialization failure, deadlock
_LOCK_TIMEOUT = "55P03"
_NO_SCHEMA = {"42P01", "42703", "3F000"}  # table, column, schema does not exist
_LOST = {"57P01", "57P02", "57P03", "57P05", "25P03"}  # shutdown, crash, starting, idle timeouts
_READ_ONLY = "25006"
_NOT_SUPPORTED = "0A000"
_NOT_PREPARED = {"26000", "42P05"}  # a prepared statement does not exist, or exists already
_ADVICE = (
    "if it is a standby, connect to its primary (a URL with all hosts and target_session_attrs=read-write finds it); "
    "if writes are frozen by default_transaction_read_only, work goes on by itself when they are allowed again"
)
_CANCELED = "57014"
_INTERNAL = "XX"
_NOT_ALLOWED = "42501"
_LIMIT_OF_AN_INDEX_ROW = "54000"


class PostgresqlConstraints:
    """Reads SQLSTATEs."""

    def is_unique_violation(self, error: BaseException) -> bool:
        """True if a unique key already exists."""
        return getattr(error, "sqlstate", None) == "23505"

    def is_foreign_key_violation(self, error: BaseException) -> bool:
        """True if a referenced row is missing, or still referenced."""
        return getattr(error, "sqlstate", None) == "23503"


def meaning(error: Exception, text: str) -> Exception:
    """What to raise for a driver's *error*; the caller keeps it as the cause."""
    if isinstance(error, RatchetError):
        return error
    if isinstance(error, UnicodeError | OverflowError):
        return UnstorableData(f"a value cannot be sent to PostgreSQL: {error}")
    # psycopg's and asyncpg's alike: asyncpg has a state where the server has said something, and no class of psycopg's
    state: str | None = getattr(error, "sqlstate", None)
    message = redacted(str(error)).strip()
    if state is None:
        return _without_state(error, message, text)
    return _of_state(state, message, text)


def _of_state(state: str, message: str, text: str) -> Exception:
    if state == FENCE_STATE and (moved := fenced(message)) is not None:
        return moved
    if state == _LOCK_TIMEOUT:
        return LockTimeout(f"PostgreSQL: {message}")
    if state in _CONFLICTS:
        return Conflict(f"PostgreSQL: {message}")
    if state in _NO_SCHEMA:
        return SchemaOutOfDate(
            f"the schema of Ratchet is missing or older than this version ({message.splitlines()[0]}); "
            f"run `ratchet db upgrade`"
        )
    if state.startswith("22") or state == _LIMIT_OF_AN_INDEX_ROW:
        return UnstorableData(f"PostgreSQL refused a value: {message}")
    if state.startswith("23"):
        return ConstraintViolated(f"PostgreSQL refused a row ({message}), in: {text}")
    if state.startswith("08") and "statement pooling mode" in message:
        return ConfigurationError(
            f"PgBouncer shares its connections by the statement, so there are no transactions ({message}); set "
            f"pool_mode = transaction for this database, or connect to PostgreSQL itself"
        )
    if state in _LOST or state.startswith("08"):
        return ConnectionLost(f"the connection to PostgreSQL was lost: {message}")
    if state == _READ_ONLY or (state == _NOT_SUPPORTED and _is_of_standby(message, text)):
        return ReadOnlyServer("PostgreSQL", message.splitlines()[0], _ADVICE)
    if state == _NOT_ALLOWED:
        return AccessDenied(
            f"PostgreSQL does not allow this to the user of the connection: {message}; `ratchet db grants` prints what each role "
            f"needs, and `ratchet db upgrade` is for the owner of the tables"
        )
    if state in _NOT_PREPARED:
        return StoreError(
            f"PostgreSQL: {message.splitlines()[0]}; a pooler in transaction mode lends each transaction another server connection, and what "
            f"was prepared stays on the old one: open the connection that you pass with prepare_threshold=None (psycopg) or "
            f"statement_cache_size=0 (asyncpg)"
        )
    if state == _CANCELED:
        return StoreUnavailable(
            f"PostgreSQL gave up: {message}; raise the option statement_timeout if it needs longer"
        )
    if state.startswith(("53", "58", _INTERNAL, "28")):
        return StoreUnavailable(f"PostgreSQL cannot serve this now: {message}")
    return StoreError(f"PostgreSQL ({state}): {message}, in: {text}")


def _is_of_standby(message: str, text: str) -> bool:
    """True if a standby says that it cannot begin a transaction that writes; its message may be in any language."""
    return text.startswith("BEGIN") or "recovery" in message or "standby" in message


def blame(error: BaseException) -> None:
    """
    Mark what led to the failure of a user's transaction: a conflict, or a server or connection that failed.

    Not a statement of the user's that takes too long, or that the server has a mistake in.
    """
    for one in led_to(error):
        if not isinstance(one, psycopg.Error) or (one.sqlstate or "").startswith((_CANCELED, _INTERNAL)):
            continue
        if isinstance(meaning(one, ""), StoreUnavailable | Conflict):
            blame_store(one)


def _without_state(error: Exception, message: str, text: str) -> Exception:
    # found by the driver or by libpq, before or after the server said anything
    if not isinstance(error, psycopg.Error):
        return StoreError(f"{type(error).__name__}: {message}, in: {text}")
    if isinstance(error, psycopg.DataError):
        return UnstorableData(f"a value cannot be sent to PostgreSQL: {message}")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return ConnectionLost(f"the connection to PostgreSQL was lost: {message}")
    return StoreError(f"{type(error).__name__}: {message}, in: {text}")
