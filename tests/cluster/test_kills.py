"""Workers are killed with -9 again and again: every job takes effect exactly once, and nobody gives up on it."""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.conftest import StartWorker
from tests.cluster.workers import Worker, until

#: 20 kills by default; RATCHET_TEST_KILLS=200 for a long run.
KILLS = int(os.environ.get("RATCHET_TEST_KILLS", "20"))
PERIOD = 0.7
WORKERS = 3
JOBS_PER_KILL = 30

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120 + 3 * KILLS)]


def statement(scheduler: Scheduler, text: str) -> list[tuple[int]]:
    """Run *text* on the store's database, beside the jobs' own tables; its rows."""
    with scheduler.store.begin() as connection:
        cursor = connection.execute(text)  # type: ignore[attr-defined]
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def crashes(scheduler: Scheduler) -> int:
    """How many times a job was running on a worker that was killed."""
    total, cursor = 0, None
    while True:
        page = scheduler.jobs.find(JobFilter(), limit=1000, cursor=cursor)
        total += sum(job.crashes for job in page)
        cursor = page.next_cursor
        if cursor is None:
            return total


def test_every_effect_happens_exactly_once(scheduler: Scheduler, start_worker: StartWorker) -> None:
    """Three workers, one of them killed every 0.7 s: no job is lost, booked twice, or a dead letter."""
    dice = random.Random(7)
    statement(scheduler, "CREATE TABLE ledger (number INTEGER NOT NULL)")
    workers: list[Worker] = [start_worker(f"w{n}", "--concurrency", "4").wait_ready() for n in range(WORKERS)]
    submitted = 0
    for kill in range(KILLS):
        numbers = range(submitted, submitted + JOBS_PER_KILL)
        scheduler.enqueue_many(shop.book, [(number, 0.02) for number in numbers])
        submitted += JOBS_PER_KILL
        moment = dice.uniform(0.0, PERIOD)
        time.sleep(moment)
        victim = kill % WORKERS
        workers[victim].kill_group()
        workers[victim] = start_worker(f"w{victim}-{kill}", "--concurrency", "4")
        time.sleep(PERIOD - moment)
    ended = {JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED}
    until(
        lambda: (
            sum(count for status, count in scheduler.jobs.counts().items() if status in ended) == submitted
        ),
        60.0,
        f"jobs are left: {scheduler.jobs.counts()}",
    )
    assert scheduler.jobs.counts()[JobStatus.SUCCEEDED] == submitted
    assert scheduler.dead_letters.find().items == []
    booked = Counter(number for (number,) in statement(scheduler, "SELECT number FROM ledger"))
    assert set(booked) == set(range(submitted))
    assert [number for number, times in booked.items() if times != 1] == []
    assert crashes(scheduler) > 0, "no kill has hit a running job: this run has shown nothing"
