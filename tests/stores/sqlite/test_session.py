"""SQLite's session: what it hands to the driver."""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from ratchet.stores.sql.dialects.sqlite.session import SqliteSession


class Noting(sqlite3.Cursor):
    """Remembers the statements for many rows."""

    texts: tuple[str, ...] = ()

    def executemany(self, sql: str, rows: Any, /) -> Noting:
        self.texts += (sql,)
        super().executemany(sql, rows)
        return self


def test_rows_are_updated_by_their_first_column_with_nameless_binds() -> None:
    """A bind with a number counts as a named one: Python 3.12 warns where a sequence is given for it, 3.14 refuses."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE stock (place TEXT, item TEXT PRIMARY KEY, amount INT)")
    connection.executemany("INSERT INTO stock VALUES (?, ?, ?)", [("a", "nail", 1), ("b", "screw", 2)])
    cursor = Noting(connection)
    session = SqliteSession(None, connection, cursor)  # type: ignore[arg-type]
    changed = session.update_rows("stock", ["item", "place", "amount"], [("nail", "c", 5), ("bolt", "d", 9)])
    found = connection.execute("SELECT place, item, amount FROM stock ORDER BY item").fetchall()
    connection.close()
    assert (changed, found) == (1, [("c", "nail", 5), ("b", "screw", 2)])
    assert cursor.texts
    assert not any(re.search(r"\?\d", text) for text in cursor.texts)
