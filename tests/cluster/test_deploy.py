"""Two versions of an application at work: the old one never fails what only the new one knows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from tests.cluster.conftest import StartWorker
from tests.support.waiting import until

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


def _codes(scheduler: Scheduler, job_id: UUID) -> set[str]:
    return {reason.code for reason in scheduler.explain(job_id)}
