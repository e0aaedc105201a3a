"""All values move to another key while two nodes work as fast as they can, and the rewrap is killed on its way."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ratchet import JobFilter, JobStatus, Scheduler
from ratchet.model.payload import sealing_key
from ratchet.model.stored_values import Place
from tests.chaos import diary, jobs
from tests.chaos.rotation_app import keyring
from tests.chaos.scenario import Scenario
from tests.chaos.stage import Stage
from tests.cluster.workers import ROOT
from tests.support.waiting import until

APP = "tests.chaos.rotation_app:scheduler"
#: Seconds that are measured before the rewrap, and after it.
MEASURED = 8.0
#: Jobs that wait, at least, while the load is on, and that are submitted at once.
BACKLOG = 400


def play(stage: Stage, rounds: int) -> None:
    """Two nodes with different active keys, a rewrap to a third; *rounds* of them are killed before one may end."""
    chance = random.Random(stage.seed)
    stage.scheduler.close()
    stage.scheduler = Scheduler(stage.url, allow=["tests.chaos.jobs"], codec=keyring("abc"))
    for names in ("abc", "bca"):
        stage.start_worker(app=APP, ROTATION_KEYS=names)
    for worker in stage.workers:
        worker.wait_ready(seconds=60)
    with _full(stage):
        stage.wait_for_progress()
        before = _measured(stage)
        begun = time.monotonic()
        for _ in range(rounds):
            _kill_a_rewrap(stage, chance)
        last = _keys(stage, "rewrap")
        time.sleep(MEASURED)
        during = _rate(stage, begun, time.monotonic())
        taken = time.monotonic() - begun
    # It follows nodes that still write with other keys, as long as they write faster than it moves.
    moved = _answer(stage, last)
    with _full(stage):
        stage.wait_for_progress()
        after = _measured(stage)
    stage.wait_until_all_ended()
    for worker in list(stage.workers):
        worker.signal(signal.SIGTERM)
        worker.wait(60)
    rest = _answer(stage, _keys(stage, "rewrap"))
    left = _answer(stage, _keys(stage, "status"))
    if set(left["keys"]) != {"c"} or rest["unreadable"] or rest["no_key"]:
        stage.broken.append(f"after the rotation: {left['keys']}, {rest}")
    _read_all(stage)
    stage.notes.append(
        f"{before:.0f} jobs a second before, {during:.0f} during {taken:.0f} s of rewraps, {after:.0f} after; "
        f"{rounds} killed; the last one read {moved['rows']:,} rows and moved {moved['moved']:,}, the one at rest {rest['moved']:,}"
    )


@contextmanager
def _full(stage: Stage) -> Iterator[None]:
    """As long as the block runs, there is more work than the nodes can do."""
    over = threading.Event()
    waiting = JobFilter(statuses=[JobStatus.PENDING])

    def feed() -> None:
        while not over.wait(0.05):
            if stage.scheduler.jobs.count(waiting) < BACKLOG:
                stage.submit_many(jobs.pay, BACKLOG)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)


def _keys(stage: Stage, *words: str) -> subprocess.Popen[str]:
    """``ratchet keys`` of a process whose active key is the third."""
    environment = {**os.environ, "RATCHET_URL": stage.url, "ROTATION_KEYS": "cab", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "ratchet", "keys", *words, "--app", APP, "--json"]
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _kill_a_rewrap(stage: Stage, chance: random.Random) -> None:
    """Kill -9 while it moves values."""
    reached = _reached(stage, None)
    process = _keys(stage, "rewrap", "--portion", "20")
    try:
        until(
            lambda: _reached(stage, reached) != reached or process.poll() is not None,
            60,
            "the rewrap does nothing",
        )
        time.sleep(chance.uniform(0.0, 0.5))
        if process.poll() is not None:
            stage.notes.append("a rewrap had ended before it was killed")
    finally:
        process.kill()
        process.communicate(timeout=30)


def _reached(stage: Stage, after: Any) -> Any:
    """The last of the jobs that have the third key, oldest first, looking on from *after*."""
    while True:
        rows = stage.store.inner.value_rows(Place.JOBS, after=after, limit=500)
        for row in rows:
            if sealing_key(row.texts.get("payload")) != "c":
                return after
            after = row.key
        if not rows:
            return after


def _answer(stage: Stage, process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=600)
    if process.returncode:
        stage.broken.append(f"a command of keys ended with {process.returncode}: {errors} {out}")
    found: dict[str, Any] = json.loads(out)
    return found


def _read_all(stage: Stage) -> None:
    """Each job with the third key alone."""
    reader = Scheduler(stage.url, allow=["tests.chaos.jobs"], codec=keyring("c"))
    numbers = {job_id: number for number, job_id in stage.acknowledged.items()}
    cursor = None
    read = 0
    while True:
        page = reader.jobs.find(limit=1000, cursor=cursor)
        for job in page:
            if job.unreadable or job.args[1] != numbers[job.id] or job.result != f"receipt-{job.args[1]}":
                stage.broken.append(
                    f"job {numbers[job.id]} cannot be read, or says something else: {job.unreadable}"
                )
            read += 1
        cursor = page.next_cursor
        if cursor is None:
            break
    if read != len(numbers):
        stage.broken.append(f"{read} jobs were read, of {len(numbers)}")
    reader.close()


def _measured(stage: Stage) -> float:
    """How many jobs end in a second, for a while."""
    begin = time.monotonic()
    time.sleep(MEASURED)
    return _rate(stage, begin, time.monotonic())


def _rate(stage: Stage, begin: float, end: float) -> float:
    ended = sum(entry.verb == "end" and begin <= entry.at < end for entry in diary.read(stage.book))
    return ended / (end - begin)


SCENARIOS = (Scenario("rotation", play, rounds=5, few=2),)
