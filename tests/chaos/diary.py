"""The diary: what jobs write down while they run, outside of any database, so that nothing can take it back."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import shop


@dataclass(frozen=True)
class Entry:
    """One line: which job did what, in which process, of which worker (its process group), and when."""

    verb: str
    number: int
    group: int
    pid: int
    at: float


def write(book: str, verb: str, number: int) -> None:
    """One line, with the machine's monotonic time, which all of its processes share."""
    shop.write(book, verb, number, os.getpgid(0), os.getpid(), f"{time.monotonic():.4f}")


def read(book: str | Path) -> list[Entry]:
    """Every line so far, in the order of time."""
    entries = [
        Entry(words[0], int(words[1]), int(words[2]), int(words[3]), float(words[4]))
        for words in shop.lines(book)
    ]
    return sorted(entries, key=lambda entry: entry.at)


def unended(book: str | Path) -> list[Entry]:
    """The starts of runs that have not come to their end."""
    open_runs: dict[tuple[int, int], Entry] = {}
    for entry in read(book):
        if entry.verb == "start":
            open_runs[entry.number, entry.pid] = entry
        else:
            open_runs.pop((entry.number, entry.pid), None)
    return list(open_runs.values())
