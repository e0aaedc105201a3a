"""Waits until nothing runs on a store that claims are kept from."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from ratchet.model.cluster import NodeRequest, NodeState
from ratchet.model.moves import MoveOvertaken, MoveRecord, MoveRefused, RunningJob, same_move
from ratchet.moving.reports import Clockwork
from ratchet.moving.stores import Side

#: Seconds between two looks.
LOOK = 0.1
#: Claims that are looked at together.
MOST = 1000
_BY = "ratchet db"


class Drain:
    """
    Waits for runs to end, and takes back those of nodes that are dead.

    Nodes need not know anything about moves: they can claim nothing, so what they run is all that there is to wait for. A node
    is dead if its beat has not moved for its silence, as this process itself has seen.
    """

    def __init__(
        self, side: Side, clockwork: Clockwork, record: MoveRecord, *, wait: timedelta, hand_back: bool
    ) -> None:
        self._side = side
        self._record = record
        self._clockwork = clockwork
        self._wait = wait.total_seconds()
        self._hand_back = hand_back
        self._beats: dict[str, tuple[int, float]] = {}
        self.handed_back = 0

    def ask_nodes_to_stop(self) -> None:
        """Nodes leave when what they run has ended; one of an earlier version does not hear it, and idles."""
        store = self._side.store
        for node in store.nodes(counting=False):
            if node.state is not NodeState.DEAD:
                store.request_of_node(node.node_id, NodeRequest.STOP, now=store.database_time())

    def run(self) -> None:
        """Return when no claim is held; `MoveRefused` if that takes too long, or if the move is not this one any more."""
        give_up = time.monotonic() + self._wait
        while held := self._side.movable.held_claims(limit=MOST):
            # given up, say: then nodes work again, and nothing may be taken from them
            if not same_move(self._side.movable.move_record(), self._record):
                raise MoveOvertaken
            self._clockwork.now(None, len(held))
            self._rescue({claim.node_id for claim in held})
            if time.monotonic() > give_up:
                self._end(held)
                give_up = time.monotonic() + self._wait
            else:
                time.sleep(LOOK)

    def _rescue(self, holders: set[str]) -> None:
        store, now = self._side.store, time.monotonic()
        for node in store.nodes(counting=False):
            if node.node_id not in holders or node.state is NodeState.DEAD:
                continue
            beat, since = self._beats.get(node.node_id, (-1, now))
            if beat != node.beat:
                self._beats[node.node_id] = (node.beat, now)
            elif now - since > node.silence.total_seconds():
                store.rescue(
                    node.node_id,
                    seen_beat=beat,
                    by=_BY,
                    max_crashes=self._side.options.max_crashes,
                    now=store.database_time(),
                    seen="stopped beating before its jobs were moved",
                )
        for node_id in set(store.absent_nodes()) & holders:
            store.deregister(node_id, now=store.database_time())

    def _end(self, held: Sequence[RunningJob]) -> None:
        if not self._hand_back:
            shown = ", ".join(f"{one.job_id} on {one.node_id}" for one in held[:3])
            raise MoveRefused(
                f"after {self._wait:g} s {len(held)} runs have not ended ({shown}{', …' if len(held) > 3 else ''}). No job is claimed any "
                f"more. Run the command again to wait on, with --hand-back to take these jobs from their nodes (their code may "
                f"still be running while they run again elsewhere), or with --give-up to let the nodes go on"
            )
        store = self._side.store
        for node_id in sorted({claim.node_id for claim in held}):
            self.handed_back += store.deregister(node_id, now=store.database_time())
