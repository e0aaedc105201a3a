"""Waiting for what other threads, processes and servers do."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PAUSE = 0.01


def until(condition: Callable[[], Any], seconds: float = 20.0, what: str = "it did not happen") -> float:
    """Wait until *condition* holds; how long that took. Fails after *seconds*, in the words of *what*."""
    begun = time.monotonic()
    assert happens(condition, seconds), f"after {time.monotonic() - begun:.1f} s: {what}"
    return time.monotonic() - begun


def happens(condition: Callable[[], Any], seconds: float) -> bool:
    """Whether *condition* holds within *seconds*; it is asked at least once."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE)
    return True
