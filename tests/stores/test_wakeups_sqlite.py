"""SQLite's data_version, watched: commits of other processes wake this one."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ratchet.stores.sql.dialects.sqlite import wakeups as sqlite_module
from ratchet.stores.sql.dialects.sqlite.wakeups import SqliteWakeups
from tests.stores.wakeup_rigs import (
    TABLE,
    Heard,
    finished,
    forked,
    latencies,
    listening,
    log,
    python,
    threads_end,
    waking_threads,
)
from tests.support.waiting import happens, until


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    with threads_end():
        yield


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A SQLite file with a write-ahead log, as a store leaves it."""
    path = tmp_path / "jobs & 100% ?.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(TABLE)
    return path


@contextmanager
def watching(path: Path) -> Iterator[tuple[SqliteWakeups, Heard]]:
    """A watch that has begun, and its listener."""
    with listening(SqliteWakeups(path)) as found:
        yield found


WRITER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for _ in range(int(sys.argv[2])):
    connection.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
    print(time.monotonic(), flush=True)
    time.sleep(0.0213)
"""


class TestSqlite:
    def test_a_commit_of_another_process_wakes(self, database: Path) -> None:
        """Another process writes one row and ends; the listener is called."""
        with watching(database) as (_, heard):
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            assert heard.within(5, after=before)

    def test_commits_are_seen_in_milliseconds(self, database: Path) -> None:
        """From the commit in one process to the listener in another: 5 ms in the middle while things change."""
        with watching(database) as (_, heard):
            sent = [float(line) for line in finished(python(WRITER, str(database), "100")).split()]
            until(lambda: heard.times[-1] >= sent[-1])
            middle, slow = latencies(sent[1:], heard.times)
        log.info("latency: p50 %.2f ms, p99 %.2f ms", middle, slow)
        assert middle < 20  # 3 on a quiet machine; this one may be busy

    def test_nothing_wakes_while_nothing_changes(self, database: Path) -> None:
        """Reads, and transactions that change nothing, wake nobody: an empty poll must not lead to the next one."""
        with (
            watching(database) as (_, heard),
            closing(sqlite3.connect(database, isolation_level=None)) as other,
        ):
            before = len(heard)
            for _ in range(20):
                other.execute("BEGIN IMMEDIATE")
                other.execute("UPDATE scheduler_job_queue SET job_id = 'y' WHERE job_id = 'none'")
                other.execute("COMMIT")
                other.execute("SELECT count(*) FROM scheduler_job_queue").fetchall()
                time.sleep(0.01)
            assert len(heard) == before
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(5, after=before)

    def test_it_looks_often_only_while_things_change(
        self, database: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After a change the next one is seen soon; when all has been quiet for a while, looks are rare again."""
        monkeypatch.setattr(sqlite_module, "IDLE_INTERVAL", 1.0)
        monkeypatch.setattr(sqlite_module, "BUSY_FOR", 0.5)
        with (
            watching(database) as (_, heard),
            closing(sqlite3.connect(database, isolation_level=None)) as other,
        ):
            before = len(heard)
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(5, after=before)
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(0.3, after=before + 1)
            time.sleep(0.7)  # it has just begun a long rest
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert not heard.within(0.3, after=before + 2)
            assert heard.within(5, after=before + 2)

    def test_it_does_not_keep_the_log_from_being_truncated(self, database: Path) -> None:
        """A look leaves no read transaction behind."""
        with (
            watching(database) as (_, heard),
            closing(sqlite3.connect(database, isolation_level=None)) as other,
        ):
            before = len(heard)
            other.execute("INSERT INTO scheduler_job_queue VALUES ('x')")
            assert heard.within(5, after=before)
            busy, _, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert busy == 0

    def test_stop_and_start(self, database: Path) -> None:
        """After stop() nothing is called; twice is once; start() watches again; the file can be removed then."""
        with watching(database) as (coordinator, heard):
            coordinator.start()
            coordinator.stop()
            coordinator.stop()
            assert waking_threads() == []
            assert not coordinator.connected
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            time.sleep(0.1)
            assert len(heard) == before
            coordinator.start()
            until(lambda: coordinator.connected)
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            assert heard.within(5, after=before)

    def test_a_file_that_cannot_be_opened_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One warning; it is not created by looking; once it is there it is watched."""
        monkeypatch.setattr(sqlite_module, "RETRY_INTERVAL", 0.02)
        path = tmp_path / "later.db"
        coordinator, heard = SqliteWakeups(path), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        until(lambda: bool(caplog.records))
        time.sleep(0.2)
        assert not path.exists()
        assert not coordinator.connected
        assert len(caplog.records) == 1
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(TABLE)
            until(lambda: coordinator.connected)
            assert heard.within(5, after=0)
        coordinator.stop()

    def test_a_forked_child_watches_for_itself(self, database: Path) -> None:
        """The child's coordinator is not connected, can start, and leaves its parent's watch alone."""
        with watching(database) as (coordinator, heard):
            assert forked(lambda: watching_child(coordinator)) == 0
            before = len(heard)
            finished(python(WRITER, str(database), "1"))
            assert heard.within(5, after=before)


def watching_child(coordinator: SqliteWakeups) -> bool:
    was_connected = coordinator.connected
    coordinator.start()
    connected = happens(lambda: coordinator.connected, 5)
    coordinator.stop()
    return connected and not was_connected
