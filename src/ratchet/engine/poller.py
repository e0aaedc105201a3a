"""The poller: claims due jobs for the lanes that have room."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
#: Wakeup after wakeup may keep a poller from looking at the other lanes for so many seconds.
UNLOOKED = 0.05
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
#: What was claimed is let start before this thread goes on looking: it would only be in its way.
HAND_OVER = timedelta(milliseconds=1)


class Claiming(JobClaimStore, StreamStore, Protocol):
    """What the poller needs of a store."""


class Poller:
    """
    Asks the store for work.

    `run_once` polls; `delay` says how long to rest then. While batches come back full there is no
    rest, and a rest ends early when the next job is due or a wakeup arrives.

    A wakeup costs one claim, for the lane that the news is for; where nobody said which, for the one that had
    work last. Then one look at all lanes together says which others have something due, and until when the
    rest may nap. When the claim has brought jobs, that look waits until they have started.
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
        # the party whose job was claimed last: turns go on there
        self._served: dict[tuple[Lane, bool], str] = {}
        self._naps: dict[Lane, Nap] = {}
        self._wakeups = 0
        self._polled_wakeups = -1  # the first poll is as good as woken
        self._hints: frozenset[Lane] = frozenset()  # lanes that wakeups were for
        self._favourite: Lane | None = None  # the lane that had work last
        self._hungry: set[Lane] = set()  # lanes that got all that they asked for: there may be more
        self._unlooked_since: float | None = None  # when a look was first left for later
        self._handed = Tally()  # what was handed over since the last look

    def woken(self, lane: Lane | None = None) -> None:
        """A wakeup arrived: there may be new work, for *lane* if that is known."""
        if lane is not None and lane not in self._hints:
            self._hints |= {lane}  # one that gets lost between two threads costs a look, nothing else
        self._wakeups += 1
        self._strategy.woken()

    def run_once(self, now: datetime) -> int:
        """Claim for every lane with room; how many jobs were claimed."""
        if not self._is_open():
            self._rest = timedelta(seconds=1)
            return 0
        at, wakeups = self._clock.monotonic(), self._wakeups
        napping = {lane: nap for lane, nap in self._naps.items() if nap.lasts(now, at, wakeups)}
        awake = [lane for lane in self._coordinator.lanes if lane not in napping]
        room = {lane: wanted for lane in awake if (wanted := self._coordinator.wanted(lane)) > 0}
        self._crowded = any(
            self._coordinator.departures.count(lane) > 0 for lane in awake if lane not in room
        )
        first = self._first(room, now, wakeups)
        self._polled_wakeups = wakeups
        if not room:
            self._naps = napping
            self._rest = self._until_naps_end(self._sated_rest(SATED_REST), now)
            return 0
        tally = Tally()
        for lane in first:
            self._claim_for(lane, room[lane], now, tally)
        self._put_off = None
        if tally.found and not tally.full and self._may_look_later(at):
            return self._hand_over(tally, napping)
        looked = [lane for lane in room if lane not in first] if tally.full else list(room)
        naps = self._look(looked, first, room, now, wakeups, tally)
        if tally.full:
            return self._go_on(tally, napping | naps)
        if tally.found:
            return self._hand_over(tally, napping)
        self._naps = napping | naps
        self._settle(self._observed(tally), naps, now)
        return 0

    def _first(self, room: Collection[Lane], now: datetime, wakeups: int) -> list[Lane]:
        """
        The lanes to claim for without a look: what a wakeup was for, what is known to be due, where there may be
        more; and on news of which nobody said for whom, the one that had work last.
        """
        hints, self._hints = self._hints, frozenset()
        known = {lane for lane, nap in self._naps.items() if nap.due_at is not None and nap.due_at <= now}
        first = [lane for lane in room if lane in hints or lane in known or lane in self._hungry]
        if not first and wakeups != self._polled_wakeups:
            return [lane for lane in room if self._favourite in (lane, None)][:1]
        return first

    def _claim_for(self, lane: Lane, wanted: int, now: datetime, tally: Tally) -> None:
        jobs = self._claim(lane, wanted, now)
        tally.add(len(jobs), wanted)
        if jobs:
            self._favourite = lane
        if len(jobs) < wanted:
            self._hungry.discard(lane)
        else:
            self._hungry.add(lane)

    def _may_look_later(self, at: float) -> bool:
        """True unless wakeup after wakeup has kept it from looking at the other lanes for too long."""
        if self._unlooked_since is None:
            self._unlooked_since = at
        return at - self._unlooked_since < UNLOOKED

    def _look(
        self,
        lanes: Sequence[Lane],
        claimed: Collection[Lane],
        room: Mapping[Lane, int],
        now: datetime,
        wakeups: int,
        tally: Tally,
    ) -> dict[Lane, Nap]:
        """
        Look at *lanes*, and now and then for suspects, in one question; claim what is due.

        How long the others may nap: until the next job is due, a gate opens, a rate lets another one start.
        """
        self._unlooked_since = None
        self._refresh_parked()
        requests = [self._request(lane, 1) for lane in lanes]
        wary = self._suspects_are_due()
        if wary:
            requests += [self._request(lane, 1, suspects=True) for lane in room]
        if not requests:
            return {}
        dues = self._claims.next_due_of(requests, now=now)
        read_at = self._clock.monotonic()
        naps: dict[Lane, Nap] = {}
        for lane, due in zip(lanes, dues, strict=False):
            if due is not None and due <= now and lane not in claimed:
                self._claim_for(lane, room[lane], now, tally)
            else:
                naps[lane] = Nap(due, read_at, wakeups)
                if lane not in claimed:
                    tally.add(0, room[lane])
        if wary:
            suspect = [
                lane
                for lane, due in zip(room, dues[len(lanes) :], strict=True)
                if due is not None and due <= now
            ]
            tally.add(self._claim_suspect(suspect, now), 0)
        return naps

    def _hand_over(self, tally: Tally, napping: dict[Lane, Nap]) -> int:
        """Jobs were found, but not as many as asked for: look for others once these have started."""
        self._naps = napping
        self._handed += tally
        self._rest = HAND_OVER
        return tally.found

    def _go_on(self, tally: Tally, naps: dict[Lane, Nap]) -> int:
        """A batch was full: there may be more."""
        self._naps = naps
        self._observed(tally)
        self._rest = timedelta()
        return tally.found

    def _settle(self, delay: timedelta, naps: Mapping[Lane, Nap], now: datetime) -> None:
        """Nothing more to claim: rest as the strategy says, until the next job is due."""
        if len(self._naps) < len(self._coordinator.lanes):
            delay = self._sated_rest(min(delay, SATED_REST))
        self._rest = self._until_naps_end(delay, now)
        if any(nap.due_at is not None and nap.due_at <= now for nap in naps.values()):
            self._rest = max(self._rest, SHORTEST_REST)
        if self._put_off is not None:
            self._rest = min(self._rest, self._put_off)

    def _observed(self, tally: Tally) -> timedelta:
        """What the strategy says to a poll, and what was handed over before its look was made."""
        whole, self._handed = self._handed + tally, Tally()
        return self._strategy.next_delay(
            PollObservation(
                found=whole.found,
                requested=max(whole.requested, whole.found),
                at=self._clock.monotonic(),
                utilization=self._coordinator.utilization,
            )
        )

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

    def _suspects_are_due(self) -> bool:
        """True if it is time to look for a job that was there in two crashes, and none is running here."""
        at = self._clock.monotonic()
        if self._suspects_at is not None and at - self._suspects_at < SUSPECT_INTERVAL:
            # What woke this poll may be a suspect: it waits for the look that is due, not for the next poll.
            self._put_off = timedelta(seconds=SUSPECT_INTERVAL - (at - self._suspects_at))
            return False
        if self._coordinator.has_suspect():
            return False
        self._suspects_at = at
        return True

    def _claim_suspect(self, lanes: Iterable[Lane], now: datetime) -> int:
        """At most one, of the first of *lanes* that gives one."""
        for lane in lanes:
            if self._coordinator.wanted(lane) > 0 and self._claim(lane, 1, now, suspects=True):
                self._suspects_at = None  # where one was, another may wait for its end: look at once then
                return 1
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
            parked_targets=self._parked,
            after=self._served.get((lane, suspects)),
            ahead=self._ahead,
        )

    def _refresh_parked(self) -> None:
        """Find out which parked targets this node can import; now and then, and not before a claim."""
        at = self._clock.monotonic()
        if self._parked_at is not None and at - self._parked_at < PARKED_INTERVAL:
            return
        self._parked_at = at
        parked = self._claims.parked_targets()
        self._parked = frozenset(target for target in parked if self._can_import(target))

    def _can_import(self, target: str) -> bool:
        try:
            self._invocations.resolve(target)
        except (TargetNotFound, TargetNotAllowed):
            return False
        except Exception:
            logger.warning("target %s cannot be imported", target, exc_info=True)
            return False
        return True

    def _sated_rest(self, rest: timedelta) -> timedelta:
        """Lanes that have enough say when they have not; but not for what waits for its start outside of them."""
        return min(rest, CROWDED_REST) if self._crowded else rest

    def _until_naps_end(self, delay: timedelta, now: datetime) -> timedelta:
        """Not beyond the moment at which the next job is due."""
        dues = [nap.due_at for nap in self._naps.values() if nap.due_at is not None]
        return min([delay, *(max(due - now, timedelta(milliseconds=1)) for due in dues)])


class Tally:
    """What the claims of a poll asked for and found, and whether one of them got all that it asked for."""

    __slots__ = ("found", "full", "requested")

    def __init__(self, found: int = 0, requested: int = 0, *, full: bool = False) -> None:
        self.found = found
        self.requested = requested
        self.full = full

    def add(self, found: int, requested: int) -> None:
        """One more claim."""
        self.found += found
        self.requested += requested
        self.full = self.full or 0 < requested <= found

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.found + other.found, self.requested + other.requested, full=self.full or other.full)


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
