"""Jobs for tests with real processes: each writes down what it does, so that the test can see it."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path

from ratchet.api.context import JobContext


def write(ledger: str, *words: object) -> None:
    """Append one line; a single write, so that lines of several processes do not mix."""
    line = " ".join(str(word) for word in words) + "\n"
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def lines(ledger: str | Path) -> list[list[str]]:
    """What was written, line by line, in words."""
    path = Path(ledger)
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def note(ledger: str, name: str) -> str:
    """Writes one line and is done."""
    write(ledger, "ran", name, os.getpid())
    return name


def slow(ledger: str, name: str, seconds: float) -> str:
    """Takes *seconds*, in Python code that can be interrupted; answers with the id of its process."""
    write(ledger, "start", name, os.getpid(), JobContext.current().attempt)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.02)
    write(ledger, "end", name, os.getpid())
    return str(os.getpid())


def deaf(ledger: str, name: str, seconds: float) -> None:
    """Sits in one C call that releases the interpreter's lock but cannot be interrupted."""
    write(ledger, "start", name, os.getpid(), JobContext.current().attempt)
    time.sleep(seconds)
    write(ledger, "end", name, os.getpid())


def slow_at_first(ledger: str, name: str) -> str:
    """As `slow`, for longer than any test waits; but a second run takes no time."""
    return slow(ledger, name, _longer_than_a_test(ledger, name))


def deaf_at_first(ledger: str, name: str) -> None:
    """As `deaf`, for longer than any test waits; but a second run takes no time."""
    deaf(ledger, name, _longer_than_a_test(ledger, name))


def _longer_than_a_test(ledger: str, name: str) -> float:
    return 0.0 if any(words[:2] == ["start", name] for words in lines(ledger)) else 120.0


def greedy(ledger: str, name: str, length: int) -> str:
    """Holds the interpreter's lock in C, in a regular expression that backtracks: no other thread runs."""
    write(ledger, "start", name, os.getpid(), JobContext.current().attempt)
    begun = time.monotonic()
    re.match(r"(a+)+$", "a" * length + "b")
    write(ledger, "end", name, os.getpid(), f"{time.monotonic() - begun:.1f}")
    return str(os.getpid())


def greedy_length(seconds: float) -> int:
    """How long a text must be to keep `greedy` busy for at least *seconds* here: each letter doubles it."""
    length = 18
    while (taken := min(_greedy_time(length) for _ in range(3))) < 0.1:
        length += 1
    while taken < seconds:
        length += 1
        taken *= 2
    return length


def _greedy_time(length: int) -> float:
    begun = time.process_time()
    re.match(r"(a+)+$", "a" * length + "b")
    return time.process_time() - begun


def gated(ledger: str, name: str, gate: str) -> None:
    """Goes on when the file *gate* is there."""
    write(ledger, "start", name, os.getpid())
    while not Path(gate).exists():
        time.sleep(0.02)


def fail_once(ledger: str, name: str, seconds: float) -> str:
    """Fails at its first attempt, after *seconds*."""
    attempt = JobContext.current().attempt
    write(ledger, "start", name, os.getpid(), attempt)
    if attempt == 1:
        time.sleep(seconds)
        raise ValueError("the first attempt fails")
    return name


_coroutines = 0


async def count_neighbors(ledger: str, name: str, seconds: float) -> int:
    """How many coroutines of this function this process runs at once, this one included."""
    global _coroutines  # one number for the whole process is what is counted
    _coroutines += 1
    seen = _coroutines
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        seen = max(seen, _coroutines)
    _coroutines -= 1
    return seen
