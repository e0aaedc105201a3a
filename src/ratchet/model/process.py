"""The process that runs this: its name, by which nodes and database servers tell whose connection one is, and its memory."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

_LONGEST_HOST = 20  # characters: a server keeps 63 or 128 of a name, and it has other parts

#: A node tells its memory anew when it has changed by this share, and by so many bytes.
_NEWS_SHARE = 0.1
_NEWS_BYTES = 8 * 1024 * 1024

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_STATM = Path("/proc/self/statm")

_names: dict[int, str] = {}  # a forked process is another one


def process_name() -> str:
    """
    Readable (host and pid), and unique: containers may share both.

    A node writes it in its row. Connections have it too, so that those of a dead process can be ended while a
    transaction of it is still open.
    """
    pid = os.getpid()
    if pid not in _names:
        import secrets  # these two not for a program that only submits
        import socket

        host = socket.gethostname().encode("ascii", "replace").decode()[:_LONGEST_HOST]
        _names[pid] = f"{host}:{pid}:{secrets.token_hex(4)}"
    return _names[pid]


def resident_memory() -> int | None:
    """
    The bytes of memory that this process holds now; None where the system does not tell.

    Where there is no ``/proc`` it is the most that it has held so far.
    """
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class MemoryReport:
    """The memory of this process as a node tells it: the old number, until it has changed by enough to be worth a write."""

    def __init__(self, measure: Callable[[], int | None] = resident_memory) -> None:
        self._measure = measure
        self._told: int | None = None

    def about(self) -> int | None:
        """Bytes, roughly."""
        now, told = self._measure(), self._told
        if now is None or told is None or abs(now - told) > max(_NEWS_BYTES, told * _NEWS_SHARE):
            self._told = now
        return self._told


def shown_size(size: int) -> str:
    """So many bytes, for people: ``512 MiB``."""
    power = min(int(math.log(size, 1024)), len(_SIZES) - 1) if size else 0
    amount = size / 1024**power
    return f"{amount:.0f} {_SIZES[power]}" if power < 2 or amount >= 100 else f"{amount:.1f} {_SIZES[power]}"
