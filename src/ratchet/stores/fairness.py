"""
Fairness: the parties of a claim, and the rounds in which they take turns.

The open streams of a claim fall into parties, one for each fairness key and one for all streams without
a key. In each round every party that has a job gives its next one; the rounds go on until there are
enough jobs or none are left. So parties that have work share a claim evenly, and a single party fills it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ratchet.stores.branches import Branch as Level

T = TypeVar("T")

#: (minus the effective priority, due time, job id): sorts in claim order; the store's own types.
Rank = tuple[int, Any, Any]


def claim_order(rank: Rank) -> tuple[int, Any, Any]:
    """The key to sort ranks by: ids are compared as numbers, ten times faster than as UUIDs."""
    return rank[0], rank[1], getattr(rank[2], "int", rank[2])


def in_cycle(parties: Iterable[str], after: str | None) -> list[str]:
    """The parties in the order of their turns, beginning after the one named *after*; None: with the first."""
    ordered = sorted(set(parties))
    start = 0 if after is None else bisect_right(ordered, after)
    return ordered[start:] + ordered[:start]


def take_turns(
    lines: Mapping[str, Iterable[T]], limit: int | None, after: str | None
) -> tuple[list[tuple[str, T]], set[str]]:
    """
    What the parties give, round after round, each with its party; and the parties that ran out.

    A line is asked for its next job only when it is its party's turn.
    """
    taken: list[tuple[str, T]] = []
    exhausted: set[str] = set()
    waiting = deque((party, iter(lines[party])) for party in in_cycle(lines, after))
    while waiting and (limit is None or len(taken) < limit):
        party, line = waiting.popleft()
        for job in line:
            taken.append((party, job))
            waiting.append((party, line))
            break
        else:
            exhausted.add(party)
    return taken, exhausted


def in_turns(jobs: Iterable[T], party_of: Callable[[T], str], after: str | None) -> list[T]:
    """Jobs in claim order, put into the order in which their parties take turns."""
    lines: dict[str, list[T]] = {}
    for job in jobs:
        lines.setdefault(party_of(job), []).append(job)
    return [job for _, job in take_turns(lines, None, after)[0]]


class Rounds:
    """What a claim takes of the levels as far as they were read, and where it must read on to be sure."""

    def __init__(
        self, candidates: Sequence[Level], limit: int, allowances: Mapping[str, int], after: str | None
    ) -> None:
        parties: dict[str, list[Level]] = {}
        for level in candidates:
            parties.setdefault(level.party, []).append(level)
        left = dict(allowances)
        lines = {party: _line(levels, left) for party, levels in parties.items()}
        taken, self._exhausted = take_turns(lines, limit, after)
        self.chosen: list[tuple[Rank, Level]] = [job for _, job in taken]
        self._last: dict[str, Rank] = {party: job[0] for party, job in taken}

    def may_miss(self, level: Level) -> bool:
        """True where an unread job of the level, if there is one, may belong among the chosen."""
        if level.party in self._exhausted:
            return True
        last = self._last.get(level.party)
        return last is not None and (not level.ranks or level.ranks[-1] < last)

    def share(self, limit: int, unread: Iterable[Level]) -> int:
        """How many more jobs the party of each of these levels has to give, so that together they fill the claim."""
        waiting = {level.party for level in unread} & self._exhausted
        return -(-(limit - len(self.chosen)) // max(len(waiting), 1))


def _line(levels: Sequence[Level], left: dict[str, int]) -> Iterator[tuple[Rank, Level]]:
    """The jobs of one party in claim order, as far as the allowances that all parties share let them through."""
    jobs = [(rank, level) for level in levels for rank in level.ranks]
    jobs.sort(key=lambda job: claim_order(job[0]))
    for rank, level in jobs:
        if all(left[gate] > 0 for gate in level.gates):
            for gate in level.gates:
                left[gate] -= 1
            yield rank, level
