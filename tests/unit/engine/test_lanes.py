"""Lanes run jobs, and really stop them."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from datetime import timedelta
from typing import Any

from ratchet.engine.run import Stop
from ratchet.model.decision import Crashed, Interrupted, Raised, Returned, StoppedLate, TimedOut
from ratchet.model.errors import JobInterrupted
from tests.support.lanes import loop_lane, process_lane, run_of, thread_lane
from tests.support.waiting import until
from tests.unit.engine import process_jobs


class TestThreadLane:
    def test_every_accepted_run_ends_once(self) -> None:
        """A thousand jobs on four threads: a thousand outcomes, all of them successes."""
        lane, completer, tools = thread_lane(lambda: 7)
        lane.accept([run_of(tools) for _ in range(1000)])
        completer.wait_for(1000)
        lane.stop(5)
        assert completer.count == 1000
        assert set(completer.outcomes.values()) == {Returned("7", False)}

    def test_python_code_is_interrupted(self) -> None:
        """A loop in Python stops within a fraction of a second, and its thread takes the next job."""
        started = threading.Event()

        def forever() -> None:
            started.set()
            while True:
                time.sleep(0.001)

        lane, completer, tools = thread_lane(forever, slots=1)
        run = run_of(tools, timeout=timedelta(seconds=60))
        lane.accept([run])
        assert started.wait(5)
        lane.interrupt(run, Stop.TIMED_OUT)
        completer.wait_for(1)
        lane.stop(5)
        assert completer.outcomes[run.job_id] == TimedOut(timedelta(seconds=60))
        assert lane.running() == []

    def test_interruptions_never_leak_out_of_their_run(self) -> None:
        """Thousands of runs are interrupted at random moments, most of them too late: no thread dies of it."""

        def short() -> int:
            return sum(range(50))

        lane, completer, tools = thread_lane(short, slots=3)
        dice = random.Random(7)
        total = 4000
        runs = [run_of(tools) for _ in range(total)]
        done = threading.Event()

        def pester() -> None:
            while not done.is_set():
                for run in lane.running():
                    lane.interrupt(run, Stop.CANCELED)
                if dice.random() < 0.5:
                    time.sleep(0)

        pest = threading.Thread(target=pester)
        pest.start()
        try:
            for start in range(0, total, 100):
                lane.accept(runs[start : start + 100])
                completer.wait_for(start + 100)
        finally:
            done.set()
            pest.join()
        alive = [t for t in threading.enumerate() if t.name.startswith("ratchet-worker")]
        lane.stop(5)
        assert completer.count == total
        assert len(alive) >= 3
        assert all(isinstance(o, Returned | Interrupted) for o in completer.outcomes.values())

    def test_code_that_swallows_the_interruption_is_replaced(self) -> None:
        """A thread that does not stop gives its slot to another, and is settled when it ends at last."""
        release = threading.Event()

        def stubborn() -> None:
            while not release.is_set():
                try:
                    release.wait(0.01)
                except JobInterrupted:
                    pass

        lane, completer, tools = thread_lane(stubborn, slots=1)
        first, second = run_of(tools), run_of(tools)
        lane.accept([first])
        until(lambda: first.interruptible)
        lane.interrupt(first, Stop.TIMED_OUT)
        assert first.give_up()
        lane.replace(first)
        lane.accept([second])
        until(lambda: second.interruptible)
        assert lane.stuck == 1
        release.set()
        completer.wait_for(2)
        lane.stop(5)
        assert completer.count == 2
        assert completer.outcomes == {first.job_id: StoppedLate(), second.job_id: Returned()}
        assert lane.stuck == 0

    def test_what_has_not_started_can_be_withdrawn(self) -> None:
        """Runs that wait for a slot are given back, and never run."""
        release = threading.Event()
        lane, completer, tools = thread_lane(lambda: release.wait(10), slots=1)
        runs = [run_of(tools) for _ in range(10)]
        lane.accept(runs)
        until(lambda: lane.running())
        withdrawn = lane.withdraw(float("inf"))
        release.set()
        completer.wait_for(1)
        lane.stop(5)
        assert len(withdrawn) == 9
        assert completer.count == 1

    def test_an_exception_is_an_outcome(self) -> None:
        """What the target raises travels as it is, SystemExit included."""

        def quit_now() -> None:
            raise SystemExit(3)

        lane, completer, tools = thread_lane(quit_now)
        run = run_of(tools)
        lane.accept([run])
        completer.wait_for(1)
        lane.stop(5)
        outcome = completer.outcomes[run.job_id]
        assert isinstance(outcome, Raised)
        assert isinstance(outcome.error, SystemExit)


class TestEventLoopLane:
    def test_coroutines_run_side_by_side(self) -> None:
        """Fifty jobs that wait 0.1 s take far less than fifty times that."""

        async def rest() -> str:
            await asyncio.sleep(0.1)
            return "rested"

        lane, completer, tools = loop_lane(rest)
        begun = time.monotonic()
        lane.accept([run_of(tools) for _ in range(50)])
        completer.wait_for(50)
        lane.stop(5)
        assert time.monotonic() - begun < 2.5
        assert set(completer.outcomes.values()) == {Returned('"rested"', False)}

    def test_a_run_is_canceled(self) -> None:
        """An interrupted coroutine ends at its next await."""

        async def forever() -> None:
            while True:
                await asyncio.sleep(0.01)

        lane, completer, tools = loop_lane(forever)
        run = run_of(tools, timeout=timedelta(seconds=60))
        lane.accept([run])
        until(lambda: lane.running())
        lane.interrupt(run, Stop.TIMED_OUT)
        completer.wait_for(1)
        lane.stop(5)
        assert completer.outcomes[run.job_id] == TimedOut(timedelta(seconds=60))

    def test_a_blocked_loop_is_reported_with_the_frame_that_blocks_it(self, caplog: Any) -> None:
        """time.sleep in a coroutine is named in a warning."""

        async def blocking() -> None:
            time.sleep(0.6)

        lane, completer, tools = loop_lane(blocking)
        lane.accept([run_of(tools)])
        time.sleep(0.05)
        begun = time.monotonic()
        while completer.count == 0 and time.monotonic() - begun < 5:
            lane.watch(time.monotonic(), limit=0.2)
            time.sleep(0.02)
        completer.wait_for(1)
        lane.stop(5)
        assert "the event loop has been blocked" in caplog.text
        assert "in blocking" in caplog.text


class TestProcessLane:
    def test_a_job_runs_in_another_process(self) -> None:
        """The result comes back from a process with another id."""
        import os

        lane, completer, tools = process_lane(process_jobs.process_id)
        run = run_of(tools)
        lane.accept([run])
        completer.wait_for(1, 30)
        lane.stop(5)
        outcome = completer.outcomes[run.job_id]
        assert isinstance(outcome, Returned)
        assert outcome.result is not None
        assert int(outcome.result) != os.getpid()

    def test_a_killed_child_is_a_crash_of_its_job_and_the_lane_goes_on(self) -> None:
        """A child that dies without a word is counted against its job; the next job gets a new child."""
        lane, completer, tools = process_lane(process_jobs.die_if_told)
        first, second = run_of(tools, args=(True,)), run_of(tools, args=(False,))
        lane.accept([first])
        completer.wait_for(1, 30)
        lane.accept([second])
        completer.wait_for(2, 30)
        lane.stop(5)
        assert isinstance(completer.outcomes[first.job_id], Crashed)
        assert completer.outcomes[second.job_id] == Returned('"alive"', False)

    def test_a_timeout_kills_the_child(self) -> None:
        """Code that no exception could stop is stopped."""
        lane, completer, tools = process_lane(process_jobs.spin)
        run = run_of(tools, timeout=timedelta(seconds=60))
        lane.accept([run])
        while run.handle is None:
            time.sleep(0.005)
        time.sleep(0.3)
        lane.interrupt(run, Stop.TIMED_OUT)
        completer.wait_for(1, 10)
        lane.stop(5)
        assert completer.outcomes[run.job_id] == TimedOut(timedelta(seconds=60))

    def test_an_exception_that_cannot_travel_still_fails_its_job(self) -> None:
        """An unpicklable exception arrives as its text."""
        lane, completer, tools = process_lane(process_jobs.raise_unpicklable)
        run = run_of(tools)
        lane.accept([run])
        completer.wait_for(1, 30)
        lane.stop(5)
        outcome = completer.outcomes[run.job_id]
        assert isinstance(outcome, Raised)
        assert "cannot travel" in str(outcome.error)
