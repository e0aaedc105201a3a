"""Services start, stop, and never silently end."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

import pytest

from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.engine.crew import Crew
from ratchet.engine.service import CrewService, Service
from ratchet.model.errors import Conflict, StoreReadOnly, StoreUnavailable
from tests.support.waiting import until


def service(step: object) -> Service:
    return Service("test", step, DefaultExecutorProvider())  # type: ignore[arg-type]


def of_a_crew(step: object) -> Service:
    executor = DefaultExecutorProvider()
    return CrewService("test", step, executor, Crew(executor))  # type: ignore[arg-type]


@pytest.fixture(params=[service, of_a_crew])
def service_of(request: pytest.FixtureRequest) -> Callable[[object], Service]:
    """Makes a service with a thread of its own, and one that a crew calls."""
    made: Callable[[object], Service] = request.param
    return made


class TestService:
    def test_start_and_stop_from_many_threads(self, service_of: Callable[[object], Service]) -> None:
        """Whatever the order of starts, wakes and stops, at most one thread steps, and in the end none."""
        inside = threading.Semaphore(1)
        overlaps = 0

        def step() -> float:
            nonlocal overlaps
            if not inside.acquire(blocking=False):
                overlaps += 1
                return 0.0
            time.sleep(0.0005)
            inside.release()
            return 0.001

        under_test = service_of(step)

        def pester(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(40):
                dice.choice((under_test.start, under_test.wake, under_test.stop))()

        threads = [threading.Thread(target=pester, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert under_test.stop()
        assert not under_test.is_alive
        assert overlaps == 0

    def test_a_write_conflict_is_no_error(
        self, caplog: pytest.LogCaptureFixture, service_of: Callable[[object], Service]
    ) -> None:
        """Two nodes met in the store; the next try mostly succeeds, so nobody has to look into it."""
        calls = []

        def step() -> float:
            calls.append(None)
            if len(calls) == 1:
                raise Conflict("another transaction was faster")
            return 0.001

        caplog.set_level(logging.INFO, logger="ratchet.engine")
        under_test = service_of(step)
        under_test.start()
        until(lambda: len(calls) > 1)
        assert under_test.stop()
        assert [record.levelname for record in caplog.records] == ["INFO"]
        assert "will try again" in caplog.text

    def test_an_error_does_not_end_the_service(self, service_of: Callable[[object], Service]) -> None:
        """It goes on after errors, also after a lost database and a `SystemExit`."""
        calls = []

        def step() -> float:
            calls.append(None)
            if len(calls) == 1:
                raise StoreUnavailable("away")
            if len(calls) == 2:
                raise ZeroDivisionError
            if len(calls) == 3:
                raise SystemExit
            return 0.001

        under_test = service_of(step)
        under_test.start()
        until(lambda: len(calls) >= 5)
        under_test.stop()

    def test_a_store_that_is_away_is_told_once_a_minute(self, caplog: pytest.LogCaptureFixture) -> None:
        """However often it fails; and again when it fails anew after a success."""
        at, calls = 100.0, 0

        def step() -> float:
            nonlocal at, calls
            calls += 1
            at += 1.0
            if calls == 130:
                return 0.0
            raise StoreReadOnly("the database is read-only")

        under_test = Service("test", step, DefaultExecutorProvider(), longest_pause=0.0, monotonic=lambda: at)
        under_test.start()
        until(lambda: calls >= 131)
        under_test.stop()
        # at the first failure, after one minute, after two, and at the first one after the success
        assert [message for message in caplog.messages if "read-only" in message] == [
            "test: the database is read-only (will go on trying)"
        ] * 4

    def test_wake_ends_a_rest(self, service_of: Callable[[object], Service]) -> None:
        """A service that rests for an hour steps again at once when woken."""
        stepped = threading.Semaphore(0)

        def step() -> float:
            stepped.release()
            return 3600.0

        under_test = service_of(step)
        under_test.start()
        assert stepped.acquire(timeout=5)
        under_test.wake()
        assert stepped.acquire(timeout=5)
        assert under_test.stop()

    def test_stop_from_its_own_step(self, service_of: Callable[[object], Service]) -> None:
        """A service may stop itself without waiting for itself."""
        holder: list[Service] = []
        done = threading.Event()

        def step() -> float:
            assert not holder[0].stop()
            done.set()
            return 0.0

        holder.append(service_of(step))
        holder[0].start()
        assert done.wait(5)
        assert holder[0].stop()
