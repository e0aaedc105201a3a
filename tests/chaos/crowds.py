"""Many jobs on few nodes, a poisonous one among them, and none at all."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.chaos import diary, jobs, writes
from tests.chaos.scenario import Scenario
from tests.chaos.stage import Stage
from tests.cluster import shop
from tests.support.waiting import until

CROWD = 600
VISIT = 12.0
NEIGHBORS = 200
#: How long the database is away in the middle of a crowd.
RESTART = 2.0
IDLE = 20.0


def crowd(stage: Stage, rounds: int) -> None:
    """600 coroutines on three nodes, one core busy, one node without its interpreter for 6 s, a database restart."""
    length = shop.greedy_length(6.0)
    stage.start_workers(3)
    burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        for _ in range(rounds):
            crowd = set(stage.submit_many(jobs.visit, CROWD, VISIT))
            until(
                lambda crowd=crowd: len(crowd & {e.number for e in diary.read(stage.book)}) == CROWD,
                60,
                "not all of the crowd is in",
            )
            stage.submit(jobs.hog, length)
            time.sleep(1.0)
            stage.outage(RESTART)
            stage.wait_until_all_ended()
    finally:
        burner.kill()
        burner.wait()
    starts = [e.number for e in diary.read(stage.book) if e.verb == "start"]
    if len(starts) != len(set(starts)):
        stage.broken.append(f"{len(starts) - len(set(starts))} jobs were started twice")


def poison(stage: Stage, rounds: int) -> None:
    """A job that kills its process, among 200 innocent neighbors on the same event loop."""
    workers = stage.start_workers(3)
    for _ in range(rounds):
        stage.submit_many(jobs.visit, NEIGHBORS // 2, 1.0)
        number = stage.submit(jobs.poison, 0.3)
        stage.submit_many(jobs.visit, NEIGHBORS // 2, 1.0)
        assert number is not None, "the poison was not taken"
        stage.poisons.add(number)
        stage.wait_until_all_ended(400)
        # Each run of it has killed one process of one worker, which may therefore be declared dead, once.
        killed = [e.group for e in diary.read(stage.book) if e.verb == "start" and e.number == number]
        stage.hurt.update(
            worker.name for worker in workers for group in killed if group == worker.process.pid
        )
        poisoned = stage.scheduler.jobs.get(stage.acknowledged[number])
        if poisoned.crashes != 3:
            stage.broken.append(f"the poison has {poisoned.crashes} crashes and is {poisoned.status}")


def idle(stage: Stage, rounds: int) -> None:
    """Five nodes without work: whatever they write must be a beat."""
    stage.start_workers(5)
    stage.submit_many(jobs.visit, 10, 0.1)
    stage.wait_until_all_ended()
    time.sleep(15.0)  # what follows from that work is over, and PostgreSQL has counted it
    before = writes.count(stage)
    time.sleep(IDLE * rounds)
    counted = writes.count(stage) - before
    stage.notes.append(f"{counted}")
    if counted.others:
        stage.broken.append(f"an idle cluster wrote: {counted}")


SCENARIOS = [
    Scenario("crowd", crowd, rounds=1, needs_server=True, effects=False, patience=120),
    Scenario("poison", poison, rounds=1, effects=False, patience=400),
    Scenario("idle", idle, rounds=1, needs_server=True, effects=False),
]
