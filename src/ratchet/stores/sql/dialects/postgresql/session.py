"""A transaction on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ratchet.stores.sql.columns import kind_in
from ratchet.stores.sql.database import NO_PARAMS, Row, Session
from ratchet.stores.sql.dialects.postgresql.arrays import binary_array
from ratchet.stores.sql.dialects.postgresql.copy import copy_stream
from ratchet.stores.sql.dialects.postgresql.errors import meaning
from ratchet.stores.sql.dialects.postgresql.row_sets import fold
from ratchet.stores.sql.dialects.postgresql.values import (
    Encode,
    array,
    arrays,
    encode_params,
    require_zones,
    times_of,
)
from ratchet.stores.sql.statement import Statement, decode

if TYPE_CHECKING:
    from ratchet.stores.sql.dialects.postgresql.dialect import PostgresqlDialect

RAISE_EPOCHS = """
    UPDATE scheduler_stream
       SET epoch = epoch + 1
      FROM (SELECT stream_id FROM scheduler_stream WHERE stream_id {in ids int} ORDER BY stream_id {for no key update}) s
     WHERE scheduler_stream.stream_id = s.stream_id
"""

_COPY_FROM = 32  # rows; below, one statement is faster than the COPY protocol


class PostgresqlSession(Session):
    """A transaction on a psycopg connection, or on SQLAlchemy's face of one."""

    def __init__(
        self, dialect: PostgresqlDialect, connection: Any, cursor: Any, *, enlisted: bool = False
    ) -> None:
        self.dialect: PostgresqlDialect = dialect
        self.enlisted = enlisted
        self._connection = connection
        self._cursor = cursor
        self._actions: list[Callable[[], None]] = []
        self._backdated: set[int] = set()
        # a caller's connection, or SQLAlchemy's face of it, may not know our arrays
        self._encode: Encode = array if enlisted else binary_array

    @property
    def connection(self) -> Any:
        return self._connection

    def execute(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> int:
        self._send(self.dialect.statement(sql), params)
        return max(int(self._cursor.rowcount), 0)

    def rows(self, sql: str, params: Mapping[str, object] = NO_PARAMS) -> list[Row]:
        statement = self.dialect.statement(sql)
        self._send(statement, params)
        try:
            found: list[Row] = self._cursor.fetchall()
        except Exception as error:
            raise meaning(error, statement.text) from error
        return self._in_utc(statement, found) if self.enlisted and found else list(found)

    def _send(self, statement: Statement, params: Mapping[str, object]) -> None:
        try:
            if self.enlisted or not statement.rowsets:
                self._cursor.execute(statement.text, encode_params(statement, params, self._encode))
            else:
                self._cursor.execute(*fold(self.dialect, statement, params))
        except Exception as error:
            raise meaning(error, statement.text) from error

    def _in_utc(self, statement: Statement, found: list[Row]) -> list[Row]:
        if statement.plan is None:
            statement.plan = times_of([column[0] for column in self._cursor.description])
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
        if not (on_conflict_do_nothing or self.enlisted or len(rows) < _COPY_FROM):
            return self._copy(table, columns, rows)
        kinds = [kind_in(table, column) for column in columns]
        binds = {f"c{index}": column for index, column in enumerate(arrays(rows, kinds, self._encode))}
        lists = ", ".join(f"%(c{index})s::{self.dialect.words[kind]}[]" for index, kind in enumerate(kinds))
        text = (
            f"INSERT INTO {self.dialect.table(table)} ({', '.join(columns)}) SELECT * FROM unnest({lists})"
            f"{' ON CONFLICT DO NOTHING' if on_conflict_do_nothing else ''}"
        )
        try:
            self._cursor.execute(text, binds)
        except Exception as error:
            raise meaning(error, text) from error
        return max(int(self._cursor.rowcount), 0)

    def insert_columns(self, table: str, names: Sequence[str], columns: Sequence[Sequence[object]]) -> int:
        text = f"COPY {self.dialect.table(table)} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"
        try:
            with self._cursor.copy(text) as copy:
                copy.write(copy_stream(table, names, columns))
        except Exception as error:
            raise meaning(error, text) from error
        return len(columns[0])

    def update_rows(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        if not rows:
            return 0
        kinds = [kind_in(table, column) for column in columns]
        binds = {f"c{index}": column for index, column in enumerate(arrays(rows, kinds, self._encode))}
        lists = ", ".join(f"%(c{index})s::{self.dialect.words[kind]}[]" for index, kind in enumerate(kinds))
        values = ", ".join(f"{column} = r.{column}" for column in columns[1:])
        text = (
            f"UPDATE {self.dialect.table(table)} AS t SET {values} "
            f"FROM unnest({lists}) AS r({', '.join(columns)}) WHERE t.{columns[0]} = r.{columns[0]}"
        )
        try:
            self._cursor.execute(text, binds)
        except Exception as error:
            raise meaning(error, text) from error
        return max(int(self._cursor.rowcount), 0)

    def _copy(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
        require_zones(rows)
        text = f"COPY {self.dialect.table(table)} ({', '.join(columns)}) FROM STDIN"
        try:
            with self._cursor.copy(text) as copy:
                for row in rows:
                    copy.write_row(row)
        except Exception as error:
            raise meaning(error, text) from error
        return len(rows)

    def backdated(self, stream_ids: Iterable[int]) -> None:
        # Not in a caller's transaction: until its end everybody else who puts a job back would wait for it. What
        # it stores is found by the next sweep.
        if not self.enlisted:
            self._backdated.update(stream_ids)

    def raise_epochs(self) -> None:
        """
        Tell every claim that starts behind the edge to look there once more; right before the commit.

        The last locks of the transaction, and in order: nobody who has one of them waits for anything else.
        """
        if self._backdated:
            self.execute(RAISE_EPOCHS, {"ids": sorted(self._backdated)})

    def on_commit(self, action: Callable[[], None]) -> None:
        if not self.enlisted:
            self._actions.append(action)

    def committed(self) -> None:
        """Run what was to happen after the commit."""
        for action in self._actions:
            action()
