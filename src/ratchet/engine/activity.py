"""`Activity`: how many runs of this node have ended, and how."""

from __future__ import annotations


class Activity:
    """
    Counts since the node was started.

    The announcer counts on one thread, one addition for each run; whoever reads may be a moment behind.
    """

    __slots__ = ("dead_lettered", "handed_back", "parked", "postponed", "retried", "succeeded", "timed_out")

    def __init__(self) -> None:
        self.succeeded = 0
        self.retried = 0  # failed, and will run again
        self.dead_lettered = 0
        self.timed_out = 0
        self.postponed = 0
        self.handed_back = 0  # after they had started
        self.parked = 0

    @property
    def ended(self) -> int:
        """How many runs have ended after their start."""
        return self.succeeded + self.retried + self.dead_lettered + self.postponed + self.handed_back
