"""Breakers, limits and rates as user code meets them, on a manual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import BreakerClosed, BreakerOpened, BreakerProfile, JobStatus, circuit_breaker
from ratchet.api.targets.registry import protection_of
from ratchet.model.breaker import Guard
from ratchet.testing import ManualClock, ManualScheduler, manual_scheduler

SECOND = timedelta(seconds=1)


class Outside:
    """A service that is up or down, as a test says."""

    down = False
    calls = 0

    @classmethod
    def call(cls, error: type[Exception] = ConnectionError) -> str:
        cls.calls += 1
        if cls.down:
            raise error("the service is down")
        return "served"


@circuit_breaker("warehouse")
class Warehouse:
    def pick(self, item: int) -> str:
        return Outside.call()

    @circuit_breaker("courier", profile=BreakerProfile.FAST)
    def ship(self, item: int) -> str:
        return Outside.call()


@circuit_breaker("catalog", ignore=(KeyError,))
def look_up(item: int) -> str:
    return Outside.call(KeyError)


@circuit_breaker("ledger", record=(ConnectionError,))
def book(item: int) -> str:
    return Outside.call(ValueError)


def tick(number: int) -> int:
    return number


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> Iterator[ManualScheduler]:
    Outside.down, Outside.calls = False, 0
    made = manual_scheduler(clock=clock)
    yield made
    made.close()


def state(scheduler: ManualScheduler, service: str) -> str | None:
    return next((one.state for one in scheduler.breakers.list() if one.service == service), None)


class TestBreaker:
    def test_an_outage_with_the_default_profile(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Five failures open it for 30 s; a probe that fails opens it again; three that succeed close it."""
        heard: list[str] = []
        scheduler.on(BreakerOpened, BreakerClosed)(lambda event: heard.append(type(event).__name__))
        Outside.down = True
        handles = [scheduler.enqueue_now(Warehouse.pick, number) for number in range(12)]
        scheduler.drain()
        assert (Outside.calls, state(scheduler, "warehouse")) == (5, "OPEN")
        assert [scheduler.jobs.get(handle.id).attempts for handle in handles] == [1] * 5 + [0] * 7
        clock.advance(29 * SECOND)
        assert scheduler.drain() == 0
        clock.advance(2 * SECOND)
        scheduler.drain()
        assert (Outside.calls, state(scheduler, "warehouse")) == (6, "OPEN")
        Outside.down = False
        clock.advance(31 * SECOND)
        scheduler.drain()
        assert (Outside.calls, state(scheduler, "warehouse")) == (12, "CLOSED")
        assert [scheduler.jobs.get(handle.id).attempts for handle in handles] == [1] * 12
        assert heard == ["BreakerOpened", "BreakerOpened", "BreakerClosed"]

    def test_a_class_counts_for_its_methods_unless_they_say_otherwise(
        self, scheduler: ManualScheduler
    ) -> None:
        """Its own word is the method's, with its own profile."""
        inherited, own = protection_of(Warehouse.pick), protection_of(Warehouse.ship)
        assert inherited is not None
        assert own is not None
        assert (inherited.service, inherited.guard.settings.minimum_calls) == ("warehouse", 5)
        assert (own.service, own.guard.settings.wait) == ("courier", 5 * SECOND)
        Outside.down = True
        for number in range(3):
            scheduler.enqueue_now(Warehouse.ship, number)
        scheduler.drain()
        assert (state(scheduler, "courier"), state(scheduler, "warehouse")) == ("OPEN", None)

    @pytest.mark.parametrize(("target", "service"), [(look_up, "catalog"), (book, "ledger")])
    def test_errors_that_do_not_speak_of_the_service(
        self, scheduler: ManualScheduler, target: Callable[[int], str], service: str
    ) -> None:
        """Ignored, or not among those to record: the jobs fail, the breaker stays closed."""
        Outside.down = True
        for number in range(20):
            scheduler.enqueue_now(target, number)
        scheduler.drain()
        assert scheduler.jobs.counts()[JobStatus.FAILED] == 20
        assert state(scheduler, service) in (None, "CLOSED")

    def test_by_hand(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Opened by a person it has no time of its own; reset it lets everything through."""
        assert scheduler.breakers.open("warehouse")
        handle = scheduler.enqueue_now(Warehouse.pick, 1)
        clock.advance(timedelta(days=1))
        assert scheduler.drain() == 0
        assert [reason.code for reason in handle.explain()] == ["breaker_open"]
        assert scheduler.breakers.reset("warehouse")
        assert scheduler.drain() == 1


class Refusing:
    """A strategy of one's own: refuses for a minute, then counts what it runs."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._opens_at = clock.now() + timedelta(minutes=1)
        self.executed: list[tuple[str, Guard | None]] = []

    def permits(self, service: str) -> bool:
        return self._clock.now() >= self._opens_at

    def retry_after(self, service: str) -> timedelta:
        return self._opens_at - self._clock.now()

    def execute(self, service: str, call: Callable[[], Any], *, guard: Guard | None = None) -> Any:
        self.executed.append((service, guard))
        return call()

    async def execute_async(
        self, service: str, call: Callable[[], Awaitable[Any]], *, guard: Guard | None = None
    ) -> Any:
        return await call()


def test_a_resilience_strategy_of_your_own(clock: ManualClock) -> None:
    """It is asked before each run, and what it refuses waits as long as it says, without an attempt."""
    strategy = Refusing(clock)
    scheduler = manual_scheduler(clock=clock, resilience=strategy)
    handle = scheduler.enqueue_now(Warehouse.pick, 1)
    scheduler.drain()
    job = scheduler.jobs.get(handle.id)
    assert (job.status, job.attempts, strategy.executed) == (JobStatus.PENDING, 0, [])
    clock.advance(timedelta(minutes=1))
    scheduler.drain()
    assert scheduler.jobs.get(handle.id).attempts == 1
    (service, guard), *rest = strategy.executed
    assert (service, guard, rest) == ("warehouse", Guard(), [])
    scheduler.close()


class TestRate:
    @pytest.mark.parametrize(("rate", "period"), [(100, 60), (3, 60), (10, 1), (1, 3600)])
    def test_each_period_the_rate(
        self, scheduler: ManualScheduler, clock: ManualClock, rate: int, period: int
    ) -> None:
        """As many as the rate at once, none more until time has passed, as many again after the period."""
        scheduler.limits.set_rate("gateway", rate, per=period)
        scheduler.submit_all(
            [scheduler.enqueue(tick, number).with_resource("gateway") for number in range(4 * rate)]
        )
        for _ in range(4):
            assert scheduler.drain() == rate
            assert scheduler.drain() == 0
            clock.advance(period * SECOND)
        assert scheduler.drain() == 0

    def test_changed_and_removed_while_jobs_wait(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """A higher rate holds from now on, with a limit the tighter one counts, removed nothing waits."""
        scheduler.limits.set_rate("gateway", 1, per=60)
        for number in range(100):
            scheduler.enqueue(tick, number).with_resource("gateway").submit()
        assert scheduler.drain() == 1
        scheduler.limits.set_rate("gateway", 20, per=60)
        assert scheduler.drain() == 0
        clock.advance(30 * SECOND)
        assert scheduler.drain() == 10
        scheduler.limits.set("gateway", concurrent=0)
        clock.advance(60 * SECOND)
        assert scheduler.drain() == 0
        scheduler.limits.set("gateway", concurrent=1)
        assert scheduler.drain() == 20
        assert scheduler.limits.remove("gateway")
        assert scheduler.drain() == 69
