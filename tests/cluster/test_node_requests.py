"""Nodes that are asked from afar to drain, to take jobs again, and to stop."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from ratchet import NodeNotFound, Options, Scheduler
from ratchet.model.cluster import NodeRecord, NodeRequest, NodeSpec, NodeState
from ratchet.model.status import JobStatus
from tests.cluster import errands, shop
from tests.cluster.conftest import StartWorker
from tests.cluster.workers import ROOT, is_running
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

QUICK = Options(heartbeat=0.2, idle_heartbeat=0.2, silence=60, concurrency=1, max_prefetch=8)


@pytest.fixture
def embedded(url: str) -> Iterator[Scheduler]:
    """A scheduler whose node beats often; not started yet."""
    made = Scheduler(url, allow=["tests.cluster"], options=QUICK)
    errands.gate.clear()
    errands.waiting.clear()
    yield made
    errands.gate.set()
    made.close()


def node_of(scheduler: Scheduler, node_id: str) -> NodeRecord | None:
    return next((node for node in scheduler.nodes.list() if node.node_id == node_id), None)


def state_of(scheduler: Scheduler, node_id: str) -> NodeState | None:
    node = node_of(scheduler, node_id)
    return None if node is None else node.state


def ratchet(url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """One call of the command line."""
    command = [sys.executable, "-m", "ratchet", *words, "--url", url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)


def test_a_drained_node_finishes_and_takes_no_more(url: str, embedded: Scheduler) -> None:
    """What runs finishes, what waits goes back, nothing more is claimed, until the node is resumed; nothing is counted."""
    with embedded:
        (node,) = embedded.nodes.list()
        running = embedded.enqueue_now(errands.wait_for_gate)
        until(errands.waiting.is_set, 30, "the job did not start")
        waiting = [embedded.enqueue_now(errands.greet, name) for name in ("ann", "bob")]
        assert embedded.nodes.drain(node.node_id)
        assert not embedded.nodes.drain(node.node_id), "it was asked before"
        until(lambda: state_of(embedded, node.node_id) is NodeState.DRAINING, 30, "it does not drain")
        until(lambda: all(one.status() is JobStatus.PENDING for one in waiting), 30, "claims were kept")
        errands.gate.set()
        running.result(timeout=30)
        found = node_of(embedded, node.node_id)
        assert found is not None, "it stays in the cluster"
        beat = found.beat
        until(lambda: (node_of(embedded, node.node_id) or found).beat > beat + 3, 30, "it does not beat")
        assert [one.status() for one in waiting] == [JobStatus.PENDING] * 2
        assert embedded.explain(waiting[0].id)[0].code == "no_nodes"
        assert embedded.nodes.resume(node.node_id)
        assert [one.result(timeout=30) for one in waiting] == ["hello ann", "hello bob"]
        until(lambda: state_of(embedded, node.node_id) is NodeState.ACTIVE, 30, "it is not active")
        assert not embedded.nodes.resume(node.node_id), "there is nothing to take back"
    jobs = [one.job() for one in (running, *waiting)]
    assert [(job.attempts, job.crashes) for job in jobs] == [(1, 0)] * 3


def test_an_embedded_node_stops_itself(embedded: Scheduler) -> None:
    """It finishes what runs, leaves the cluster, and is no node any more; it can be started again."""
    embedded.start()
    (node,) = embedded.nodes.list()
    running = embedded.enqueue_now(errands.wait_for_gate)
    until(errands.waiting.is_set, 30, "the job did not start")
    assert embedded.nodes.stop(node.node_id)
    until(lambda: state_of(embedded, node.node_id) is NodeState.DRAINING, 30, "it does not drain")
    assert not embedded.nodes.stop(node.node_id)
    assert not embedded.nodes.drain(node.node_id), "it does more than that already"
    errands.gate.set()
    until(lambda: not embedded.running, 30, "it did not stop")
    assert embedded.nodes.list() == []
    assert running.status() is JobStatus.SUCCEEDED
    with embedded:
        assert embedded.enqueue_now(errands.greet, "ann").result(timeout=30) == "hello ann"


def test_a_program_in_the_foreground_goes_on_when_its_node_is_stopped(embedded: Scheduler) -> None:
    """`run()` returns, as after a signal."""
    running = threading.Thread(target=embedded.run)
    running.start()
    until(lambda: embedded.nodes.list(), 30, "it did not start")
    embedded.nodes.stop(embedded.nodes.list()[0].node_id)
    running.join(60)
    assert not running.is_alive()
    assert embedded.nodes.list() == []


def test_what_was_asked_goes_along_with_the_process(embedded: Scheduler) -> None:
    """A drained node that is declared dead by mistake goes on under another id, and still takes no jobs."""
    with embedded:
        (old,) = embedded.nodes.list()
        embedded.nodes.drain(old.node_id)
        until(lambda: state_of(embedded, old.node_id) is NodeState.DRAINING, 30, "it does not drain")

        def rescued() -> bool:
            found = node_of(embedded, old.node_id)
            assert found is not None
            now = embedded.store.database_time()
            return bool(
                embedded.store.rescue(old.node_id, seen_beat=found.beat, by="test", max_crashes=3, now=now)
            )

        until(rescued, 30, "it could not be declared dead")
        until(lambda: len(embedded.nodes.list()) == 2, 30, "it did not come back")
        (new,) = [node for node in embedded.nodes.list() if node.node_id != old.node_id]
        until(
            lambda: state_of(embedded, new.node_id) is NodeState.DRAINING, 30, "it forgot what it was asked"
        )
        found = node_of(embedded, new.node_id)
        assert found is not None
        assert found.request is NodeRequest.DRAIN
        assert embedded.enqueue_now(errands.greet, "ann").status() is JobStatus.PENDING


def test_the_dead_cannot_be_asked(url: str, embedded: Scheduler) -> None:
    """A silent node and one that never was are errors that say so, in Python and on the command line."""
    silence = timedelta(seconds=1)
    spec = NodeSpec(
        node_id="ghost",
        name="ghost",
        host="elsewhere",
        pid=1,
        version="0",
        beat_interval=silence,
        silence=silence,
    )
    embedded.store.register(spec, now=embedded.store.database_time() - timedelta(minutes=5))
    with pytest.raises(NodeNotFound, match=r"node ghost is dead: its last beat was 5m\S* ago"):
        embedded.nodes.stop("ghost")
    with pytest.raises(NodeNotFound, match="there is no node 'nobody'"):
        embedded.nodes.drain("nobody")
    answer = ratchet(url, "nodes", "drain", "ghost")
    assert (answer.returncode, "node ghost is dead" in answer.stderr) == (3, True)
    assert ratchet(url, "nodes", "stop", "nobody").returncode == 3


def test_a_node_that_does_not_listen(url: str, embedded: Scheduler) -> None:
    """The command waits as long as it was told, says that there was no answer, and leaves the request where it is."""
    minute = timedelta(minutes=1)
    spec = NodeSpec(
        node_id="old", name="old", host="h", pid=1, version="0.1.0", beat_interval=minute, silence=minute
    )
    embedded.store.register(spec, now=embedded.store.database_time())
    answer = ratchet(url, "nodes", "drain", "old", "--wait", "300ms")
    assert answer.returncode == 1
    assert "node old has not answered within 300ms" in answer.stderr
    assert "It runs version 0.1.0; 0.1.0 does not listen" in answer.stderr
    assert "old" in ratchet(url, "nodes", "drain", "old", "--wait", "0").stdout
    found = node_of(embedded, "old")
    assert found is not None
    assert (found.request, found.state) == (NodeRequest.DRAIN, NodeState.ACTIVE)
    assert "ACTIVE (drain asked)" in ratchet(url, "nodes", "list").stdout


def test_a_process_of_a_worker_is_stopped_for_good(
    url: str, scheduler: Scheduler, start_worker: StartWorker, ledger: str, tmp_path: Path
) -> None:
    """It finishes its job, ends and is not replaced, while the other process works; with the last one the worker ends."""
    worker = start_worker("one", "--processes", "2").wait_ready(2)
    first, second = worker.nodes()
    gate = tmp_path / "gate"
    handle = scheduler.enqueue_now(shop.gated, ledger, "job", str(gate))
    until(lambda: shop.lines(ledger), 30, worker.log)
    busy = next(node for node in scheduler.nodes.list() if node.running)
    other = second if busy.node_id == first else first
    answer = ratchet(url, "nodes", "stop", busy.node_id[-12:])
    assert (answer.returncode, answer.stderr) == (0, "")
    assert f"node {busy.node_id} is stopping; it still runs 1 job" in answer.stdout
    gate.touch()
    handle.result(timeout=60)
    until(lambda: not is_running(busy.pid), 30, worker.log)
    assert [node.node_id for node in scheduler.nodes.list()] == [other]
    assert scheduler.enqueue_now(shop.note, ledger, "after").result(timeout=30) == "after"
    assert worker.process.poll() is None, "the worker goes on with what is left"
    assert len(worker.nodes()) == 2, "the process was replaced"
    assert ratchet(url, "nodes", "stop", other).returncode == 0
    assert worker.wait(60) == 0
    assert scheduler.nodes.list() == []
    assert (handle.job().attempts, handle.job().crashes) == (1, 0)


def test_a_drained_worker_is_not_ready_and_comes_back(
    url: str, scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Drained by the command line it takes nothing; resumed it does."""
    worker = start_worker("one").wait_ready()
    (node_id,) = worker.nodes()
    assert f"node {node_id} is draining" in ratchet(url, "nodes", "drain", node_id).stdout
    handle = scheduler.enqueue_now(shop.note, ledger, "job")
    assert ratchet(url, "nodes", "drain", node_id).returncode == 0, "asked again, it is still draining"
    assert handle.status() is JobStatus.PENDING
    assert f"node {node_id} is active" in ratchet(url, "nodes", "resume", node_id).stdout
    assert handle.result(timeout=30) == "job", worker.log
