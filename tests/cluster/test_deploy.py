"""Two versions of an application at work: the old one never fails what only the new one knows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from tests.cluster.conftest import StartWorker
from tests.cluster.workers import Worker
from tests.support.waiting import happens, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

APP = "parcels.jobs:scheduler"

OLD = """
import os

from ratchet.scheduler import Scheduler

scheduler = Scheduler(allow=["parcels"])


def pack(name):
    return f"{name} {os.getpid()}"
"""
NEW = (
    OLD
    + """

def ship(name):
    return f"{name} {os.getpid()}"


async def track(name):
    return f"{name} {os.getpid()}"
"""
)
SUBMIT = """
from parcels import jobs

for target in (jobs.ship, jobs.track, jobs.pack):
    print(jobs.scheduler.enqueue_now(target, target.__name__).id)
jobs.scheduler.close()
"""


@pytest.fixture
def versions(tmp_path: Path) -> dict[str, Path]:
    """Two folders with the same package in it, before and after the change."""
    folders = {}
    for name, code in (("old", OLD), ("new", NEW)):
        package = tmp_path / name / "parcels"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "jobs.py").write_text(code)
        folders[name] = tmp_path / name
    return folders


def python(folder: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python, as somebody in *folder* would start it."""
    environment = {**os.environ, "RATCHET_URL": url}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_rolling_deploy_fails_nothing(
    scheduler: Scheduler, url: str, start_worker: StartWorker, versions: dict[str, Path]
) -> None:
    """
    Jobs of new functions reach a cluster of old workers: parked, and `explain` says so. A new worker takes them at once.

    The old worker goes on with what it knows; nothing costs an attempt, and `check-deploy` tells the two apart.
    """
    old = start_worker("old", app=APP, cwd=versions["old"]).wait_ready(seconds=60)
    submitted = python(versions["new"], url, "-c", SUBMIT)
    assert submitted.returncode == 0, submitted.stderr
    ship, track, pack = (UUID(line) for line in submitted.stdout.split())
    known = (pack,)
    strange = (ship, track)
    until(
        lambda: scheduler.jobs.get(pack).status is JobStatus.SUCCEEDED,
        60,
        f"the old worker does not work:\n{old.log}",
    )
    for job_id in strange:
        until(lambda job=job_id: _codes(scheduler, job) == {"parked"}, 60, f"not parked:\n{old.log}")  # type: ignore[misc]
        (reason,) = scheduler.explain(job_id)
        assert "could import parcels.jobs:" in reason.text
        job = scheduler.jobs.get(job_id)
        assert (job.status, job.attempts, job.crashes, job.error) == (JobStatus.PENDING, 0, 0, None)

    check = [python(versions[name], url, "-m", "ratchet", "check-deploy", APP, "--json") for name in versions]
    assert [done.returncode for done in check] == [1, 0], [done.stderr for done in check]
    assert "parcels.jobs:ship" in check[0].stdout

    new = start_worker("new", app=APP, cwd=versions["new"]).wait_ready(seconds=60)
    for job_id in strange:
        until(
            lambda job=job_id: scheduler.jobs.get(job).status is JobStatus.SUCCEEDED,  # type: ignore[misc]
            60,
            f"the new worker does not take it:\n{new.log}",
        )
    old.signal(signal.SIGTERM)
    assert old.wait(60) == 0
    for job_id, worker in ((ship, new), (track, new), *((job, old) for job in known)):
        (run,) = scheduler.jobs.executions(job_id)
        assert run.node_id in worker.nodes()
    assert "dead letter" not in old.log
    assert "Traceback" not in old.log


ROLLING = """
from ratchet.scheduler import Scheduler

scheduler = Scheduler(allow=["parcels.chores"])
"""
CHORES_OLD = """
def pack(name): return name

def leave(name): return name
"""
CHORES_NEW = """
def pack(name): return name

async def track(name): return name
"""
JOBS_OLD = """
from parcels.app import scheduler

@scheduler.job
def pack(name): return name

@scheduler.job
def post(name): return name

@scheduler.job
def leave(name): return name
"""
JOBS_NEW = """
from parcels.app import scheduler

@scheduler.job
def pack(name): return name

@scheduler.job(aliases=["parcels.jobs:post"])
def ship(name): return name

@scheduler.job(lane="process")
def track(name): return name
"""
SUBMIT_ROLLING = """
from parcels import chores, jobs

for module in (chores, jobs):
    for name in ("pack", "post", "leave", "ship", "track"):
        if hasattr(module, name):
            print(jobs.scheduler.enqueue_now(getattr(module, name), name).id)
jobs.scheduler.close()
"""


def test_rolling_forward_and_back(
    scheduler: Scheduler, url: str, start_worker: StartWorker, tmp_path: Path
) -> None:
    """
    New, old, renamed and removed functions, declared or allowed, while workers of two versions come and go.

    Every job runs once, on a worker that has it; there is no dead letter and nothing is counted against a job.
    """
    for version, chores, jobs in (("v1", CHORES_OLD, JOBS_OLD), ("v2", CHORES_NEW, JOBS_NEW)):
        package = tmp_path / version / "parcels"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "app.py").write_text(ROLLING)
        (package / "chores.py").write_text(chores)
        (package / "jobs.py").write_text(jobs)
    submitted: list[UUID] = []

    def submit(version: str) -> None:
        done = python(tmp_path / version, url, "-c", SUBMIT_ROLLING)
        assert done.returncode == 0, done.stderr
        submitted.extend(UUID(line) for line in done.stdout.split())

    def start(version: str, name: str) -> Worker:
        return start_worker(
            name, "--import", "parcels.jobs", app="parcels.app:scheduler", cwd=tmp_path / version
        ).wait_ready(seconds=60)

    def stop(worker: Worker) -> None:
        worker.signal(signal.SIGTERM)
        assert worker.wait(60) == 0

    old = start("v1", "old")
    for version in ("v2", "v1"):
        submit(version)
    new = start("v2", "new")
    submit("v1")
    stop(old)
    for version in ("v1", "v2"):
        submit(version)
    again = start("v1", "again")
    stop(new)
    submit("v2")
    last = start("v2", "last")
    ended = happens(lambda: scheduler.jobs.counts().get(JobStatus.SUCCEEDED, 0) == len(submitted), 90)
    assert ended, f"{_left(scheduler)}\n{again.log}\n{last.log}"
    assert list(scheduler.dead_letters.find()) == []
    assert {scheduler.jobs.get(job_id).attempts for job_id in submitted} == {1}
    for worker in (old, new, again, last):
        assert "dead letter" not in worker.log
        assert "Traceback" not in worker.log


def _left(scheduler: Scheduler) -> str:
    waiting = scheduler.jobs.find(
        JobFilter(statuses=[JobStatus.PENDING, JobStatus.RUNNING, JobStatus.FAILED])
    )
    return "\n".join(f"{job.target} {job.status}: {scheduler.explain(job.id)}" for job in waiting)


README = """
import sys

from ratchet import Scheduler

scheduler = Scheduler()


@scheduler.job
def charge(invoice: int) -> str:
    return f"receipt-{invoice}"


if __name__ == "__main__":
    with scheduler:
        handles = [charge.enqueue(int(sys.argv[1])).submit() for _ in range(10)]
        print({handle.result(timeout=30) for handle in handles})
"""


def test_a_script_beside_a_worker_of_the_same_file(
    scheduler: Scheduler, url: str, start_worker: StartWorker, tmp_path: Path
) -> None:
    """The README's script, several times: whichever node takes a job runs it, and nothing becomes a dead letter."""
    (tmp_path / "shop.py").write_text(README)
    start_worker("worker", app="shop:scheduler", cwd=tmp_path).wait_ready(seconds=60)
    for number in range(4):
        done = python(tmp_path, url, "shop.py", str(number))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [f"{{'receipt-{number}'}}"]
    assert list(scheduler.dead_letters.find()) == []
    jobs = scheduler.jobs.find(limit=100)
    assert {(job.target, job.status, job.attempts) for job in jobs} == {
        ("shop:charge", JobStatus.SUCCEEDED, 1)
    }
    assert len(list(jobs)) == 40


def _codes(scheduler: Scheduler, job_id: UUID) -> set[str]:
    return {reason.code for reason in scheduler.explain(job_id)}
