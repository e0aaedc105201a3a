"""The same app on a SQLite database that may have as many pages as the file CHAOS_PAGES says; 0: any number."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from pathlib import Path
from typing import Any

from ratchet import Scheduler

UNLIMITED = 1073741823
_opened: weakref.WeakSet[sqlite3.Connection] = weakref.WeakSet()


class Cramped(sqlite3.Connection):
    """A connection whose limit can be changed while it is in use."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        _opened.add(self)


def _connect(*arguments: Any, **more: Any) -> sqlite3.Connection:
    return _plain_connect(*arguments, factory=Cramped, **more)


def _follow(path: Path) -> None:
    """The limit belongs to a connection, not to the file: tell each of them."""
    while True:
        pages = int(path.read_text() or 0) if path.exists() else 0
        for connection in list(_opened):
            try:
                connection.execute(f"PRAGMA max_page_count = {pages or UNLIMITED}")
            except sqlite3.Error:
                pass  # closed in between, or busy: the next round tells it again
        time.sleep(0.1)


_plain_connect = sqlite3.connect
sqlite3.connect = _connect
threading.Thread(target=_follow, args=(Path(os.environ["CHAOS_PAGES"]),), daemon=True).start()
scheduler = Scheduler(allow=["tests.chaos.jobs"])
