"""Surroundings that are not as they should be: clocks, disks, errors without end, a primary that is gone."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from tests.chaos import diary, jobs
from tests.chaos.replica_set import ReplicaSet
from tests.chaos.scenario import Scenario, only
from tests.chaos.stage import Stage

LOAD = 15.0
DELAY = 4.0
FLOOD = 2000
FULL = 6.0


def clock(stage: Stage, rounds: int) -> None:
    """One node's wall clock is a minute ahead, another's a minute behind; nothing starts early, nobody is robbed."""
    stage.start_worker(app="tests.chaos.skewed_app:scheduler", CHAOS_SKEW="60")
    stage.start_worker(app="tests.chaos.skewed_app:scheduler", CHAOS_SKEW="-60")
    stage.start_worker()
    for worker in stage.workers:
        worker.wait_ready(seconds=60)
    submitted: dict[int | None, float] = {}
    with stage.load(10, 0.3):
        for _ in range(20 * rounds):
            at = time.monotonic()
            submitted[stage.submit(jobs.pay, delay=DELAY)] = at
            time.sleep(LOAD / 20)
    stage.wait_until_all_ended()
    early = [
        entry.number
        for entry in diary.read(stage.book)
        if entry.verb == "start" and entry.at < submitted.get(entry.number, 0.0) + DELAY - 0.1
        if entry.number in submitted
    ]
    if early:
        stage.broken.append(f"started before they were due: {early}")


def full(stage: Stage, rounds: int) -> None:
    """SQLite may take no more pages for a while: what was acknowledged is done when there is room again."""
    limit = Path(stage.folder / "pages")
    for _ in range(3):
        stage.start_worker(app="tests.chaos.cramped_app:scheduler", CHAOS_PAGES=str(limit))
    for worker in stage.workers:
        worker.wait_ready(seconds=60)
    with stage.load(20, 0.2, retries=20):
        for _ in range(rounds):
            stage.wait_for_progress()
            limit.write_text(str(_pages(stage)))
            time.sleep(FULL)
            limit.write_text("0")
            stage.recoveries.append(stage.wait_for_progress())
    complaints = stage.logs().count("full")
    stage.notes.append(f"{complaints} complaints about a full database")
    if not complaints:
        stage.broken.append("the database was never full")


def _pages(stage: Stage) -> int:
    connection = sqlite3.connect(stage.url.removeprefix("sqlite:///"))
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    return int(pages)


def dead_letters(stage: Stage, rounds: int) -> None:
    """A flood of jobs that fail for good does not drown the others: each is a dead letter once."""
    stage.start_workers(3)
    with stage.load(20, 0.1):
        for _ in range(rounds):
            stage.poisons.update(stage.submit_many(jobs.fail, FLOOD))
            stage.recoveries.append(stage.wait_for_progress())
    stage.wait_until_all_ended()
    failed = sum(1 for entry in diary.read(stage.book) if entry.number in stage.poisons)
    if failed != len(stage.poisons):
        stage.broken.append(f"{len(stage.poisons)} jobs that fail were run {failed} times")


def failover(stage: Stage, rounds: int) -> None:
    """The primary of a replica set of three is killed; it comes back as a secondary before the next one falls."""
    assert isinstance(stage.server, ReplicaSet)
    stage.start_workers(3)
    with stage.load(10, 1.0, retries=10):
        for number in range(rounds):
            stage.wait_for_work(stage.workers[number % 3])
            killed = stage.server.kill_primary()
            stage.recoveries.append(stage.wait_for_progress())
            killed.start()
            stage.server.wait_until_whole()


SCENARIOS = [
    Scenario("clock", clock, rounds=1),
    Scenario(
        "full", full, rounds=2, retried=True, left_out=only("sqlite", reason="`max_page_count` is SQLite's")
    ),
    Scenario("dead-letters", dead_letters, rounds=1),
    Scenario(
        "failover",
        failover,
        rounds=3,
        retried=True,
        server=ReplicaSet,
        left_out=only("mongodb", reason="only MongoDB brings a failover of its own"),
    ),
]
