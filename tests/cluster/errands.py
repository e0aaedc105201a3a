"""Jobs of nodes that are embedded in the test's own process."""

from __future__ import annotations

import logging
import threading

gate = threading.Event()
waiting = threading.Event()


def greet(name: str) -> str:
    """Is done at once."""
    return f"hello {name}"


def declared() -> None:
    """Is declared, and not run."""


def wait_for_gate() -> None:
    """Goes on when the test opens the gate."""
    waiting.set()
    while not gate.wait(0.05):
        pass


def fail() -> None:
    """Always raises."""
    raise ValueError("no")


def say(name: str) -> str:
    """Logs one line."""
    logging.getLogger(__name__).warning("hello %s", name)
    return name
