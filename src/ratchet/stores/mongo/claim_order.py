"""
The claim's order, kept without sorting the backlog.

Within one stream and one priority the oldest job always comes first, whatever the boost. So the next *n*
jobs of all streams are found by looking at the heads of a few sorted branches, and reading on only in
those that can still contribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from ratchet.model.status import Priority
from ratchet.stores.turns import Turns

PRIORITIES: Final = tuple(sorted((int(priority) for priority in Priority), reverse=True))

_STEP: Final = 4  # a round trip for one job would be too dear

#: (minus the effective priority, due time in microseconds, job id): sorts in claim order.
Rank = tuple[int, int, UUID]
Chosen = list[tuple[Rank, "Branch"]]


class Branch:
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
        self.most = most  # how many of it can be taken at all; None: as many as there are
        self.party = party  # who takes turns: its fairness key
        self.ranks: list[Rank] = []
        self.ended = False  # nothing more to read

    def can_beat(self, worst: Rank | None) -> bool:
        """True where an unread job of the branch may belong before *worst*; None: before nothing."""
        if self.ended or (self.most is not None and len(self.ranks) >= self.most):
            return False
        return worst is None or not self.ranks or self.ranks[-1] < worst


def branches_of(stream_id: int) -> list[Branch]:
    """The branches of a stream."""
    return [Branch(stream_id, priority) for priority in PRIORITIES]


def choose(
    candidates: Sequence[Branch],
    limit: int,
    allowances: Mapping[str, int],
    read: Callable[[Sequence[Branch], int], None],
    after: str | None = None,
) -> Chosen:
    """
    The first *limit* jobs that the allowances let through: in claim order, and where there are parties, in turns.

    *read* reads on in each branch that it is given, about as far as said, or marks it as ended.
    """
    one_party = len({branch.party for branch in candidates}) <= 1
    while True:
        if one_party:
            chosen = _best(candidates, limit, allowances)
            worst = chosen[-1][0] if len(chosen) == limit else None
            wanted = [branch for branch in candidates if branch.can_beat(worst)]
            share = limit
        else:
            turns = Turns(candidates, limit, allowances, after)
            chosen = turns.chosen
            wanted = [branch for branch in candidates if branch.can_beat(None) and turns.may_miss(branch)]
            share = max(turns.share(limit, wanted), _STEP)
        if not wanted:
            return chosen
        read(wanted, share)


def _best(candidates: Sequence[Branch], limit: int, allowances: Mapping[str, int]) -> Chosen:
    ranked = [(rank, branch) for branch in candidates for rank in branch.ranks]
    ranked.sort(key=lambda pair: pair[0])
    if not allowances:
        return ranked[:limit]
    left = dict(allowances)
    chosen: Chosen = []
    for rank, branch in ranked:
        if all(left[gate] > 0 for gate in branch.gates):
            for gate in branch.gates:
                left[gate] -= 1
            chosen.append((rank, branch))
            if len(chosen) == limit:
                break
    return chosen
