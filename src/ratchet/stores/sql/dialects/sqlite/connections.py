"""The connections of one process to one SQLite database: a writer behind the gate, and readers."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

from ratchet.model.errors import ConfigurationError, StoreUnavailable
from ratchet.stores.sql.dialects.sqlite.gate import Gate, gate_of

log = logging.getLogger("ratchet.stores.sql")

OLDEST = (3, 35, 0)  # RETURNING
_WAL_LIMIT = 64 * 1024 * 1024
_WAL_CHECK_EVERY = 64  # commits
_CHECKPOINT_PATIENCE = 50  # milliseconds

#: Connections inherited by a fork. Closing them would act on files that belong to the parent.
_abandoned: list[Any] = []


class Connections:
    """
    Opens, lends and closes connections; a forked child gets its own.

    With *path* None the database is in memory: one connection, private to this object.
    """

    _pid: int | None = None

    def __init__(self, path: Path | None, *, synchronous: str, busy_timeout: float) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigurationError(
                f"SQLite {sqlite3.sqlite_version} is too old: Ratchet needs {'.'.join(map(str, OLDEST))} or newer"
            )
        self.path = path
        self.busy_timeout = busy_timeout
        self._synchronous = synchronous
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._writer: sqlite3.Connection | None = None
        self._idle: list[sqlite3.Connection] = []
        self._generation = object()
        self._lent: dict[int, object] = {}
        self._commits = 0
        self._gate = gate_of(self.path) if self.path is not None else Gate(None)

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            _abandoned.append((self._writer, self._idle))
            self._lock = threading.Lock()
            self._start()

    @property
    def gate(self) -> Gate:
        """The gate to pass before writing (in memory: before anything)."""
        self._check_fork()
        return self._gate

    def writer(self) -> sqlite3.Connection:
        """The one connection that writes. Only for whoever has passed the gate."""
        if self._writer is None:
            self._writer = self._open()
        return self._writer

    def is_writer(self, connection: object) -> bool:
        """True for the connection that `writer` lends."""
        return connection is self._writer and self._pid == os.getpid()

    def reader(self) -> sqlite3.Connection:
        """A connection for reading; give it back."""
        self._check_fork()
        with self._lock:
            if self._idle:
                connection = self._idle.pop()
            else:
                connection = self._open(reading=True)
            self._lent[id(connection)] = self._generation
        return connection

    def give_back(self, connection: sqlite3.Connection) -> None:
        """Return what `reader` lent."""
        with self._lock:
            if self._lent.pop(id(connection), None) is self._generation:
                self._idle.append(connection)
                return
        connection.close()

    def after_commit(self) -> None:
        """
        Keep the write-ahead log small; called by the writer, inside the gate.

        SQLite's own checkpoints give up while anybody reads, so that under steady reading the log
        grows for ever. This one waits a moment for the readers, whose reads are short.
        """
        self._commits += 1
        if self.path is None or self._commits % _WAL_CHECK_EVERY:
            return
        try:
            size = Path(f"{self.path}-wal").stat().st_size
        except OSError:
            return
        if size > _WAL_LIMIT // 4 and self._writer is not None:
            self._writer.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_PATIENCE}")
            try:
                mode = "TRUNCATE" if size > _WAL_LIMIT else "RESTART"
                self._writer.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
            except sqlite3.Error as error:
                log.debug("the checkpoint has to wait: %s", error)
            finally:
                self._writer.execute(f"PRAGMA busy_timeout = {int(self.busy_timeout * 1000)}")

    def close(self) -> None:
        """Close what is idle now, and what is lent when it comes back; a database in memory stays."""
        self._check_fork()
        if self.path is None:
            return
        with self._lock:
            idle, self._idle = self._idle, []
            self._generation = object()
        for connection in idle:
            connection.close()
        if self._gate.enter(self.busy_timeout):
            try:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            finally:
                self._gate.leave()
        self._gate.close_file()

    def __del__(self) -> None:
        # Closing a database in memory is losing it, so that happens when nobody can ask for it any more; and a program
        # that has closed nothing is not told so by the interpreter, connection by connection.
        if self._pid == os.getpid():
            for connection in (self._writer, *self._idle):
                if connection is not None:
                    connection.close()

    def _open(self, *, reading: bool = False) -> sqlite3.Connection:
        if self.path is not None and not self.path.parent.is_dir():
            raise StoreUnavailable(
                f"the directory of the SQLite database {self.path} does not exist; create it, or name another file"
            )
        connection = sqlite3.connect(
            str(self.path) if self.path is not None else ":memory:",
            timeout=self.busy_timeout,
            isolation_level=None,  # transactions begin and end where we say
            check_same_thread=False,
            cached_statements=512,
        )
        try:
            self._prepare(connection, reading=reading)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection, *, reading: bool) -> None:
        if reading:
            connection.execute("PRAGMA query_only = ON")
        elif self.path is not None:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode != "wal":
                log.warning(
                    "%s cannot use write-ahead logging (journal mode %s): readers will wait", self.path, mode
                )
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT}")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA cache_size = -32768")
