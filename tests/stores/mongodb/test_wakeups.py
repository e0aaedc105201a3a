"""Wakeups by change streams: another process hears of new work within milliseconds, and not of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from ratchet.model.status import Priority
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.stores.mongo.store import MongoStore
from tests.stores.mongo_store import MongoSteps, opened
from tests.support.waiting import until


@pytest.fixture
def steps(mongodb_url: str) -> Iterator[MongoSteps]:
    with opened(mongodb_url) as found:
        yield found


class Ear:
    """One process that listens."""

    def __init__(self, store: MongoStore) -> None:
        coordinator = store.coordinator()
        assert coordinator is not None
        self.coordinator: ClusterCoordinator = coordinator
        self.heard = threading.Semaphore(0)
        coordinator.register_wakeup_listener(self.heard.release)
        coordinator.start()
        until(lambda: coordinator.connected)  # type: ignore[attr-defined]
        self.forget()

    def forget(self) -> None:
        """Whatever was heard so far does not count."""
        time.sleep(0.2)
        while self.heard.acquire(blocking=False):
            pass


class TestWakeups:
    def test_others_hear_it_and_oneself_does_not(self, steps: MongoSteps) -> None:
        """A message of one process wakes the other; the sender wakes its own pollers directly."""
        one, two = Ear(steps.another()), Ear(steps.another())
        one.coordinator.notify_new_work(Priority.NORMAL)
        assert two.heard.acquire(timeout=10)
        assert not one.heard.acquire(timeout=0.3)

    def test_a_caller_s_transaction_wakes_with_its_commit(self, steps: MongoSteps) -> None:
        """Nothing while it is open, nothing after a rollback, a message with the commit."""
        ear = Ear(steps.another())
        with steps.store.database.client().start_session() as session:
            session.start_transaction()
            steps.store.insert([steps.spec()], now=steps.now, within=session)
            session.abort_transaction()
        with steps.store.begin() as session:
            steps.store.insert([steps.spec()], now=steps.now, within=session)
            assert not ear.heard.acquire(timeout=0.3)
        assert ear.heard.acquire(timeout=10)

    def test_it_can_be_turned_off(self, steps: MongoSteps) -> None:
        """Options(notify=False): a caller's transaction carries no message."""
        ear, quiet = Ear(steps.another()), steps.another(notify=False)
        with quiet.begin() as session:
            quiet.insert([steps.spec()], now=steps.now, within=session)
        assert not ear.heard.acquire(timeout=0.5)

    def test_stopping_is_quick_and_starting_works_again(self, steps: MongoSteps) -> None:
        """`stop` does not wait for the network, delivers nothing more, and is not the end."""
        ear, other = Ear(steps.another()), Ear(steps.another())
        begin = time.monotonic()
        ear.coordinator.stop()
        assert time.monotonic() - begin < 3
        ear.forget()
        other.coordinator.notify_new_work(Priority.NORMAL)
        assert not ear.heard.acquire(timeout=0.5)
        ear.coordinator.start()
        until(lambda: ear.coordinator.connected)  # type: ignore[attr-defined]
        ear.forget()
        other.coordinator.notify_new_work(Priority.NORMAL)
        assert ear.heard.acquire(timeout=10)
