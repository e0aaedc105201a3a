"""The bytes of the lock file, one of who writes and one of who waits next, as another process may hold them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ratchet.stores.sql.dialects.sqlite.connections import _NEXT, _WRITER, write_lock_of
from tests.support.waiting import until

HOLDER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))
print("held", flush=True)
sys.stdin.readline()
"""


@contextmanager
def held_elsewhere(file: Path, byte: int) -> Iterator[subprocess.Popen[str]]:
    """Another process holds a byte, as long as the block lasts."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(file), str(byte)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_another_process_writes(tmp_path: Path) -> None:
    """Nobody here gets the lock until that process has ended."""
    lock = write_lock_of(tmp_path / "shop.db")
    with held_elsewhere(tmp_path / "shop.db-gate", _WRITER):
        assert not lock.acquire(0.05)
    assert lock.acquire(10)
    lock.release()


def test_another_process_waits_to_write(tmp_path: Path) -> None:
    """It goes first, although nobody writes at this moment: whoever has just written must not get in again before it."""
    lock = write_lock_of(tmp_path / "shop.db")
    got = threading.Event()

    def write() -> None:
        assert lock.acquire(30)
        got.set()
        lock.release()

    with held_elsewhere(tmp_path / "shop.db-gate", _NEXT):
        thread = threading.Thread(target=write)
        thread.start()
        until(lambda: lock._long_wait._since is not None)  # it has found the byte taken
        assert not got.is_set()
    thread.join(30)
    assert got.is_set()


def test_whoever_writes_lets_others_wait_in_line(tmp_path: Path) -> None:
    """While it writes, another process can be the next; afterwards both bytes are free."""
    file = tmp_path / "shop.db-gate"
    lock = write_lock_of(tmp_path / "shop.db")
    assert lock.acquire(10)
    with held_elsewhere(file, _NEXT):
        lock.release()
        with held_elsewhere(file, _WRITER):
            pass
    assert lock.acquire(0)
    lock.release()
