"""
Wakeups on SQLite: a look at ``PRAGMA data_version``, which changes when another connection has committed.

One look takes a few microseconds and reads no table. Commits of this process count too and cause a poll that
finds nothing; telling them apart would cost more in every transaction than such a poll.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ratchet.model.status import Priority
from ratchet.spi.broadcast import Listeners, Outage

log = logging.getLogger("ratchet.wakeups")

BUSY_INTERVAL = 0.005  # seconds between two looks while things change
IDLE_INTERVAL = 0.05  # and otherwise
BUSY_FOR = 1.0  # seconds after a change
RETRY_INTERVAL = 1.0  # seconds until a file that cannot be read is tried again

#: Watches inherited by a fork. Closing their connections would act on files that belong to the parent.
_abandoned: list[Any] = []


class SqliteWakeups:
    """
    Wakes this process when any other connection has written to the database file.

    Whoever writes has nothing to send: the commit is the message.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listeners = Listeners()
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._watch: Watch | None = None

    def _check_fork(self) -> None:
        if self._process != os.getpid():
            _abandoned.append(self._watch)
            self._forget()

    @property
    def connected(self) -> bool:
        """True while the file is watched."""
        watch = self._watch
        return watch is not None and watch.connected and self._process == os.getpid()

    def notify_new_work(self, priority: Priority) -> None:
        """Do nothing: the commit of the submission has already been seen."""

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None:
        """Call *listener* after commits of others; registering it again changes nothing."""
        self._listeners.add(listener)

    def start(self) -> None:
        """Begin to watch; a second call does nothing."""
        self._check_fork()
        with self._lock:
            if self._watch is None:
                self._watch = Watch(self._path, self._listeners)
                self._watch.start()

    def stop(self) -> None:
        """End the watch and close its connection; a second call does nothing."""
        self._check_fork()
        with self._lock:
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.stop()


class Watch:
    """The thread that looks, and its connection."""

    def __init__(self, path: Path, listeners: Listeners) -> None:
        self._path = path
        self._listeners = listeners
        self._stopping = threading.Event()
        self._outage = Outage(
            "the SQLite database is not watched for new work (%s); pollers look more often until it is",
            "the SQLite database is watched for new work again",
        )
        self._connection: sqlite3.Connection | None = (
            None  # kept here, so that a forked child does not close it
        )
        self._thread = threading.Thread(target=self._run, name="ratchet-wakeups-watch", daemon=True)
        self.connected = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Call no listener any more, and end."""
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._watch()
            except sqlite3.Error as error:
                self._outage.begin(error)
                self._attached(False)
                self._stopping.wait(RETRY_INTERVAL)
            finally:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None

    def _watch(self) -> None:
        # Not mode=ro: that cannot read a write-ahead log that nobody else has open.
        self._connection = sqlite3.connect(
            f"file:{quote(str(self._path))}?mode=rw", uri=True, timeout=0.1, isolation_level=None
        )
        self._connection.execute("PRAGMA query_only = ON")
        look = self._connection.execute
        seen = look("PRAGMA data_version").fetchone()
        self._outage.end()
        self._attached(True)
        busy_until = 0.0
        while not self._stopping.wait(BUSY_INTERVAL if time.monotonic() < busy_until else IDLE_INTERVAL):
            try:
                version = look("PRAGMA data_version").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    continue  # recovering, or without a write-ahead log: look again
                raise
            if version != seen:
                seen = version
                busy_until = time.monotonic() + BUSY_FOR
                self._listeners.call()

    def _attached(self, connected: bool) -> None:
        if connected != self.connected:
            self.connected = connected
            if not self._stopping.is_set():
                self._listeners.call()
