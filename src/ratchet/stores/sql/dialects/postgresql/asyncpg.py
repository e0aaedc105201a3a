"""
A caller's transaction on an asyncpg connection, whose statements its event loop carries out.

asyncpg numbers its binds, tells the server no types, and takes values only of the type that the server expects. So each bind
whose type is known from its value is written with a cast, and lists go as lists. Whatever codecs the caller has registered for ``uuid``,
``timestamptz``, ``text`` or numbers would be used for ours as well: such a connection cannot be joined.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ratchet.model.clock import require_aware
from ratchet.model.errors import UnstorableData
from ratchet.stores.sql.caller_transaction import CallerConnection, Wait
from ratchet.stores.sql.columns import Kind
from ratchet.stores.sql.database import NO_PARAMS, Row
from ratchet.stores.sql.dialects.postgresql.errors import meaning
from ratchet.stores.sql.dialects.postgresql.session import PostgresqlSession
from ratchet.stores.sql.dialects.postgresql.values import encode_params, plain
from ratchet.stores.sql.errors import ConnectionLost
from ratchet.stores.sql.statement import Plan, decode, planned

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.postgresql.dialect import PostgresqlDialect

_DRIVERS = {"asyncpg.connection.Connection", "asyncpg.pool.PoolConnectionProxy"}
_ADAPTER = "sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_connection"
_BIND = re.compile(r"%\((\w+)\)s|%%")
#: What is written behind a bind; a text has none, since the server takes it for whatever is needed.
_CASTS: tuple[tuple[type, str], ...] = (
    (bool, "::boolean"),
    (int, "::bigint"),
    (float, "::double precision"),
    (datetime, "::timestamptz"),
    (UUID, "::uuid"),
)


@dataclass(frozen=True, slots=True)
class AsyncpgConnection:
    """asyncpg's connection, and how to wait for its coroutines."""

    connection: Any
    wait: Wait


def asyncpg_connection(caller: CallerConnection) -> AsyncpgConnection | None:
    """The connection of asyncpg that *caller* has; None if it has none."""
    if caller.wait is not None and _DRIVERS & caller.names:
        return AsyncpgConnection(caller.connection, caller.wait)
    if _ADAPTER in caller.names:  # inside of ``run_sync``, so SQLAlchemy is imported
        return AsyncpgConnection(
            caller.connection.driver_connection, sys.modules["sqlalchemy.util"].await_only
        )
    return None


class AsyncpgSession(PostgresqlSession):
    """A transaction on an asyncpg connection."""

    def __init__(self, dialect: PostgresqlDialect, driver: AsyncpgConnection) -> None:
        super().__init__(dialect, driver.connection, None, enlisted=True)
        self._wait = driver.wait
        self._encode = _elements

    def execute(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> int:
        statement = self.dialect.statement(sql)
        return self._changed(statement.text, encode_params(statement, params, self._encode))

    def rows(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> list[Row]:
        statement = self.dialect.statement(sql)
        text, values = _numbered(statement.text, encode_params(statement, params, self._encode))
        found = self._run(self._connection.fetch, text, values)
        if not found:
            return []
        plan = _plan_of(tuple(found[0].keys()))
        rows = [tuple(record.values()) for record in found]
        return decode(rows, plan) if plan else rows

    def plain(self, text: str) -> None:
        self._run(self._connection.execute, text, ())

    def plain_row(self, text: str) -> Row:
        return tuple(self._run(self._connection.fetchrow, text, ()).values())

    def _changed(self, text: str, binds: Mapping[str, object]) -> int:
        status = self._run(self._connection.execute, *_numbered(text, binds))
        last = status.rpartition(" ")[2]  # INSERT 0 3, UPDATE 3, SELECT 3
        return int(last) if last.isdecimal() else 0

    def _run(self, verb: Any, text: str, values: Sequence[object]) -> Any:
        try:
            return self._wait(verb(text, *values))
        except Exception as error:
            if self._connection.is_closed():
                raise ConnectionLost(f"the connection to PostgreSQL was lost: {error}") from error
            raise meaning(error, text) from error


def _elements(values: Sequence[Any], kind: Kind) -> list[Any]:
    """A list bind; asyncpg makes the array."""
    found = [plain(value) for value in values]
    for value in found:
        if isinstance(value, datetime):
            require_aware(value, "a time")
    return found


def _numbered(text: str, binds: Mapping[str, object]) -> tuple[str, list[object]]:
    """The statement with numbered binds, and their values."""
    values = {name: plain(value) for name, value in binds.items()}
    for value in values.values():
        if isinstance(value, str) and "\0" in value:
            raise UnstorableData("a text contains the character U+0000, which a SQL text cannot hold")
    casts = tuple((name, _cast_of(value)) for name, value in values.items())
    numbered, names = _rewritten(text, casts)
    return numbered, [values[name] for name in names]


def _cast_of(value: object) -> str:
    for kind, cast in _CASTS:
        if isinstance(value, kind):
            return cast
    return ""


@lru_cache(maxsize=1024)
def _rewritten(text: str, casts: tuple[tuple[str, str], ...]) -> tuple[str, tuple[str, ...]]:
    cast_of = dict(casts)
    names: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return "%"
        return f"${names.setdefault(name, len(names) + 1)}{cast_of.get(name, '')}"

    return _BIND.sub(numbered, text), tuple(names)


def _uuids(column: Iterable[Any]) -> list[Any]:
    # asyncpg has a class of its own, which not everybody takes for a UUID
    return [None if value is None else UUID(int=value.int) for value in column]


@lru_cache(maxsize=1024)
def _plan_of(labels: tuple[str, ...]) -> Plan:
    return planned(labels, {"uuid": _uuids})
