"""`Summary`: a line every ten seconds that says what a node has done, while it does something."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ratchet.engine.assembly import Assembly

logger = logging.getLogger("ratchet.engine")

#: Seconds between two lines.
INTERVAL = 10.0


class Summary:
    """Reads counters that are kept anyway, so that it costs a busy node nothing."""

    def __init__(self, assembly: Assembly, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._coordinator = assembly.coordinator
        self._activity = assembly.announcer.activity
        self._monotonic = monotonic
        self._due = monotonic() + INTERVAL
        self._last = self._counts()

    def run_once(self) -> bool:
        """Log a line if one is due and there is something to say; whether it did."""
        if self._monotonic() < self._due:
            return False
        self._due = self._monotonic() + INTERVAL
        return self._say()

    def last_words(self) -> bool:
        """What was done since the last line, before the node ends."""
        return self._say()

    def _say(self) -> bool:
        counts = self._counts()
        done = [now - before for now, before in zip(counts, self._last, strict=True)]
        self._last = counts
        held, running = len(self._coordinator.held()), len(self._coordinator.running())
        if not any(done) and not held:
            return False
        succeeded, failed, retried, postponed, handed_back = done[1:]
        more = f", {postponed} postponed" if postponed else ""
        more += f", {handed_back} handed back" if handed_back else ""
        logger.info(
            "%d started, %d succeeded, %d failed, %d retried%s; now %d running, %d waiting for a slot",
            max(0, done[0]),  # a run that was canceled is no longer counted
            succeeded,
            failed,
            retried,
            more,
            running,
            max(0, held - running),
        )
        return True

    def _counts(self) -> tuple[int, ...]:
        """Started, succeeded, failed, retried, postponed, handed back; a run that ends has started."""
        activity = self._activity
        ended = activity.ended
        return (
            ended + len(self._coordinator.running()),
            activity.succeeded,
            activity.dead_lettered,
            activity.retried,
            activity.postponed,
            activity.handed_back,
        )
