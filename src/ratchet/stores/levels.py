"""
`Level`: the due jobs of one stream and one priority, in claim order, read no further than a claim needs.

Within a level the oldest job always comes first, whatever the boost. So a claim merges the first jobs of
the levels instead of sorting the backlog.
"""

from __future__ import annotations

from typing import Final

from ratchet.model.status import Priority
from ratchet.stores.fairness import Rank

PRIORITIES: Final = tuple(sorted((int(priority) for priority in Priority), reverse=True))


class Level:
    """The due jobs of one stream and one priority, in order, as far as they have been read."""

    __slots__ = ("ended", "gates", "most", "party", "priority", "ranks", "stream_id")

    def __init__(
        self,
        stream_id: int,
        priority: int,
        gates: tuple[str, ...] = (),
        most: int | None = None,
        party: str = "",
    ) -> None:
        self.stream_id = stream_id
        self.priority = priority
        self.gates = gates  # the limits that its jobs pass
        self.most = most  # how many of its jobs can be taken at all; None: as many as there are
        self.party = party  # its fairness key
        self.ranks: list[Rank] = []
        self.ended = False  # nothing more to read

    def further(self, count: int) -> int:
        """How many more to read where *count* are wanted: no more than its limits let through."""
        return count if self.most is None else max(min(count, self.most - len(self.ranks)), 0)

    def can_beat(self, worst: Rank | None) -> bool:
        """True where an unread job of the level may belong before *worst*; None: before nothing."""
        if self.ended or self.further(1) == 0:
            return False
        return worst is None or not self.ranks or self.ranks[-1] < worst

    def resume(self, before: Level) -> None:
        """Go on from what was read of the same level a moment ago, perhaps under other limits."""
        self.ranks = before.ranks
        is_read = before.ended and (before.most is None or len(before.ranks) < before.most)
        self.ended = is_read or self.further(1) == 0
