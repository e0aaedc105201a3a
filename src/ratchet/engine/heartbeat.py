"""The heartbeat: tells the cluster that this node lives, and learns what it has lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

from ratchet.engine.coordinator import Coordinator
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.pace import Pace
from ratchet.engine.run import Stop
from ratchet.model.clock import Clock, DatabaseClock
from ratchet.model.cluster import BeatAnswer, NodeChange, NodeRequest, NodeSpec
from ratchet.model.options import Liveness
from ratchet.model.spacing import Spacing
from ratchet.spi.store.cluster import NodeStore
from ratchet.spi.store.transitions import JobBatchStatusStore

logger = logging.getLogger("ratchet.engine")

#: Beats that read every claim of the node may take this share of the time. Where they are slow, they are further
#: apart for that, by so many seconds at most.
READING_SHARE = 0.02
READING_LATEST = 60.0
#: A node that holds nothing, and has lost no claim, holds nothing in the store either; it makes sure every so many seconds.
IDLE_READING = 60.0


class Beating(NodeStore, JobBatchStatusStore, Protocol):
    """What the heartbeat needs of a store."""


class Mark(NamedTuple):
    """A moment of a node's own monotonic time, and by how much its beats had been late until then."""

    at: float
    lateness: float


class Heartbeat:
    """
    Beats, and compares what the store says this node holds with what it knows.

    It also keeps the time by which this node judges others (`mark`, `unbroken_since`, `watched_until`). While
    its own beats do not go through, it may not see theirs either, so that time does not count.
    """

    def __init__(
        self,
        *,
        nodes: Beating,
        coordinator: Coordinator,
        identity: NodeIdentity,
        clock: Clock,
        pace: Pace,
        version: str,
        info: Callable[[], str | None] = lambda: None,
        on_handed_back: Callable[[], None] = lambda: None,
        on_joined: Callable[[NodeSpec], None] = lambda node: None,
        on_request: Callable[[NodeRequest | None], None] = lambda request: None,
        skew_warning: timedelta = timedelta(seconds=1),
    ) -> None:
        self._nodes = nodes
        self._coordinator = coordinator
        self._identity = identity
        self._clock = clock
        self.pace = pace
        self._version = version
        self._info = info
        self._on_handed_back = on_handed_back
        self._on_joined = on_joined
        self._on_request = on_request
        self._request: NodeRequest | None = (
            None  # what a person asks of this node, as far as it has been done
        )
        self._skew_warning = skew_warning
        self._skewed = False
        self._last: float | None = None
        self._beaten_at = float("inf")  # when the last beat that went through was begun
        self._declared: tuple[Liveness, str | None] | None = None
        self._unknown: dict[UUID, float] = {}
        self._read_all_at = float("-inf")
        self._read_at = float("-inf")
        self._readings = Spacing(READING_SHARE, READING_LATEST)
        self._unbroken: dict[float, Mark] = {}  # by the longest gap that is none
        self._expected = pace.current.heartbeat
        self._lateness = 0.0
        self._left = threading.Event()
        self.false_rescues = 0
        self.replaces: str | None = None  # the incarnation that was declared dead last
        #: While a beat of another node is missing: how often to beat at least, so that its silence can be judged.
        self.judging_interval: timedelta | None = None

    @property
    def interval(self) -> timedelta:
        """Time from the last beat to the next."""
        usual = self.pace.current.heartbeat
        return usual if self.judging_interval is None else min(usual, self.judging_interval)

    @property
    def must_beat(self) -> bool:
        """True if this node has work, but has declared the longer silence of a node without any."""
        return self.pace.is_slow and not self._coordinator.idle

    def mark(self) -> Mark:
        """Now."""
        return Mark(self._clock.monotonic(), self._lateness)

    def unbroken_since(self, longest_gap: float) -> Mark | None:
        """
        Since when no two beats in a row were further apart than *longest_gap* seconds; None before the first.

        The first question about a gap is answered with the last beat: earlier ones were not compared with it.
        """
        if self._last is None:
            return None
        return self._unbroken.setdefault(longest_gap, Mark(self._last, self._lateness))

    def watched_until(self, mark: Mark, seconds: float) -> float:
        """When (monotonic) this node will have watched for *seconds* since *mark*, if no beat is late from now on."""
        return mark.at + seconds + (self._lateness - mark.lateness)

    def register(self, now: datetime) -> None:
        """Become known to the cluster, and learn the database's time."""
        self._sample()
        self.pace.reset()
        liveness, info = self.pace.current, self._info()
        spec = NodeSpec(
            node_id=self._identity.node_id,
            name=self._identity.name,
            host=self._identity.host,
            pid=self._identity.pid,
            version=self._version,
            beat_interval=liveness.heartbeat,
            silence=liveness.silence,
            info=info,
        )
        self._was_beaten(self._clock.monotonic())
        self._nodes.register(spec, now=now)
        self._declared = (liveness, info)
        self._last = self._clock.monotonic()
        self._expected = liveness.heartbeat
        self._unbroken = {}
        self._on_joined(spec)

    def leave(self) -> None:
        """No more beats: the node's row is about to go, and a beat that does not find it must not make another."""
        self._left.set()

    def run_once(self, now: datetime) -> bool:
        """
        One beat; False if this node was declared dead and had to start over.

        As a rule it reads every claim of this node. Where that is slow, because the store has to read many dead rows
        that cannot be vacuumed yet, most beats ask only for the jobs that this node knows of; and so do most beats of
        a node that knows of none.
        """
        if self._left.is_set():
            return True
        known_before = self._coordinator.held()
        has_lost = self._coordinator.has_lost_claims()
        asked = self._clock.monotonic()
        reads_all = has_lost or asked >= self._reading_due(idle=not known_before)
        known = None if reads_all else [run.job_id for run in known_before]
        answer = self._beat(now, known, busy=bool(known_before) or has_lost)
        answered = self._clock.monotonic()
        if reads_all:
            self._read_all_at = self._readings.next_after(asked, answered)
            self._read_at = asked
        if self._left.is_set():
            return True
        if not answer.alive:
            self._start_over(now)
            return False
        self._note_gap(answered)
        self._was_beaten(asked)
        if answer.database_time is not None and isinstance(self._clock, DatabaseClock):
            self._clock.sample(answer.database_time, answered - asked)
            self._warn_of_skew(self._clock.skew)
        lost = self._coordinator.reconcile(answer.claims, known_before)
        if lost:
            logger.info("%d runs were canceled or taken over elsewhere and are interrupted", len(lost))
        if reads_all:
            self._hand_back_unknown(answer.claims, now)
        if answer.request is not self._request:
            self._on_request(answer.request)
            self._request = answer.request
        return True

    def _reading_due(self, *, idle: bool) -> float:
        """When (monotonic) a beat reads every claim again."""
        if idle and not self._unknown:
            return max(self._read_all_at, self._read_at + IDLE_READING)
        return self._read_all_at

    def _beat(self, now: datetime, known: Sequence[UUID] | None, *, busy: bool) -> BeatAnswer:
        """Beat, and declare with it what has changed since the last time."""
        liveness, info = self.pace.wanted(busy=busy), self._info()
        change = None
        if self._declared != (liveness, info):
            change = NodeChange(beat_interval=liveness.heartbeat, silence=liveness.silence, info=info)
        try:
            answer = self._nodes.beat(self._identity.node_id, now=now, change=change, known=known)
        except BaseException:
            # Whether it was written is unknown. The shorter silence is assumed until a beat goes through.
            self.pace.reset()
            self._was_beaten(self._beaten_at)
            self._declared = None
            raise
        self.pace.declared(liveness, busy=busy)
        self._declared = (liveness, info)
        return answer

    def _was_beaten(self, at: float) -> None:
        """The last beat that went through was begun then; the silence in force counts from there."""
        self._beaten_at = at
        self._identity.late_after = at + self.pace.current.silence.total_seconds()

    def _note_gap(self, at: float) -> None:
        """A late beat is no time in which others were watched; a very late one breaks the series."""
        if self._last is not None:
            gap = at - self._last
            self._lateness += max(0.0, gap - self._expected.total_seconds())
            for longest in self._unbroken:
                if gap > longest:
                    self._unbroken[longest] = Mark(at, self._lateness)
        self._last, self._expected = at, self.interval

    def _start_over(self, now: datetime) -> None:
        dropped = self._coordinator.abandon(Stop.LOST)
        self.false_rescues += 1
        self.replaces = old = self._identity.node_id
        new = self._identity.renew()
        logger.warning(
            "node %s was declared dead; its %d jobs belong to others now. It goes on as %s", old, dropped, new
        )
        self.register(now)
        if self._request is not None:
            # It was asked of this process, which goes on under another id.
            self._nodes.request_of_node(new, self._request, now=now)
            self._request = None

    def _hand_back_unknown(self, claims: dict[UUID, UUID], now: datetime) -> None:
        """
        Hand back claims whose answer was lost.

        Only tokens that were unknown twice in a row: a claim may be answered a moment after the beat
        that already saw it.
        """
        known = set(self._coordinator.tokens())
        at = self._clock.monotonic()
        unknown = {token for token in claims.values() if token not in known}
        self._unknown = {token: self._unknown.get(token, at) for token in unknown}
        if any(since < at for since in self._unknown.values()) or self._coordinator.has_lost_claims():
            fresh = [token for token, since in self._unknown.items() if since >= at]
            back = self._nodes.hand_back_unknown(
                self._identity.node_id, [*self._coordinator.tokens(), *fresh], now=now
            )
            self._coordinator.looked_for_lost_claims()
            if back:
                logger.warning("%d claims whose answer was lost were handed back", len(back))
                self._on_handed_back()

    def _sample(self) -> None:
        if not isinstance(self._clock, DatabaseClock):
            return
        asked = self._clock.monotonic()
        told = self._nodes.database_time()
        self._clock.sample(told, self._clock.monotonic() - asked)

    def _warn_of_skew(self, skew: timedelta) -> None:
        skewed = abs(skew) > self._skew_warning
        if skewed and not self._skewed:
            logger.warning(
                "this machine's clock differs from the database's by %.1f s; jobs follow the database's time",
                skew.total_seconds(),
            )
        self._skewed = skewed
