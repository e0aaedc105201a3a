"""Nothing is processed: whatever the reason, `explain` gives it for the job and `health` for the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet import Health, JobHandle, JobStatus, Reason, Scheduler
from tests.cluster import errands, idlers
from tests.cluster.workers import Worker
from tests.support.waiting import until

APP = "tests.cluster.idlers:scheduler"
#: A worker that is killed is silent after a few seconds.
QUICK = {"RATCHET_HEARTBEAT": "0.5", "RATCHET_SILENCE": "4", "RATCHET_CONCURRENCY": "1"}

StartWorker = Callable[..., Worker]


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    """Submits and looks on; it knows a function that no worker knows."""
    made = Scheduler(url, allow=["tests.cluster.idlers", "tests.cluster.errands"])
    yield made
    made.close()


@pytest.fixture
def worker(start_worker: StartWorker) -> Worker:
    """One slot for threads, for two queues."""
    started = start_worker("one", "--queues", "default,emails", app=APP, environment=QUICK)
    return started.wait_ready(seconds=60)


def codes(handle: JobHandle[object]) -> list[str]:
    return [reason.code for reason in handle.explain()]


def problems(health: Health) -> dict[str, str]:
    return {problem.code: problem.text for problem in health.problems}


def waiting(health: Health) -> dict[str, str]:
    return {one.code: one.text for one in health.waiting}


@pytest.mark.timeout(120)
def test_no_worker(scheduler: Scheduler, start_worker: StartWorker) -> None:
    """Both say so until a worker comes; then the job runs, and all is well."""
    handle = scheduler.enqueue_now(idlers.greet, "ann")
    assert codes(handle) == ["no_nodes"]
    health = scheduler.health()
    assert (health.ok, list(problems(health))) == (False, ["no_nodes"])
    (problem,) = health.problems
    assert (problem.count, problem.since is not None) == (1, True)
    assert health["oldest_wait"] is not None
    start_worker("one", app=APP, environment=QUICK).wait_ready(seconds=60)
    assert handle.result(timeout=60) == "hello ann"
    assert codes(handle) == ["succeeded"]
    until(lambda: scheduler.health().ok, 30, f"{scheduler.health()}")
    assert list(problems(scheduler.health(min_nodes=2))) == ["no_nodes"]


@pytest.mark.timeout(120)
def test_a_worker_that_is_kept_from_working(scheduler: Scheduler, worker: Worker) -> None:
    """Not due, queue paused, breaker open, no node for the queue, target missing: each is named, and all of them at once."""
    later = scheduler.schedule(3600, idlers.greet, "ann").submit()
    health = scheduler.health()
    assert (codes(later), health.ok, list(waiting(health))) == (["not_due"], True, ["not_due"])
    assert health["oldest_wait"] is None

    scheduler.queues.pause("emails")
    paused = scheduler.enqueue(idlers.greet, "ann").with_queue("emails").submit()
    assert (codes(paused), list(problems(scheduler.health()))) == (["queue_paused"], ["paused_queue"])
    assert "'emails'" in problems(scheduler.health())["paused_queue"]
    assert paused.explain()[0].blockers[0][:2] == ("queue", "emails")

    scheduler.breakers.open("bank")
    broken = scheduler.enqueue_now(idlers.pay, "ann")
    assert codes(broken) == ["breaker_open"]
    assert "'bank'" in problems(scheduler.health())["open_breaker"]

    elsewhere = scheduler.enqueue(idlers.greet, "ann").with_queue("reports").submit()
    (reason,) = elsewhere.explain()
    assert reason.code == "no_node_for_queue"
    assert "'reports'" in reason.text
    assert [(one.kind, one.pid) for one in reason.blockers] == [("node", worker.children()[0])]
    assert "'reports'" in problems(scheduler.health())["no_node_for_queue"]

    unknown = scheduler.enqueue_now(errands.greet, "ann")
    until(lambda: codes(unknown) == ["parked"], 60, f"{unknown.explain()}\n{worker.log}")
    (reason,) = unknown.explain()
    assert [one.node_id for one in reason.blockers] == worker.nodes()
    assert "tests.cluster.errands:greet" in problems(scheduler.health())["parked"]

    health = scheduler.health()
    assert set(problems(health)) == {"paused_queue", "open_breaker", "no_node_for_queue", "parked"}
    assert (health.ok, health["overdue"], health["pending"]) == (False, 4, 5)
    assert health["oldest_wait"] > 0  # though all of it is behind gates


@pytest.mark.timeout(120)
def test_every_slot_is_taken(scheduler: Scheduler, worker: Worker, tmp_path: Path) -> None:
    """The job that has the slot is named, with its process and since when; when it ends, the other one runs."""
    gate = tmp_path / "gate"
    holder = scheduler.enqueue_now(idlers.wait_for, str(gate))
    until(lambda: holder.status() is JobStatus.RUNNING, 60, worker.log)
    handle = scheduler.enqueue_now(idlers.greet, "ann")
    until(lambda: codes(handle) in (["slots_full"], ["running"]), 60, f"{handle.explain()}")
    health = scheduler.health(max_wait=0)
    (reason,) = handle.explain()
    if reason.code == "slots_full":  # else it was claimed ahead, and waits in the node
        (blocker,) = reason.blockers
        assert (blocker.job_id, blocker.pid) == (holder.id, worker.children()[0])
        assert blocker.since is not None
        assert str(holder.id) in reason.text
        assert "slots for thread jobs" in problems(health)["overdue"]
        assert "slots_full" in waiting(scheduler.health())
    gate.touch()
    assert handle.result(timeout=60) == "hello ann"
    until(lambda: scheduler.health(max_wait=60).ok, 30, f"{scheduler.health()}")


@pytest.mark.timeout(180)
def test_permits_of_the_canceled_and_of_the_dead(scheduler: Scheduler, worker: Worker) -> None:
    """The permit's holder was canceled, but its code goes on; then its process is killed. Both are told, with the process."""
    scheduler.limits.set("printer", concurrent=1)
    holder = scheduler.enqueue(idlers.sleep_through, 600).with_resource("printer").submit()
    until(lambda: holder.status() is JobStatus.RUNNING, 60, worker.log)
    handle = scheduler.enqueue(idlers.greet, "ann").with_resource("printer").submit()
    (reason,) = handle.explain()
    assert reason.code == "no_permit"
    assert_names(reason, holder, worker)
    assert (scheduler.health().ok, list(waiting(scheduler.health()))) == (True, ["no_permit"])

    assert holder.cancel()
    full, running = handle.explain()
    assert (full.code, running.code) == ("no_permit", "still_running")
    assert_names(full, holder, worker)
    assert_names(running, holder, worker)
    assert "CANCELED" in running.text
    said = problems(scheduler.health(max_wait=0))["overdue"]
    assert str(holder.id) in said
    assert str(worker.children()[0]) in said

    pid = worker.children()[0]
    worker.kill_group()
    until(lambda: {"no_nodes", "silent_nodes"} <= problems(scheduler.health()).keys(), 60)
    said = handle.explain()[0].text
    assert "is silent since" in said
    assert f"process {pid}" in said


@pytest.mark.timeout(180)
def test_jobs_that_kill_their_node(scheduler: Scheduler, start_worker: StartWorker) -> None:
    """Poison takes down one process after the other, and each is replaced at once: health says that nodes die."""
    worker = start_worker("one", app=APP, environment=QUICK).wait_ready(seconds=60)
    poison = scheduler.enqueue(idlers.kill).with_max_retries(0).submit()
    until(lambda: died(scheduler.health()), 90, f"{scheduler.health()}\n{worker.log}")
    assert not scheduler.health().ok
    assert poison.wait(timeout=90) is JobStatus.FAILED
    assert scheduler.enqueue_now(idlers.greet, "ann").result(timeout=60) == "hello ann"
    assert died(scheduler.health())  # it all works again, but what has happened is told for five minutes


def died(health: Health) -> bool:
    return any(one.code == "silent_nodes" and "have died" in one.text for one in health.problems)


def assert_names(reason: Reason, holder: JobHandle[object], worker: Worker) -> None:
    """The reason names the job that is in the way, and the process it runs in."""
    (blocker,) = reason.blockers
    assert (blocker.job_id, blocker.pid) == (holder.id, worker.children()[0])
    assert blocker.node_id in worker.nodes()
    assert str(holder.id) in reason.text
    assert f"process {blocker.pid}" in reason.text
