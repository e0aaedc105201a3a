"""What pages have said lately: ten browsers that show the same page cost the store what one does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

#: Seconds for which an answer is given again.
FRESH = 1.0
#: The same of pages that are made from many rows.
OLDEST = 5.0
#: Answers that are kept.
MOST = 256


class _Answer:
    __slots__ = ("data", "lock", "read_at")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read_at: float | None = None
        self.data: Any = None


class Answers:
    """Reads each page once a second at most, however many ask."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._kept: dict[str, _Answer] = {}

    def get(self, key: str, read: Callable[[], Any], *, fresh: float = FRESH) -> Any:
        """The answer to *key*, at most *fresh* seconds old; one caller reads it, those who come meanwhile wait for that."""
        with self._lock:
            answer = self._kept.get(key)
            if answer is None:
                self._forget_some()
                answer = self._kept[key] = _Answer()
        with answer.lock:
            if answer.read_at is None or self._monotonic() - answer.read_at >= fresh:
                answer.data = read()
                answer.read_at = self._monotonic()
            return answer.data

    def clear(self) -> None:
        """Forget all: something was changed, and whoever did it wants to see that."""
        with self._lock:
            self._kept.clear()

    def _forget_some(self) -> None:
        if len(self._kept) < MOST:
            return
        stale = self._monotonic() - OLDEST
        for key, answer in list(self._kept.items()):
            if answer.read_at is not None and answer.read_at <= stale:
                del self._kept[key]
        if len(self._kept) >= MOST:
            self._kept.clear()
