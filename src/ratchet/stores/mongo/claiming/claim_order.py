"""
The claim's order, kept without sorting the backlog.

The next *n* jobs of all streams are found by looking at the first jobs of a few levels, and by reading on
only in those that can still contribute (see `ratchet.stores.levels`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ratchet.stores.fairness import Rank, Rounds
from ratchet.stores.levels import PRIORITIES, Level

_STEP: Final = 4  # a round trip for a single job would cost too much

#: Ranks in claim order (due times in microseconds), each with the level it was read from.
Chosen = list[tuple[Rank, Level]]


def levels_of(stream_id: int) -> list[Level]:
    """The levels of a stream."""
    return [Level(stream_id, priority) for priority in PRIORITIES]


def choose(
    candidates: Sequence[Level],
    limit: int,
    allowances: Mapping[str, int],
    read: Callable[[Sequence[Level], int], None],
    after: str | None = None,
) -> Chosen:
    """
    The first *limit* jobs that the allowances let through: in claim order, and where there are parties, in turns.

    *read* reads about that many more jobs of each level that it is given, or marks the level as ended.
    """
    one_party = len({level.party for level in candidates}) <= 1
    while True:
        if one_party:
            chosen = _best(candidates, limit, allowances)
            worst = chosen[-1][0] if len(chosen) == limit else None
            wanted = [level for level in candidates if level.can_beat(worst)]
            share = limit
        else:
            rounds = Rounds(candidates, limit, allowances, after)
            chosen = rounds.chosen
            wanted = [level for level in candidates if level.can_beat(None) and rounds.may_miss(level)]
            share = max(rounds.share(limit, wanted), _STEP)
        if not wanted:
            return chosen
        read(wanted, share)


def _best(candidates: Sequence[Level], limit: int, allowances: Mapping[str, int]) -> Chosen:
    ranked = [(rank, level) for level in candidates for rank in level.ranks]
    ranked.sort(key=lambda pair: pair[0])
    if not allowances:
        return ranked[:limit]
    left = dict(allowances)
    chosen: Chosen = []
    for rank, level in ranked:
        if all(left[gate] > 0 for gate in level.gates):
            for gate in level.gates:
                left[gate] -= 1
            chosen.append((rank, level))
            if len(chosen) == limit:
                break
    return chosen
