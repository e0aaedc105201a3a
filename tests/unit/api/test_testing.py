"""`ratchet.testing`: what users' own tests stand on."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    JobCanceledError,
    JobContext,
    JobEvent,
    JobStatus,
    RatchetError,
    RetryLater,
    Scheduler,
    TargetNotAllowed,
)
from ratchet.testing import ManualClock, ManualScheduler, manual_scheduler

ran: list[Any] = []


def charge(number: int, currency: str = "EUR") -> int:
    ran.append(number)
    return number


async def charge_later(number: int) -> int:
    ran.append(number)
    return number


def flaky(until: int) -> str:
    if JobContext.current().attempt < until:
        raise ConnectionError("not yet")
    return "at last"


def once_down() -> str:
    ran.append("asked")
    if len(ran) == 1:
        raise ConnectionError("down")
    return "at last"


def not_ready() -> str:
    context = JobContext.current()
    context.state["asked"] = context.state.get("asked", 0) + 1
    if context.state["asked"] < 3:
        raise RetryLater(timedelta(minutes=1), count=False)
    return f"asked {context.state['asked']} times"


@pytest.fixture
def clock() -> ManualClock:
    ran.clear()
    return ManualClock()


@pytest.fixture
def scheduler(clock: ManualClock) -> ManualScheduler:
    return manual_scheduler(clock=clock)


class TestDrain:
    def test_the_example_of_the_api_page(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Submit, drain, let a month pass, drain, assert."""
        scheduler.enqueue_now(charge, 42)
        assert scheduler.drain() == 1
        scheduler.schedule(timedelta(days=30), charge, 43).submit()
        assert scheduler.drain() == 0
        clock.advance(timedelta(days=35))
        assert scheduler.drain() == 1
        scheduler.assert_enqueued(charge, 42)
        assert ran == [42, 43]

    def test_in_order_here_and_now(self, scheduler: ManualScheduler) -> None:
        """Jobs run in claim order on the calling thread, async ones too, and no thread is started."""
        before = set(threading.enumerate())
        threads: list[threading.Thread] = []
        scheduler.on(JobEvent)(lambda event: threads.append(threading.current_thread()))
        scheduler.enqueue(charge, 1).submit()
        scheduler.enqueue(charge_later, 2).submit()
        scheduler.enqueue(charge, 3).with_priority(4).submit()  # type: ignore[arg-type]
        scheduler.drain()
        assert ran[0] == 3
        assert sorted(ran) == [1, 2, 3]
        assert set(threads) == {threading.current_thread()}
        assert set(threading.enumerate()) == before

    def test_retries_take_their_time(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A failed attempt waits for its backoff on the manual clock."""
        declared = scheduler.job(name="testing.flaky", max_retries=3)(flaky)
        handle = declared.enqueue(3).with_backoff("FIXED", 60).submit()  # type: ignore[arg-type]
        assert scheduler.drain() == 1
        assert handle.status() is JobStatus.PENDING
        for _ in range(2):
            clock.advance(60)
            scheduler.drain()
        assert handle.result() == "at last"
        assert handle.job().attempts == 3

    def test_not_ready_yet(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """RetryLater keeps the checkpoint and counts nothing."""
        handle = scheduler.enqueue_now(not_ready)
        for _ in range(3):
            scheduler.drain()
            clock.advance(timedelta(minutes=1))
        assert handle.result() == "asked 3 times"
        assert handle.job().attempts == 1

    def test_expiry(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """A job that was not started in time is canceled."""
        handle = scheduler.schedule(60, charge, 1).with_expiry(30).submit()
        clock.advance(61)
        scheduler.drain()
        with pytest.raises(JobCanceledError, match="expired"):
            handle.result()

    def test_a_dead_letter_that_is_retried_after_its_expiry_runs(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """Expiry belongs to the first start: what has started is never ended by it."""
        handle = scheduler.enqueue(once_down).with_expiry(30).submit()
        scheduler.drain()
        assert handle.status() is JobStatus.FAILED
        clock.advance(60)
        assert handle.retry()
        scheduler.drain()
        assert handle.result() == "at last"

    def test_not_ready_before_its_expiry(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """RetryLater counts no attempt; still the job has started, and its expiry is over."""
        handle = scheduler.enqueue(not_ready).with_expiry(30).submit()
        for _ in range(3):
            scheduler.drain()
            clock.advance(timedelta(minutes=1))
        assert handle.result() == "asked 3 times"

    def test_it_cannot_be_started(self, scheduler: ManualScheduler) -> None:
        """Threads and a manual clock do not go together."""
        with pytest.raises(RatchetError, match=r"drain\(\)"):
            scheduler.start()

    def test_the_same_seed_gives_the_same_ids(self) -> None:
        """Equal clocks and seeds make equal runs."""

        def ids(seed: int) -> list[Any]:
            scheduler = manual_scheduler(clock=ManualClock(), seed=seed)
            return [scheduler.enqueue_now(charge, n).id for n in range(5)]

        assert ids(1) == ids(1)
        assert ids(1) != ids(2)


class TestPolicy:
    def test_everything_is_allowed_unless_said(self) -> None:
        """A test's own functions need no declaration; with ``allow`` the policy is the real one."""
        manual_scheduler().enqueue_now(charge, 1)
        with pytest.raises(TargetNotAllowed):
            manual_scheduler(allow=["shop"]).enqueue_now(charge, 1)

    def test_functions_of_another_scheduler(self, scheduler: ManualScheduler) -> None:
        """Jobs that the application declared on its own scheduler run on the manual one."""
        application = Scheduler("sqlite:///:memory:")
        declared = application.job(name="testing.app", max_retries=2)(app_job)
        handle = scheduler.enqueue_now(declared, 5)
        scheduler.drain()
        assert handle.result() == 6
        assert handle.job().max_retries == 2


def app_job(number: int) -> int:
    return number + 1


class TestAssertions:
    def test_enqueued(self, scheduler: ManualScheduler) -> None:
        """The job that matches comes back, whatever became of it; without arguments any will do."""
        first = scheduler.enqueue_now(charge, 1)
        second = scheduler.enqueue_now(charge, 2, currency="USD")
        scheduler.drain()
        assert scheduler.assert_enqueued(charge, 1).id == first.id
        assert scheduler.assert_enqueued(charge, 2, currency="USD").id == second.id
        assert scheduler.assert_enqueued(charge).id == second.id
        assert [job.args for job in scheduler.enqueued()] == [(1,), (2,)]

    def test_not_enqueued(self, scheduler: ManualScheduler) -> None:
        """What is missing is told together with what is there; the opposite assertion is its mirror."""
        scheduler.enqueue_now(charge, 1)
        with pytest.raises(AssertionError, match=r"charge\(3\) was enqueued.*\n.*charge\(1,\)"):
            scheduler.assert_enqueued(charge, 3)
        scheduler.assert_not_enqueued(charge, 3)
        scheduler.assert_not_enqueued(charge_later)
        with pytest.raises(AssertionError, match="was enqueued; it is PENDING"):
            scheduler.assert_not_enqueued(charge, 1)


class TestPlugin:
    def test_fixtures(self, tmp_path: Path) -> None:
        """As a pytest plugin the module gives a clock and a scheduler on it."""
        (tmp_path / "conftest.py").write_text('pytest_plugins = ["ratchet.testing"]\n')
        (tmp_path / "test_shop.py").write_text(
            "from datetime import timedelta\n"
            "done = []\n"
            "def charge(number):\n"
            "    done.append(number)\n"
            "def test_charge(ratchet_scheduler, ratchet_clock):\n"
            "    ratchet_scheduler.schedule(timedelta(days=1), charge, 42).submit()\n"
            "    ratchet_clock.advance(timedelta(days=1))\n"
            "    ratchet_scheduler.drain()\n"
            "    ratchet_scheduler.assert_enqueued(charge, 42)\n"
            "    assert done == [42]\n"
        )
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert run.returncode == 0, run.stdout
        assert "1 passed" in run.stdout
