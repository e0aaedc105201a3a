"""`Spacing`: how often to do something that may become costly."""

from __future__ import annotations


class Spacing:
    """
    When to do it again: so that it takes a *share* of the time, but in *longest* seconds at the latest.

    It may also have waited, for a lock or for a server that stood still, and what waited was no work: of two times in a
    row only the shorter one counts.
    """

    __slots__ = ("_longest", "_share", "_took")

    def __init__(self, share: float, longest: float) -> None:
        self._share = share
        self._longest = longest
        self._took: float | None = None

    def next_after(self, begun: float, ended: float) -> float:
        """When it is due again after it was done in this time (all in seconds of one clock)."""
        took, before = ended - begun, self._took
        self._took = took
        cost = took if before is None else min(took, before)
        return ended + min(cost / self._share, self._longest)
