"""Orphan recovery: takes back the work of nodes that have died, and of no others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

from ratchet.engine.heartbeat import Heartbeat, Mark
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.pace import longest_gap
from ratchet.engine.rota import Rota
from ratchet.engine.started_runs import run_number
from ratchet.model.clock import Clock
from ratchet.model.cluster import NodeRecord, NodeState, Rescue
from ratchet.model.durations import earlier
from ratchet.model.errors import Conflict
from ratchet.model.spacing import Spacing

logger = logging.getLogger("ratchet.engine")


class Rescuing(Protocol):
    """What orphan recovery needs of a store."""

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]: ...

    def rescue(
        self,
        node_id: str,
        *,
        seen_beat: int,
        by: str,
        max_crashes: int,
        now: datetime,
        ran: Mapping[UUID, UUID] | None = None,
        seen: str | None = None,
    ) -> Rescue | None: ...

    def claims_of(self, node_id: str) -> dict[UUID, UUID]: ...

    def absent_nodes(self) -> list[str]: ...

    def hand_back_unknown(self, node_id: str, known: Sequence[UUID], *, now: datetime) -> list[UUID]: ...


#: How many nodes of a cluster look out for missing beats between their own beats, too.
WATCHERS = 3
#: The others do it with every second beat, and so does a node that is alone.
LOOKED_EVERY = 2
#: Looking for claims of dead nodes may take this share of the time. Where it is slow, it is done less often for
#: that, but at least every so many seconds.
UNOWNED_SHARE = 0.02
UNOWNED_LATEST = 15.0
#: After a death every node looks, with each beat as far as that share allows, for so long.
FRESH = timedelta(minutes=5)


class OrphanRecovery:
    """
    Declares a node dead when its beat has not moved for its silence, by this node's own watch.

    No clocks are compared. Time counts only while this node's own beats go through without a
    gap: a database restart silences every node, and afterwards every node is observed anew. A
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
        on_handed_back: Callable[[], None] = lambda: None,
        on_lost: Callable[[Rescue], None] = lambda rescue: None,
        on_joined: Callable[[NodeRecord], None] = lambda node: None,
    ) -> None:
        self._nodes = nodes
        self._heartbeat = heartbeat
        self._identity = identity
        self._clock = clock
        self._max_crashes = max_crashes
        self._on_rescue = on_rescue
        self._on_handed_back = on_handed_back
        self._on_lost = on_lost
        self._on_joined = on_joined
        self._has_looked = False
        #: The ids of the nodes that are not dead, by their start, this one among them.
        self.members: list[str] = []
        self._seen: dict[str, tuple[int, Mark]] = {}
        self._dead: dict[str, int] = {}
        self._due: float | None = None
        self._shortest_interval: timedelta | None = None
        self._unowned_at = float("-inf")
        self._unowned_looks = Spacing(UNOWNED_SHARE, UNOWNED_LATEST)
        self._unowned_looked_at: float | None = None
        self._has_fresh_dead = False
        #: Who looks next for what any node may find.
        self.rota = Rota(lambda: self.members, lambda: identity.node_id)
        self.rescued = 0

    def look(self) -> list[NodeRecord]:
        """
        Observe the beats of all nodes that are not dead, and judge nobody.

        It only reads. The sooner a node's last beat is seen, the sooner its silence is over.
        """
        found = self._nodes.nodes(counting=False)
        self._dead = {node.node_id: node.beat for node in found if node.state is NodeState.DEAD}
        nodes = [node for node in found if node.state is not NodeState.DEAD]
        lately = earlier(self._clock.now(), FRESH)
        self._has_fresh_dead = any(
            node.state is NodeState.DEAD and (node.rescued_at is None or node.rescued_at > lately)
            for node in found
        )
        others = [node for node in nodes if node.node_id != self._identity.node_id]
        if self._has_looked:  # those of the first look were here before this one
            for node in others:
                if node.node_id not in self._seen:
                    self._on_joined(node)
        self._has_looked = True
        self.members = [node.node_id for node in nodes]
        self._observe(nodes)
        self._due = min((self._silent_at(node) for node in others), default=None)
        self._shortest_interval = min((node.beat_interval for node in others), default=None)
        self._heartbeat.judging_interval = min(
            (node.beat_interval for node in others if self._is_quiet(node)), default=None
        )
        return nodes

    @property
    def shortest_interval(self) -> float:
        """The shortest beat interval, in seconds, of the other nodes; infinite if there are none."""
        return float("inf") if self._shortest_interval is None else self._shortest_interval.total_seconds()

    @property
    def keeps_watch(self) -> bool:
        """
        True if this node looks at the others as often as it can, so that a death is noticed soon.

        A few are enough, the oldest. All others look too, but less often while no beat is missing.
        """
        if len(self.members) <= 1:
            return False
        return (
            self._heartbeat.judging_interval is not None or self._identity.node_id in self.members[:WATCHERS]
        )

    def rest(self) -> float:
        """Seconds until the first of the other nodes counts as dead if it does not beat; infinite if there are none."""
        return float("inf") if self._due is None else max(0.0, self._due - self._clock.monotonic())

    def run_once(self, now: datetime) -> int:
        """
        Look at all nodes once; how many were rescued.

        To be called right after a beat of this node's own that went through: while all writes are held up,
        no node may be judged.
        """
        nodes = self.look()
        at = self._clock.monotonic()
        rescued = 0
        for node in nodes:
            if node.node_id != self._identity.node_id and self._silent_at(node) <= at:
                rescued += self._rescue(node, self._seen[node.node_id][0], now)
        self._hand_back_unowned(now)
        return rescued

    def _hand_back_unowned(self, now: datetime) -> None:
        """
        Return what dead nodes still hold.

        That is what a rescue could not have because a transaction of the dead node was still open, and what a
        node has claimed after it was declared dead: one that was frozen may claim before its next beat tells it.
        Nobody watches a dead node any more, so this looks for claims, not for nodes. They count as no crash.
        The store may have to read many dead rows for it, so it may take a small share of the time only.
        """
        begun = self._clock.monotonic()
        if begun < self._unowned_at or not (self._has_fresh_dead or self._is_my_turn(begun, now)):
            return
        self._unowned_looked_at = begun
        unowned = self._nodes.absent_nodes()
        ended = self._clock.monotonic()
        self._unowned_at = self._unowned_looks.next_after(begun, ended)
        for node_id in unowned:
            if node_id in self._dead:
                self._take_back(node_id, self._dead[node_id], now)
            back = self._nodes.hand_back_unknown(node_id, (), now=now)
            if back:
                logger.warning("%d jobs claimed by %s after its end were handed back", len(back), node_id)
                self._on_handed_back()

    def _is_my_turn(self, at: float, now: datetime) -> bool:
        """Where no node has died lately, one node at a time looks, and not with every beat."""
        if self._unowned_looked_at is None:
            return True
        return at >= self._unowned_looked_at + UNOWNED_LATEST and self.rota.is_turn(UNOWNED_LATEST, now)

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
        """True if a beat is missing. To judge a node, this one has to beat at least as often."""
        _, since = self._seen[node.node_id]
        return self._clock.monotonic() - since.at > 1.5 * node.beat_interval.total_seconds()

    def rescue_ended(
        self, node_id: str, now: datetime, *, seen: str | None = None, started: Set[int] | None = None
    ) -> bool:
        """
        Rescue a node whose process has ended, which its supervisor saw; True if this call did.

        There is no need to wait for its silence. *seen*: how it ended. *started*: the numbers (`run_number`) of what
        ran, if that is known. False if another node was first.
        """
        ran = None
        if started is not None:
            claims = self._nodes.claims_of(node_id)
            ran = {job: claim for job, claim in claims.items() if run_number(job, claim) in started}
        return any(
            self._rescue(node, node.beat, now, ran=ran, seen=seen) > 0
            for node in self._nodes.nodes()
            if node.node_id == node_id and node.state is not NodeState.DEAD
        )

    def _rescue(self, node: NodeRecord, seen_beat: int, now: datetime, **known: Any) -> int:
        rescue = self._take_back(node.node_id, seen_beat, now, **known)
        self._seen.pop(node.node_id, None)
        if rescue is None:
            return 0
        self.rescued += 1
        self._on_lost(rescue)
        return 1

    def _take_back(
        self,
        node_id: str,
        seen_beat: int,
        now: datetime,
        *,
        ran: Mapping[UUID, UUID] | None = None,
        seen: str | None = None,
    ) -> Rescue | None:
        # A store of somebody else's may not take what only a supervisor knows.
        known: dict[str, Any] = {
            name: value for name, value in (("ran", ran), ("seen", seen)) if value is not None
        }
        try:
            rescue = self._nodes.rescue(
                node_id,
                seen_beat=seen_beat,
                by=self._identity.node_id,
                max_crashes=self._max_crashes,
                now=now,
                **known,
            )
        except Conflict as error:  # the work of other nodes may be free
            logger.warning("the work of %s cannot be taken back yet: %s", node_id, error)
            return None
        if rescue is None:
            return None
        logger.warning(
            "node %s is dead%s: %d of its jobs were requeued, %d are suspects, %d are dead letters; "
            "%d that had not started were handed back",
            node_id,
            f" ({seen})" if seen is not None else "",
            len(rescue.requeued),
            len(rescue.suspects),
            len(rescue.dead_lettered),
            len(rescue.handed_back),
        )
        if rescue.held_up:
            logger.warning(
                "%d jobs of %s are held by a transaction that is still open, and follow when it ends",
                len(rescue.held_up),
                node_id,
            )
        self._on_rescue(rescue)
        return rescue
