"""The real thing in a test: jobs of a real store run in this process until nothing is due."""

from __future__ import annotations

import time

from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import RatchetError
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler

#: Seconds between two looks.
PAUSE = 0.02


def run_worker_until_idle(scheduler: Scheduler, *, timeout: Duration = 30) -> None:
    """
    Start a node here, wait until no job runs and none is due, and stop it; `TimeoutError` after *timeout*.

    What is due later (delays, retries with a backoff) is left alone.
    """
    seconds = to_timedelta(timeout, "the timeout").total_seconds()
    if scheduler.running:
        raise RatchetError("this scheduler is running already; wait for its jobs instead")
    deadline = time.monotonic() + seconds
    scheduler.start()
    try:
        while not _is_idle(scheduler):
            if time.monotonic() > deadline:
                raise TimeoutError(f"jobs were still due or running after {seconds:g} s")
            time.sleep(PAUSE)
    except BaseException:
        scheduler.stop(drain=False)
        raise
    scheduler.stop()


def _is_idle(scheduler: Scheduler) -> bool:
    """Nothing runs and nothing is due; and nothing has happened between these two looks, by which one follows from the other."""
    before = scheduler.jobs.counts()
    due = JobFilter(statuses=[JobStatus.PENDING], scheduled_before=scheduler.backend.now())
    if before.get(JobStatus.RUNNING) or scheduler.jobs.count(due):
        return False
    return scheduler.jobs.counts() == before
