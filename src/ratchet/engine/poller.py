"""The poller: claims due jobs for the lanes that have room."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from msgspec.structs import replace

from ratchet.engine.coordinator import Coordinator
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.suspects import SuspectTurns
from ratchet.model.callbacks import plain_target
from ratchet.model.claim import NO_PARTY, ClaimedJob, ClaimRequest, ahead_token
from ratchet.model.clock import Clock
from ratchet.model.errors import TargetNotAllowed, TargetNotFound
from ratchet.model.identifiers import IdSource
from ratchet.model.places import keys_of, target_of
from ratchet.model.status import Lane
from ratchet.spi.codec_keys import has_keys
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.payload_codec import PayloadCodec
from ratchet.spi.polling_strategy import PollingStrategy, PollObservation
from ratchet.spi.store.claims import JobClaimStore
from ratchet.spi.store.streams import StreamStore

faults = FaultLog(logging.getLogger("ratchet.engine"), logging.WARNING)

#: How often a node looks for suspects, and for parked targets that it can import.
SUSPECT_INTERVAL = 1.0
PARKED_INTERVAL = 10.0
#: Wakeup after wakeup may keep the poller from looking at the other lanes for so many seconds.
LONGEST_WITHOUT_LOOK = 0.05
#: The rest while a lane has enough: it wakes the poller when it needs more.
FULL_REST = timedelta(milliseconds=500)
#: A due time that was read is trusted for so many seconds: until then the lane is not asked before it.
DUE_TRUSTED = 0.25
#: A node with threads claims a job behind a rate this long before its start, so that a late claim makes no late start.
AHEAD = timedelta(milliseconds=200)
#: The rest while a lane wants nothing more because of runs that wait for their planned start.
PLANNED_REST = timedelta(milliseconds=20)
#: The rest while a suspect waits for what runs to end.
ROOM_REST = timedelta(milliseconds=50)
#: The rest until a beat tells whether this node is still one.
LATE_REST = timedelta(milliseconds=100)
#: The shortest rest after a poll that found nothing: other nodes are taking what was due.
SHORTEST_REST = timedelta(milliseconds=5)
#: The rest after a claim, so that the claimed jobs can start before this thread goes on looking.
HAND_OVER = timedelta(milliseconds=1)


class Claiming(JobClaimStore, StreamStore, Protocol):
    """What the poller needs of a store."""


class Poller:
    """
    Asks the store for work.

    `run_once` polls; `rest` says how long to rest then. While batches come back full there is no
    rest, unless a strategy of the user's wants one; and a rest ends early when the next job is due, when a lane needs
    more jobs, or when a wakeup arrives.

    A wakeup costs one claim, for the lane that it names; a wakeup that names no lane is for the one that had
    work last. Then one look at all lanes together says which others have jobs due, and when the next ones are
    due. When the claim has brought jobs, that look waits until they have started.
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
        claims_late: bool = True,
        ahead: timedelta = timedelta(),
        ask_again_after: timedelta | None = None,
        hand_back: Callable[[datetime], object] = lambda now: None,
        codec: PayloadCodec | None = None,
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
        self._claims_late = claims_late  # also when others may take this node for dead
        self._ahead = ahead
        self._ask_again_after = ask_again_after
        self._rests_when_full = not getattr(strategy, "goes_on_after_full_batch", False)
        self._hand_back = hand_back  # what has not started
        self._codec = codec
        self._turns = SuspectTurns()
        self._suspect: UUID | None = None  # the last one that was claimed
        self._waits_for_planned = False  # a lane wants nothing because of planned starts
        self._parked: frozenset[str] = frozenset()
        self._parked_at: float | None = None
        self._parked_wakeups = 0  # how many had come then
        self._parked_in: timedelta | None = None  # until the look for parked targets that this poll left out
        self._suspects_at: float | None = None
        self._suspects_in: timedelta | None = None  # until the look for suspects that this poll left out
        self._rest = timedelta()
        self._served: dict[
            tuple[Lane, bool], str
        ] = {}  # the party whose job was claimed last: the next is served now
        self._next_due: dict[Lane, NextDue] = {}
        self._wakeups = 0
        self._polled_wakeups = -1  # the first poll counts as woken
        self._named: frozenset[Lane] = frozenset()  # lanes that wakeups named
        self._last_busy_lane: Lane | None = None
        self._may_have_more: set[Lane] = set()  # lanes that got all that they asked for
        self._look_put_off_since: float | None = None
        self._unobserved = Tally()  # what was claimed since the strategy was last told

    @property
    def wakeups(self) -> int:
        """How many wakeups have come."""
        return self._wakeups

    def woken(self, lane: Lane | None = None) -> None:
        """A wakeup arrived: there may be new work, for *lane* if that is known."""
        if lane is not None and lane not in self._named:
            self._named |= {lane}  # a name that gets lost between two threads costs a look, no job
        self._wakeups += 1
        self._strategy.woken()

    def run_once(self, now: datetime) -> int:
        """Claim for every lane with room; how many jobs were claimed."""
        if not self._is_open():
            self._rest = timedelta(seconds=1)
            return 0
        if self._is_late():  # it stood still: what it claimed now, others would hand back while it runs here
            self._rest = LATE_REST
            return 0
        at, wakeups = self._clock.monotonic(), self._wakeups
        if self._turns.is_on and (claimed := self._run_suspects(now, at)) is not None:
            return claimed
        resting = {lane: due for lane, due in self._next_due.items() if due.holds(now, at, wakeups)}
        asked = [lane for lane in self._coordinator.lanes if lane not in resting]
        room = {lane: wanted for lane in asked if (wanted := self._coordinator.wanted(lane)) > 0}
        self._waits_for_planned = any(
            self._coordinator.has_planned_start(lane) for lane in asked if lane not in room
        )
        first = self._first(room, now, wakeups)
        self._polled_wakeups = wakeups
        if not room:
            self._next_due = resting
            self._rest = self._until_due(self._full_rest(FULL_REST), now)
            return 0
        tally = Tally()
        for lane in first:
            self._claim_for(lane, room[lane], now, tally)
        self._suspects_in = self._parked_in = None
        if tally.found and not tally.full and self._may_look_later(at):
            return self._hand_over(tally, resting)
        looked = [lane for lane in room if lane not in first] if tally.full else list(room)
        read = self._look(looked, first, room, now, wakeups, tally)
        if tally.full:
            return self._go_on(tally, resting | read)
        if tally.found:
            return self._hand_over(tally, resting)
        self._next_due = resting | read
        self._rest_until_due(self._observed(tally), read, now)
        return 0

    def _first(self, room: Collection[Lane], now: datetime, wakeups: int) -> list[Lane]:
        """
        The lanes to claim for without a look: those that a wakeup named, that have a job due, or that may have more.

        After a wakeup that names no lane, it is the one that had work last.
        """
        named, self._named = self._named, frozenset()
        due = {lane for lane, read in self._next_due.items() if read.is_due(now)}
        first = [lane for lane in room if lane in named or lane in due or lane in self._may_have_more]
        if not first and wakeups != self._polled_wakeups:
            return [lane for lane in room if self._last_busy_lane in (lane, None)][:1]
        return first

    def _claim_for(self, lane: Lane, wanted: int, now: datetime, tally: Tally) -> None:
        jobs = self._claim(lane, wanted, now)
        tally.add(len(jobs), wanted)
        if jobs:
            self._last_busy_lane = lane
        if len(jobs) < wanted:
            self._may_have_more.discard(lane)
        else:
            self._may_have_more.add(lane)

    def _may_look_later(self, at: float) -> bool:
        """True unless wakeup after wakeup has kept it from looking at the other lanes for too long."""
        if self._look_put_off_since is None:
            self._look_put_off_since = at
        return at - self._look_put_off_since < LONGEST_WITHOUT_LOOK

    def _look(
        self,
        lanes: Sequence[Lane],
        claimed: Collection[Lane],
        room: Mapping[Lane, int],
        now: datetime,
        wakeups: int,
        tally: Tally,
    ) -> dict[Lane, NextDue]:
        """
        Look at *lanes*, and now and then for suspects, with one query; claim what is due.

        Returns when the other lanes have something to claim: a job is due, a gate opens, a rate lets one start.
        """
        self._look_put_off_since = None
        if self._refresh_parked() and not tally.found:
            claimed = ()  # those claims did not ask for the targets that were found just now
        requests = [self._request(lane, 1) for lane in lanes]
        with_suspects = self._suspects_are_due()
        if with_suspects:
            requests += self._suspect_requests()
        if not requests:
            return {}
        dues = self._claims.next_due_of(requests, now=now)
        read_at = self._clock.monotonic()
        if with_suspects and self._begin_turn(dues[len(lanes) :], now, tally):
            return {}
        read: dict[Lane, NextDue] = {}
        for lane, due in zip(lanes, dues, strict=False):
            if due is not None and due <= now and lane not in claimed:
                self._claim_for(lane, room[lane], now, tally)
            else:
                read[lane] = NextDue(due, read_at, wakeups)
                if lane not in claimed:
                    tally.add(0, room[lane])
        return read

    def _hand_over(self, tally: Tally, next_due: dict[Lane, NextDue]) -> int:
        """Jobs were found, but fewer than asked for: look for others once these have started."""
        self._next_due = next_due
        self._unobserved += tally
        self._rest = HAND_OVER
        return tally.found

    def _go_on(self, tally: Tally, next_due: dict[Lane, NextDue]) -> int:
        """A batch was full: there may be more. The stock strategy goes on at once; another one may want a rest."""
        self._next_due = next_due
        delay = self._observed(tally)
        self._rest = delay if self._rests_when_full else timedelta()
        return tally.found

    def _rest_until_due(self, delay: timedelta, read: Mapping[Lane, NextDue], now: datetime) -> None:
        """Nothing more to claim: rest as the strategy says, or until the next job is due."""
        if len(self._next_due) < len(self._coordinator.lanes):
            delay = self._full_rest(min(delay, FULL_REST))
        self._rest = self._until_due(delay, now)
        if any(due.is_due(now) for due in read.values()):
            self._rest = max(self._rest, SHORTEST_REST)
        for put_off in (self._suspects_in, self._parked_in):
            if put_off is not None:
                self._rest = min(self._rest, put_off)

    def _observed(self, tally: Tally) -> timedelta:
        """The delay that the strategy chooses after this poll and what was claimed since it was last told."""
        whole, self._unobserved = self._unobserved + tally, Tally()
        return self._strategy.next_delay(
            PollObservation(
                found=whole.found,
                requested=max(whole.requested, whole.found),
                at=self._clock.monotonic(),
                utilization=self._coordinator.utilization,
            )
        )

    @property
    def runs_suspects(self) -> bool:
        """True while this node starts nothing but suspects."""
        return self._turns.is_on

    @property
    def rest(self) -> timedelta:
        """How long to rest after the last poll, unless woken."""
        return self._rest

    def _claim(self, lane: Lane, limit: int, now: datetime, *, suspects: bool = False) -> list[ClaimedJob]:
        request = self._request(lane, limit, suspects=suspects)
        if not suspects and self._coordinator.is_ahead(lane, limit):
            request = replace(request, claim_id=ahead_token(request.claim_id))
        self._coordinator.asking(request.claim_id)
        asked_at = self._clock.monotonic()
        try:
            jobs = self._claims.claim_next_batch(request, now=now)
        except BaseException:
            # The claim may have been made all the same: the next beats look for it and hand it back.
            self._coordinator.unanswered(request.claim_id)
            raise
        if jobs and self._is_late():  # it stood still in the middle; the beats find these, or others do
            self._coordinator.unanswered(request.claim_id)
            return []
        if jobs:
            self._served[lane, suspects] = jobs[-1].body.fairness_key or NO_PARTY
            self._coordinator.accept(lane, jobs, asked_at)
        self._coordinator.answered(request.claim_id)
        return jobs

    def _is_late(self) -> bool:
        """True if this node may have been declared dead; the next beat tells."""
        return not self._claims_late and self._clock.monotonic() > self._identity.late_after

    def _suspects_are_due(self) -> bool:
        """True if it is time to look for a job that was running in two crashes."""
        at = self._clock.monotonic()
        if self._suspects_at is not None and at - self._suspects_at < SUSPECT_INTERVAL:
            # What woke this poll may be a suspect: the rest ends when the look is due.
            self._suspects_in = timedelta(seconds=SUSPECT_INTERVAL - (at - self._suspects_at))
            return False
        self._suspects_at = at
        return True

    def _suspect_requests(self) -> list[ClaimRequest]:
        """For all lanes: while a turn of suspects is on, each of them has room."""
        return [self._request(lane, 1, suspects=True) for lane in self._coordinator.lanes]

    def _begin_turn(self, dues: Sequence[datetime | None], now: datetime, tally: Tally) -> bool:
        """Begin a turn of suspects if one is due (*dues*, by lane) and it is time; True if it has begun."""
        lanes = self._lanes_due(dues, now)
        if not lanes or self._coordinator.has_stubborn_code:
            self._turns.due_since = None
            return False
        self._suspects_at = None  # look again with the next poll
        at = self._clock.monotonic()
        idle = self._coordinator.is_quiet
        if not self._turns.may_begin(at, idle=idle):
            self._suspects_in = ROOM_REST
            return False
        self._turns.begin(at)
        if idle:
            tally.add(self._claim_suspect(lanes, now), 0)
        self._suspects_in = ROOM_REST
        return True

    def _lanes_due(self, dues: Sequence[datetime | None], now: datetime) -> list[Lane]:
        return [
            lane
            for lane, due in zip(self._coordinator.lanes, dues, strict=True)
            if due is not None and due <= now
        ]

    def _run_suspects(self, now: datetime, at: float) -> int | None:
        """
        One step of a turn of suspects: how many were claimed; None if the turn is over.

        What has not started goes back, what runs is waited for, and then one suspect after the other runs alone.
        """
        if self._suspect is not None and self._coordinator.holds(self._suspect):
            self._rest = FULL_REST  # its end wakes the poller
            return 0
        too_long = self._turns.is_too_long(at)
        if not too_long and not self._coordinator.is_quiet:
            self._hand_back(now)
            self._rest = ROOM_REST
            if not self._suspects_are_due():
                return 0
        lanes = (
            []
            if too_long
            else self._lanes_due(self._claims.next_due_of(self._suspect_requests(), now=now), now)
        )
        if lanes and not self._coordinator.is_quiet:
            return 0
        if self._claim_suspect(lanes, now):
            self._rest = HAND_OVER
            return 1
        self._turns.end(at)
        return None

    def _claim_suspect(self, lanes: Iterable[Lane], now: datetime) -> int:
        """Claim one suspect at most, of the first of *lanes* that has one; how many."""
        for lane in lanes:
            if self._coordinator.wanted(lane) > 0 and (jobs := self._claim(lane, 1, now, suspects=True)):
                self._suspect = jobs[0].claim.job_id
                self._turns.ran()
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
            ask_again_after=self._ask_again_after,
        )

    def _refresh_parked(self) -> bool:
        """Find out, now and then, which parked targets this node can run; True if these are others than before."""
        at = self._clock.monotonic()
        if self._parked_at is not None and at - self._parked_at < PARKED_INTERVAL:
            if self._wakeups != self._parked_wakeups:
                # What woke this poll may be a job that another node has parked: the rest ends when the look is due.
                self._parked_in = timedelta(seconds=PARKED_INTERVAL - (at - self._parked_at))
            return False
        self._parked_at, self._parked_wakeups = at, self._wakeups
        before, parked = self._parked, self._claims.parked_targets()
        self._parked = frozenset(target for target in parked if self._can_run(target))
        return self._parked != before

    def _can_run(self, target: str) -> bool:
        keys, function = keys_of(target), target_of(target)
        if keys and not has_keys(self._codec, keys):
            return False
        if function is None:
            return True
        try:
            self._invocations.resolve(plain_target(function))
        except (TargetNotFound, TargetNotAllowed):
            return False
        except BaseException as error:
            faults.note(f"the parked target {target} cannot be imported", error)
            return False
        return True

    def _full_rest(self, rest: timedelta) -> timedelta:
        """Lanes that have enough wake the poller when they need more; but no lane knows of planned starts."""
        return min(rest, PLANNED_REST) if self._waits_for_planned else rest

    def _until_due(self, delay: timedelta, now: datetime) -> timedelta:
        """*delay*, or less if a job is due before that."""
        dues = [due.at for due in self._next_due.values() if due.at is not None]
        return min([delay, *(max(at - now, timedelta(milliseconds=1)) for at in dues)])


class Tally:
    """How many jobs the claims of a poll asked for and found; ``full``: one of them got all that it asked for."""

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


class NextDue:
    """When the next job of a lane is due (None: nothing is known to come), and when that was read."""

    __slots__ = ("_read_at", "_wakeups", "at")

    def __init__(self, at: datetime | None, read_at: float, wakeups: int) -> None:
        self.at = at
        self._read_at = read_at
        self._wakeups = wakeups

    def is_due(self, now: datetime) -> bool:
        """True if a job is due."""
        return self.at is not None and self.at <= now

    def holds(self, now: datetime, at: float, wakeups: int) -> bool:
        """True while the lane need not be asked: read lately, no wakeup since then, and nothing due."""
        if wakeups != self._wakeups or at - self._read_at >= DUE_TRUSTED:
            return False
        return not self.is_due(now)
