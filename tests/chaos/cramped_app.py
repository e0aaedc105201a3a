"""The same app on a SQLite database that may have as many pages as the file CHAOS_PAGES says; 0: any number."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

from ratchet import Scheduler

UNLIMITED = 1073741823


class Cramped(sqlite3.Connection):
    """The limit belongs to a connection, not to the file: each looks at it whenever it is about to do something."""

    pages = 0

    def cursor(self, *arguments: Any, **more: Any) -> sqlite3.Cursor:
        cursor = super().cursor(*arguments, **more)
        allowed = Path(os.environ["CHAOS_PAGES"])
        pages = int(allowed.read_text() or 0) if allowed.exists() else 0
        if pages != self.pages:
            cursor.execute(f"PRAGMA max_page_count = {pages or UNLIMITED}")
            self.pages = pages
        return cursor


def _connect(*arguments: Any, **more: Any) -> sqlite3.Connection:
    return _plain_connect(*arguments, factory=Cramped, **more)


_plain_connect = sqlite3.connect
sqlite3.connect = _connect
scheduler = Scheduler(allow=["tests.chaos.jobs"])
