"""Orphan recovery: takes back the work of nodes that have died, and of no others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from ratchet.engine.heartbeat import Heartbeat, Mark
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.pace import longest_gap
from ratchet.model.clock import Clock
from ratchet.model.cluster import NodeRecord, NodeState, Rescue
from ratchet.model.errors import Conflict

logger = logging.getLogger("ratchet.engine")


class Rescuing(Protocol):
    """What orphan recovery needs of a store."""

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]: ...

    def rescue(
        self, node_id: str, *, seen_beat: int, by: str, max_crashes: int, now: datetime
    ) -> Rescue | None: ...

    def strays(self) -> list[str]: ...

    def hand_back_unknown(self, node_id: str, known: Sequence[UUID], *, now: datetime) -> list[UUID]: ...


#: The part of the time that looks for strays may take, and how many seconds they may be apart for that.
STRAYS_SHARE = 0.02
STRAYS_LATEST = 15.0


class OrphanRecovery:
    """
    Declares a node dead when its beat has not moved for its silence, by this node's own watch.

    No clocks are compared. The watch runs only while this node's own beats go through without a
    gap: a database restart silences everybody, and afterwards everybody is observed anew. A
    requeued job may still be running on a node that is slow rather than dead. That is safe:
    requeueing moves the fence, so the slow node's result is refused.
    """

    def __init__(
        self,
        *,
        nodes: Rescuing,
        heartbeat: Heartbeat,
        identity: NodeIdentity,
        clock: Clock,
        max_crashes: int,
        on_rescue: Callable[[Rescue], None] = lambda rescue: None,
    ) -> None:
        self._nodes = nodes
        self._heartbeat = heartbeat
        self._identity = identity
        self._clock = clock
        self._max_crashes = max_crashes
        self._on_rescue = on_rescue
        self._seen: dict[str, tuple[int, Mark]] = {}
        self._dead: dict[str, int] = {}
        self._due: float | None = None
        self._stride: timedelta | None = None
        self._strays_at = float("-inf")
        self.rescued = 0

    def look(self) -> list[NodeRecord]:
        """
        Observe the beats of all nodes that are not dead, and judge nobody.

        A read: a beat that is seen sooner to have stopped is rescued sooner.
        """
        found = self._nodes.nodes(counting=False)
        self._dead = {node.node_id: node.beat for node in found if node.state is NodeState.DEAD}
        nodes = [node for node in found if node.state is not NodeState.DEAD]
        self._observe(nodes)
        others = [node for node in nodes if node.node_id != self._identity.node_id]
        self._due = min((self._silent_at(node) for node in others), default=None)
        self._stride = min((node.beat_interval for node in others), default=None)
        self._heartbeat.vigil = min(
            (node.beat_interval for node in others if self._is_quiet(node)), default=None
        )
        return nodes

    @property
    def stride(self) -> float:
        """Seconds within which a node that was seen should beat again, at the most frequent; endless if none is there."""
        return float("inf") if self._stride is None else self._stride.total_seconds()

    def rest(self) -> float:
        """Seconds until a node that beats no more will have been silent for long enough; endless if none is there."""
        return float("inf") if self._due is None else max(0.0, self._due - self._clock.monotonic())

    def run_once(self, now: datetime) -> int:
        """
        Look at all nodes once; how many were rescued.

        Right after a beat of this node's own that went through: where writes are held up for
        everybody, nobody is judged before they flow again.
        """
        nodes = self.look()
        at = self._clock.monotonic()
        rescued = 0
        for node in nodes:
            if node.node_id != self._identity.node_id and self._silent_at(node) <= at:
                rescued += self._rescue(node, self._seen[node.node_id][0], now)
        self._hand_back_strays(now)
        return rescued

    def _hand_back_strays(self, now: datetime) -> None:
        """
        Return what a dead node still holds.

        That is what its rescue could not have, because a transaction of the dead was still open, and what
        it has claimed after its end: a frozen node that wakes may do so before its next beat tells it.
        Nobody watches it any more, so its claims are looked for by themselves. Late ones count as no crash.
        The look reads over what cannot be vacuumed yet, so it may take a small part of the time only.
        """
        begun = self._clock.monotonic()
        if begun < self._strays_at:
            return
        strays = self._nodes.strays()
        ended = self._clock.monotonic()
        self._strays_at = ended + min((ended - begun) / STRAYS_SHARE, STRAYS_LATEST)
        for node_id in strays:
            if node_id in self._dead:
                self._take_back(node_id, self._dead[node_id], now)
            back = self._nodes.hand_back_unknown(node_id, (), now=now)
            if back:
                logger.warning("%d jobs claimed by %s after its end were handed back", len(back), node_id)

    def _observe(self, nodes: list[NodeRecord]) -> None:
        """Remember since when each beat has had its value; forget nodes that are gone."""
        mark = self._heartbeat.mark()
        seen: dict[str, tuple[int, Mark]] = {}
        for node in nodes:
            beat, since = self._seen.get(node.node_id, (-1, mark))
            seen[node.node_id] = (beat, since) if beat == node.beat else (node.beat, mark)
        self._seen = seen

    def _silent_at(self, node: NodeRecord) -> float:
        """When (monotonic) the node will have been silent for long enough, as far as this one can tell."""
        unbroken = self._heartbeat.unbroken_since(longest_gap(node.beat_interval, node.silence))
        if unbroken is None:
            return float("inf")
        _, since = self._seen[node.node_id]
        return self._heartbeat.watched_until(max(since, unbroken), node.silence.total_seconds())

    def _is_quiet(self, node: NodeRecord) -> bool:
        """True if a beat is missing. Whoever beats more slowly than that node has to keep up with it to judge it."""
        _, since = self._seen[node.node_id]
        return self._clock.monotonic() - since.at > 1.5 * node.beat_interval.total_seconds()

    def rescue_ended(self, node_id: str, now: datetime) -> bool:
        """
        Rescue a node whose process has ended, which its supervisor saw; True if this call did.

        Its silence need not be waited for. Whoever else noticed first has done the same.
        """
        return any(
            self._rescue(node, node.beat, now) > 0
            for node in self._nodes.nodes()
            if node.node_id == node_id and node.state is not NodeState.DEAD
        )

    def _rescue(self, node: NodeRecord, seen_beat: int, now: datetime) -> int:
        rescue = self._take_back(node.node_id, seen_beat, now)
        self._seen.pop(node.node_id, None)
        self.rescued += rescue is not None
        return int(rescue is not None)

    def _take_back(self, node_id: str, seen_beat: int, now: datetime) -> Rescue | None:
        try:
            rescue = self._nodes.rescue(
                node_id,
                seen_beat=seen_beat,
                by=self._identity.node_id,
                max_crashes=self._max_crashes,
                now=now,
            )
        except Conflict as error:  # others may be had
            logger.warning("the work of %s cannot be taken back yet: %s", node_id, error)
            return None
        if rescue is None:
            return None
        logger.warning(
            "node %s is dead: %d of its jobs were requeued, %d are suspects, %d are dead letters",
            node_id,
            len(rescue.requeued),
            len(rescue.suspects),
            len(rescue.dead_lettered),
        )
        if rescue.held_up:
            logger.warning(
                "%d jobs of %s are held by a transaction that is still open, and follow when it ends",
                len(rescue.held_up),
                node_id,
            )
        self._on_rescue(rescue)
        return rescue
