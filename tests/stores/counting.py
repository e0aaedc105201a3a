"""What a call costs: the statements that it sends, counted where sessions send them, and the steps of SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import pytest

from ratchet.stores.sql.dialects.mysql.session import MysqlSession
from ratchet.stores.sql.dialects.postgresql.autocommit import Autocommit, Exchange
from ratchet.stores.sql.dialects.postgresql.session import PostgresqlSession
from ratchet.stores.sql.dialects.sqlite.dialect import SqliteDialect
from ratchet.stores.sql.dialects.sqlite.session import SqliteSession

_SENDERS = ("execute", "rows", "insert_rows", "update_rows")


class Statements:
    """Counts the statements of every session, without those that begin and end transactions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sent: list[str] = []
        for session in (MysqlSession, PostgresqlSession, SqliteSession):
            for name in _SENDERS:
                self._count(monkeypatch, session, name)
        self._count_submissions(monkeypatch)
        self._count(monkeypatch, Autocommit, "run")
        self._count(monkeypatch, Exchange, "rows")

    def _count(self, monkeypatch: pytest.MonkeyPatch, session: type, name: str) -> None:
        original: Callable[..., Any] = getattr(session, name)

        def counted(this: Any, text: str, *args: Any, **kwargs: Any) -> Any:
            self._sent.append(" ".join(text.split())[:80])
            return original(this, text, *args, **kwargs)

        monkeypatch.setattr(session, name, counted)

    def _count_submissions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        original = SqliteDialect.write_once

        def counted(this: SqliteDialect, texts: Sequence[str], values: Mapping[str, object]) -> None:
            self._sent.extend(" ".join(text.split())[:80] for text in texts)
            original(this, texts, values)

        monkeypatch.setattr(SqliteDialect, "write_once", counted)

    def of(self, action: Callable[[], object]) -> list[str]:
        """The beginnings of the statements that *action* sends."""
        self._sent.clear()
        action()
        return list(self._sent)


class SqliteSteps:
    """Counts the steps that SQLite's virtual machine takes on a connection while the block runs, in tens."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.count = 0

    def __enter__(self) -> Self:
        self._connection.set_progress_handler(self._tick, 10)
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.set_progress_handler(None, 0)

    def _tick(self) -> int:
        self.count += 1
        return 0
