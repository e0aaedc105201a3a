"""Workers die all the time: each job's effect happens exactly once, and nobody is punished for it."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from ratchet import Job, JobFilter, JobStatus, Scheduler
from tests.cluster import bank
from tests.cluster.workers import Worker, until

KILLS = int(os.environ.get("RATCHET_KILLS", "20"))
PAUSE = 0.7


@pytest.mark.timeout(180 + KILLS * 2)
def test_effects_happen_exactly_once_while_workers_are_killed(
    url: str, start_worker: Callable[..., Worker]
) -> None:
    """Three workers, one killed with -9 every 0.7 s: the ledger has each acknowledged job exactly once."""
    scheduler = Scheduler(url, allow=["tests.cluster.bank"])
    store = scheduler._core.store
    with store.begin() as connection:
        bank.create_ledger(connection)
    dice = random.Random(7)
    workers = [_start(start_worker, number) for number in range(3)]
    for worker in workers:
        worker.wait_ready()
    acknowledged: list[int] = []
    for kill in range(KILLS):
        deadline = time.monotonic() + PAUSE
        while time.monotonic() < deadline:
            acknowledged.append(len(acknowledged))
            scheduler.enqueue_now(bank.pay, acknowledged[-1], 0.02)
            time.sleep(0.005)
        victim = dice.randrange(3)
        workers[victim].kill_group()
        workers[victim] = _start(start_worker, 3 + kill)
    until(lambda: _unended(scheduler) == 0, 90, "jobs are stranded")
    with store.begin() as connection:
        booked = Counter(bank.booked(connection))
    counts = scheduler.jobs.counts()
    crashed = [job.id for job in _all_jobs(scheduler) if job.crashes]
    assert crashed, "no kill hit a running job: the test has shown nothing"
    twice = [number for number, times in booked.items() if times > 1]
    assert twice == []
    assert sorted(booked) == acknowledged
    assert counts[JobStatus.SUCCEEDED] == len(acknowledged)
    assert counts[JobStatus.FAILED] == 0
    scheduler.close()


def _start(start_worker: Callable[..., Worker], number: int) -> Worker:
    return start_worker(f"worker-{number}", "--concurrency", "3", app="tests.cluster.bank:scheduler")


def _all_jobs(scheduler: Scheduler) -> Iterator[Job]:
    cursor = None
    while True:
        page = scheduler.jobs.find(JobFilter(), limit=500, cursor=cursor)
        yield from page
        cursor = page.next_cursor
        if cursor is None:
            return


def _unended(scheduler: Scheduler) -> int:
    live = [JobStatus.PENDING, JobStatus.RUNNING]
    return scheduler.jobs.count(JobFilter(statuses=live))
