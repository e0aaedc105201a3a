"""A claim that has waited in its node for long is read again before its job starts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest

from ratchet.engine.run import Run
from ratchet.engine.start_check import TRUSTED, StartCheck
from ratchet.model.claim import ClaimRequest, JobClaim
from ratchet.model.clock import ManualClock, SystemClock
from ratchet.model.decision import Interrupted, NotStarted, Returned
from ratchet.model.errors import StoreUnavailable
from ratchet.model.status import JobStatus
from ratchet.testing import manual_scheduler
from tests.support.lanes import loop_lane, process_lane, run_of, thread_lane
from tests.support.waiting import until
from tests.unit.engine import process_jobs

LONG_AGO = float("-inf")
ran: list[int] = []


def work(number: int = 0) -> None:
    ran.append(number)


async def work_async() -> None:
    ran.append(0)


class Claims:
    """A store that holds what it is told to, and counts how often it is asked."""

    def __init__(self) -> None:
        self.held: set[UUID] = set()
        self.asked: list[list[UUID]] = []
        self.answer = threading.Event()
        self.answer.set()
        self.error: Exception | None = None

    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, Any]:
        self.asked.append([claim.job_id for claim in claims])
        self.answer.wait(10)
        if self.error is not None:
            raise self.error
        return {claim.job_id: None for claim in claims if claim.job_id in self.held}


LANES: dict[str, tuple[Callable[..., Any], Any]] = {
    "threads": (thread_lane, work),
    "event loop": (loop_lane, work_async),
    "processes": (process_lane, process_jobs.process_id),
}


@pytest.fixture(params=LANES)
def lane(request: pytest.FixtureRequest) -> Any:
    """Each kind of lane, with one slot, its completer, what its runs share, and its claims."""
    make, function = LANES[request.param]
    lane, completer, tools = make(function, slots=1)
    claims = Claims()
    tools.starts = StartCheck(claims, tools.clock)
    ran.clear()
    yield lane, completer, tools, claims
    lane.stop(5)


def old_run(tools: Any) -> Run:
    run = run_of(tools)
    run.trusted_until = LONG_AGO
    return run


class TestInEachLane:
    def test_a_claim_that_is_no_longer_held_does_not_start(self, lane: Any) -> None:
        """It ends as a claim that was lost; its code is not called."""
        lane, completer, tools, claims = lane
        run = old_run(tools)
        lane.accept([run])
        completer.wait_for(1)
        assert claims.asked == [[run.job_id]]
        assert isinstance(completer.outcomes[run.job_id], Interrupted)
        assert run.started is None
        assert ran == []

    def test_a_claim_that_is_held_starts(self, lane: Any) -> None:
        """One question, and the job runs."""
        lane, completer, tools, claims = lane
        run = old_run(tools)
        claims.held.add(run.job_id)
        lane.accept([run])
        completer.wait_for(1)
        assert claims.asked == [[run.job_id]]
        assert isinstance(completer.outcomes[run.job_id], Returned)

    def test_a_fresh_claim_costs_nothing(self, lane: Any) -> None:
        """A run that starts soon after its claim asks nothing."""
        lane, completer, tools, claims = lane
        run = old_run(tools)
        run.trusted_until = tools.clock.monotonic() + 60
        lane.accept([run])
        completer.wait_for(1)
        assert claims.asked == []
        assert isinstance(completer.outcomes[run.job_id], Returned)

    def test_without_an_answer_nothing_starts(self, lane: Any) -> None:
        """While the store is away the run is handed back, and no attempt is counted."""
        lane, completer, tools, claims = lane
        run = old_run(tools)
        claims.error = StoreUnavailable("away")
        lane.accept([run])
        completer.wait_for(1)
        assert completer.outcomes[run.job_id] == NotStarted()
        assert ran == []


def test_many_threads_ask_together() -> None:
    """While one thread waits for the store, seven others come: one more question is for all of them."""
    lane, completer, tools = thread_lane(work, slots=8)
    claims = Claims()
    tools.starts = check = StartCheck(claims, SystemClock())
    runs = [old_run(tools) for _ in range(8)]
    claims.held = {run.job_id for run in runs}
    claims.answer.clear()
    lane.accept(runs)
    until(lambda: len(claims.asked) == 1 and len(check._waiting) == 7)
    claims.answer.set()
    completer.wait_for(8)
    lane.stop(5)
    assert [len(asked) for asked in claims.asked] == [1, 7]


def test_an_answer_is_trusted_for_as_long_as_a_claim() -> None:
    """A run that the store has confirmed and that waits again is asked about again."""
    clock, claims = ManualClock(), Claims()
    check = StartCheck(claims, clock)
    _, _, tools = thread_lane(work, slots=0)
    run = old_run(tools)
    claims.held.add(run.job_id)
    check.confirm(run)
    check.confirm(run)
    assert len(claims.asked) == 1
    clock.advance(TRUSTED + 0.001)
    check.confirm(run)
    assert len(claims.asked) == 2


@pytest.mark.parametrize("waited", [TRUSTED / 2, TRUSTED + 0.01])
def test_the_age_of_a_claim_counts_from_its_question(waited: float) -> None:
    """A job that was canceled in the store alone starts only while its claim is trusted."""
    ran.clear()
    with closing(manual_scheduler()) as scheduler:
        handle = scheduler.enqueue_now(work, 1)
        scheduler._core.manual.register()
        assembly, clock, store = (
            scheduler._core.manual.assembly,
            scheduler.clock,
            scheduler._core.store,
        )
        assert isinstance(clock, ManualClock)
        assembly.poller.run_once(clock.now())
        store.cancel(handle.id, reason="elsewhere", now=clock.now())
        clock.advance(waited)
        for lane in assembly.coordinator.lanes.values():
            while lane.step():  # type: ignore[attr-defined]  # an inline lane
                pass
        assert ran == ([1] if waited < TRUSTED else [])
        assembly.completer.run_once(clock.now())
        assert handle.status() is JobStatus.CANCELED
        assert assembly.coordinator.idle


def test_a_node_that_lost_its_claims_starts_none_of_them() -> None:
    """A node that was frozen, and whose jobs another node has now, starts none of what it had claimed."""
    ran.clear()
    with closing(manual_scheduler()) as scheduler:
        scheduler.enqueue_now(work, 1)
        node = scheduler._core.manual
        node.register()
        clock, store = scheduler.clock, scheduler._core.store
        assert isinstance(clock, ManualClock)
        node.assembly.poller.run_once(clock.now())
        (record,) = store.nodes()
        store.rescue(record.node_id, seen_beat=record.beat, by="other", max_crashes=3, now=clock.now())
        request = ClaimRequest(node_id="other", claim_id=scheduler._core.ids(), limit=1)
        assert store.claim_next_batch(request, now=clock.now())
        clock.advance(10)
        for lane in node.assembly.coordinator.lanes.values():
            while lane.step():  # type: ignore[attr-defined]  # an inline lane
                pass
        assert ran == []
