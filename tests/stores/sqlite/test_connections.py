"""The connections to a SQLite file: closed when they are closed, and when nobody has them any more."""

from __future__ import annotations

import gc
import sqlite3
from pathlib import Path

import pytest

from ratchet.model.errors import StoreUnavailable
from ratchet.stores import open_store
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


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


def test_new_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    """Arguments and results of jobs are for nobody else on the machine; that holds for the log and the lock as well."""
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    store.migrate()
    found = modes(tmp_path)
    store.close()
    assert {"jobs.db", "jobs.db-wal", "jobs.db-gate"} <= found.keys()
    assert set(found.values()) == {0o600}


def test_an_existing_file_keeps_its_mode(tmp_path: Path) -> None:
    """A group that shares a database goes on sharing it, and its lock."""
    file = tmp_path / "jobs.db"
    file.touch()
    file.chmod(0o660)
    store = open_store(f"sqlite:///{file}")
    store.migrate()
    found = modes(tmp_path)
    store.close()
    assert found["jobs.db"] == found["jobs.db-gate"] == 0o660


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """Whoever may write into the directory cannot make us open a file of theirs, or of somebody else."""
    (tmp_path / "victim").touch()
    (tmp_path / "jobs.db-gate").symlink_to(tmp_path / "victim")
    store = open_store(f"sqlite:///{tmp_path / 'jobs.db'}")
    with pytest.raises(StoreUnavailable, match="lock file"):
        store.migrate()
    store.close()
