"""
Whose turn it is: the parties of a claim, and the rounds in which they give.

The open streams of a claim fall into parties, one for each fairness key and one for all streams without
a key. In each round every party that has a job gives its next one; the rounds go on until there are
enough or nothing is left. So parties that have work share a claim evenly, and one that is alone fills it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

#: (minus the effective priority, due time, job id): sorts in claim order; the store's own types.
Rank = tuple[int, Any, Any]


def claim_order(rank: Rank) -> tuple[int, Any, Any]:
    """A key to sort ranks by: ids are compared as numbers, which is ten times as fast."""
    return rank[0], rank[1], getattr(rank[2], "int", rank[2])


class Branch(Protocol):
    """The due jobs of one stream and one priority, in order, as far as they have been read."""

    party: str
    gates: tuple[str, ...]
    ranks: list[Any]


B = TypeVar("B", bound=Branch)


def in_cycle(parties: Iterable[str], after: str | None) -> list[str]:
    """The parties in the order of their turns, beginning after the one that was served last; None: with the first."""
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
    dry: set[str] = set()
    waiting = deque((party, iter(lines[party])) for party in in_cycle(lines, after))
    while waiting and (limit is None or len(taken) < limit):
        party, line = waiting.popleft()
        for job in line:
            taken.append((party, job))
            waiting.append((party, line))
            break
        else:
            dry.add(party)
    return taken, dry


def in_turns(jobs: Iterable[T], party_of: Callable[[T], str], after: str | None) -> list[T]:
    """Jobs in claim order, put into the order in which their parties take turns."""
    lines: dict[str, list[T]] = {}
    for job in jobs:
        lines.setdefault(party_of(job), []).append(job)
    return [job for _, job in take_turns(lines, None, after)[0]]


class Turns(Generic[B]):
    """What a claim takes of branches that have been read so far, and where it must read on to be sure."""

    def __init__(
        self, candidates: Sequence[B], limit: int, allowances: Mapping[str, int], after: str | None
    ) -> None:
        parties: dict[str, list[B]] = {}
        for branch in candidates:
            parties.setdefault(branch.party, []).append(branch)
        left = dict(allowances)
        lines = {party: _line(branches, left) for party, branches in parties.items()}
        taken, self._dry = take_turns(lines, limit, after)
        self.chosen: list[tuple[Rank, B]] = [job for _, job in taken]
        self._last: dict[str, Rank] = {party: job[0] for party, job in taken}

    def may_miss(self, branch: B) -> bool:
        """True where an unread job of the branch, if there is one, may belong among the chosen."""
        if branch.party in self._dry:
            return True
        last = self._last.get(branch.party)
        return last is not None and (not branch.ranks or branch.ranks[-1] < last)

    def share(self, limit: int, unread: Iterable[B]) -> int:
        """How many more the party of each of these branches would have to give, for all to have enough together."""
        hungry = {branch.party for branch in unread} & self._dry
        return -(-(limit - len(self.chosen)) // max(len(hungry), 1))


def _line(branches: Sequence[B], left: dict[str, int]) -> Iterator[tuple[Rank, B]]:
    """The jobs of one party in claim order, as far as the allowances that all parties share let them through."""
    jobs = [(rank, branch) for branch in branches for rank in branch.ranks]
    jobs.sort(key=lambda job: claim_order(job[0]))
    for rank, branch in jobs:
        if all(left[gate] > 0 for gate in branch.gates):
            for gate in branch.gates:
                left[gate] -= 1
            yield rank, branch
