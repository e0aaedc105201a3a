"""The stock circuit breaker over a store: what is counted, when it is shared, who learns of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ratchet.defaults.circuit_breaker import StoreBreakers
from ratchet.model.breaker import Breaker, BreakerSettings, Guard
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import BreakerRecord
from ratchet.model.errors import JobInterrupted, StoreUnavailable
from ratchet.spi.store import JobStore
from ratchet.stores.memory import MemoryStore

GUARD = Guard(BreakerSettings(0.5, 10, 3, timedelta(seconds=30), 2))


def fail(error: type[BaseException] = OSError) -> Any:
    raise error("down")


class Cluster:
    """Two nodes, one store, one clock; counts what is written."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store: JobStore = MemoryStore()
        self.writes = 0
        self.moves: list[tuple[str, str, str]] = []
        self._save = self.store.save_breaker
        self.store.save_breaker = self.save  # type: ignore[method-assign]
        self.one, self.two = (StoreBreakers(self.store, self.clock, on_moved=self.moved) for _ in range(2))

    def save(self, *args: Any, **kwargs: Any) -> bool:
        self.writes += 1
        return self._save(*args, **kwargs)

    def moved(self, service: str, before: Breaker, after: Breaker) -> None:
        self.moves.append((service, before.state.value, after.state.value))

    def record(self) -> BreakerRecord:
        record = self.store.breaker("bank")
        assert record is not None
        return record

    @staticmethod
    def call(node: StoreBreakers, outcomes: str, guard: Guard = GUARD) -> None:
        for mark in outcomes:
            if mark == "x":
                with pytest.raises(OSError, match="down"):
                    node.execute("bank", fail, guard=guard)
            else:
                assert node.execute("bank", lambda: 7, guard=guard) == 7


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class TestSharing:
    def test_a_failure_that_opens_is_stored_at_once(self, cluster: Cluster) -> None:
        """The third failure of three: the claim sees it before another job is claimed."""
        cluster.call(cluster.one, "xxx")
        assert cluster.record().state == "OPEN"
        assert cluster.moves == [("bank", "CLOSED", "OPEN")]

    def test_successes_cost_no_write_each(self, cluster: Cluster) -> None:
        """A write per second while the window fills, none when it is full of successes."""
        cluster.call(cluster.one, "." * 100)
        assert cluster.writes == 1
        for _ in range(20):
            cluster.clock.advance(1)
            cluster.call(cluster.one, "." * 100)
        assert cluster.writes == 2

    def test_the_nodes_count_together(self, cluster: Cluster) -> None:
        """Two failures here and one there are three."""
        cluster.call(cluster.one, "x")
        cluster.call(cluster.two, "x")
        assert cluster.record().state == "CLOSED"
        cluster.call(cluster.one, "x")
        assert cluster.record().state == "OPEN"

    def test_a_rival_who_was_faster_is_merged(self, cluster: Cluster) -> None:
        """A compare-and-swap that is lost is tried again on what the other has stored."""
        cluster.call(cluster.one, "x")
        lost = [True]
        save = cluster._save

        def rival(record: BreakerRecord, **kwargs: Any) -> bool:
            if lost.pop() if lost else False:
                cluster.call(cluster.two, "x")
            return save(record, **kwargs)

        cluster._save = rival
        cluster.clock.advance(1)
        cluster.call(cluster.one, "x")
        assert cluster.record().state == "OPEN"

    def test_without_a_store_jobs_go_on(self, cluster: Cluster) -> None:
        """A database that is away says nothing about the service."""

        def away(*args: Any, **kwargs: Any) -> Any:
            raise StoreUnavailable("away")

        cluster.store.breaker = away  # type: ignore[method-assign]
        assert cluster.one.permits("bank")
        cluster.call(cluster.one, ".xxxx")


class TestOutage:
    def test_jobs_that_were_claimed_before_are_put_off(self, cluster: Cluster) -> None:
        """On the node that opened it at once, on others within a second; until the probes."""
        assert cluster.two.permits("bank")
        cluster.call(cluster.one, "xxx")
        assert not cluster.one.permits("bank")
        assert cluster.one.retry_after("bank") == timedelta(seconds=30)
        cluster.clock.advance(1)
        assert not cluster.two.permits("bank")
        assert cluster.two.retry_after("bank") == timedelta(seconds=29)
        cluster.clock.advance(29)
        assert cluster.two.permits("bank")
        assert cluster.two.retry_after("bank") == timedelta(0)

    def test_probes_on_different_nodes_close_it(self, cluster: Cluster) -> None:
        """Each success is shared at once."""
        cluster.call(cluster.one, "xxx")
        cluster.clock.advance(30)
        for node, state in ((cluster.one, "HALF_OPEN"), (cluster.two, "CLOSED")):
            assert node.permits("bank")
            cluster.call(node, ".")
            assert cluster.record().state == state
        assert cluster.moves[-1] == ("bank", "HALF_OPEN", "CLOSED")

    def test_a_failing_probe_opens_it_anew(self, cluster: Cluster) -> None:
        """For another wait, also after a probe that succeeded."""
        cluster.call(cluster.one, "xxx")
        cluster.clock.advance(30)
        assert cluster.two.permits("bank")
        cluster.call(cluster.two, ".x")
        record = cluster.record()
        assert (record.state, record.until) == ("OPEN", cluster.clock.now() + timedelta(seconds=30))

    def test_stragglers_write_nothing(self, cluster: Cluster) -> None:
        """Calls that were on their way when it opened neither count nor cost."""
        writes: list[int] = []

        def straggle() -> int:
            cluster.call(cluster.one, "xxx")
            writes.append(cluster.writes)
            return 7

        assert cluster.two.execute("bank", straggle, guard=GUARD) == 7
        assert cluster.record().state == "OPEN"
        assert cluster.writes == writes[0]


class TestWhatCounts:
    @pytest.mark.parametrize("error", [JobInterrupted, LookupError])
    def test_ignored_errors(self, cluster: Cluster, error: type[BaseException]) -> None:
        """They leave no trace, and reach the caller."""
        guard = Guard(GUARD.settings, ignore=(LookupError,))
        for _ in range(5):
            with pytest.raises(error):
                cluster.one.execute("bank", lambda: fail(error), guard=guard)
        assert cluster.store.breaker("bank") is None

    def test_coroutines(self, cluster: Cluster) -> None:
        """The same for what is awaited."""

        async def failing() -> None:
            fail()

        async def outage(call: Callable[[], Any]) -> None:
            for _ in range(3):
                with pytest.raises(OSError, match="down"):
                    await cluster.one.execute_async("bank", call, guard=GUARD)

        asyncio.run(outage(failing))
        assert cluster.record().state == "OPEN"
