"""How often a node looks at the others: seldom, unless it is one of those that keep watch, or a beat is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from ratchet import Scheduler
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import NodeRecord, NodeSpec, NodeState
from ratchet.stores.memory import MemoryStore

BEAT, SILENCE = timedelta(seconds=5), timedelta(seconds=15)


class Counting(MemoryStore):
    """A store that counts looks at the nodes."""

    looks = 0

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        if not counting:
            self.looks += 1
        return super().nodes(counting=counting)


class Cluster:
    """One real node, driven by hand, and others that only beat."""

    def __init__(self, older: int) -> None:
        self.clock = ManualClock()
        self.store = Counting(self.clock.now)
        self.older = [f"older {number}" for number in range(older)]
        for name in self.older:
            self.store.register(
                NodeSpec(
                    node_id=name,
                    name=name,
                    host="h",
                    pid=1,
                    version="0",
                    beat_interval=BEAT,
                    silence=SILENCE,
                    info=None,
                ),
                now=self.clock.now(),
            )
            self.clock.advance(0.001)
        self.silent: set[str] = set()
        self._others_at = self.clock.monotonic() + 1

    @contextmanager
    def node(self) -> Iterator[Any]:
        """The real node; its heartbeat goes on when `live` says so."""
        with Scheduler(store=self.store, allow=[__name__], clock=self.clock) as scheduler:
            node: Any = scheduler.backend.node  # type: ignore[attr-defined]  # its core
            for service in node._services:
                service.stop()
            self.live(node, 30)  # others are new to it
            yield node

    def live(self, node: Any, seconds: float) -> int:
        """So much time passes; how often the node has looked at the others."""
        before, until = self.store.looks, self.clock.monotonic() + seconds
        while self.clock.monotonic() < until:
            rest = node._beating._step()
            assert rest > 0
            wakes_at = self.clock.monotonic() + rest
            while self._others_at <= wakes_at:
                self.clock.advance(max(0.0, self._others_at - self.clock.monotonic()))
                for name in self.older:
                    if name not in self.silent:
                        self.store.beat_only([name], now=self.clock.now())
                self._others_at += BEAT.total_seconds()
            self.clock.advance(max(0.001, wakes_at - self.clock.monotonic()))
        return self.store.looks - before

    def is_dead(self, name: str) -> bool:
        states = {node.node_id: node.state for node in self.store.nodes()}
        return states[name] is NodeState.DEAD


def test_a_node_that_is_alone() -> None:
    """It looks for others with every second of its beats."""
    cluster = Cluster(older=0)
    with cluster.node() as node:
        assert 9 <= cluster.live(node, 100) <= 11


def test_the_oldest_look_between_their_beats() -> None:
    """The third of the nodes looks twice in each interval."""
    cluster = Cluster(older=2)
    with cluster.node() as node:
        assert cluster.live(node, 100) >= 35


def test_the_others_look_with_every_second_beat() -> None:
    """Until a beat is missing: the silent node is dead soon after its silence is over."""
    cluster = Cluster(older=5)
    with cluster.node() as node:
        assert cluster.live(node, 100) <= 12
        cluster.silent.add("older 2")
        looks = cluster.live(node, 2 * BEAT.total_seconds() + SILENCE.total_seconds() + 5)
        assert looks > 5
        assert cluster.is_dead("older 2")
        assert not any(cluster.is_dead(name) for name in cluster.older if name != "older 2")
        cluster.live(node, 30)
        assert cluster.live(node, 100) <= 12
