"""The jobs of chaos scenarios: each run is written down, each effect goes through a transaction."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time

from ratchet import JobContext
from tests.chaos import diary, ledger


def pay(book: str, number: int, rest: float = 0.0, hold: float = 0.0) -> str:
    """Works for *rest* seconds, then books one payment together with its own success, over *hold* seconds."""
    diary.write(book, "start", number)
    _rest(rest)
    with JobContext.current().transaction() as tx:
        ledger.book(tx.connection, number)
        _rest(hold)
        tx.result = f"receipt-{number}"
    diary.write(book, "end", number)
    return "the transaction's result counts"


async def visit(book: str, number: int, rest: float) -> int:
    """An ``async def`` job that does nothing for *rest* seconds."""
    diary.write(book, "start", number)
    await asyncio.sleep(rest)
    diary.write(book, "end", number)
    return number


async def poison(book: str, number: int, rest: float) -> None:
    """Ends its whole process after *rest* seconds, with every neighbor in it."""
    diary.write(book, "start", number)
    await asyncio.sleep(rest)
    os.kill(os.getpid(), signal.SIGKILL)


def hog(book: str, number: int, length: int) -> None:
    """Holds the interpreter's lock in one C call: no other thread of the process runs meanwhile."""
    diary.write(book, "start", number)
    re.match(r"(a+)+$", "a" * length + "b")
    diary.write(book, "end", number)


def fail(book: str, number: int) -> None:
    """Fails for good, with a message of its own: each one a dead letter."""
    diary.write(book, "start", number)
    raise ValueError(f"number {number} is not to be had")


def _rest(seconds: float) -> None:
    """In small pieces: a thread that sleeps in one call cannot be interrupted."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.02))
