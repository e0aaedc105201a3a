"""`isolated`: the scheduler of an application lives in memory, and nothing reaches its database."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import subprocess
import sys
import threading
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from ratchet import JobCompleted, JobContext, JobNotFound, JobStatus, RatchetError, Scheduler
from ratchet.testing import IsolatedTestCase, ManualClock, isolated, manual_scheduler, run_worker_until_idle

DONE: list[object] = []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the real database would be."""
    return tmp_path / "shop.db"


@pytest.fixture
def scheduler(file: Path) -> Iterator[Scheduler]:
    """An application's scheduler, at module level there."""
    DONE.clear()
    made = Scheduler(f"sqlite:///{file}", allow=[__name__])
    yield made
    made.close()


def charge(number: int) -> str:
    DONE.append(number)
    return f"receipt {number}"


def charge_nobody() -> str:
    return "nobody"


def flaky() -> None:
    DONE.append(JobContext.current().attempt)
    if JobContext.current().attempt == 1:
        raise ConnectionError("not now")


class TestNothingReachesTheDatabase:
    def test_submissions_and_questions(self, scheduler: Scheduler, file: Path) -> None:
        """Jobs are submitted, run and asked about; the database is not even made."""
        with isolated(scheduler) as test:
            handle = scheduler.enqueue_now(charge, 42)
            test.assert_enqueued(charge, 42)
            assert handle.status() is JobStatus.PENDING
            assert test.drain() == 1
            assert handle.result(timeout=0) == "receipt 42"
            assert scheduler.health()["store"] == "memory"
        assert not file.exists()

    def test_afterwards_it_is_the_real_one(self, scheduler: Scheduler, file: Path) -> None:
        """The test's jobs are gone, and the next submission goes to the database."""
        with isolated(scheduler) as test:
            inside = scheduler.enqueue_now(charge, 1)
        with pytest.raises(JobNotFound):
            inside.status()
        outside = scheduler.enqueue_now(charge, 2)
        assert [job.id for job in scheduler.jobs.find()] == [outside.id]
        assert file.exists()
        with pytest.raises(RatchetError, match="this test is over"):
            test.drain()

    def test_a_declared_schedule_is_stored_by_start(self, scheduler: Scheduler) -> None:
        """As a real start does: the night that passes after it fires the schedule, once."""
        nightly = scheduler.recurring("0 3 * * *", name="nightly")(charge_nobody)
        with isolated(scheduler) as test:
            assert scheduler.schedules.list() == []
            with scheduler:
                assert [schedule.name for schedule in scheduler.schedules.list()] == ["nightly"]
                test.clock.advance(timedelta(days=1))
                assert test.drain() == 1
            (run,) = scheduler.schedules.get("nightly").runs()
            assert run.result == nightly()

    def test_what_was_made_before(self, scheduler: Scheduler) -> None:
        """A builder that is submitted inside goes to memory; a handle from before does not find its job there."""
        before = scheduler.enqueue_now(charge, 1)
        builder = scheduler.enqueue(charge, 2)
        aio, jobs = scheduler.aio, scheduler.jobs
        with isolated(scheduler) as test:
            builder.submit()
            asyncio.run(aio.enqueue_now(charge, 3))
            with pytest.raises(JobNotFound):
                before.status()
            assert {job.args for job in jobs.find()} == {(2,), (3,)}
            assert test.drain() == 2
        assert before.status() is JobStatus.PENDING
        assert scheduler.jobs.count() == 1

    def test_the_callers_transaction(self, scheduler: Scheduler) -> None:
        """`within=` takes whatever the application passes; the job is there at once, as a test wants to see it."""
        connection = sqlite3.connect(":memory:", isolation_level=None)
        connection.execute("BEGIN")
        with isolated(scheduler) as test:
            scheduler.enqueue(charge, 7).submit(within=connection)
            connection.execute("ROLLBACK")
            test.assert_enqueued(charge, 7)
        connection.close()

    def test_start_runs_nothing_by_itself(self, scheduler: Scheduler) -> None:
        """An application that starts a node in its lifespan can be tested: `drain()` runs the jobs."""
        threads = threading.active_count()
        with isolated(scheduler) as test:
            with scheduler:
                assert scheduler.running
                scheduler.enqueue_now(charge, 1)
                assert threading.active_count() == threads
                assert not DONE
                test.drain()
            assert not scheduler.running
            scheduler.close()
        assert DONE == [1]

    def test_a_running_scheduler_is_refused(self, scheduler: Scheduler) -> None:
        """Its threads would go on with the real store."""
        with scheduler:
            with pytest.raises(RatchetError, match=r"running: stop\(\) it"), isolated(scheduler):
                pass

    def test_nonsense_is_refused(self) -> None:
        """The message says what to pass."""
        with pytest.raises(RatchetError, match=r"isolated\(shop.scheduler\)"), isolated():
            pass
        with pytest.raises(RatchetError, match="not 'shop'"), isolated("shop"):  # type: ignore[arg-type]
            pass
        with pytest.raises(RatchetError, match="needs no isolation"), isolated(manual_scheduler()):
            pass


class TestTheApplicationIsItsOwn:
    def test_time_moves_by_hand(self, scheduler: Scheduler) -> None:
        """Delays and retries follow the clock of the test."""
        with isolated(scheduler) as test:
            scheduler.enqueue(flaky).with_max_retries(1).with_delay(timedelta(days=1)).submit()
            assert test.drain() == 0
            assert isinstance(test.clock, ManualClock)
            test.clock.advance(timedelta(days=1))
            test.drain()
        assert DONE == [1, 2]

    def test_listeners_and_middleware_hear_of_it(self, scheduler: Scheduler) -> None:
        """What the application has declared is in force."""

        @scheduler.on(JobCompleted)
        def listen(event: JobCompleted) -> None:
            DONE.append("heard")

        @scheduler.around
        def around(ctx: JobContext) -> Iterator[None]:
            DONE.append("before")
            yield

        with isolated(scheduler) as test:
            scheduler.enqueue_now(charge, 1)
            test.drain()
        assert DONE == ["before", 1, "heard"]

    def test_declared_schedules_fire(self, scheduler: Scheduler) -> None:
        """A timetable of the application follows the clock of the test."""
        scheduler.recurring("0 2 * * *", name="nightly", zone="UTC")(nightly)
        with isolated(scheduler) as test:
            test.drain()
            test.clock.advance(timedelta(days=1))  # type: ignore[attr-defined]
            test.drain()
        assert DONE == ["nightly"]

    def test_several_schedulers(self, scheduler: Scheduler) -> None:
        """Jobs of all of them are drained, also where one submits to the other."""
        other = Scheduler("sqlite:///:memory:", allow=[__name__])
        global SECOND
        SECOND = other
        with isolated(scheduler, other) as test:
            scheduler.enqueue_now(pass_on, 1)
            assert test.drain() == 2
            test.of(other).assert_enqueued(charge, 1)
            assert [job.target.split(":")[1] for job in test.enqueued_jobs()] == ["pass_on", "charge"]
        other.close()


SECOND: Scheduler


def nightly() -> None:
    DONE.append("nightly")


def pass_on(number: int) -> None:
    SECOND.enqueue_now(charge, number)


class TestAtTheSameTime:
    def test_fifty_tests_in_eight_threads(self, scheduler: Scheduler, file: Path) -> None:
        """Each test sees its own jobs and no others, whatever runs beside it."""
        barrier = threading.Barrier(8)

        def one(number: int) -> list[object]:
            if number < 8:
                barrier.wait(10)  # eight of them are isolated at the same time, for certain
            with isolated(scheduler) as test:
                handle = scheduler.enqueue_now(charge, number)
                if number < 8:
                    barrier.wait(10)
                asyncio.run(scheduler.aio.enqueue_now(charge, number))
                test.drain()
                assert handle.result(timeout=0) == f"receipt {number}"
                return [job.args[0] for job in scheduler.jobs.find()]

        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(one, range(50)))
        assert found == [[number, number] for number in range(50)]
        assert not file.exists()

    def test_a_thread_of_the_code_under_test(self, scheduler: Scheduler) -> None:
        """A thread that does not know the test belongs to the only one there is; among several it is told what to do."""
        errors: list[BaseException] = []

        def submit() -> None:
            try:
                scheduler.enqueue_now(charge, 1)
            except BaseException as error:
                errors.append(error)

        def run(target: object) -> None:
            thread = threading.Thread(target=target)  # type: ignore[arg-type]
            thread.start()
            thread.join()

        with isolated(scheduler) as test:
            run(submit)
            test.assert_enqueued(charge, 1)
            with isolated(scheduler) as inner:
                run(submit)
                assert "2 tests isolate this scheduler" in str(errors.pop())
                context = contextvars.copy_context()
                run(lambda: context.run(submit))
                assert len(inner.enqueued(charge)) == 1
            assert len(test.enqueued(charge)) == 1
        assert not errors


class TestFrameworks:
    def test_unittest(self, scheduler: Scheduler, file: Path) -> None:
        """A test case names its schedulers and gets an empty store for each test."""

        class Checkout(IsolatedTestCase):
            ratchet_schedulers = (scheduler,)

            def test_one(self) -> None:
                scheduler.enqueue_now(charge, 1)
                self.ratchet.drain()
                assert len(self.ratchet.enqueued()) == 1

            test_two = test_one

        assert issubclass(Checkout, unittest.TestCase)
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(Checkout).run(result)
        assert (result.testsRun, result.errors, result.failures) == (2, [], [])
        assert not file.exists()

    def test_pytest(self, tmp_path: Path) -> None:
        """The fixture isolates what the ini option names, and the kit for stores is not loaded for it."""
        (tmp_path / "shop.py").write_text(
            "from ratchet import Scheduler\n"
            "scheduler = Scheduler('sqlite:///real.db')\n"
            "@scheduler.job\n"
            "def charge(number): return number\n"
        )
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nratchet_schedulers =\n    shop:scheduler\npythonpath = .\n"
        )
        (tmp_path / "test_shop.py").write_text(
            "import sys, shop\n"
            "def test_checkout(ratchet_isolated):\n"
            "    shop.charge.enqueue(42).submit()\n"
            "    ratchet_isolated.assert_enqueued(shop.charge, 42)\n"
            "    assert ratchet_isolated.drain() == 1\n"
            "def test_the_next_one_begins_empty(ratchet_isolated):\n"
            "    ratchet_isolated.assert_not_enqueued(shop.charge)\n"
            "    assert not [name for name in sys.modules if name.startswith('ratchet.tck')]\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 passed" in done.stdout
        assert not (tmp_path / "real.db").exists()


class TestTheRealThing:
    def test_until_nothing_is_due(self, scheduler: Scheduler) -> None:
        """Jobs of the real store run here, also those that others submit; what is due later stays."""
        handles = [scheduler.enqueue_now(charge, number) for number in range(5)]
        later = scheduler.enqueue(charge, 9).with_delay(timedelta(days=1)).submit()
        run_worker_until_idle(scheduler)
        assert [handle.status() for handle in handles] == [JobStatus.SUCCEEDED] * 5
        assert later.status() is JobStatus.PENDING
        assert not scheduler.running

    def test_it_gives_up(self, scheduler: Scheduler) -> None:
        """A job that does not end is a `TimeoutError`, and the node is stopped all the same."""
        scheduler.enqueue_now(wait_for_ever)
        with pytest.raises(TimeoutError, match=r"still due or running after 0\.3 s"):
            run_worker_until_idle(scheduler, timeout=0.3)
        assert not scheduler.running


def wait_for_ever() -> None:
    while True:
        JobContext.current().check_canceled()
        threading.Event().wait(0.01)
