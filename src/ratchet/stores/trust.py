"""How long a process believes what it once read and others may change."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Seconds.
HOUR = 3600.0


class Trust:
    """
    Is over after a while, and then begins anew.

    By both clocks: one stands still while the machine sleeps, the other may be set back.
    """

    __slots__ = ("_from", "_lasts", "_monotonic", "_until", "_wall")

    def __init__(
        self,
        lasts: float = HOUR,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._lasts = lasts
        self._monotonic = monotonic
        self._wall = wall
        self._begin()

    def _begin(self) -> None:
        self._until = self._monotonic() + self._lasts
        self._from = self._wall()

    def is_over(self) -> bool:
        """True once, when its time has come; what was read before is to be forgotten."""
        if self._monotonic() < self._until and -self._lasts < self._wall() - self._from < self._lasts:
            return False
        self._begin()
        return True
