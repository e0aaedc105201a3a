"""A walk through a table in the order of its key, a bounded stretch at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

#: Rows that are looked at in one step, and in one call before it gives up for now.
STEP = 500
BUDGET = 20 * STEP


class Stretch(Generic[K]):
    """What one step of a walk found: where it ended (None: nothing lies beyond), and what it removed."""

    __slots__ = ("end", "looked_at", "removed")

    def __init__(self, end: K | None, looked_at: int, removed: int) -> None:
        self.end = end
        self.looked_at = looked_at
        self.removed = removed


class Walk(Generic[K]):
    """
    Removes old rows of a table that has no index for it, without starting over each time.

    Rows that must stay gather at the old end of such a table (dead letters, jobs that wait for
    years), so each call goes on where the last one stopped, and after the end from the start. A
    call is exact while the old rows are fewer than its budget; beyond that, what it left is found
    by one of the next calls. The position is only a hint: it lives in the process, and losing it
    costs one more walk.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._position: K | None = None

    def remove(self, step: Callable[[K | None, int], Stretch[K]], limit: int) -> int:
        """
        How many rows were removed, at most *limit*.

        *step* is called with a position (None: the start) and how many rows it may remove. A step
        that could remove no more ends at the last row that it has dealt with.
        """
        with self._lock:
            started_at = position = self._position
        removed = looked_at = 0
        wrapped = started_at is None
        while removed < limit and looked_at < BUDGET:
            stretch = step(position, limit - removed)
            removed += stretch.removed
            looked_at += stretch.looked_at
            position = stretch.end
            if position is None:
                if wrapped:
                    break  # all the way round
                wrapped = True
        with self._lock:
            self._position = position
        return removed
