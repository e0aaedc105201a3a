"""The health check and `explain` of schedulers that run: what their nodes publish, and what the store refuses."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ratchet import InvalidJob, JobStatus, Lane, ManualClock, Options, Problem, Scheduler, StoreReadOnly
from ratchet.model.claim import ClaimRequest
from ratchet.model.errors import StoreError
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler
from tests.support.running_jobs import HERE, add, endless, slow_add
from tests.support.waiting import until

QUICK = Options(concurrency=1, heartbeat=0.1, idle_heartbeat=0.1, silence=30, node_name="n1")


class Frozen(MemoryStore):
    """Takes no writes while it is frozen."""

    frozen = True

    def release_lock(self, name: str, *, token: UUID) -> bool:
        if self.frozen:
            raise StoreReadOnly("the database is read-only")
        return super().release_lock(name, token=token)


class Refusing(MemoryStore):
    """Refuses claims."""

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> Any:
        raise StoreError("no claim today")

    next_due_of = claim_next_batch  # type: ignore[assignment]  # it only raises


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(store=MemoryStore(), allow=[HERE], options=QUICK)
    yield made
    made.close()


def codes(scheduler: Scheduler, **asked: Any) -> list[str]:
    return [problem.code for problem in scheduler.health(**asked).problems]


class TestHealth:
    def test_it_is_json(self, scheduler: Scheduler) -> None:
        """As it stands; the problems have their names, and come back as `Problem`, with a time."""
        scheduler.enqueue_now(add, 1, 2)
        health = scheduler.health()
        document = json.loads(json.dumps(health))
        (problem,) = document["problems"]
        assert (problem["code"], problem["count"]) == ("no_nodes", 1)
        (found,) = health.problems
        assert isinstance(found, Problem)
        assert (found.text, found.since) == (problem["text"], datetime.fromisoformat(problem["since"]))
        assert (health.ok, health.nodes, document["oldest_wait"] >= 0) == (False, 0, True)

    def test_bad_limits_are_refused(self, scheduler: Scheduler) -> None:
        """A limit that is none is an error, not a healthy answer."""
        for asked in ({"max_wait": -1}, {"max_dead_letters": -1}, {"min_nodes": "two"}):
            with pytest.raises(InvalidJob):
                scheduler.health(**asked)  # type: ignore[arg-type]  # that is the point

    def test_awaited(self, scheduler: Scheduler) -> None:
        """The await face takes the same limits."""
        health = asyncio.run(scheduler.aio.health(max_wait=60, max_dead_letters=0, min_nodes=0))
        assert health.ok

    def test_a_database_that_takes_no_writes(self) -> None:
        """Both say so, and nothing else is lost: what can be read is told."""
        store = Frozen()
        scheduler = Scheduler(store=store, allow=[HERE])
        handle = scheduler.enqueue_now(add, 1, 2)
        health = scheduler.health()
        assert [problem.code for problem in health.problems] == ["read_only", "no_nodes"]
        assert (health["reachable"], health["writable"], health["overdue"]) == (True, False, 1)
        assert [reason.code for reason in handle.explain()] == ["read_only", "no_nodes"]
        store.frozen = False
        assert [problem.code for problem in scheduler.health().problems] == ["no_nodes"]

    def test_the_write_test_leaves_nothing(self, scheduler: Scheduler) -> None:
        """A lock that somebody has is still theirs."""
        store, now = scheduler.backend.store, datetime.now(UTC)
        token = scheduler.backend.ids()
        assert store.acquire_lock("l", holder="h", token=token, ttl=timedelta(minutes=1), now=now)
        assert scheduler.health()["writable"]
        assert store.release_lock("l", token=token)

    def test_a_late_schedule(self, scheduler: Scheduler) -> None:
        """A schedule that nobody fires is named once it is a minute late, and not before."""
        scheduler.schedule_recurring(timedelta(seconds=1), add, 1, 2, name="tick")
        assert "late_schedule" not in codes(scheduler)
        late = datetime.now(UTC) + timedelta(seconds=70)
        scheduler._core.now = lambda: late  # type: ignore[method-assign]  # the clock of the health check
        assert "late_schedule" in codes(scheduler)

    def test_by_hand(self) -> None:
        """A scheduler that a test drives needs no node: it is well, and its jobs have no reason not to run."""
        scheduler = ManualScheduler(clock=ManualClock(), allow=[HERE])
        handle = scheduler.enqueue_now(add, 1, 2)
        assert (scheduler.health().ok, handle.explain()) == (True, [])


class TestLanes:
    def test_full_slots_are_published(self, scheduler: Scheduler) -> None:
        """While the one slot is taken the node says so, and the next job is told by whom; then it is free again."""
        with scheduler:
            holder = scheduler.enqueue_now(endless)
            until(lambda: holder.status() is JobStatus.RUNNING, 20)
            handle = scheduler.enqueue_now(add, 1, 2)
            until(lambda: [reason.code for reason in handle.explain()] == ["slots_full"], 20)
            (reason,) = handle.explain()
            (blocker,) = reason.blockers
            assert (blocker.kind, blocker.job_id) == ("job", holder.id)
            assert blocker.node_id == scheduler.nodes.list()[0].node_id
            assert scheduler.enqueue_now(slow_add, 1, 2).result(timeout=20) == 3  # another lane has room
            assert holder.cancel()
            assert handle.result(timeout=20) == 3
            until(lambda: not scheduler.nodes.list()[0].about.full, 20)
            assert scheduler.health().ok

    def test_a_dead_lane(self, scheduler: Scheduler) -> None:
        """The node still beats, but its event loop is gone: health and the job that needs it say so."""
        with scheduler:
            assert scheduler.health().ok
            node: Any = scheduler._core.node
            lane = node.assembly.coordinator.lanes[Lane.ASYNC]
            alive, lane._thread = lane._thread, threading.Thread()
            until(lambda: "lane_down" in codes(scheduler), 20)
            (problem,) = scheduler.health().problems
            assert "async" in problem.text
            assert "event loop" in problem.text
            lane._thread = alive
            until(lambda: scheduler.health().ok, 20)

    def test_claims_that_fail(self) -> None:
        """A node that beats, but cannot claim, says so of all its lanes."""
        scheduler = Scheduler(store=Refusing(), allow=[HERE], options=QUICK)
        with scheduler:
            handle = scheduler.enqueue_now(add, 1, 2)
            until(lambda: "lane_down" in codes(scheduler), 20)
            (reason,) = handle.explain()
            assert reason.code == "lane_down"
            assert "its claims fail" in reason.text
