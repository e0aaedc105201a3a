"""A process that is stopped, or dies, with a job's transaction open does not keep that job to itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.status import JobStatus
from ratchet.stores import open_store
from tests.cluster.sleepers import NODE
from tests.cluster.workers import ROOT
from tests.support.store_urls import fresh_url
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


@pytest.fixture(params=["postgresql", "mysql", "mongodb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Stores that can be asked to end a transaction; on SQLite a writer that is stopped stops everybody."""
    return fresh_url(request.param, request, tmp_path)


@contextmanager
def asleep(url: str) -> Iterator[tuple[subprocess.Popen[str], UUID]]:
    """A process that has stopped itself in the middle, and the job that it holds there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cluster.sleepers", url], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        held = UUID(process.stdout.readline().strip())
        until(lambda: _state(process.pid) == "T", 30, "it does not stop")
        yield process, held
    finally:
        process.kill()
        process.communicate()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "killed"])
def test_its_transaction_is_ended(url: str, dies: bool) -> None:
    """All of its jobs are back with the rescue, the one in the transaction too; whoever wakes up commits nothing."""
    with closing(open_store(url)) as store:
        now = datetime.now(UTC)
        specs = [
            JobSpec(job_id=new_id(), target="m:f", payload="{}", scheduled_at=now, stream=StreamKey())
            for _ in range(3)
        ]
        store.insert(specs, now=now)
        with asleep(url) as (process, held):
            if dies:
                process.kill()
                process.wait(30)
            rescue = store.rescue(
                NODE, seen_beat=0, by="rescuer", max_crashes=3, now=datetime.now(UTC) + timedelta(seconds=1)
            )
            assert rescue is not None
            assert (set(rescue.requeued), rescue.held_up) == ({spec.job_id for spec in specs}, ())
            if not dies:
                os.kill(process.pid, signal.SIGCONT)
                assert process.stdout is not None
                assert process.stdout.readline().startswith("refused")
        record = store.get(held)
        assert record is not None
        assert (record.status, record.crashes, record.progress) == (JobStatus.PENDING, 1, None)
