"""
How this process gets at a SQLite file: one connection that writes, behind a fair lock, and any number that read.

SQLite has one write lock. Its own waiting (``busy_timeout``) sleeps and tries again, so that under load somebody waits
for seconds and then is told "database is locked". Here the threads of a process queue in order, and processes queue on
a lock file beside the database: first come, first served. When everybody has waited for long, a warning names the
process that holds the lock: one that dies frees it at once, but one that is stopped keeps it, and nobody else can take
it away.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sqlite3
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ratchet.model.errors import ConfigurationError, StoreUnavailable

#: What is appended to the name of the database for the file of its write lock.
_LOCK_FILE = "-gate"
#: The mode of new files.
_PRIVATE = 0o600

log = logging.getLogger("ratchet.stores.sql")

OLDEST = (3, 35, 0)  # RETURNING
_WAL_LIMIT = 64 * 1024 * 1024
_WAL_CHECK_EVERY = 64  # commits
_CHECKPOINT_TIMEOUT = 50  # milliseconds
_PAUSE_TIMEOUT = 2.0  # seconds

#: The bytes of the lock file: who waits next, and who writes.
_NEXT = 0
_WRITER = 1
_BOTH = 2  # bytes, from the first

#: Seconds of waiting after which a warning says who is waited for, and seconds until it is said again.
LONG = 10.0
AGAIN = 60.0

# ``struct flock`` as the system has it
if sys.platform == "darwin":
    _FLOCK, _FIELDS = "qqihh", ("l_start", "l_len", "l_pid", "l_type", "l_whence")
else:
    _FLOCK, _FIELDS = "hhqqi0q", ("l_type", "l_whence", "l_start", "l_len", "l_pid")

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
        self._write_lock = write_lock_of(self.path) if self.path is not None else WriteLock(None)

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            _abandoned.append((self._writer, self._idle))
            self._lock = threading.Lock()
            self._start()

    @property
    def write_lock(self) -> WriteLock:
        """The lock to take before writing (in memory: before anything)."""
        self._check_fork()
        return self._write_lock

    def writer(self) -> sqlite3.Connection:
        """The one connection that writes. Only for whoever has the write lock."""
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
        Keep the write-ahead log small; called by the writer, which still has the lock.

        SQLite's own checkpoints give up while anybody reads, so that under steady reading the log
        grows without limit. This one waits a moment for the readers, whose reads are short.
        """
        self._commits += 1
        if self.path is None or self._commits % _WAL_CHECK_EVERY:
            return
        try:
            size = Path(f"{self.path}-wal").stat().st_size
        except OSError:
            return
        if size > _WAL_LIMIT // 4 and self._writer is not None:
            self._writer.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_TIMEOUT}")
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
        try:
            locked = self._write_lock.acquire(self.busy_timeout)
        except OSError:
            locked = False  # the file of the lock cannot be opened, so nobody here has written
        if locked:
            try:
                if self._writer is not None:
                    self._writer.close()
                    self._writer = None
            finally:
                self._write_lock.release()
        self._write_lock.close_file()

    def __del__(self) -> None:
        # Closing a database in memory loses it, so that happens only when nobody can ask for it any more. And a program
        # that closes nothing gets no ResourceWarning for each connection.
        if self._pid == os.getpid():
            for connection in (self._writer, *self._idle):
                if connection is not None:
                    connection.close()

    def _open(self, *, reading: bool = False) -> sqlite3.Connection:
        if self.path is not None and not self.path.parent.is_dir():
            raise StoreUnavailable(
                f"the directory of the SQLite database {self.path} does not exist; create it, or name another file"
            )
        if self.path is not None and not reading and not self.path.exists():
            _create_private(self.path)
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


class WriteLock:
    """
    Held by one writer at a time, in this process and in all others that use the same file.

    Two byte locks make it fair between processes: a process first takes the byte of the one who waits
    next, then that of the writer. So a process that has just written cannot get in again before those
    who wait. The locks are POSIX record locks: the kernel frees them when the process dies, and a
    forked child does not inherit them, as it would with ``flock``.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._turn = FairLock()
        self._file: int | None = None
        self._holder: int | None = None
        self._long_wait = LongWait(path, self._describe_holder)

    @property
    def held_here(self) -> bool:
        """True if the calling thread has it."""
        return self._holder == threading.get_ident()

    def acquire(self, timeout: float) -> bool:
        """True once the caller may write; False after *timeout* seconds."""
        deadline = time.monotonic() + timeout
        if not self._turn.acquire(timeout):
            return False
        try:
            locked = self._path is None or self._lock_file(deadline)
        except BaseException:
            self._turn.release()
            raise
        if not locked:
            self._turn.release()
            return False
        self._holder = threading.get_ident()
        return True

    def release(self) -> None:
        """Let the next one write."""
        self._holder = None
        try:
            if self._file is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _WRITER)
        finally:
            self._turn.release()

    def pause(self) -> bool:
        """Keep every thread of this process from writing; False if one holds the lock for longer than a moment."""
        return not self.held_here and self._turn.acquire(_PAUSE_TIMEOUT)

    def resume(self) -> None:
        """End the pause."""
        self._turn.release()

    def close_file(self) -> None:
        """
        Close the lock file, if no thread of this process uses it; the next writer opens it again.

        Closing it drops every lock that this process has on it, so it must have none.
        """
        if self._turn.acquire(0):
            try:
                if self._file is not None:
                    os.close(self._file)
                    self._file = None
            finally:
                self._turn.release()

    def _lock_file(self, deadline: float) -> bool:
        file = self._opened()
        if _try_lock(file, _NEXT, _BOTH):  # nobody writes, and nobody waits to
            fcntl.lockf(file, fcntl.LOCK_UN, 1, _NEXT)
            return True
        try:
            if not _try_lock(file, _NEXT):
                self._long_wait.begin()
                # Whoever waits next gives up at its deadline, so this wait ends too, unless that process is stopped.
                fcntl.lockf(file, fcntl.LOCK_EX, 1, _NEXT)
            return self._lock_writer(file, deadline)
        finally:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, _NEXT)
            self._long_wait.end()

    def _lock_writer(self, file: int, deadline: float) -> bool:
        pause = 0.00005
        while not _try_lock(file, _WRITER):
            self._long_wait.begin()
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, 0.002)
        return True

    def _describe_holder(self) -> str | None:
        """Who is waited for; None: a transaction of this process, which warns of itself."""
        file = self._file
        return None if file is None else _describe_holder(file, _WRITER) or _describe_holder(file, _NEXT)

    def _opened(self) -> int:
        if self._file is None:
            assert self._path is not None
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                self._file = os.open(self._path, flags)
            except FileNotFoundError:
                mode = self._mode()
                self._file = os.open(self._path, flags | os.O_CREAT, mode)
                os.fchmod(self._file, mode)  # also what the umask takes away
        return self._file

    def _mode(self) -> int:
        """That of the database, so that whoever may write there can take the lock; its owner's alone before it exists."""
        try:
            return Path(str(self._path).removesuffix(_LOCK_FILE)).stat().st_mode & 0o666
        except FileNotFoundError:
            return _PRIVATE


def _create_private(path: Path) -> None:
    """Make an empty file that only its owner may read: jobs hold what people pass to them."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))
    except OSError:
        pass  # it is there already, or SQLite says better what is wrong


def _try_lock(file: int, byte: int, length: int = 1) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, byte)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


class FairLock:
    """A lock that is handed to the thread that has waited longest."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """True once this thread has it; False after *timeout* seconds."""
        with self._mutex:
            if not self._held:
                self._held = True
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=max(timeout, 0)):
            return True
        with self._mutex:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        # it was handed over at the very moment of giving up
        return True

    def release(self) -> None:
        """Hand the lock to the next in line."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


class LongWait:
    """Warns of a wait that is long, from a thread that starts when somebody first has to wait."""

    def __init__(self, path: Path | None, describe: Callable[[], str | None]) -> None:
        self._path = path
        self._describe = describe
        self._since: float | None = None
        self._begun = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Somebody waits; counted from now if nobody did."""
        if self._since is not None:
            return
        self._since = time.monotonic()
        self._begun.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="ratchet-gate", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Nobody waits any more."""
        self._since = None

    def _watch(self) -> None:
        while True:
            self._begun.wait()
            self._begun.clear()
            warned = 0.0
            while (since := self._since) is not None:
                now = time.monotonic()
                waited = now - since
                if waited >= LONG and now - warned >= AGAIN:
                    self._warn(waited)
                    warned = now
                time.sleep(min(max(LONG - waited, 0.05), 1.0))

    def _warn(self, waited: float) -> None:
        holder = self._describe()
        if holder is not None:
            log.warning("writers of %s have been waiting for %.0f s: %s", self._path, waited, holder)


def _describe_holder(file: int, byte: int) -> str | None:
    """Who holds a byte of the lock file, and what can be done about it; None: nobody, or this process."""
    pid = _holder_of(file, byte)
    if pid is None:
        return None
    if _is_stopped(pid):
        return (
            f"process {pid} holds the write lock and is stopped; let it go on (kill -CONT {pid}), or end it "
            f"(kill -9 {pid}), which frees the lock at once and costs its jobs no more than a crash"
        )
    return f"process {pid} holds the write lock; look for a long transaction there"


def _holder_of(file: int, byte: int) -> int | None:
    wanted = {"l_type": fcntl.F_WRLCK, "l_whence": os.SEEK_SET, "l_start": byte, "l_len": 1, "l_pid": 0}
    try:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, *(wanted[name] for name in _FIELDS)))
    except OSError:
        return None
    found = dict(zip(_FIELDS, struct.unpack(_FLOCK, answer), strict=True))
    # a process of another container has no number here
    return None if found["l_type"] == fcntl.F_UNLCK or found["l_pid"] <= 0 else int(found["l_pid"])


def _is_stopped(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")


_write_locks: dict[str, WriteLock] = {}
_write_locks_guard = threading.Lock()


def write_lock_of(database: Path) -> WriteLock:
    """
    The write lock of a database file; one per file and process, however many stores use it.

    Record locks belong to the process and go when *any* descriptor of the file is closed, so the
    descriptor is opened once and stays open.
    """
    key = os.path.realpath(database)
    with _write_locks_guard:
        if key not in _write_locks:
            _write_locks[key] = WriteLock(Path(key + _LOCK_FILE))
        return _write_locks[key]


#: Locks that are paused while the process forks.
_forking: list[WriteLock] = []


def _before_fork() -> None:
    # SQLite keeps its locks in a table of the process, and a child inherits that table as it is. Forked in
    # the middle of a transaction, the child would wait for ever for a writer that exists in the parent only.
    for lock in list(_write_locks.values()):
        if lock.pause():
            _forking.append(lock)


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().resume()


def _after_fork_in_child() -> None:
    # The child must not believe that it holds what its parent holds, nor wait for the parent's threads.
    global _write_locks_guard
    _write_locks_guard = threading.Lock()
    _write_locks.clear()
    _forking.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
