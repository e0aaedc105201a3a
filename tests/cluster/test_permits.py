"""A pool of permits among four processes, two of which are killed: never too many holders, and none are lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ratchet import JobStatus, Scheduler
from tests.cluster import pool
from tests.cluster.workers import Worker
from tests.support.waiting import until

PERMITS = 3
JOBS = 45


@pytest.mark.timeout(240)
def test_never_more_holders_than_permits(
    url: str, tmp_path: Path, start_worker: Callable[..., Worker]
) -> None:
    """Counted by the jobs themselves; what the dead held is free again, and the whole pool can be used at once."""
    folder = tmp_path / "slots"
    folder.mkdir()
    scheduler = Scheduler(url, allow=["tests.cluster.pool"])
    scheduler.limits.set("licence", concurrent=PERMITS)
    workers = [
        start_worker(f"worker-{number}", "--concurrency", "4", app="tests.cluster.pool:scheduler")
        for number in range(4)
    ]
    for worker in workers:
        worker.wait_ready(seconds=60)
    handles = [
        scheduler.enqueue(pool.use, str(folder), PERMITS, 0.1).with_resource("licence").submit()
        for _ in range(JOBS)
    ]
    killed = 0
    for _ in range(2):
        until(lambda: _holder(workers, folder) is not None, 60, "nobody works")
        victim = _holder(workers, folder)
        if victim is not None:
            victim.kill_group()
            workers.remove(victim)
            killed += 1
    for handle in handles:
        handle.wait(timeout=90)
    assert killed >= 1
    assert not (folder / "too-many").exists()
    assert scheduler.jobs.counts()[JobStatus.SUCCEEDED] == JOBS
    until(lambda: [limit.held for limit in scheduler.limits.list()] == [0], 60, "a permit was lost")
    meeting = [
        scheduler.enqueue(pool.meet, str(folder), number, PERMITS).with_resource("licence").submit()
        for number in range(PERMITS)
    ]
    assert [handle.result(timeout=90) for handle in meeting] == ["met"] * PERMITS
    scheduler.close()


def _holder(workers: list[Worker], folder: Path) -> Worker | None:
    """A worker one of whose processes holds a slot."""
    held = pool.users(folder)
    return next((worker for worker in workers if held & set(worker.children())), None)
