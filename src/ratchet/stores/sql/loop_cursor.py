"""The cursor of an async driver, for a thread: each call is carried out by the driver's event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


class LoopCursor:
    """Has what a session uses of a cursor."""

    def __init__(self, cursor: Any, wait: Callable[[Awaitable[Any]], Any]) -> None:
        #: The driver's own.
        self.cursor = cursor
        self._wait = wait

    def execute(self, text: str, *binds: Any) -> None:
        """Run one statement."""
        self._wait(self.cursor.execute(text, *binds))

    def executemany(self, text: str, rows: Any) -> None:
        """Run one statement for many rows."""
        self._wait(self.cursor.executemany(text, rows))

    def fetchone(self) -> Any:
        """The next row."""
        return self._wait(self.cursor.fetchone())

    def fetchall(self) -> Any:
        """The rows that are left."""
        return self._wait(self.cursor.fetchall())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cursor, name)
