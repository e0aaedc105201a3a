"""The poller: claims due jobs for the lanes that have room."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Protocol

from ratchet.engine.coordinator import Coordinator
from ratchet.engine.identity import NodeIdentity
from ratchet.model.claim import ClaimedJob, ClaimRequest, party_of
from ratchet.model.clock import Clock
from ratchet.model.errors import TargetNotAllowed, TargetNotFound
from ratchet.model.identifiers import IdSource
from ratchet.model.status import Lane
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.polling_strategy import PollingStrategy, PollObservation
from ratchet.spi.store.claims import JobClaimStore
from ratchet.spi.store.streams import StreamStore

logger = logging.getLogger("ratchet.engine")

#: How often a node looks for suspects, and for parked targets that it can import.
SUSPECT_INTERVAL = 1.0
PARKED_INTERVAL = 10.0
#: While another lane's batches come back full, a lane that had nothing is asked this often.
EMPTY_LANE_INTERVAL = 0.05
EMPTY_LANE_REST = timedelta(seconds=EMPTY_LANE_INTERVAL)
#: Where a lane has enough: it tells the poller when it has not.
SATED_REST = timedelta(milliseconds=500)
#: A lane whose next job is known to be due later is not asked before, for at most this many seconds.
NAP = 0.25
#: So long before its start a threaded node claims a job behind a rate: it is not late then when the claim is.
AHEAD = timedelta(milliseconds=200)
#: Where all that a lane wants waits for its start already.
CROWDED_REST = timedelta(milliseconds=20)
#: A poll that found nothing is followed by another one no sooner: what was due, other nodes are taking.
SHORTEST_REST = timedelta(milliseconds=5)


class Claiming(JobClaimStore, StreamStore, Protocol):
    """What the poller needs of a store."""


class Poller:
    """
    Asks the store for work, one lane after the other.

    `run_once` polls; `delay` says how long to rest then. While batches come back full there is no
    rest, and a rest ends early when the next job is due or a wakeup arrives.
    """

    def __init__(
        self,
        *,
        claims: Claiming,
        coordinator: Coordinator,
        identity: NodeIdentity,
        ids: IdSource,
        clock: Clock,
        strategy: PollingStrategy,
        invocations: InvocationResolver,
        queues: frozenset[str] | None = None,
        boost_interval: timedelta | None = timedelta(minutes=15),
        is_open: Callable[[], bool] = lambda: True,
        ahead: timedelta = timedelta(),
    ) -> None:
        self._claims = claims
        self._coordinator = coordinator
        self._identity = identity
        self._ids = ids
        self._clock = clock
        self._strategy = strategy
        self._invocations = invocations
        self._queues = queues
        self._boost_interval = boost_interval
        self._is_open = is_open
        self._ahead = ahead
        self._crowded = False
        self._parked: frozenset[str] = frozenset()
        self._parked_at: float | None = None
        self._suspects_at: float | None = None
        self._put_off: timedelta | None = None  # until the look for suspects that this poll left out
        self._rest = timedelta()
        self._empty_since: dict[Lane, float] = {}  # lanes that had nothing while another was full
        # the party whose job was claimed last: turns go on there
        self._served: dict[tuple[Lane, bool], str] = {}
        self._asked: list[Lane] = []
        self._naps: dict[Lane, Nap] = {}
        self._wakeups = 0

    def woken(self) -> None:
        """A wakeup arrived: there may be new work."""
        self._wakeups += 1
        self._empty_since = {}
        self._strategy.woken()

    def run_once(self, now: datetime) -> int:
        """Claim for every lane with room; how many jobs were claimed."""
        if not self._is_open():
            self._rest = timedelta(seconds=1)
            return 0
        at, wakeups = self._clock.monotonic(), self._wakeups
        napping = {lane: nap for lane, nap in self._naps.items() if nap.lasts(now, at, wakeups)}
        awake = self._coordinator.lanes.keys() - napping.keys()
        recent = {lane for lane, since in self._empty_since.items() if at - since < EMPTY_LANE_INTERVAL}
        found, requested, full = self._claim_for(awake - recent, now)
        if recent & awake and requested and not found:
            found, requested, full = self._claim_for(awake, now)
        if requested and not full:
            self._empty_since = {}
        found += self._claim_suspect(now)
        if not requested and not found:
            self._naps = napping
            self._rest = self._until_naps_end(
                self._sated_rest(EMPTY_LANE_REST if recent else SATED_REST), now
            )
            return 0
        observation = PollObservation(
            found=found,
            requested=max(requested, found),
            at=self._clock.monotonic(),
            utilization=self._coordinator.utilization,
        )
        delay = self._strategy.next_delay(observation)
        if full or not requested:
            self._naps = {}
            self._rest = timedelta() if full else delay
        else:
            self._naps = napping | self._look_ahead({*self._asked, *(recent & awake)}, now, wakeups)
            if len(self._naps) < len(self._coordinator.lanes):
                delay = self._sated_rest(min(delay, SATED_REST))
            self._rest = self._until_naps_end(delay, now)
            if not found:
                self._rest = max(self._rest, SHORTEST_REST)
        if self._put_off is not None:
            self._rest = min(self._rest, self._put_off)
        return found

    def _claim_for(self, chosen: Collection[Lane], now: datetime) -> tuple[int, int, bool]:
        """Jobs found and asked for, and whether a lane got all that it asked for."""
        found = requested = 0
        full = False
        empty: list[Lane] = []
        self._asked, self._crowded = [], False
        for lane in self._coordinator.lanes:
            wanted = self._coordinator.wanted(lane) if lane in chosen else 0
            if wanted <= 0:
                crowd = self._coordinator.departures.count(lane) if lane in chosen else 0
                self._crowded = self._crowded or crowd > 0
                continue
            self._asked.append(lane)
            jobs = self._claim(lane, wanted, now)
            found, requested = found + len(jobs), requested + wanted
            full = full or len(jobs) >= wanted
            if not jobs:
                empty.append(lane)
        at = self._clock.monotonic()
        self._empty_since |= dict.fromkeys(empty, at)
        return found, requested, full

    @property
    def rest(self) -> timedelta:
        """How long to rest after the last poll, unless woken."""
        return self._rest

    def _claim(self, lane: Lane, limit: int, now: datetime, *, suspects: bool = False) -> list[ClaimedJob]:
        request = self._request(lane, limit, suspects=suspects)
        self._coordinator.asking(request.claim_id)
        try:
            jobs = self._claims.claim_next_batch(request, now=now)
        except BaseException:
            # The claim may have been made all the same: the next beats look for it and hand it back.
            self._coordinator.unanswered(request.claim_id)
            raise
        if jobs:
            self._served[lane, suspects] = party_of(jobs[-1].body.fairness_key)
            self._coordinator.accept(lane, jobs)
        self._coordinator.answered(request.claim_id)
        return jobs

    def _claim_suspect(self, now: datetime) -> int:
        """At most one job that was there in two crashes, and only while none is running here."""
        at = self._clock.monotonic()
        self._put_off = None
        if self._suspects_at is not None and at - self._suspects_at < SUSPECT_INTERVAL:
            # What woke this poll may be a suspect: it waits for the look that is due, not for the next poll.
            self._put_off = timedelta(seconds=SUSPECT_INTERVAL - (at - self._suspects_at))
            return 0
        if self._coordinator.has_suspect():
            return 0
        self._suspects_at = at
        for lane in self._coordinator.lanes:
            if self._coordinator.wanted(lane) > 0:
                jobs = self._claim(lane, 1, now, suspects=True)
                if jobs:
                    self._suspects_at = None  # where one was, another may wait for its end: look at once then
                    return len(jobs)
        return 0

    def _request(self, lane: Lane, limit: int, *, suspects: bool = False) -> ClaimRequest:
        return ClaimRequest(
            node_id=self._identity.node_id,
            claim_id=self._ids(),
            limit=limit,
            lane=lane,
            queues=self._queues,
            boost_interval=self._boost_interval,
            suspects=suspects,
            parked_targets=self._importable(),
            after=self._served.get((lane, suspects)),
            ahead=self._ahead,
        )

    def _importable(self) -> frozenset[str]:
        """The parked targets that this node can import; looked up now and then."""
        at = self._clock.monotonic()
        if self._parked_at is not None and at - self._parked_at < PARKED_INTERVAL:
            return self._parked
        self._parked_at = at
        parked = {s.key.parked_target for s in self._claims.streams() if s.key.parked_target is not None}
        self._parked = frozenset(target for target in parked if self._can_import(target))
        return self._parked

    def _can_import(self, target: str) -> bool:
        try:
            self._invocations.resolve(target)
        except (TargetNotFound, TargetNotAllowed):
            return False
        except Exception:
            logger.warning("target %s cannot be imported", target, exc_info=True)
            return False
        return True

    def _look_ahead(self, lanes: Collection[Lane], now: datetime, wakeups: int) -> dict[Lane, Nap]:
        """How long these lanes may nap: until the next job is due, a gate opens, a rate lets another one start."""
        naps: dict[Lane, Nap] = {}
        for lane in lanes:
            due = self._claims.next_due_at(self._request(lane, 1), now=now)
            naps[lane] = Nap(due, self._clock.monotonic(), wakeups)
        return naps

    def _sated_rest(self, rest: timedelta) -> timedelta:
        """Lanes that have enough say when they have not; but not for what waits for its start outside of them."""
        return min(rest, CROWDED_REST) if self._crowded else rest

    def _until_naps_end(self, delay: timedelta, now: datetime) -> timedelta:
        """Not beyond the moment at which the next job is due."""
        dues = [nap.due_at for nap in self._naps.values() if nap.due_at is not None]
        return min([delay, *(max(due - now, timedelta(milliseconds=1)) for due in dues)])


class Nap:
    """What was found out about a lane: when its next job is due (None: nobody knows), and when that was read."""

    __slots__ = ("_read_at", "_wakeups", "due_at")

    def __init__(self, due_at: datetime | None, read_at: float, wakeups: int) -> None:
        self.due_at = due_at
        self._read_at = read_at
        self._wakeups = wakeups

    def lasts(self, now: datetime, at: float, wakeups: int) -> bool:
        """True while the lane need not be asked: no wakeup since then, nothing due, and not for long."""
        if wakeups != self._wakeups or at - self._read_at >= NAP:
            return False
        return self.due_at is None or self.due_at > now
