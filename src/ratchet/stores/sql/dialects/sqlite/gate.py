"""
The gate before SQLite's single write lock: first come, first served, within and across processes.

SQLite's own waiting (``busy_timeout``) sleeps and tries again, so that under load somebody waits for
seconds and then is told "database is locked". Here threads of a process queue in order, and processes
queue on a lock file beside the database.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections import deque
from pathlib import Path

from ratchet.stores.sql.dialects.sqlite.stuck_writer import Lookout, describe_holder

_WAITING_ROOM = 0  # bytes of the lock file
_DOOR = 1
_PAUSE_TIMEOUT = 2.0  # seconds


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
        # it was handed over in the very moment of giving up
        return True

    def release(self) -> None:
        """Hand the lock to the next in line."""
        with self._mutex:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


class Gate:
    """
    Lets one writer at a time through, in this process and in all others that use the same file.

    Two byte locks make it fair between processes: whoever wants through the door first enters the
    waiting room, where only one fits. A process that has just left the door cannot slip in again
    before those who wait. The locks are POSIX record locks: the kernel frees them when the process
    dies, and a forked child does not inherit them, as it would with ``flock``.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._turn = FairLock()
        self._file: int | None = None
        self._holder: int | None = None
        self._lookout = Lookout(path, self._describe_holder)

    @property
    def held_here(self) -> bool:
        """True if the calling thread has passed the gate and not left it."""
        return self._holder == threading.get_ident()

    def enter(self, timeout: float) -> bool:
        """True once the caller may write; False after *timeout* seconds."""
        deadline = time.monotonic() + timeout
        if not self._turn.acquire(timeout):
            return False
        try:
            passed = self._path is None or self._pass_door(deadline)
        except BaseException:
            self._turn.release()
            raise
        if not passed:
            self._turn.release()
            return False
        self._holder = threading.get_ident()
        return True

    def leave(self) -> None:
        """Let the next one through."""
        self._holder = None
        try:
            if self._file is not None:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _DOOR)
        finally:
            self._turn.release()

    def pause(self) -> bool:
        """Wait until no thread of this process is inside and let none in; False if that cannot be had soon."""
        return not self.held_here and self._turn.acquire(_PAUSE_TIMEOUT)

    def resume(self) -> None:
        """End the pause."""
        self._turn.release()

    def close_file(self) -> None:
        """
        Close the lock file, if nobody of this process is at the gate; the next one opens it again.

        Closing it drops every lock that this process has on it, so it must have none.
        """
        if self._turn.acquire(0):
            try:
                if self._file is not None:
                    os.close(self._file)
                    self._file = None
            finally:
                self._turn.release()

    def _pass_door(self, deadline: float) -> bool:
        file = self._opened()
        try:
            if not _try_lock(file, _WAITING_ROOM):
                self._lookout.begin()
                # Whoever is in there leaves at its deadline, so this wait is bounded too, unless it is stopped.
                fcntl.lockf(file, fcntl.LOCK_EX, 1, _WAITING_ROOM)
            return self._open_door(file, deadline)
        finally:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, _WAITING_ROOM)
            self._lookout.end()

    def _open_door(self, file: int, deadline: float) -> bool:
        pause = 0.00005
        while not _try_lock(file, _DOOR):
            self._lookout.begin()
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, 0.002)
        return True

    def _describe_holder(self) -> str | None:
        """Who is waited for; None: a transaction of this very process, which it warns of itself."""
        file = self._file
        return None if file is None else describe_holder(file, _DOOR) or describe_holder(file, _WAITING_ROOM)

    def _opened(self) -> int:
        if self._file is None:
            assert self._path is not None
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._file


def _try_lock(file: int, byte: int) -> bool:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


_gates: dict[str, Gate] = {}
_gates_lock = threading.Lock()


def gate_of(database: Path) -> Gate:
    """
    The gate of a database file; one per file and process, however many stores use it.

    Record locks belong to the process and go when *any* descriptor of the file is closed, so the
    descriptor is opened once and stays open.
    """
    key = os.path.realpath(database)
    with _gates_lock:
        if key not in _gates:
            _gates[key] = Gate(Path(key + "-gate"))
        return _gates[key]


#: Gates that a fork has taken, to be opened again in the parent.
_forking: list[Gate] = []


def _before_fork() -> None:
    # SQLite keeps its locks in a table of the process, and a child inherits that table as it is. Forked in
    # the middle of a transaction, the child would wait for ever for a writer that exists in the parent only.
    for gate in list(_gates.values()):
        if gate.pause():
            _forking.append(gate)


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().resume()


def _after_fork_in_child() -> None:
    # The child must not believe that it holds what its parent holds, nor wait for the parent's threads.
    global _gates_lock
    _gates_lock = threading.Lock()
    _gates.clear()
    _forking.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
