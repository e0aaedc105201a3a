"""
The claim's order, kept without sorting the backlog.

Within one stream and one priority the oldest job always comes first, whatever the boost. So the next *n*
jobs of all streams are found by looking at the heads of a few sorted branches, and reading on only in
those that can still contribute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ratchet.stores.branches import PRIORITIES, Branch
from ratchet.stores.fairness import Rank, Rounds

__all__ = ["PRIORITIES", "Branch", "Chosen", "branches_of", "choose"]

_STEP: Final = 4  # a round trip for one job would be too dear

#: Ranks in claim order (due times in microseconds), each with the branch it was read from.
Chosen = list[tuple[Rank, Branch]]


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
            turns = Rounds(candidates, limit, allowances, after)
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
