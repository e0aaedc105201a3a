"""The heartbeat: tells the cluster that this node lives, and learns what it has lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from ratchet.engine.coordinator import Coordinator
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.run import Stop
from ratchet.model.clock import Clock, DatabaseClock
from ratchet.model.cluster import NodeSpec
from ratchet.spi.store.cluster import NodeStore
from ratchet.spi.store.transitions import JobBatchStatusStore

logger = logging.getLogger("ratchet.engine")


class Beating(NodeStore, JobBatchStatusStore, Protocol):
    """What the heartbeat needs of a store."""


class Heartbeat:
    """
    Beats, and compares what the store says this node holds with what it knows.

    ``unbroken_since`` is the moment (of this node's own monotonic time) since which its beats went
    through without a gap: only then may it judge others.
    """

    def __init__(
        self,
        *,
        nodes: Beating,
        coordinator: Coordinator,
        identity: NodeIdentity,
        clock: Clock,
        interval: timedelta,
        silence: timedelta,
        version: str,
        info: Callable[[], str | None] = lambda: None,
        skew_warning: timedelta = timedelta(seconds=1),
    ) -> None:
        self._nodes = nodes
        self._coordinator = coordinator
        self._identity = identity
        self._clock = clock
        self.interval = interval
        self.silence = silence
        self._version = version
        self._info = info
        self._skew_warning = skew_warning
        self._skewed = False
        self._last: float | None = None
        self._unknown: dict[UUID, float] = {}
        self.unbroken_since: float | None = None

    def register(self, now: datetime) -> None:
        """Become known to the cluster; also the place to learn the database's time."""
        self._sample()
        self._nodes.register(
            NodeSpec(
                node_id=self._identity.node_id,
                name=self._identity.name,
                host=self._identity.host,
                pid=self._identity.pid,
                version=self._version,
                beat_interval=self.interval,
                silence=self.silence,
                info=self._info(),
            ),
            now=now,
        )
        self._last = self.unbroken_since = self._clock.monotonic()

    def run_once(self, now: datetime) -> bool:
        """One beat; False if this node was declared dead and had to start over."""
        known_before = self._coordinator.held()
        asked = self._clock.monotonic()
        answer = self._nodes.beat(self._identity.node_id, now=now)
        answered = self._clock.monotonic()
        if not answer.alive:
            self._start_over(now)
            return False
        self._note_gap(answered)
        if answer.database_time is not None and isinstance(self._clock, DatabaseClock):
            self._clock.sample(answer.database_time, answered - asked)
            self._warn_of_skew(self._clock.skew)
        lost = self._coordinator.reconcile(answer.claims, known_before)
        if lost:
            logger.info("%d runs were canceled or taken over elsewhere and are interrupted", len(lost))
        self._hand_back_unknown(answer.claims, now)
        return True

    def _note_gap(self, at: float) -> None:
        """
        A beat that came late, by this node's own measure, breaks the series.

        Where writes are held up for everybody, another node's beat may be older than this one's by an
        interval: what is called late must leave that much of the silence.
        """
        late = min(2 * self.interval, max(self.silence - self.interval, 1.5 * self.interval)).total_seconds()
        if self._last is None or at - self._last > late:
            self.unbroken_since = at
        self._last = at

    def _start_over(self, now: datetime) -> None:
        dropped = self._coordinator.abandon(Stop.LOST)
        old = self._identity.node_id
        new = self._identity.renew()
        logger.warning(
            "node %s was declared dead; its %d jobs belong to others now. It goes on as %s", old, dropped, new
        )
        self.register(now)

    def _hand_back_unknown(self, claims: dict[UUID, UUID], now: datetime) -> None:
        """
        Hand back claims whose answer was lost.

        Only tokens that were unknown at two beats in a row: a claim may be answered a moment after
        the beat that already saw it.
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
