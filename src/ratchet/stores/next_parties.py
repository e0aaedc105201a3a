"""
The streams of the fairness keys whose turn is next, where very many keys have work.

A round gives each key one job, so a claim of a hundred among thousands of keys with work takes one job of each of the
next hundred keys. The others are not looked at: the registry of streams has an index in the order of the keys, and a
walk through it begins after the key that was served last and ends where enough keys with a due job were found.
Where few of many keys have work, such a walk would be the long way; then a claim looks at every stream that has
waiting jobs, as it does among few keys.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ratchet.model.claim import NO_PARTY, ClaimRequest
from ratchet.stores.levels import PRIORITIES

#: From so many streams with work on a claim looks at those whose turn is next alone.
MANY = 100

#: Streams that one claim walks over, for each job that it wants; and at least so many.
STEPS_FOR_A_JOB, LEAST_STEPS = 20, 500

#: Seconds without such walks, after one that was too long.
_PAUSE = 5.0
#: No stream has a higher number.
_LAST = 2**31 - 1

#: A stream, its fairness key, and the priorities of which it has due jobs, as bits.
Met = tuple[int, Any, int]


class Registry(Protocol):
    """The streams of a claim's lane, as a product reads them; those that are closed have nothing due."""

    def keys(self, after: tuple[str, int], until: str | None, most: int) -> Sequence[Met]:
        """The first so many streams after a key and a number, in that order, up to a key; None: to the end."""
        ...

    def without_key(self, most: int) -> Sequence[Met]:
        """So many of the streams without a fairness key."""
        ...


@dataclass(slots=True)
class Turns:
    """The levels with due jobs of the parties whose turn is next; `is_all`: of every party."""

    levels: set[tuple[int, int]]
    is_all: bool

    @property
    def stream_ids(self) -> list[int]:
        """The streams that these levels belong to."""
        return sorted({stream_id for stream_id, _ in self.levels})

    def suffice(self, parties: Sequence[str], limit: int) -> bool:
        """True where a look at everything would have chosen the same jobs; *parties*: that of each."""
        return self.is_all or len(parties) == limit == len(set(parties))


class NextParties:
    """Walks to the next parties, for the kinds of requests where many have work. Safe for many threads."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        #: By kind of request for which many parties have work, the steps that would have been enough the last time.
        self.steps: dict[Any, int] = {}
        self._not_before: dict[Any, float] = {}

    def are_many(self, request: ClaimRequest) -> bool:
        """True where the claim should look at the next parties alone."""
        return _kind(request) in self.steps

    def saw(
        self, request: ClaimRequest, streams: Collection[int], chosen: Callable[[], Sequence[str | int]]
    ) -> None:
        """A claim that looked at these streams with work, all there are, takes a job of each of the *chosen* parties."""
        if len(streams) <= MANY or not len(parties := chosen()) == request.limit == len(set(parties)):
            return
        kind = _kind(request)
        if self._monotonic() >= self._not_before.get(kind, float("-inf")):
            self.steps[kind] = request.limit + 1

    def forget(self, request: ClaimRequest) -> None:
        """Look at everything again, for a while."""
        kind = _kind(request)
        self.steps.pop(kind, None)
        self._not_before[kind] = self._monotonic() + _PAUSE

    def find(self, registry: Registry, request: ClaimRequest) -> Turns | None:
        """The parties whose turn is next, as many as the claim wants jobs; None: not found in so few steps."""
        kind = _kind(request)
        walk = _Walk(registry, request.limit, self.steps.get(kind, MANY))
        found = walk.find(request.after)
        if found is None or (found.is_all and len(found.levels) <= MANY):
            self.forget(request)
        else:
            self.steps[kind] = walk.enough
        return found


def _kind(request: ClaimRequest) -> Any:
    return request.lane, request.suspects, request.queues, request.parked_targets


class _Walk:
    """One walk through the registry."""

    def __init__(self, registry: Registry, wanted: int, steps: int) -> None:
        self.enough = 0
        self._registry = registry
        self._wanted = wanted
        self._steps = 0
        self._page = max(steps, wanted + 1)
        self._most = max(STEPS_FOR_A_JOB * wanted, LEAST_STEPS)
        self._found: dict[str, set[tuple[int, int]]] = {}  # by party, in the order of their turns

    def find(self, after: str | None) -> Turns | None:
        for is_met in self._round(after):
            if not is_met:
                return None
            if len(self._found) > self._wanted:
                # of the last party perhaps not every stream was met
                return self._turns(list(self._found)[: self._wanted], is_all=False)
        return self._turns(list(self._found), is_all=True)

    def _turns(self, parties: Sequence[str], *, is_all: bool) -> Turns:
        return Turns(set().union(*(self._found[party] for party in parties)), is_all)

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
        return len(found) < self._most

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
