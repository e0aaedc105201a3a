"""
The lookout at SQLite's gate: says who holds it when everybody has waited for long.

A process that dies frees its locks with its last breath. One that is stopped keeps them, and no other can
take them from it: somebody has to be told.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("ratchet.stores.sql")

#: Seconds of waiting after which it is said who is waited for, and seconds until it is said again.
LONG = 10.0
AGAIN = 60.0

# ``struct flock`` as the system has it
if sys.platform == "darwin":
    _FLOCK, _FIELDS = "qqihh", ("l_start", "l_len", "l_pid", "l_type", "l_whence")
else:
    _FLOCK, _FIELDS = "hhqqi0q", ("l_type", "l_whence", "l_start", "l_len", "l_pid")


class Lookout:
    """Watches one wait at a time, from a thread that exists once somebody has had to wait."""

    def __init__(self, path: Path | None, describe: Callable[[], str | None]) -> None:
        self._path = path
        self._describe = describe
        self._since: float | None = None
        self._called = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Somebody waits, from now on if nobody did."""
        if self._since is not None:
            return
        self._since = time.monotonic()
        self._called.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="ratchet-gate", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Nobody waits any more."""
        self._since = None

    def _watch(self) -> None:
        while True:
            self._called.wait()
            self._called.clear()
            said = 0.0
            while (since := self._since) is not None:
                now = time.monotonic()
                waited = now - since
                if waited >= LONG and now - said >= AGAIN:
                    self._say(waited)
                    said = now
                time.sleep(min(max(LONG - waited, 0.05), 1.0))

    def _say(self, waited: float) -> None:
        holder = self._describe()
        if holder is not None:
            log.warning("writers of %s have been waiting for %.0f s: %s", self._path, waited, holder)


def describe_holder(file: int, byte: int) -> str | None:
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
