"""An app whose worker has one slot, and jobs that keep it."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from ratchet import Scheduler, circuit_breaker

scheduler = Scheduler(allow=["tests.cluster.idlers"])


def greet(name: str) -> str:
    """Is done at once."""
    return f"hello {name}"


@circuit_breaker("bank")
def pay(name: str) -> str:
    """Is done at once, if the bank's breaker lets it."""
    return f"paid {name}"


def fail() -> None:
    """Fails."""
    raise ValueError("no")


def kill() -> None:
    """Takes the whole process with it."""
    os._exit(9)


def wait_for(path: str) -> None:
    """Ends when the file is there. An interruption ends it too."""
    while not Path(path).exists():
        time.sleep(0.05)


def hang() -> None:
    """Holds the interpreter in one call in C, for longer than anybody waits."""
    re.match(r"(a+)+$", "a" * 60 + "b")


async def block(seconds: float) -> None:
    """Keeps the event loop that all async jobs of this process run on: it does not await."""
    time.sleep(seconds)


def sleep_through(seconds: float) -> None:
    """One call that no interruption ends."""
    time.sleep(seconds)
