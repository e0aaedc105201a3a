"""The workloads: each measures every contender that can do it, in interleaved rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg

from bench.conversation import Contender, Process, SubjectFailed, wait_for
from bench.measurement import Results
from bench.servers import Place, Places


@dataclass
class Bench:
    """One run: who takes part, where, and how much of everything."""

    contenders: Sequence[Contender]
    postgresql: Places
    sqlite: Places
    rounds: int
    scale: float
    minutes: float
    results: Results
    say: Callable[[str], None]

    def size(self, full: int, least: int = 200) -> int:
        """So many, scaled."""
        return max(int(full * self.scale), least)

    def on(self, store: str) -> list[Contender]:
        """Who can be measured on a store."""
        return [contender for contender in self.contenders if store in contender.stores]


# --- submitting ---------------------------------------------------------------------------------

RAW_TABLE = "CREATE TABLE raw (id uuid PRIMARY KEY, target text, payload text, at timestamptz)"
RAW_INSERT = "INSERT INTO raw VALUES (gen_random_uuid(), 'bench:noop', '[[1],{}]', now())"


def enqueue_sync(bench: Bench) -> None:
    """Submit one by one, each committed; beside it the rate of bare INSERTs."""
    _enqueue(bench, "enqueue sync", awaiting=False)


def enqueue_async(bench: Bench) -> None:
    """Submit one by one through the await face."""
    _enqueue(bench, "enqueue async", awaiting=True)


def _enqueue(bench: Bench, name: str, *, awaiting: bool) -> None:
    jobs = bench.size(3000)
    with ExitStack() as stack:
        subjects = _subjects(bench, stack, [c for c in bench.on("postgresql") if c.awaits or not awaiting])
        raw = psycopg.connect(stack.enter_context(bench.postgresql.new()).url, autocommit=True)
        stack.callback(raw.close)
        raw.execute(RAW_TABLE)
        for _ in range(bench.rounds):
            if not awaiting:
                bench.results.of(name, "raw", "jobs/s").add(jobs / _raw_inserts(raw, jobs))
            for contender, _, process in subjects:
                before = process.call("usage")["cpu"]
                seconds = process.call("enqueue", jobs=jobs, awaiting=awaiting)
                cpu = (process.call("usage")["cpu"] - before) / jobs
                bench.results.of(name, contender.name, "jobs/s").add(jobs / seconds, cpu_us=cpu * 1e6)


def _raw_inserts(connection: psycopg.Connection, rows: int) -> float:
    begun = time.perf_counter()
    for _ in range(rows):
        connection.execute(RAW_INSERT)
    return time.perf_counter() - begun


def bulk(bench: Bench) -> None:
    """Submit 20,000 at once."""
    jobs = bench.size(20_000)
    with ExitStack() as stack:
        subjects = _subjects(bench, stack, bench.on("postgresql"))
        for _ in range(bench.rounds):
            for contender, _, process in subjects:
                seconds = process.call("bulk", jobs=jobs)
                bench.results.of("bulk", contender.name, "jobs/s").add(jobs / seconds)


# --- draining -----------------------------------------------------------------------------------


def drain(bench: Bench, *, coroutines: bool, processes: int) -> None:
    """Work off 20,000 jobs that do nothing, until the last is terminal in the database."""
    name = f"drain {'async' if coroutines else 'sync'} {processes}"
    with ExitStack() as stack:
        subjects = _subjects(bench, stack, bench.on("postgresql"))
        for _ in range(bench.rounds):
            for contender, place, process in subjects:
                # procrastinate needs 30 times as long; its rate does not depend on the number
                jobs = bench.size(20_000 if contender.name != "procrastinate" else 2_000)
                process.call("bulk", jobs=jobs, coroutines=coroutines)
                _drain(bench, name, contender, place, processes, jobs, coroutines=coroutines)


def sqlite_drain(bench: Bench) -> None:
    """The same on SQLite with synchronous FULL."""
    with ExitStack() as stack:
        subjects = _subjects(bench, stack, bench.on("sqlite"), store="sqlite")
        for _ in range(bench.rounds):
            for contender, place, process in subjects:
                jobs = bench.size(20_000)
                process.call("bulk", jobs=jobs)
                _drain(bench, "sqlite drain 1", contender, place, 1, jobs)


def sqlite_enqueue(bench: Bench) -> None:
    """Submit one by one, and at once, on SQLite."""
    with ExitStack() as stack:
        subjects = _subjects(bench, stack, bench.on("sqlite"), store="sqlite")
        for _ in range(bench.rounds):
            for contender, _, process in subjects:
                jobs = bench.size(3000)
                seconds = process.call("enqueue", jobs=jobs)
                bench.results.of("sqlite enqueue", contender.name, "jobs/s").add(jobs / seconds)
                seconds = process.call("bulk", jobs=(many := bench.size(20_000)))
                bench.results.of("sqlite bulk", contender.name, "jobs/s").add(many / seconds)


def _drain(
    bench: Bench,
    name: str,
    contender: Contender,
    place: Place,
    processes: int,
    jobs: int,
    *,
    coroutines: bool = False,
    only_first: bool = False,
) -> float:
    """Start workers on what waits, until it is all done or, *only_first*, so many are; the rate."""
    with ExitStack() as stack:
        workers = [stack.enter_context(contender.start(place.url)) for _ in range(processes)]
        done = _done(place, workers, jobs, only_first=only_first)
        before = sum(worker.call("usage")["cpu"] for worker in workers)
        begun = time.perf_counter()
        for worker in workers:
            worker.call("begin", coroutines=coroutines)
        seconds = time.perf_counter() - begun + wait_for(done, every=0.02)
        cpu = sum(worker.call("usage")["cpu"] for worker in workers) - before
        bench.results.of(name, contender.name, "jobs/s").add(jobs / seconds, cpu_us=cpu / jobs * 1e6)
        for worker in workers:
            worker.call("end")
    return jobs / seconds


def _done(place: Place, workers: Sequence[Process], jobs: int, *, only_first: bool) -> Callable[[], bool]:
    is_open, counted = workers[0].facts["open"], workers[0].facts["done"]
    before = place.ask(counted) if only_first else 0

    def done() -> bool:
        # The workers are asked first: looking into a table full of dead rows disturbs what is measured.
        if sum(worker.call("executed") for worker in workers) < jobs:
            return False
        if is_open is None:
            return True
        return bool(place.ask(counted) - before >= jobs) if only_first else not place.ask(is_open)

    return done


# --- latency ------------------------------------------------------------------------------------


def latency(bench: Bench, *, elsewhere: bool) -> None:
    """From submission to start on an idle system, in the same process or in another one."""
    name = f"latency {'other' if elsewhere else 'same'}"
    stamps = bench.size(200, 50)
    with ExitStack() as stack:
        subjects = [
            (
                contender,
                place,
                process,
                stack.enter_context(contender.start(place.url)) if elsewhere else process,
            )
            for contender, place, process in _subjects(bench, stack, bench.on("postgresql"))
        ]
        for _, _, sender, worker in subjects:
            worker.call("begin")
            if elsewhere:
                time.sleep(1.0)  # until it listens
            _stamp(sender, worker, 10)
        for _ in range(bench.rounds):
            for contender, _, sender, worker in subjects:
                delays = _stamp(sender, worker, stamps)
                bench.results.of(f"{name} p50", contender.name, "ms").add(_percentile(delays, 50))
                bench.results.of(f"{name} p99", contender.name, "ms").add(_percentile(delays, 99))
    if not elsewhere:
        bench.results.of(f"{name} p50", "limit", "ms").add(1.0)


def _stamp(sender: Process, worker: Process, times: int) -> list[float]:
    for _ in range(times):
        before = worker.call("executed")
        sender.call("stamp")
        wait_for(lambda: worker.call("executed") > before, every=0.01, limit=60)  # noqa: B023 - used at once
        time.sleep(0.01)
    return [delay / 1e6 for delay in worker.call("latencies")][-times:]


def _percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100)[percent - 1]


# --- what must not matter -------------------------------------------------------------------------


def backlog(bench: Bench) -> None:
    """Drain the first 10,000 while 10,000, 300,000 and 1,000,000 wait, five priorities mixed."""
    first = bench.size(10_000)
    with ExitStack() as stack:
        levels = {}
        for pending in (10_000, 300_000, 1_000_000):
            subjects = _subjects(bench, stack, bench.contenders[:1])
            levels[pending] = subjects[0]
            bench.say(f"filling {bench.size(pending):,}")
            subjects[0][2].call("bulk", jobs=bench.size(pending), mixed=True)
        for _ in range(bench.rounds):
            for pending, (contender, place, process) in levels.items():
                # as many as at the beginning of each round
                if missing := bench.size(pending) - place.ask("SELECT count(*) FROM scheduler_job_queue"):
                    process.call("bulk", jobs=max(missing, 5), mixed=True)
                _drain(bench, f"backlog {pending}", contender, place, 1, first, only_first=True)


def history(bench: Bench) -> None:
    """Drain 20,000 with a million finished jobs in the tables, and with none."""
    jobs = bench.size(20_000)
    with ExitStack() as stack:
        levels = {}
        for finished in (0, 1_000_000):
            levels[finished] = _subjects(bench, stack, bench.contenders[:1])[0]
            if finished:
                bench.say(f"making {bench.size(finished):,} finished jobs")
                levels[finished][2].call("bulk", jobs=5)  # the streams
                levels[finished][2].call("history", jobs=bench.size(finished))
        for _ in range(bench.rounds):
            for finished, (contender, place, process) in levels.items():
                process.call("bulk", jobs=jobs)
                _drain(bench, f"history {finished}", contender, place, 1, jobs)


def snapshot(bench: Bench) -> None:
    """Drain while another session holds a snapshot, so that no dead row can be removed."""
    jobs = bench.size(20_000)
    with ExitStack() as stack:
        contender, place, process = _subjects(bench, stack, bench.contenders[:1])[0]
        process.call("bulk", jobs=jobs)
        _drain(bench, "snapshot warm-up", contender, place, 1, jobs)
        holder = psycopg.connect(place.url)
        stack.callback(holder.close)
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1 FROM pg_class LIMIT 1")
        begun = time.monotonic()
        marks = [("start", 0.0)] + [(f"{m:g} min", m * 60.0) for m in (1.0, 5.0) if m <= bench.minutes]
        if not marks[1:]:
            marks.append((f"{bench.minutes:g} min", bench.minutes * 60))
        with contender.start(place.url) as worker:
            for label, at in marks:
                worker.call("begin")
                while time.monotonic() - begun < at:
                    process.call("bulk", jobs=jobs)
                    wait_for(lambda: not place.ask(worker.facts["open"]))
                worker.call("end")
                for _ in range(bench.rounds):
                    process.call("bulk", jobs=jobs)
                    _drain(bench, f"snapshot {label}", contender, place, 1, jobs)


def memory(bench: Bench) -> None:
    """What a worker has grown by after 500,000 jobs."""
    jobs, warm = bench.size(500_000), bench.size(20_000)
    with ExitStack() as stack:
        contender, place, process = _subjects(bench, stack, bench.contenders[:1])[0]
        with contender.start(place.url) as worker:
            worker.call("begin")
            grown = 0.0
            start = 0.0
            for done in range(0, jobs + warm, warm):
                process.call("bulk", jobs=warm)
                wait_for(lambda: not place.ask(worker.facts["open"]))
                time.sleep(0.2)
                resident = worker.call("usage")["rss"] / 1e6
                if done == 0:
                    start = resident
                grown = resident - start
            worker.call("end")
        bench.results.of("memory", "ratchet", "MB").add(max(grown, 0.1))
        bench.results.of("memory", "limit", "MB").add(20.0)


def _subjects(
    bench: Bench, stack: ExitStack, contenders: Sequence[Contender], store: str = "postgresql"
) -> list[tuple[Contender, Place, Process]]:
    """Each contender with a place and a process of its own."""
    found: list[tuple[Contender, Place, Process]] = []
    for contender in contenders:
        place = stack.enter_context((bench.postgresql if store == "postgresql" else bench.sqlite).new())
        found.append((contender, place, stack.enter_context(contender.start(place.url))))
    if not found:
        raise SubjectFailed("nobody to measure")
    return found
