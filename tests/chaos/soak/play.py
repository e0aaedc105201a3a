"""The soak as a scenario."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

from ratchet import JobFilter, JobStatus, RatchetError, Scheduler
from tests.chaos import ledger
from tests.chaos.history import Row, false_rescues
from tests.chaos.scenario import Scenario
from tests.chaos.soak import log
from tests.chaos.soak.blows import Blows
from tests.chaos.soak.invariants import Judge, summary
from tests.chaos.soak.operations import Operations
from tests.chaos.soak.settings import OPTIONS, TARGETS
from tests.chaos.stage import Stage
from tests.support.waiting import until

#: One round lasts so many seconds.
ROUND = 10.0
PER_SECOND = 12.0
BETWEEN_BLOWS = 4.0
PATIENCE = 150.0
LIVE = JobFilter(statuses=[JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING])


def soak(stage: Stage, rounds: int) -> None:
    """Operations of every kind for *rounds* rounds, under blows; then everything is let go and must come to its end."""
    dice = random.Random(stage.seed)
    scheduler = Scheduler(stage.url, allow=TARGETS, options=OPTIONS)
    operations = Operations(scheduler, stage.store, stage.folder, random.Random(dice.random()))
    blows = Blows(stage, random.Random(dice.random()))
    try:
        operations.set_up()
        blows.begin()
        _play(operations, blows, rounds * ROUND)
        _let_go(stage, scheduler, operations)
        runs = log.read(operations.book)
        with stage.store.begin() as connection:
            booked = Counter(ledger.booked(connection))
        stage.broken += operations.records.broken
        stage.broken += Judge(scheduler, operations.records, blows, runs, booked).broken()
        stage.notes.append(f"seed {stage.seed}: {summary(operations.records, blows, runs)}")
        stage.jobs = len(operations.records.jobs)
    finally:
        scheduler.close()


def _play(operations: Operations, blows: Blows, seconds: float) -> None:
    over = threading.Event()
    failed: list[BaseException] = []

    def operate() -> None:
        try:
            while not over.wait(1 / PER_SECOND):
                operations.one()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=operate, name="soak operations", daemon=True)
    thread.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline - BETWEEN_BLOWS:
        time.sleep(BETWEEN_BLOWS)
        blows.one()
    over.set()
    thread.join(90)
    if thread.is_alive():
        raise AssertionError("an operation does not come back")
    if failed:
        raise failed[0]


def _let_go(stage: Stage, scheduler: Scheduler, operations: Operations) -> None:
    """Resume, signal, mend and retry until nothing has a reason to wait."""
    operations.wind_down()
    _wait_until_idle(stage, scheduler)
    for parent in [parent for _, parents in operations.records.joins for parent in parents]:
        scheduler.retry_job(parent)
    operations.mend_batches()
    _wait_until_idle(stage, scheduler)


def _wait_until_idle(stage: Stage, scheduler: Scheduler) -> None:
    def is_idle() -> bool:
        try:
            return scheduler.jobs.count(LIVE) == 0
        except RatchetError:
            return False

    try:
        until(is_idle, PATIENCE, "jobs are stranded")
    except AssertionError as error:
        stage.notes.append(str(error))  # the invariants say which ones


def _read(name: str, stage: Stage) -> Row:
    return Row(
        name,
        stage.kind,
        stage.jobs,
        false_rescues=false_rescues(stage),
        broken=stage.broken,
        notes=stage.notes,
    )


SCENARIOS = [Scenario("soak", soak, rounds=12, few=2, needs_server=True, read=_read)]
