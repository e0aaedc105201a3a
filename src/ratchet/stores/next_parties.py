"""
The streams of the fairness keys whose turn is next, where very many keys have work.

A round gives each key one job, so a claim of a hundred among thousands of keys with work takes one job of each of the
next hundred keys. The others are not looked at: the registry of streams has an index in the order of the keys, and a
walk through it begins after the key that was served last and ends where enough keys with a due job were found.
Where few of many keys have work, such a walk would be the long way; then a claim looks at every stream that has
waiting jobs, as it does among few keys.

Jobs of concurrency keys are one party, however many such keys there are, and come in the claim's order. Their streams have
numbers of their own (`KEYED_FROM`), by which an index has the jobs of all of them in that order. A claim reads its beginning.
What is behind the *edge*, the last job that was read, it does not know; where it would take something from behind the
edge, because limits close what is before it, it reads further, or looks at every stream after all.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from ratchet.model.claim import NO_PARTY, ClaimRequest
from ratchet.stores.fairness import Rank, claim_order
from ratchet.stores.levels import PRIORITIES, Level

#: The numbers of streams of concurrency keys begin here, where the store has an index of their jobs.
KEYED_FROM = 2**30

#: From so many streams with work on a claim looks at those whose turn is next alone.
MANY = 100

#: Streams that one claim walks over, for each job that it wants; and at least so many.
STEPS_FOR_A_JOB, LEAST_STEPS = 20, 500

#: Jobs of concurrency keys that one claim reads, for each job that it wants and each priority.
MOST_JOBS_READ = 50

#: Seconds without such walks, after one that was too long.
_PAUSE = 5.0
#: No stream has a higher number.
_LAST = 2**31 - 1

#: A stream, its fairness key, and the priorities of which it has due jobs, as bits.
Met = tuple[int, Any, int]


class Job(NamedTuple):
    """A due job of a concurrency key; one of a stream that the claim may not take from is not open."""

    stream_id: int
    priority: int
    rank: Rank
    is_open: bool


class Registry(Protocol):
    """The streams of a claim's lane, as a product reads them; those that are closed have nothing due."""

    def keys(self, after: tuple[str, int], until: str | None, most: int) -> Sequence[Met]:
        """The first so many streams after a key and a number, in that order, up to a key; None: to the end."""
        ...

    def without_key(self, most: int) -> Sequence[Met]:
        """So many of the streams without a fairness key; not those that `jobs_of_keys` reads."""
        ...

    def jobs_of_keys(self, most: int) -> Sequence[Job]:
        """The first so many due jobs of each priority, of all streams from KEYED_FROM on that have no fairness key."""
        ...


@dataclass(slots=True)
class Turns:
    """The levels with due jobs of the parties whose turn is next; `is_all`: of every party."""

    levels: set[tuple[int, int]]
    is_all: bool
    known: list[Level]  # levels of `jobs_of_keys` with what was read of them, up to the edge
    edge: Rank | None  # None: everything was read

    @property
    def stream_ids(self) -> list[int]:
        """The streams that these levels belong to."""
        return sorted({stream_id for stream_id, _ in self.levels})

    def suffice(self, chosen: Sequence[tuple[str, Rank]], limit: int) -> bool:
        """True where a look at everything would have chosen the same jobs; *chosen*: the party and the rank of each."""
        if not self.is_all and not len(chosen) == limit == len({party for party, _ in chosen}):
            return False
        if self.edge is None:
            return True
        # perhaps this party had more to give when its turn came
        given = Counter(party for party, _ in chosen)
        if len(chosen) < limit or given[NO_PARTY] < max(given.values()):
            return False
        edge = claim_order(self.edge)
        return all(claim_order(rank) <= edge for party, rank in chosen if party == NO_PARTY)


class NextParties:
    """Walks to the next parties, for the kinds of requests where many have work. Safe for many threads."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        #: By kind of request for which many parties have work, the steps that would have been enough the last time.
        self.steps: dict[Any, int] = {}
        self._depths: dict[Any, int] = {}  # jobs of concurrency keys to read, for each that is wanted
        self._not_before: dict[Any, float] = {}

    def are_many(self, request: ClaimRequest) -> bool:
        """True where the claim should look at the next parties alone."""
        return _kind(request) in self.steps

    def saw(
        self, request: ClaimRequest, streams: Collection[int], chosen: Callable[[], Sequence[str | int]]
    ) -> None:
        """A claim that looked at these streams with work, all there are, takes a job of each of the *chosen* parties."""
        if len(streams) <= MANY or len(parties := chosen()) < request.limit:
            return
        if len(set(parties)) < request.limit:
            streams = [one for one in streams if one >= KEYED_FROM]
        kind = _kind(request)
        if len(streams) > MANY and self._monotonic() >= self._not_before.get(kind, float("-inf")):
            self.steps[kind] = request.limit + 1

    def forget(self, request: ClaimRequest) -> None:
        """Look at everything again, for a while."""
        kind = _kind(request)
        self._depths.pop(kind, None)
        self.steps.pop(kind, None)
        self._not_before[kind] = self._monotonic() + _PAUSE

    def find(self, registry: Registry, request: ClaimRequest) -> Turns | None:
        """The parties whose turn is next, as many as the claim wants jobs; None: not found in so few steps."""
        kind = _kind(request)
        walk = _Walk(registry, request.limit, self.steps.get(kind, MANY), self._depths.get(kind, 1))
        found = walk.find(request.after)
        if found is None or (found.is_all and found.edge is None and len(found.levels) <= MANY):
            self.forget(request)
        else:
            self.steps[kind] = walk.enough
        return found

    def go_deeper(self, request: ClaimRequest, turns: Turns) -> bool:
        """What was found did not suffice; True: more jobs of concurrency keys will be read the next time, so try again."""
        kind = _kind(request)
        depth = 4 * self._depths.get(kind, 1)
        if turns.edge is None or depth > MOST_JOBS_READ:
            self.forget(request)
            return False
        self._depths[kind] = depth
        return True


def _kind(request: ClaimRequest) -> Any:
    return request.lane, request.suspects, request.queues, request.parked_targets


class _Walk:
    """One walk through the registry."""

    def __init__(self, registry: Registry, wanted: int, steps: int, depth: int) -> None:
        self.enough = 0
        self._registry = registry
        self._wanted = wanted
        self._depth = depth
        self._steps = 0
        self._page = max(steps, wanted + 1)
        self._most = max(STEPS_FOR_A_JOB * wanted, LEAST_STEPS)
        self._found: dict[str, set[tuple[int, int]]] = {}  # by party, in the order of their turns
        self._known: list[Level] = []
        self._edge: Rank | None = None

    def find(self, after: str | None) -> Turns | None:
        for is_met in self._round(after):
            if not is_met:
                return None
            if len(self._found) > self._wanted:
                # of the last party perhaps not every stream was met
                return self._turns(list(self._found)[: self._wanted], is_all=False)
        return self._turns(list(self._found), is_all=True)

    def _turns(self, parties: Sequence[str], *, is_all: bool) -> Turns:
        levels = set().union(*(self._found[party] for party in parties))
        if NO_PARTY not in parties and not is_all:
            return Turns(levels, is_all, [], None)
        return Turns(levels, is_all, self._known, self._edge)

    def _round(self, after: str | None) -> Iterator[bool]:
        """Page after page of the round; False: there are too many."""
        if after is None:
            yield self._without_key()
            yield from self._keys(NO_PARTY, None)
        else:
            yield from self._keys(after, None)
            yield self._without_key()
            if after != NO_PARTY:
                yield from self._keys(NO_PARTY, after)

    def _without_key(self) -> bool:
        """All streams without a key are one party."""
        found = self._registry.without_key(self._most)
        self._meet(found)
        return len(found) < self._most and self._jobs_of_keys()

    def _jobs_of_keys(self) -> bool:
        most = wanted = self._wanted * self._depth
        while True:
            jobs = self._registry.jobs_of_keys(most)
            read = Counter(job.priority for job in jobs)
            full = {priority for priority, count in read.items() if count >= most}
            ends = [max((job.rank for job in jobs if job.priority == one), key=claim_order) for one in full]
            self._edge = min(ends, key=claim_order, default=None)
            edge = None if self._edge is None else claim_order(self._edge)
            ours = [job for job in jobs if job.is_open and (edge is None or claim_order(job.rank) <= edge)]
            if edge is None or len(ours) >= wanted:
                break
            most *= 4
            if most > MOST_JOBS_READ * self._wanted:
                return False
        levels: dict[tuple[int, int], Level] = {}
        for job in ours:
            levels.setdefault((job.stream_id, job.priority), Level(job.stream_id, job.priority)).ranks.append(
                job.rank
            )
        for level in levels.values():
            level.ranks.sort(key=claim_order)
            level.ended = True
        if levels:
            self._found.setdefault(NO_PARTY, set()).update(levels)
        self._known = list(levels.values())
        return True

    def _keys(self, after: str, until: str | None) -> Iterator[bool]:
        place = (after, _LAST)  # every stream of this key itself was served
        while self._steps < self._most:
            most = min(max(self._page - self._steps, self._wanted + 1), self._most)
            # the key of a damaged stream may be no text; such keys are the last ones
            found = [met for met in self._registry.keys(place, until, most) if isinstance(met[1], str)]
            found.sort(key=lambda met: (met[1], met[0]))
            self._meet(found)
            yield True
            if len(found) < most:
                return
            place = (found[-1][1], found[-1][0])
            self._page *= 2
        yield False

    def _meet(self, streams: Sequence[Met]) -> None:
        for stream_id, key, due in streams:
            self._steps += 1
            if due and len(self._found) <= self._wanted:
                levels = self._found.setdefault(key or NO_PARTY, set())
                levels.update((stream_id, priority) for priority in PRIORITIES if due >> priority & 1)
                self.enough = self._steps
