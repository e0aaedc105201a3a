"""``ratchet bench``: how fast is Ratchet here, on this database?"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ratchet.cli import parameters as given
from ratchet.cli.exit_codes import Refused
from ratchet.cli.output import Output
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler
from ratchet.stores import trial_room

Jobs = Annotated[
    int, typer.Option("--jobs", min=100, help="How many jobs are submitted at once and drained.")
]
Rounds = Annotated[int, typer.Option("--rounds", min=1, help="Number of rounds; the medians are shown.")]

#: A drain that takes longer is given up, in seconds.
DRAIN_LIMIT = 600.0


def bench(url: given.Url = None, jobs: Jobs = 5000, rounds: Rounds = 3, json: given.Json = False) -> None:
    """
    Measure submissions, drains and latency on a database, with jobs that do nothing.

    PostgreSQL: in a schema of its own. SQLite: in a file next to the one that is named. Both are removed at the
    end. Other stores: in the database itself, which must hold no jobs. This process is the only worker.
    """
    with _empty_store(url) as scheduler:
        rows = Trial(scheduler, jobs, rounds).run()
    out = Output(as_json=json)
    if json:
        out.document(rows)
    else:
        out.table(list(rows[0]), [list(row.values()) for row in rows])


class Trial:
    """The workloads on one scheduler."""

    def __init__(self, scheduler: Scheduler, jobs: int, rounds: int) -> None:
        self._scheduler = scheduler
        self._jobs = jobs
        self._rounds = rounds
        self._started: list[float] = []
        started = self._started

        @scheduler.job(name="ratchet.bench:stamp")
        def stamp() -> None:
            started.append(time.perf_counter())

        @scheduler.job(name="ratchet.bench:work")
        def work(number: int) -> None:
            """Nothing."""

        @scheduler.job(name="ratchet.bench:work_async")
        async def work_async(number: int) -> None:
            """Nothing."""

        self._stamp, self._work, self._work_async = stamp, work, work_async

    def run(self) -> list[dict[str, Any]]:
        """One row per workload: its median."""
        workloads: list[tuple[str, str, Callable[[], float]]] = [
            ("submit one by one", "jobs/s", self._submit),
            ("submit in bulk and drain, functions: bulk", "jobs/s", lambda: self._bulk(self._work)),
            ("submit in bulk and drain, functions: drain", "jobs/s", self._drain),
            ("submit in bulk and drain, coroutines: bulk", "jobs/s", lambda: self._bulk(self._work_async)),
            ("submit in bulk and drain, coroutines: drain", "jobs/s", self._drain),
            ("latency, idle, p50", "ms", self._latency),
        ]
        found: dict[str, list[float]] = {name: [] for name, _, _ in workloads}
        for _ in range(self._rounds):
            for name, _, measure in workloads:
                found[name].append(measure())
        return [
            {"workload": name, "median": round(statistics.median(found[name]), 2), "unit": unit}
            for name, unit, _ in workloads
        ]

    def _submit(self) -> float:
        few = max(self._jobs // 10, 10)
        begun = time.perf_counter()
        for number in range(few):
            self._scheduler.enqueue_now(self._work, number)
        rate = few / (time.perf_counter() - begun)
        self._drain()
        return rate

    def _bulk(self, job: Any) -> float:
        begun = time.perf_counter()
        self._scheduler.enqueue_many(job, [(number,) for number in range(self._jobs)])
        return self._jobs / (time.perf_counter() - begun)

    def _drain(self) -> float:
        """Run jobs until none is left; jobs per second."""
        left = self._left()
        begun = time.perf_counter()
        with self._scheduler:
            while self._left():
                if time.perf_counter() - begun > DRAIN_LIMIT:
                    raise Refused(f"the jobs of the bench were not done after {DRAIN_LIMIT:g} s")
                time.sleep(0.02)
            seconds = time.perf_counter() - begun
        return left / seconds

    def _left(self) -> int:
        return sum(queue.pending + queue.running for queue in self._scheduler.queues.list())

    def _latency(self) -> float:
        delays: list[float] = []
        with self._scheduler:
            for _ in range(20):
                time.sleep(0.05)
                submitted = time.perf_counter()
                self._stamp.enqueue().submit().result(timeout=30)
                delays.append((self._started.pop() - submitted) * 1000)
        return statistics.median(delays)


@contextmanager
def _empty_store(url: str | None) -> Iterator[Scheduler]:
    """A scheduler on a store that holds no jobs: a temporary one, or the named one if it is empty."""
    with (
        trial_room(given.store_url(url), Options(auto_migrate=True)) as room,
        _opened(room.url, room.options) as scheduler,
    ):
        if not room.is_own and any(scheduler.jobs.counts().values()):
            raise Refused("this database holds jobs, and the bench would run among them; name an empty one")
        yield scheduler


@contextmanager
def _opened(url: str, options: Options) -> Iterator[Scheduler]:
    scheduler = Scheduler(url, options=options)
    try:
        yield scheduler
    finally:
        scheduler.close()
