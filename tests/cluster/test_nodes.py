"""What the cluster knows of its nodes: who they are, what they can run, whom they rescued, and who is gone."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from ratchet import NodeAlive, Options, Scheduler
from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import NodeRecord, NodeSpec, NodeState
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus, Lane
from tests.cluster import errands
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

#: Wide enough for a machine that is busy with other tests: nobody is to be rescued by accident.
QUICK = Options(heartbeat=0.3, silence=60, concurrency=4, queues=["default", "emails"])


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    """A scheduler whose node beats quickly; not started yet."""
    made = Scheduler(url, allow=["tests.cluster"], options=QUICK)
    yield made
    made.close()


def only_node(scheduler: Scheduler) -> NodeRecord:
    """The node of this process that is not dead."""
    found = [node for node in scheduler.nodes.list() if node.pid == os.getpid()]
    (node,) = [node for node in found if node.state is not NodeState.DEAD]
    return node


def ghost(scheduler: Scheduler, *, silence: timedelta, age: timedelta = timedelta()) -> str:
    """A node of which only the row is left, beaten last *age* ago."""
    spec = NodeSpec(
        node_id="ghost",
        name="ghost",
        host="elsewhere",
        pid=1,
        version="0",
        beat_interval=silence / 3,
        silence=silence,
    )
    scheduler.store.register(spec, now=scheduler.store.database_time() - age)
    return spec.node_id


def test_a_node_says_who_it_is_and_what_it_has_run(scheduler: Scheduler) -> None:
    """Host, process, version, lanes and queues at once; targets when they were declared or have run."""
    scheduler.job(errands.declared)
    with scheduler:
        node = only_node(scheduler)
        assert (node.host, node.pid, node.state) == (socket.gethostname(), os.getpid(), NodeState.ACTIVE)
        assert node.version
        assert (node.about.lanes["thread"], node.about.queues) == (4, ["default", "emails"])
        assert node.about.targets == ["tests.cluster.errands:declared"]
        scheduler.enqueue_now(errands.greet, "ann").result(timeout=30)
        until(
            lambda: "tests.cluster.errands:greet" in only_node(scheduler).about.targets, 30, "it was not told"
        )
    assert scheduler.nodes.list() == []


def test_a_node_that_drains_says_so(scheduler: Scheduler) -> None:
    """While it waits for what runs, it is DRAINING for everybody, in the list and in the health."""
    errands.gate.clear()
    errands.waiting.clear()
    scheduler.start()
    handle = scheduler.enqueue_now(errands.wait_for_gate)
    until(lambda: errands.waiting.is_set(), 30, "the job did not start")
    stopping = threading.Thread(target=scheduler.stop, kwargs={"drain": True, "timeout": 60})
    stopping.start()
    try:
        until(lambda: only_node(scheduler).state is NodeState.DRAINING, 30, "it does not drain")
        health = scheduler.health()
        assert (health["nodes"], health["draining"]) == (1, 1)
    finally:
        errands.gate.set()
        stopping.join(60)
    assert handle.status() is JobStatus.SUCCEEDED


def test_rescues_are_counted_by_the_rescuer(scheduler: Scheduler) -> None:
    """A silent node is declared dead; who did it says so in its own row, and the health adds it up."""
    with scheduler:
        dead = ghost(scheduler, silence=timedelta(seconds=1))
        until(lambda: only_node(scheduler).about.rescues == 1, 60, "the rescue was not counted")
        node = only_node(scheduler)
        (gone,) = [one for one in scheduler.nodes.list() if one.node_id == dead]
        assert (gone.state, gone.rescued_by) == (NodeState.DEAD, node.node_id)
        health = scheduler.health()
        assert (health["rescues"], health["false_rescues"], health["nodes"]) == (1, 0, 1)


def test_false_rescues_are_counted_by_the_victim(scheduler: Scheduler) -> None:
    """A node that finds itself declared dead drops its work, goes on under a new name and says whom it replaces."""
    errands.gate.set()
    with scheduler:
        old = only_node(scheduler)
        store = scheduler.store

        def robbed() -> bool:
            beat = next(node.beat for node in store.nodes() if node.node_id == old.node_id)
            now = store.database_time()
            return store.rescue(old.node_id, seen_beat=beat, by="a fool", max_crashes=3, now=now) is not None

        until(robbed, 30, "its beat never stood still")
        until(
            lambda: any(node.about.false_rescues for node in scheduler.nodes.list()), 30, "it did not notice"
        )
        node = only_node(scheduler)
        assert (node.about.false_rescues, node.about.replaces) == (1, old.node_id)
        assert scheduler.health()["false_rescues"] == 1
        assert scheduler.enqueue_now(errands.greet, "bob").result(timeout=30) == "hello bob"


def test_a_silent_node_can_be_removed(scheduler: Scheduler) -> None:
    """Its job is requeued as after a crash, under a new fence; twice is once."""
    store = scheduler.store
    handle = scheduler.enqueue_now(errands.greet, "cid")
    dead = ghost(scheduler, silence=timedelta(minutes=1), age=timedelta(hours=1))
    request = ClaimRequest(node_id=dead, claim_id=new_id(), limit=1, lane=Lane.THREAD)
    # SQLite's time has milliseconds, the job's due time microseconds
    later = store.database_time() + timedelta(seconds=1)
    assert len(store.claim_next_batch(request, now=later)) == 1
    assert scheduler.health()["silent"] == 1
    assert scheduler.nodes.remove(dead)
    assert scheduler.nodes.list() == []
    record = store.get(handle.id)
    assert record is not None
    assert (record.status, record.crashes, record.attempts) == (JobStatus.PENDING, 1, 0)
    assert not scheduler.nodes.remove(dead)


def test_a_dead_node_can_be_removed_and_a_living_one_not(scheduler: Scheduler) -> None:
    """What was rescued before is only forgotten; a node that beats is left alone, and the error says what to do."""
    store = scheduler.store
    node = ghost(scheduler, silence=timedelta(hours=1))
    with pytest.raises(NodeAlive, match="stop process 1 on elsewhere"):
        scheduler.nodes.remove(node)
    assert store.rescue(node, seen_beat=0, by="another", max_crashes=3, now=store.database_time())
    assert scheduler.nodes.remove(node)
    assert scheduler.nodes.list() == []
