"""The connections to a SQLite file: closed when they are closed, and when nobody has them any more."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path

import pytest

from ratchet.stores.sql.dialects.sqlite.connections import Connections


def test_what_nobody_has_any_more_is_closed(tmp_path: Path) -> None:
    """A program that only leaves ``with scheduler`` has closed nothing; since 3.13 Python would say so of each connection."""
    connections = Connections(tmp_path / "jobs.db", synchronous="FULL", busy_timeout=5)
    writer, reader = connections.writer(), connections.reader()
    connections.give_back(reader)
    del connections
    gc.collect()
    for connection in (writer, reader):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")
