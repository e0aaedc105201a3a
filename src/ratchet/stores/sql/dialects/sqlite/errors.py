"""What SQLite's errors mean, by extended code."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from ratchet.model.errors import (
    Conflict,
    RatchetError,
    SchemaOutOfDate,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
    UnstorableData,
    blame_store,
    led_to,
)
from ratchet.stores.sql.errors import ConstraintViolated, fenced

_UNAVAILABLE = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
}


class Location(NamedTuple):
    """Where the database is, and how long its write lock is waited for."""

    path: Path | None
    busy_timeout: float

    def __str__(self) -> str:
        return str(self.path) if self.path is not None else "the database in memory"


class SqliteConstraints:
    """Reads SQLite's extended error codes."""

    def is_unique_violation(self, error: BaseException) -> bool:
        """True if a unique key or primary key already exists."""
        return _code(error) in (
            sqlite3.SQLITE_CONSTRAINT_UNIQUE,
            sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
            sqlite3.SQLITE_CONSTRAINT_ROWID,
        )

    def is_foreign_key_violation(self, error: BaseException) -> bool:
        """True if a referenced row is missing, or still referenced."""
        return _code(error) == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY


def _code(error: BaseException) -> int | None:
    return getattr(error, "sqlite_errorcode", None)


def meaning(error: Exception, text: str, location: Location, *, waited: bool = False) -> Exception:
    """What to raise for a driver's *error*; the caller keeps it as the cause."""
    if isinstance(error, RatchetError):
        return error
    if isinstance(error, UnicodeError | OverflowError | sqlite3.DataError):
        return UnstorableData(f"SQLite refused a value: {error}")
    code = _code(error)
    if code is None:
        return StoreError(f"{type(error).__name__}: {error}, in: {text}")
    primary = code & 0xFF
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return _busy(code, location, waited)
    if primary == sqlite3.SQLITE_CONSTRAINT:
        if (moved := fenced(str(error))) is not None:
            return moved
        return ConstraintViolated(f"SQLite refused a row ({error}), in: {text}")
    if primary in (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE):
        return UnstorableData(f"SQLite refused a value: {error}")
    if primary == sqlite3.SQLITE_ERROR and not _schema_exists(location.path):
        return SchemaOutOfDate(f"the tables of Ratchet are missing in {location}; run `ratchet db upgrade`")
    if primary == sqlite3.SQLITE_READONLY:
        return StoreReadOnly(
            f"the SQLite database {location} is read-only ({error}); let this process write to the file and to its directory"
        )
    if primary == sqlite3.SQLITE_FULL:
        return StoreReadOnly(
            f"the SQLite database {location} takes no writes: {error}; make room, and work goes on by itself"
        )
    if primary in _UNAVAILABLE:
        return StoreUnavailable(f"the SQLite database {location} cannot be used: {error}")
    return StoreError(f"SQLite: {error}, in: {text}")


def blame(error: BaseException, location: Location) -> None:
    """Mark what led SQLite to roll back a user's transaction by itself: a disk that is full, or does not answer."""
    for one in led_to(error):
        if isinstance(one, sqlite3.Error) and isinstance(
            meaning(one, "", location), StoreUnavailable | Conflict
        ):
            blame_store(one)


def _busy(code: int, location: Location, waited: bool) -> StoreError:
    if waited:
        return StoreUnavailable(
            f"another program has held the write lock of {location} for {location.busy_timeout:g} s; "
            f"keep write transactions short, or raise sqlite_busy_timeout"
        )
    if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
        return Conflict(
            "the transaction read the SQLite database before another one wrote to it, so it cannot write any "
            "more; roll it back and begin it with BEGIN IMMEDIATE"
        )
    return Conflict(f"the SQLite database {location} is locked by another transaction")


def _schema_exists(path: Path | None) -> bool:
    # The code for a missing table is the same as for a mistake in the SQL, so look.
    if path is None:
        return True
    try:
        probe = sqlite3.connect(path, timeout=0.1)
    except sqlite3.Error:
        return True
    try:
        query = "SELECT 1 FROM sqlite_master WHERE name = 'ratchet_schema_version'"
        return probe.execute(query).fetchone() is not None
    except sqlite3.Error:
        return True
    finally:
        probe.close()
