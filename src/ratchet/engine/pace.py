"""The pace: how often a node beats, by what it has to do."""

from __future__ import annotations

from datetime import timedelta

from ratchet.model.options import Liveness

#: After so many beats without work the pace slows down, and again after as many more.
IDLE_BEATS = 3


class Pace:
    """
    The interval and the silence in force; busy nodes keep the usual ones.

    With *slowest* a node without work beats ever more slowly, down to that, and declares a silence that is
    longer in proportion: no running job depends on its beats. The first job brings the usual pace back
    at once. Without *slowest* it never changes.
    """

    def __init__(self, usual: Liveness, slowest: timedelta | None = None) -> None:
        self.usual = usual
        self.current = usual
        self.is_slow = False  # the node beats more slowly than usual
        self._slowest = usual.heartbeat if slowest is None else max(slowest, usual.heartbeat)
        self._idle_beats = 0

    def wanted(self, *, busy: bool) -> Liveness:
        """The pace to declare with the next beat; it is in force once that beat went through (`declared`)."""
        if busy:
            return self.usual
        if self._idle_beats + 1 < IDLE_BEATS or self.current.heartbeat >= self._slowest:
            return self.current
        return self._stretched(min(2 * self.current.heartbeat, self._slowest))

    def declared(self, liveness: Liveness, *, busy: bool) -> None:
        """A beat that declared *liveness* went through."""
        self._idle_beats = 0 if busy or liveness != self.current else self._idle_beats + 1
        self.current = liveness
        self.is_slow = liveness != self.usual

    def reset(self) -> None:
        """Go back to the usual pace: what the node's row says is unknown."""
        self.current = self.usual
        self.is_slow = False
        self._idle_beats = 0

    def _stretched(self, heartbeat: timedelta) -> Liveness:
        return Liveness(heartbeat, self.usual.silence * (heartbeat / self.usual.heartbeat))


def longest_gap(heartbeat: timedelta, silence: timedelta) -> float:
    """
    Seconds between two beats of an observer beyond which it may not judge a node of this pace.

    Where all writes are held up, another node's beat may be older than this one's by an
    interval. A beat must count as late soon enough to leave that much of the silence.
    """
    return min(2 * heartbeat, max(silence - heartbeat, 1.5 * heartbeat)).total_seconds()
