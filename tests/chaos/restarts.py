"""Restarts: of the workers, in order, and of the database, without warning."""

from __future__ import annotations

import itertools
import signal
import time

from tests.chaos import diary
from tests.chaos.scenario import Scenario
from tests.chaos.stage import Stage

#: Longer than the silence after which a worker counts as dead.
AWAY = 7.0
WORKERS = 3


def rolling(stage: Stage, rounds: int) -> None:
    """One worker after the other gets SIGTERM, and a new one takes its place."""
    stage.start_workers(WORKERS)
    begun = time.monotonic()
    with stage.load(20, 0.2):
        for _ in range(rounds):
            old = stage.workers.pop(0)
            old.signal(signal.SIGTERM)
            new = stage.start_worker()
            assert old.wait(60) == 0, old.log
            new.wait_ready(seconds=60)
        ended = time.monotonic()
    stage.wait_until_all_ended()
    ends = [e.at for e in diary.read(stage.book) if e.verb == "end" and begun <= e.at <= ended]
    pause = max((after - before for before, after in itertools.pairwise([begun, *ends, ended])), default=0.0)
    stage.notes.append(f"longest time without a completed job: {pause:.1f} s")
    crashed = [n for n, job_id in stage.acknowledged.items() if stage.scheduler.jobs.get(job_id).crashes]
    if crashed:
        stage.broken.append(f"crashes were counted for {crashed}")


def restart(stage: Stage, rounds: int) -> None:
    """The database is killed under load and comes back after longer than any node may be silent."""
    stage.start_workers(3)
    with stage.load(10, 1.0, retries=5):
        for number in range(rounds):
            stage.wait_for_work(stage.workers[number % 3])
            stage.outage(AWAY)
            stage.recoveries.append(stage.wait_for_progress())


SCENARIOS = [
    Scenario("rolling", rolling, rounds=20 * WORKERS, few=2),
    Scenario("restart", restart, rounds=3, few=1, needs_server=True, retried=True),
]
