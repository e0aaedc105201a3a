"""
Where a test run writes: in memory, where there is room for it.

The tests start servers, make hundreds of databases and commit thousands of times. A disk that is asked to sync each
time is what they would mostly wait for, and no test cuts the power: a killed process loses nothing of what it wrote.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from tests.services.server import is_alive

MEMORY = Path("/dev/shm")
VARIABLE = "TMPDIR"
PREFIX = "ratchet-scratch-"

#: Servers and databases of a run take two or three; the rest of the machine needs some, too.
ROOM = 8 * 2**30


class Scratch:
    """The temporary directory of one run, of all its workers and servers; `end` removes it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @classmethod
    def begin(cls, memory: Path = MEMORY, room: int = ROOM) -> Scratch | None:
        """Take one in memory; None where there is no room, or where somebody has chosen a directory."""
        if VARIABLE in os.environ or not _has_room(memory, room):
            return None
        _remove_forgotten(memory)
        directory = memory / f"{PREFIX}{os.getpid()}"
        directory.mkdir(mode=0o700)
        directory.chmod(0o1777)  # servers run as users of their own
        os.environ[VARIABLE] = str(directory)
        tempfile.tempdir = None  # found out again, from the variable
        return cls(directory)

    def end(self) -> None:
        """Remove it, with all that is in it."""
        os.environ.pop(VARIABLE, None)
        tempfile.tempdir = None
        shutil.rmtree(self.directory, ignore_errors=True)


def _has_room(memory: Path, room: int) -> bool:
    try:
        free = shutil.disk_usage(memory).free
        lines = Path("/proc/meminfo").read_text().splitlines()
        available = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return False  # not a machine that has such a thing
    return min(free, available) >= room and os.access(memory, os.W_OK)


def _remove_forgotten(memory: Path) -> None:
    """A run that was killed could not remove its own."""
    for directory in memory.glob(f"{PREFIX}*"):
        owner = directory.name.removeprefix(PREFIX)
        if owner.isdecimal() and not is_alive(int(owner)):
            shutil.rmtree(directory, ignore_errors=True)
