"""A job that writes down each run of it."""

from __future__ import annotations

import os
import threading
import time

#: What has run, and in which store's scheduler.
ledger: list[tuple[str, int]] = []
#: Holds back jobs of the number 0 until it is set.
gate = threading.Event()


def record(where: str, number: int) -> None:
    """Run once."""
    if number == 0:
        gate.wait(60)
    ledger.append((where, number))


def noted(path: str, number: int) -> None:
    """Write down that it has run, in one write that other processes cannot cut, and take a moment."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, b"%d\n" % number)
    finally:
        os.close(file)
    time.sleep(0.02)
