"""An app whose jobs count for themselves how many of them run at once, with locks that die with their process."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from ratchet import Scheduler

scheduler = Scheduler(allow=["tests.cluster.pool"])


def use(folder: str, slots: int, seconds: float) -> str:
    """Takes one of so many slots while it runs; writes down that there was none."""
    for number in range(slots):
        with Path(folder, f"slot-{number}").open("a+") as slot:
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            slot.truncate(0)
            slot.write(str(os.getpid()))
            slot.flush()
            time.sleep(seconds)
            slot.truncate(0)
            return f"slot {number}"
    with Path(folder, "too-many").open("a") as found:
        found.write(f"process {os.getpid()}\n")
    return "too many"


def meet(folder: str, number: int, others: int) -> str:
    """Ends only when so many of its kind run at the same time."""
    Path(folder, f"met-{number}").touch()
    deadline = time.monotonic() + 60
    while len(list(Path(folder).glob("met-*"))) < others:
        if time.monotonic() > deadline:
            return "alone"
        time.sleep(0.02)
    return "met"


def users(folder: Path) -> set[int]:
    """The processes whose jobs hold a slot now."""
    held: set[int] = set()
    for path in folder.glob("slot-*"):
        text = path.read_text()
        if text:
            held.add(int(text))
    return held
