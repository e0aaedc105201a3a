"""Gates that open: a node that sleeps is woken and starts what waited, at once, not with its next poll."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import JobStatus, Options, Scheduler
from tests.lifecycle import jobs
from tests.support.waiting import until

#: No poll comes by itself while a test waits, where a store can wake a node.
NEVER = timedelta(minutes=10)
PATIENCE = 45


def sleepy(**more: Any) -> Options:
    return Options(
        concurrency=2,
        poll_delay_burst=NEVER,
        poll_delay_min=NEVER,
        poll_delay_max=NEVER,
        poll_delay_idle=NEVER,
        poll_delay_unwoken=0.5,
        resource_retry_delay=NEVER,
        **more,
    )


@pytest.fixture
def nodes(url: str) -> Iterator[tuple[Scheduler, Scheduler]]:
    """Two nodes that never poll by themselves; each takes jobs of its own queues only."""
    jobs.gate.clear()
    jobs.started.clear()
    jobs.bank = jobs.Bank()
    jobs.bank.answer.set()
    queues = (["holders"], ["waiters", "reports"])
    made = tuple(Scheduler(url, allow=["tests.lifecycle"], options=sleepy(queues=each)) for each in queues)
    yield made[0], made[1]
    jobs.gate.set()
    for node in made:
        node.close()


def start(node: Scheduler) -> None:
    """
    Start a node, and wait until it hears others.

    Before that, and where nothing wakes it, it looks twice a second by itself: on stores without wakeups, and behind a pooler in
    transaction mode, where listening ends before it has begun.
    """
    node.start()
    until(lambda: has_settled(node._core.cluster), PATIENCE, "the node hears nobody")


def has_settled(cluster: Any) -> bool:
    """True if it hears others, or has found that it never will."""
    listening = getattr(cluster, "_listening", None)
    return getattr(cluster, "connected", True) or (listening is not None and not listening._thread.is_alive())


def test_whatever_opens_wakes_the_node_that_waits(nodes: tuple[Scheduler, Scheduler]) -> None:
    """A resumed queue, a raised and a removed limit, a reset breaker, each opened by another process."""
    operator, worker = nodes
    operator.queues.pause("reports")
    operator.limits.set("printer", concurrent=0)
    operator.limits.set("scanner", concurrent=0)
    operator.breakers.open("bank")
    start(worker)
    waiting = {
        "queue_paused": operator.enqueue(jobs.double, 1).with_queue("reports"),
        "no_permit": operator.enqueue(jobs.double, 2).with_queue("waiters").with_resource("printer"),
        "breaker_open": operator.enqueue(jobs.pay, 3).with_queue("waiters"),
    }
    handles = {code: builder.submit() for code, builder in waiting.items()}
    scanned = operator.enqueue(jobs.double, 4).with_queue("waiters").with_resource("scanner").submit()
    for code, handle in handles.items():
        assert [reason.code for reason in handle.explain()] == [code]
    # a job that nothing holds back has run: so the node has looked, and found all the others closed
    assert operator.enqueue(jobs.double, 5).with_queue("waiters").submit().result(timeout=PATIENCE) == 10
    assert {handle.status() for handle in (*handles.values(), scanned)} == {JobStatus.PENDING}
    openings: dict[str, Callable[[], object]] = {
        "queue_paused": lambda: operator.queues.resume("reports"),
        "no_permit": lambda: operator.limits.set("printer", concurrent=1),
        "breaker_open": lambda: operator.breakers.reset("bank"),
    }
    for code, opens in openings.items():
        opens()
        assert handles[code].wait(timeout=PATIENCE)
    operator.limits.remove("scanner")
    assert scanned.result(timeout=PATIENCE) == 8


@pytest.mark.parametrize("ends", ["done", "canceled"])
def test_a_freed_permit_wakes_the_node_that_waits(nodes: tuple[Scheduler, Scheduler], ends: str) -> None:
    """The job that held it has ended, or was canceled and its code has ended, on another node."""
    holder = nodes[0]
    holder.limits.set("printer", concurrent=1)
    for node in nodes:
        start(node)
    running = holder.enqueue(jobs.hold).with_queue("holders").with_resource("printer").submit()
    assert jobs.started.wait(PATIENCE)
    waiting = holder.enqueue(jobs.double, 1).with_queue("waiters").with_resource("printer").submit()
    passing = holder.enqueue(jobs.double, 2).with_queue("waiters").submit()
    assert passing.result(timeout=PATIENCE) == 4
    assert [reason.code for reason in waiting.explain()] == ["no_permit"]
    if ends == "canceled":
        assert running.cancel()
    else:
        jobs.gate.set()
    assert waiting.result(timeout=PATIENCE) == 2


def test_permits_are_handed_on_without_a_pause(nodes: tuple[Scheduler, Scheduler]) -> None:
    """Thirty jobs, one at a time, on a node that polls once in ten minutes."""
    _, worker = nodes
    worker.limits.set("printer", concurrent=1)
    start(worker)
    handles = [
        worker.enqueue(jobs.double, number).with_queue("waiters").with_resource("printer").submit()
        for number in range(30)
    ]
    assert [handle.result(timeout=PATIENCE) for handle in handles] == [2 * number for number in range(30)]


def test_a_rate_lets_jobs_start_when_it_says(nodes: tuple[Scheduler, Scheduler]) -> None:
    """Twenty jobs at ten per second: all start, with no poll but those that the rate asks for."""
    _, worker = nodes
    worker.limits.set_rate("printer", 10, per=timedelta(seconds=1))
    start(worker)
    handles = [
        worker.enqueue(jobs.double, number).with_queue("waiters").with_resource("printer").submit()
        for number in range(20)
    ]
    assert [handle.result(timeout=PATIENCE) for handle in handles] == [2 * number for number in range(20)]
    starts = sorted(job.started_at for handle in handles if (job := handle.job()).started_at is not None)
    assert starts[19] - starts[0] >= timedelta(seconds=0.9)
