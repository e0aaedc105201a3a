"""The rota: which node of a cluster looks next for what any of them may find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime


class Rota:
    """
    Shares looks out among the living nodes, so that twenty nodes together look as often as one alone.

    Time is cut into slots of the same length for all nodes, and each slot belongs to one of them, by their order in the
    cluster. Nodes that differ for a moment about who lives leave out a slot, or look twice in one: both are harmless.
    The slots of a node that has just died are lost until it was declared dead.
    """

    def __init__(self, members: Callable[[], Sequence[str]], me: Callable[[], str]) -> None:
        self._members = members
        self._me = me

    def is_turn(self, every: float, now: datetime) -> bool:
        """True if the slot of *every* seconds at *now* is this node's."""
        return self._slots_until(every, now) == 0

    def rest(self, every: float, now: datetime) -> float:
        """Seconds from *now* to the begin of this node's next slot; of a node that is alone: *every*."""
        count = len(self._members())
        if count <= 1:
            return every
        ahead = self._slots_until(every, now) or count
        return ahead * every - now.timestamp() % every

    def _slots_until(self, every: float, now: datetime) -> int:
        members, me = self._members(), self._me()
        if me not in members:
            return 0  # it has not looked yet
        return (members.index(me) - int(now.timestamp() // every)) % len(members)
