"""A transaction on SQLite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.stores.sql.database import NO_PARAMS, Row, Session
from ratchet.stores.sql.dialects.sqlite.values import encode_params, encode_rows, plan_of
from ratchet.stores.sql.statement import Statement, decode

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.sqlite.dialect import SqliteDialect


class SqliteSession(Session):
    """A transaction on a sqlite3 connection, or on SQLAlchemy's face of one."""

    def __init__(
        self, dialect: SqliteDialect, connection: Any, cursor: Any, *, enlisted: bool = False
    ) -> None:
        self.dialect: SqliteDialect = dialect
        self.enlisted = enlisted
        self._connection = connection
        self._cursor = cursor
        self._actions: list[Callable[[], None]] = []

    @property
    def connection(self) -> Any:
        return self._connection

    def execute(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> int:
        statement = self.dialect.statement(sql)
        try:
            self._cursor.execute(statement.text, encode_params(statement, params))
            changed: int = self._cursor.rowcount
            if self._cursor.description is not None:
                self._cursor.fetchall()  # a RETURNING that is not read to its end has not changed everything
                changed = self._cursor.rowcount
        except Exception as error:
            self.dialect.complain(error, statement.text)
        return max(changed, 0)

    def rows(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> list[Row]:
        statement = self.dialect.statement(sql)
        try:
            self._cursor.execute(statement.text, encode_params(statement, params))
            found: list[Row] = self._cursor.fetchall()
            return self._decoded(statement, found) if found else []
        except Exception as error:
            self.dialect.complain(error, statement.text)

    def _decoded(self, statement: Statement, found: list[Row]) -> list[Row]:
        if statement.plan is None:
            statement.plan = plan_of([column[0] for column in self._cursor.description])
        return decode(found, statement.plan) if statement.plan else list(found)

    def insert_rows(
        self,
        table: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[object]],
        *,
        on_conflict_do_nothing: bool = False,
    ) -> int:
        if not rows:
            return 0
        text = (
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            f"{' ON CONFLICT DO NOTHING' if on_conflict_do_nothing else ''}"
        )
        try:
            self._cursor.executemany(text, encode_rows(rows))
        except Exception as error:
            self.dialect.complain(error, text)
        return max(int(self._cursor.rowcount), 0)

    def update_rows(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        if not rows:
            return 0
        key, *others = columns
        text = f"UPDATE {table} SET {' = ?, '.join(others)} = ? WHERE {key} = ?"
        # the key comes last in the statement; a numbered bind would be a named one from Python 3.12 on
        turned = [(*row[1:], row[0]) for row in encode_rows(rows)]
        try:
            self._cursor.executemany(text, turned)
        except Exception as error:
            self.dialect.complain(error, text)
        return max(int(self._cursor.rowcount), 0)

    def on_commit(self, action: Callable[[], None]) -> None:
        if not self.enlisted:
            self._actions.append(action)

    def committed(self) -> None:
        """Run what was to happen after the commit."""
        for action in self._actions:
            action()
