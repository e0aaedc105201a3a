"""
A rolling upgrade from 0.1.0: the schema is upgraded under load, both versions work side by side, and the old one leaves.

The old processes run the code that was released, unpacked from the repository.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ratchet import BusinessKeyBusy, Scheduler, SchemaOutOfDate, call
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.stores import open_store
from tests.cluster import depot
from tests.cluster.conftest import StartWorker
from tests.cluster.earlier import earlier_version, python
from tests.cluster.shop import gated, lines, note
from tests.cluster.workers import ROOT, Worker
from tests.support.store_urls import KINDS, empty_url
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

APP = "tests.cluster.depot:scheduler"
MAIN = "import sys; from tests.cluster import depot; depot.main(*sys.argv[1:])"
#: Far longer than any hiccup of a busy machine: nobody is to be rescued by accident.
PATIENT = {"RATCHET_HEARTBEAT": "1", "RATCHET_SILENCE": "60"}
QUICK = {"RATCHET_HEARTBEAT": "0.3", "RATCHET_SILENCE": "2"}


@pytest.fixture(scope="module")
def old() -> Iterator[dict[str, str]]:
    """What makes a process run 0.1.0."""
    with earlier_version() as environment:
        yield environment


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path, old: dict[str, str]) -> str:
    """A store that 0.1.0 has made, on each kind of database in turn."""
    found = empty_url(request.param, request, tmp_path)
    made = python({**old, "RATCHET_URL": found}, "-m", "ratchet", "db", "upgrade")
    assert made.stdout == "applied V001__initial\n", made.stdout + made.stderr
    return found


class Submitter:
    """A process of the application that submits until it is told to stop."""

    def __init__(self, folder: Path, ledger: str, name: str, url: str, environment: dict[str, str]) -> None:
        self._stop = folder / f"stop-{name}"
        self._process = subprocess.Popen(
            [sys.executable, "-c", MAIN, "submit", ledger, name, str(self._stop)],
            cwd=ROOT,
            env={**os.environ, **environment, "RATCHET_URL": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(
            lambda: ["submitting", name] in lines(ledger) or self._process.poll() is not None, 60, "no start"
        )

    def stop(self) -> dict[str, Any]:
        """What it has submitted, and how long each submission took."""
        self._stop.touch()
        said, complaints = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, complaints
        answer: dict[str, Any] = json.loads(said)
        return answer


def counts(ledger: str) -> Counter[str]:
    """How often each job has written that it ran."""
    return Counter(line[1] for line in lines(ledger) if line[0] == "ran")


def has_started(ledger: str, name: str, times: int = 1) -> bool:
    return sum(line[:2] == ["start", name] for line in lines(ledger)) >= times


def status(scheduler: Scheduler, job_id: str) -> JobStatus:
    return scheduler.jobs.get(job_id).status


def upgrade(url: str) -> None:
    """``ratchet db upgrade``, of this version."""
    done = python({"RATCHET_URL": url}, "-m", "ratchet", "db", "upgrade")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("applied V002"), done.stdout


def submit_what_is_new(scheduler: Scheduler, ledger: str, number: int) -> dict[str, str]:
    """Jobs with what 0.1.0 does not know; their ids by what they write down."""
    ids = {}
    for name in (f"called-{number}", f"again-{number}"):
        builder = scheduler.enqueue(note, ledger, name).on_success(call(depot.told, ledger, f"{name}-told"))
        ids[name] = str(builder.submit().id)
    return ids


def test_a_rolling_upgrade_loses_and_doubles_nothing(
    url: str, old: dict[str, str], start_worker: StartWorker, tmp_path: Path, ledger: str
) -> None:
    """
    Jobs of 0.1.0 in every state, its workers and a submitter at work; then the upgrade, new workers, and the old ones leave.

    Every job that was acknowledged by either version runs once, with its callbacks; what was stored before means the
    same after; the only dead letter is the one that was there; and an old worker that is started again says why it does not.
    """
    gate, allowed = tmp_path / "gate", tmp_path / "allowed"
    seeded = python({**old, "RATCHET_URL": url}, "-c", MAIN, "seed", ledger, str(gate), str(allowed))
    assert seeded.returncode == 0, seeded.stderr
    ids: dict[str, str] = json.loads(seeded.stdout)
    too_early = open_store(url, Options())
    with pytest.raises(SchemaOutOfDate, match="ratchet db upgrade"):
        too_early.check_schema()
    too_early.close()

    olds = [start_worker(f"old-{n}", app=APP, environment={**old, **PATIENT}) for n in (1, 2)]
    for worker in olds:
        worker.wait_ready(seconds=60)
    before = Submitter(tmp_path, ledger, "before", url, old)
    until(lambda: has_started(ledger, "running") and counts(ledger)["before-5"], 60, "no work is done")

    upgrade(url)
    scheduler = Scheduler(url, allow=["tests.cluster"])
    expected: dict[str, str] = {}
    try:
        for number in range(10):  # nobody but old nodes can take these
            expected |= submit_what_is_new(scheduler, ledger, number)
        until(lambda: counts(ledger)["again-9"], 60, "old nodes do not work on the new schema")
        new = [start_worker(f"new-{n}", app=APP, environment=PATIENT).wait_ready(seconds=60) for n in (1, 2)]
        after = Submitter(tmp_path, ledger, "after", url, {})
        for number in range(10, 20):
            expected |= submit_what_is_new(scheduler, ledger, number)
        scheduler.schedule_recurring(timedelta(seconds=1), depot.tick, ledger, "new", name="new-tick", tags=["t"], max_retries=2)  # fmt: skip
        # an expression that 0.1.0 cannot read
        scheduler.schedule_recurring("* * * ? * *", depot.tick, ledger, "strange", name="strange-tick")
        for name in ("new", "strange"):
            until(lambda who=name: ["tick", who] in lines(ledger), 60, f"the {name} schedule does not fire")  # type: ignore[misc]
        until(lambda: counts(ledger)["after-20"] and counts(ledger)["before-20"], 60, "no work is done")

        gate.touch()
        done = [before.stop()]
        for worker in olds:
            worker.signal(signal.SIGTERM)
        for worker in olds:
            assert worker.wait(60) == 0, worker.log
        again = start_worker("again", app=APP, environment={**old, **PATIENT})
        assert again.wait(60) != 0
        assert "which this version of Ratchet does not know" in again.log
        assert "V002__checks" in again.log
        assert "upgrade this installation" in again.log
        ticks = lines(ledger).count(["tick", "old"])
        until(lambda: lines(ledger).count(["tick", "old"]) > ticks, 60, "the old schedule does not fire")
        done.append(after.stop())
        assert [old["PYTHONPATH"].startswith(one["code"].partition("/ratchet/__init__")[0]) for one in done] == [True, False]  # fmt: skip

        check_what_was_there(scheduler, ids, ledger, allowed)
        for one in done:
            expected |= one["ids"]
        told = [f"{name}-told" for name in expected if name.startswith(("called", "again"))]
        told += [f"{name}-told" for one in done for n, name in enumerate(one["ids"]) if n % 5 == 0]
        missing = {*expected, *told}
        until(lambda: missing <= set(counts(ledger)), 60, f"not run: {missing - set(counts(ledger))}")
        until(
            lambda: {status(scheduler, job_id) for job_id in expected.values()} == {JobStatus.SUCCEEDED},
            60,
            "an end was not written",
        )
        assert [name for name, count in counts(ledger).items() if count != 1] == []
        assert list(scheduler.dead_letters.find()) == []
        health = scheduler.health()
        assert (health["false_rescues"], health["rescues"]) == (0, 0), health
        longest = max(took for _, took in done[0]["took"])
        print(f"{url.partition(':')[0]}: longest submission during the upgrade {longest:.3f} s")  # noqa: T201  # seen with -s
        assert all("Traceback" not in worker.log for worker in new)
    finally:
        scheduler.close()


def check_what_was_there(scheduler: Scheduler, ids: dict[str, str], ledger: str, allowed: Path) -> None:
    """What 0.1.0 had stored means the same to this version."""
    assert scheduler.jobs.get(ids["archived"]).status is JobStatus.SUCCEEDED
    assert [str(letter.job_id) for letter in scheduler.dead_letters.find()] == [ids["failed"]]
    assert [(one.name, one.concurrent) for one in scheduler.limits.list()] == [("press", 1)]
    for name in ("later", "busy"):
        assert status(scheduler, ids[name]) is JobStatus.PENDING, name
    assert status(scheduler, ids["paused"]) is JobStatus.PAUSED
    same = scheduler.enqueue(note, ledger, "keyed").with_idempotency_key("order-1").submit()
    assert (str(same.id), same.duplicate) == (ids["keyed"], True)
    with pytest.raises(BusinessKeyBusy):
        scheduler.enqueue(note, ledger, "busy").with_business_key("customer-1").submit()

    allowed.touch()
    assert scheduler.retry_job(ids["failed"])
    assert scheduler.resume_job(ids["paused"])
    for name in ("paused", "later", "busy"):
        assert scheduler.reschedule_job(ids[name], timedelta(0))
    ended = {name: job_id for name, job_id in ids.items() if name not in ("code", "batch", "archived")}
    until(
        lambda: {status(scheduler, job_id) for job_id in ended.values()} == {JobStatus.SUCCEEDED},
        60,
        f"not ended: {[(name, status(scheduler, one)) for name, one in ended.items()]}",
    )
    assert scheduler.batches.get(ids["batch"]).wait(60).completed_items == 5
    until(lambda: counts(ledger)["batch-over"], 60, "the batch has no follower")


@pytest.mark.parametrize("victim", ["old", "new"])
def test_a_dead_node_is_rescued_by_the_other_version(
    url: str, old: dict[str, str], victim: str, start_worker: StartWorker, tmp_path: Path, ledger: str
) -> None:
    """
    A worker of one version is killed, with jobs that run and jobs that it has claimed ahead: one of the other runs them all.

    What the dead one had marked as started is no obstacle to the other, and nobody is charged with more than one crash.
    """
    environments = {name: {**more, **QUICK, "RATCHET_CONCURRENCY": "2"} for name, more in (("old", old), ("new", {}))}  # fmt: skip
    gate = tmp_path / "gate"

    def started(name: str) -> Worker:
        return start_worker(name, app=APP, environment=environments[name]).wait_ready(seconds=60)

    worker = started("old")  # it cannot start after the upgrade
    upgrade(url)
    scheduler = Scheduler(url, allow=["tests.cluster"])
    try:
        if victim == "new":
            occupied = [scheduler.enqueue_now(gated, ledger, f"busy-{n}", str(gate)) for n in range(2)]
            until(lambda: starts(ledger).total() == len(occupied), 60, worker.log)
            rescuer, worker = worker, started("new")
        held = [scheduler.enqueue_now(gated, ledger, f"held-{n}", str(gate)) for n in range(20)]
        until(lambda: running_of(ledger, worker), 60, worker.log)
        (node,) = worker.nodes()
        beat = beat_of(scheduler, node)
        # by then it has marked what has started
        until(lambda: beat_of(scheduler, node) >= beat + 4, 60, "it does not beat")
        ran = running_of(ledger, worker)
        worker.kill_group()
        gate.touch()
        if victim == "old":
            rescuer = started("new")
        until(lambda: all(one.status() is JobStatus.SUCCEEDED for one in held), 60, rescuer.log)
        runs = starts(ledger)
        assert {name: count for name, count in runs.items() if count > 1} == dict.fromkeys(ran, 2)
        assert {f"held-{n}" for n in range(20)} <= set(runs)
        assert {one.job().crashes for one in held} == {0, 1}
        assert all(one.job().crashes == 1 for n, one in enumerate(held) if f"held-{n}" in ran)
        assert "Traceback" not in rescuer.log
    finally:
        scheduler.close()


def starts(ledger: str) -> Counter[str]:
    """How often each job has started."""
    return Counter(line[1] for line in lines(ledger) if line[0] == "start")


def running_of(ledger: str, worker: Worker) -> set[str]:
    """The held jobs that the processes of this worker have started; empty until its two slots are taken."""
    pids = {str(pid) for pid in worker.children()}
    found = {line[1] for line in lines(ledger) if line[0] == "start" and line[2] in pids}
    return found if len(found) == 2 else set()


def beat_of(scheduler: Scheduler, node: str) -> int:
    return next(one.beat for one in scheduler.nodes.list() if one.node_id == node)
