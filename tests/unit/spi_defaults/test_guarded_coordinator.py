"""A broken coordinator is never in the way: not of a submission, not of a start, not of a stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from ratchet import Options, Scheduler
from ratchet.model.status import Priority
from ratchet.stores.memory import MemoryStore
from tests.support.waiting import until


def greet(name: str) -> str:
    return f"hello {name}"


class Broken:
    """Every call raises, the property too."""

    @property
    def connected(self) -> bool:
        raise OSError("no transport")

    def notify_new_work(self, priority: Priority) -> None:
        raise OSError("no transport")

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None:
        raise OSError("no transport")

    def start(self) -> None:
        raise OSError("no transport")

    def stop(self) -> None:
        raise OSError("no transport")


class Hanging:
    """Sending a message takes as long as the test wants it to."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.entered = threading.Event()
        self.told: list[Priority] = []

    def notify_new_work(self, priority: Priority) -> None:
        self.entered.set()
        self.free.wait(60)
        self.told.append(priority)

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.free.set()


def test_errors_of_a_coordinator_reach_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Jobs are submitted and run as if it were not there; one warning says that it is broken."""
    scheduler = Scheduler(
        store=MemoryStore(), allow=[__name__], cluster_coordinator=Broken(), options=Options(concurrency=2)
    )
    with caplog.at_level(logging.WARNING, "ratchet.wakeups"):
        before = scheduler.enqueue_now(greet, "ann")
        with scheduler:
            after = scheduler.enqueue_now(greet, "bob")
            assert (before.result(timeout=30), after.result(timeout=30)) == ("hello ann", "hello bob")
    scheduler.close()
    assert [record.name for record in caplog.records].count("ratchet.wakeups") == 1


def test_a_coordinator_that_hangs_delays_nobody(hanging: Hanging) -> None:
    """Submissions return while the first message is still being sent; those that came meanwhile are one message more."""
    scheduler = Scheduler(store=MemoryStore(), allow=[__name__], cluster_coordinator=hanging)
    scheduler.enqueue_now(greet, "ann")
    assert hanging.entered.wait(30)
    for _ in range(20):
        scheduler.enqueue_now(greet, "bob")
    scheduler.enqueue(greet, "cid").with_priority(Priority.CRITICAL).submit()
    assert hanging.told == [], "the message is still on its way, and everything above has returned"
    hanging.free.set()
    until(lambda: len(hanging.told) >= 2)
    scheduler.close()
    assert hanging.told == [Priority.NORMAL, Priority.CRITICAL]
