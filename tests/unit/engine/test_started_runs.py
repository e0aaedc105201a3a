"""What ran when a process died, as its supervisor, the poller and the watch know it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from ratchet.engine import started_runs
from ratchet.engine.started_runs import StartedRuns, read_started, run_number, shared_memory
from ratchet.engine.watch import MARK_AFTER, MARK_EVERY
from ratchet.model.claim import JobClaim, ahead_token, is_ahead
from ratchet.model.clock import ManualClock
from ratchet.model.identifiers import new_id
from ratchet.model.options import Options
from ratchet.model.status import Lane
from ratchet.testing import ManualScheduler, manual_scheduler
from tests.support.lanes import loop_lane, process_lane, run_of, thread_lane
from tests.unit.engine import process_jobs


@pytest.fixture
def memory() -> Iterator[int]:
    """A descriptor of shared memory."""
    descriptor = shared_memory()
    yield descriptor
    os.close(descriptor)


def numbers(*runs: Any) -> set[int]:
    return {run_number(run.job.claim.job_id, run.job.claim.claim_id) for run in runs}


class TestMemory:
    def test_what_has_begun_is_read(self, memory: int) -> None:
        """Runs that have begun are there; one that has ended may be, until another one has its entry."""
        _, _, tools = thread_lane(print, slots=0)
        first, second, third = (run_of(tools) for _ in range(3))
        started = StartedRuns(memory)
        assert read_started(memory) == frozenset()
        started.begin(first)
        started.begin(second)
        assert read_started(memory) == numbers(first, second)
        started.end(second)
        started.begin(third)
        assert read_started(memory) == numbers(first, third)

    def test_without_room_nothing_is_claimed_to_be_known(
        self, memory: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """More runs at a time than there are entries: what ran is not known, and that is said."""
        monkeypatch.setattr(started_runs, "CAPACITY", 2)
        started = StartedRuns(memory)
        _, _, tools = thread_lane(print, slots=0)
        runs = [run_of(tools) for _ in range(3)]
        for run in runs:
            started.begin(run)
        assert read_started(memory) is None
        for run in runs:
            started.end(run)

    def test_it_outlives_its_process(self, memory: int) -> None:
        """A process that is killed leaves what it had written."""
        code = (
            "import mmap, os, sys\n"
            f"m = mmap.mmap({memory}, 0)\n"
            "m[16:32] = (7).to_bytes(16)\n"
            "os.kill(os.getpid(), 9)"
        )
        ended = subprocess.run([sys.executable, "-c", code], pass_fds=(memory,), check=False)
        assert ended.returncode == -signal.SIGKILL
        assert read_started(memory) == {7}

    @pytest.mark.parametrize("make", [thread_lane, loop_lane, process_lane])
    def test_every_lane_writes(self, make: Any, memory: int) -> None:
        """A run is there before its code is called, in each lane."""
        seen: list[frozenset[int] | None] = []

        async def look_async() -> None:
            seen.append(read_started(memory))

        functions = {thread_lane: lambda: seen.append(read_started(memory)), loop_lane: look_async}
        lane, completer, tools = make(functions.get(make, process_jobs.process_id), slots=1)
        tools.started_runs = StartedRuns(memory)
        run = run_of(tools)
        lane.accept([run])
        completer.wait_for(1)
        lane.stop(5)
        assert numbers(run) == read_started(memory)
        assert all(found == numbers(run) for found in seen)


class TestTokens:
    def test_they_differ_in_their_version_alone(self) -> None:
        """The token of a claim ahead sorts as the one that it was made of, and is told from any other."""
        token = new_id()
        ahead = ahead_token(token)
        assert (token.version, ahead.version) == (7, 8)
        assert is_ahead(ahead)
        assert not is_ahead(token)
        assert not is_ahead(None)
        assert ahead.int >> 80 == token.int >> 80

    def test_a_claim_beyond_the_free_slots_is_one_ahead(self) -> None:
        """A lane asks for as many jobs as it has free slots, and then for more: only the second claim is one ahead."""
        with closing(manual_scheduler()) as scheduler:
            node, clock = scheduler._core.manual, scheduler.clock
            node.register()
            lane = node.assembly.coordinator.lanes[Lane.THREAD]
            lane.slots = 2
            scheduler.enqueue_now(work)
            scheduler.enqueue_now(work)
            node.assembly.poller.run_once(clock.now())
            lane.wanted = lambda: 3  # type: ignore[method-assign]
            scheduler.enqueue_now(work)
            node.assembly.poller.woken()
            node.assembly.poller.run_once(clock.now())
            held = node.assembly.coordinator.held()
            assert [is_ahead(run.job.claim.claim_id) for run in held] == [False, False, True]


def work() -> None:
    """Nothing."""


class TestMarks:
    @staticmethod
    def stand(scheduler: ManualScheduler) -> tuple[Any, list[JobClaim], Any]:
        """A node that runs a job of a claim ahead, what it marks, and its run."""
        node, clock = scheduler._core.manual, scheduler.clock
        node.register()
        lane = node.assembly.coordinator.lanes[Lane.THREAD]
        lane.wanted = lambda: 3
        scheduler.enqueue_now(work)
        node.assembly.poller.run_once(clock.now())
        (run,) = node.assembly.coordinator.held()
        lane.running = lambda: [run]
        marked: list[JobClaim] = []
        node.assembly.watch._claims = type(
            "Marks", (), {"mark_started": lambda self, claims, now: marked.extend(claims)}
        )()
        return node.assembly.watch, marked, run

    def test_a_run_that_goes_on_is_marked_once(self) -> None:
        """After a moment the store is told that a run of a claim ahead has started; and only once."""
        with closing(manual_scheduler(options=Options(hand_back_after=timedelta(hours=1)))) as scheduler:
            watch, marked, run = self.stand(scheduler)
            clock = scheduler.clock
            assert isinstance(clock, ManualClock)
            watch.run_once(clock.now())
            run.begin(clock.monotonic(), clock.now())
            clock.advance(MARK_EVERY)
            clock.advance(MARK_AFTER)
            watch.run_once(clock.now())
            assert marked == [run.job.claim]
            clock.advance(MARK_EVERY)
            watch.run_once(clock.now())
            assert len(marked) == 1

    def test_what_has_not_started_or_was_not_claimed_ahead_is_not_marked(self) -> None:
        """A run that waits, and one that was claimed for a free slot, cost no statement."""
        with closing(manual_scheduler(options=Options(hand_back_after=timedelta(hours=1)))) as scheduler:
            watch, marked, run = self.stand(scheduler)
            clock = scheduler.clock
            assert isinstance(clock, ManualClock)
            clock.advance(10)
            watch.run_once(clock.now())
            run.begin(clock.monotonic(), clock.now())
            clock.advance(MARK_AFTER / 2)
            watch.run_once(clock.now())
            assert marked == []
