"""Whoever holds up all writers of a SQLite database is named."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from ratchet.stores import open_store
from ratchet.stores.sql.dialects.sqlite import connections as sqlite_connections
from tests.support.waiting import until

PATIENCE = 60.0

STOPPED = """
import os, signal, sys
from ratchet.stores import open_store
store = open_store(sys.argv[1])
with store.begin():
    sys.stdout.write("holds it\\n")
    sys.stdout.flush()
    os.kill(os.getpid(), getattr(signal, sys.argv[2]))
    sys.stdin.readline()
"""


@contextmanager
def holder(url: str, stop: str = "SIGSTOP") -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a write transaction: stopped, or (SIGCONT) merely slow."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, url, stop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "holds it"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with its schema, and a warning that does not wait for long."""
    monkeypatch.setattr(sqlite_connections, "LONG", 0.1)
    made = f"sqlite:///{tmp_path / 'jobs.db'}"
    with closing(open_store(made)) as store:
        store.migrate()
    return made


def wait_for(said: str, caplog: pytest.LogCaptureFixture) -> None:
    """Until a log line has these words."""
    until(lambda: said in caplog.text, PATIENCE, f"no log line says: {said}")


def test_a_stopped_process_is_named(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its number, that it is stopped, and what to do; when it is killed everybody goes on at once."""
    written = threading.Event()

    def write() -> None:
        with closing(open_store(url)) as store, store.begin():
            written.set()

    with caplog.at_level(logging.WARNING, "ratchet.stores.sql"), holder(url) as process:
        writer = threading.Thread(target=write)
        writer.start()
        wait_for(f"process {process.pid} holds the write lock and is stopped", caplog)
        assert f"kill -9 {process.pid}" in caplog.text
        assert not written.is_set()
        os.kill(process.pid, signal.SIGKILL)
        assert written.wait(PATIENCE)
        writer.join(PATIENCE)


def test_a_slow_process_is_named(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """One that goes on is told apart from one that is stopped."""
    with caplog.at_level(logging.WARNING, "ratchet.stores.sql"), holder(url, "SIGCONT") as process:

        def write() -> None:
            with closing(open_store(url)) as store, store.begin():
                pass

        writer = threading.Thread(target=write)
        writer.start()
        wait_for(f"process {process.pid} holds the write lock; look", caplog)
        process.communicate("go on\n", timeout=PATIENCE)
        writer.join(PATIENCE)
        assert not writer.is_alive()


def test_nothing_is_said_of_short_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Threads and transactions that queue for the write lock in the usual way are no news."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    with caplog.at_level(logging.WARNING, "ratchet.stores.sql"), closing(open_store(url)) as store:
        store.migrate()
        for _ in range(20):
            with store.begin():
                pass
    assert caplog.text == ""
