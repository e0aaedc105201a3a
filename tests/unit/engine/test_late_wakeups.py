"""All nodes hear of a new job at the same time: a few claim at once, the others a moment later."""

from __future__ import annotations

from typing import Any

from ratchet import Scheduler
from ratchet.engine import node
from ratchet.stores.memory import MemoryStore
from tests.support.waiting import until

WAKEUPS = 2000


class Late:
    """Stands for the service of late wakeups."""

    def __init__(self) -> None:
        self.delays: list[float] = []

    def hasten(self, within: float) -> None:
        self.delays.append(within)


def wakeups_of(members: int) -> tuple[int, list[float]]:
    """How many of many wakeups a node follows at once that knows of so many nodes, and how long it waits with the others."""
    with Scheduler(store=MemoryStore(), allow=[__name__]) as scheduler:
        running: Any = scheduler.backend.node  # type: ignore[attr-defined]  # its core
        until(lambda: running.assembly.orphans.members)
        running._beating.stop()
        running.assembly.orphans.members = [f"node {number}" for number in range(members)]
        before, usual, late = running.assembly.poller.wakeups, running._late, Late()
        running._late = late
        for _ in range(WAKEUPS):
            running.woken_from_afar()
        running._late = usual
        return running.assembly.poller.wakeups - before, late.delays


def test_in_a_small_cluster_every_node_claims_at_once() -> None:
    """Three nodes do not get in each other's way."""
    assert wakeups_of(3) == (WAKEUPS, [])


def test_in_a_large_one_about_three_do() -> None:
    """Of twenty nodes each follows three in twenty at once; the others are spread over 20 ms, and every wakeup is followed."""
    at_once, delays = wakeups_of(20)
    assert at_once + len(delays) == WAKEUPS
    assert 0.7 < at_once / WAKEUPS * 20 / node.AT_ONCE < 1.3
    assert max(delays) < 0.02
    assert 0.008 < sum(delays) / len(delays) < 0.012


def test_no_node_waits_for_long() -> None:
    """However many there are."""
    _, delays = wakeups_of(1000)
    assert max(delays) < node.LATEST


def test_a_late_wakeup_arrives() -> None:
    """The poller is woken when its moment has come."""
    with Scheduler(store=MemoryStore(), allow=[__name__]) as scheduler:
        running: Any = scheduler.backend.node  # type: ignore[attr-defined]  # its core
        before = running.assembly.poller.wakeups
        running._late.hasten(0.01)
        until(lambda: running.assembly.poller.wakeups > before)
