"""
The claim's order, kept without sorting the backlog.

Within one stream and one priority the oldest job always comes first, whatever the boost. So the next
*n* jobs of all streams are found by looking at the heads of a few sorted branches, and reading on only
in those that can still contribute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from ratchet.stores.fairness import Rank, claim_order
from ratchet.stores.fairness import Rounds as Turns
from ratchet.stores.levels import PRIORITIES
from ratchet.stores.levels import Level as Branch

__all__ = ["PRIORITIES", "Branch", "Read", "choose", "first_look", "owners"]

#: Reads on in each branch: as many ranks as said, and sets `Branch.ended` where there are fewer.
Read = Callable[[Sequence[tuple[Branch, int]]], None]


def first_look(limit: int, count: int) -> int:
    """How many heads of each of *count* branches to read first: few when there are many branches."""
    return min(limit, max(4, limit // 50, -(-3 * limit // max(count, 1))))


def choose(
    candidates: Sequence[Branch],
    limit: int,
    allowances: Mapping[str, int],
    read: Read,
    after: str | None = None,
) -> list[Rank]:
    """
    The first *limit* jobs that the allowances let through: in claim order, and where there are parties, in turns.

    Branches are read in steps, no further than their limits go, until no unread job can be better than the
    worst chosen one. Branches that have ranks were read before.
    """
    parties = len({branch.party for branch in candidates})
    step = first_look(limit, len(candidates))
    if parties > 1:
        step = min(step, -(-limit // parties))
    wanted = [branch for branch in candidates if not branch.ranks and not branch.ended]
    count = step
    while True:
        read([(branch, branch.further(count)) for branch in wanted])
        for branch in wanted:
            branch.ended = branch.ended or branch.further(1) == 0
        if parties > 1:
            turns = Turns(candidates, limit, allowances, after)
            chosen = [rank for rank, _ in turns.chosen]
            more = [branch for branch in candidates if not branch.ended and turns.may_miss(branch)]
            share = turns.share(limit, more)
        else:
            chosen = _best(candidates, limit, allowances)
            worst = chosen[-1] if len(chosen) == limit else None
            more = [b for b in candidates if not b.ended and (worst is None or b.ranks[-1] < worst)]
            share = limit - len(chosen)
        if not more:
            return chosen
        wanted, count = more, max(share, step)
        step *= 2


def _best(candidates: Sequence[Branch], limit: int, allowances: Mapping[str, int]) -> list[Rank]:
    # sorted runs, one after the other, are what Python's sort merges fastest
    ranks = sorted(chain.from_iterable(branch.ranks for branch in candidates), key=claim_order)
    if not any(branch.gates for branch in candidates):
        return ranks[:limit]
    gates = owners(branch for branch in candidates if branch.gates)
    left = dict(allowances)
    chosen: list[Rank] = []
    for rank in ranks:
        branch = gates.get(rank[2])
        if branch is not None:
            if any(left[gate] <= 0 for gate in branch.gates):
                continue
            for gate in branch.gates:
                left[gate] -= 1
        chosen.append(rank)
        if len(chosen) == limit:
            break
    return chosen


def owners(candidates: Iterable[Branch]) -> dict[Any, Branch]:
    """The branch of each job that was read, by the job's id."""
    return {rank[2]: branch for branch in candidates for rank in branch.ranks}
