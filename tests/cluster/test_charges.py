"""A crash is charged to what ran, and to nothing else."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ratchet.api.observe.handles import JobHandle
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from tests.cluster import poison, shop
from tests.cluster.conftest import StartWorker
from tests.support.waiting import until

APP = "tests.cluster.poison:scheduler"
AHEAD = 500
#: The worker claims far ahead and keeps what it has claimed.
FAR_AHEAD = {
    "RATCHET_MAX_PREFETCH": "4000",
    "RATCHET_PREFETCH_WINDOW": "60s",
    "RATCHET_HAND_BACK_AFTER": "5m",
}


@pytest.fixture
def submitter(url: str) -> Iterator[Scheduler]:
    """A scheduler that submits and looks on, and runs nothing itself."""
    made = Scheduler(url, allow=["tests.cluster.poison", "tests.cluster.shop"])
    yield made
    made.close()


def cut_off(ledger: str) -> Counter[str]:
    """How many runs of each job have started and not ended."""
    words = shop.lines(ledger)
    starts = Counter(line[1] for line in words if line[0] == "start")
    starts.subtract(line[1] for line in words if line[0] == "end")
    return starts


def check(
    submitter: Scheduler, ledger: str, killer: JobHandle[None], sleepers: Mapping[str, JobHandle[None]]
) -> None:
    """The poison is a dead letter by three crashes; each sleeper succeeded, charged with its own cut-off runs."""
    until(lambda: killer.status() is JobStatus.FAILED, 60, "the poison is no dead letter")
    until(lambda: all(job.status() is JobStatus.SUCCEEDED for job in sleepers.values()), 60, "not all done")
    record, runs = killer.job(), submitter.jobs.executions(killer.id, all=True)
    assert record.crashes == 3
    assert "was killed by SIGKILL" in (record.error or "")
    assert all("was killed by SIGKILL" in (run.error or "") for run in runs if run.status == "CRASHED")
    seen = cut_off(ledger)
    assert seen["poison"] == 3
    assert {name: job.job().crashes for name, job in sleepers.items()} == {
        name: seen[name] for name in sleepers
    }


def test_a_poison_beside_twenty_sleepers(
    submitter: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """One node with ten threads: the poison becomes a dead letter; no sleeper does, and each is charged with what it ran."""
    killer = submitter.enqueue_now(poison.kill_node, ledger, 0.4)
    names = [f"sleeper-{number}" for number in range(20)]
    sleepers = {name: submitter.enqueue_now(poison.sleep, ledger, name, 1.0) for name in names}
    start_worker("ward", "--concurrency", "10", app=APP)
    check(submitter, ledger, killer, sleepers)


@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_a_poison_among_two_hundred_coroutines(
    submitter: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Of 200 coroutines of one claim, 20 started before the poison: the crashes are charged to these, not to the others."""
    before = [f"early-{number}" for number in range(20)]
    after = [f"late-{number}" for number in range(180)]
    sleepers = {name: submitter.enqueue_now(poison.sleep_async, ledger, name, 0.3) for name in before}
    killer = submitter.enqueue_now(poison.kill_node_async, ledger)
    sleepers |= {name: submitter.enqueue_now(poison.sleep_async, ledger, name, 0.3) for name in after}
    start_worker("ward", app=APP, environment={"RATCHET_ASYNC_CONCURRENCY": "250"})
    check(submitter, ledger, killer, sleepers)
    assert not any(sleepers[name].job().crashes for name in after)


class Ward:
    """A worker with two blockers that run and 500 jobs that it has claimed ahead of them."""

    def __init__(self, submitter: Scheduler, start_worker: StartWorker, ledger: str, gate: Path) -> None:
        submitter.enqueue_many(shop.note, [(ledger, f"quick-{number}") for number in range(400)])
        self.blockers = [
            submitter.enqueue_now(shop.gated, ledger, f"blocker-{n}", str(gate)) for n in range(2)
        ]
        self.ahead = submitter.enqueue_many(shop.note, [(ledger, f"ahead-{n}") for n in range(AHEAD)])
        self.worker = start_worker("ward", "--concurrency", "2", app=APP, environment=FAR_AHEAD)
        self.store = submitter.backend.store
        until(lambda: sum(node.running for node in self.store.nodes()) == AHEAD + 2, 60, "not claimed")
        until(lambda: cut_off(ledger)["blocker-1"] == 1)

    def check(self, gate: Path) -> None:
        """Only the blockers are charged, and everything ends."""
        until(lambda: all(job.job().crashes == 1 for job in self.blockers), 60, "not charged")
        gate.touch()
        until(lambda: self.store.counts().get(JobStatus.SUCCEEDED, 0) == 400 + AHEAD + 2, 60, "not all done")
        assert sum(job.job().crashes for job in self.ahead) == 0


def test_a_killed_child_charges_what_ran(
    submitter: Scheduler, start_worker: StartWorker, ledger: str, tmp_path: Path
) -> None:
    """A child is killed that runs two jobs and has claimed 500 ahead: two are charged, and nothing says that the others ran."""
    gate = tmp_path / "gate"
    ward = Ward(submitter, start_worker, ledger, gate)
    os.kill(ward.worker.children()[0], signal.SIGKILL)
    ward.check(gate)
    assert "500 that had not started were handed back" in ward.worker.log
    first = submitter.jobs.executions(ward.ahead[0].id, all=True)
    assert [run.status for run in first] == [ExecutionStatus.SUCCEEDED]


def test_a_killed_worker_charges_what_ran(
    submitter: Scheduler, start_worker: StartWorker, ledger: str, tmp_path: Path
) -> None:
    """The whole tree is killed, so that nobody is left who saw what ran: the store knows which runs had started."""
    gate = tmp_path / "gate"
    ward = Ward(submitter, start_worker, ledger, gate)
    (node,) = ward.store.nodes()
    until(lambda: ward.store.nodes()[0].beat >= node.beat + 2, 30, "no beats")
    ward.worker.kill_group()
    start_worker("next", "--concurrency", "2", app=APP, environment=FAR_AHEAD)
    ward.check(gate)
