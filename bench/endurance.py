"""Workloads about what must not matter: a backlog, history, dead rows, and how long a worker has run."""

from __future__ import annotations

import time
from contextlib import ExitStack

import psycopg

from bench.conversation import Contender, Process, wait_for
from bench.drains import finished, measure_drain
from bench.servers import PostgresqlPlace
from bench.trial import Bench

#: Seconds between the submission of jobs and their common due time; more than the submission takes.
AHEAD = 6.0


def backlog(bench: Bench) -> None:
    """Drain the first 10,000 while 10,000, 300,000 and 1,000,000 wait, five priorities mixed."""
    first = bench.size(10_000)
    with ExitStack() as stack:
        levels = {}
        for pending in (10_000, 300_000, 1_000_000):
            levels[pending] = bench.alone(stack)
            bench.say(f"filling {bench.size(pending):,}")
            levels[pending][2].call("bulk", jobs=bench.size(pending), mixed=True)
        for _ in range(bench.rounds):
            for pending, (contender, place, process) in levels.items():
                # as many as at the beginning of each round
                if missing := bench.size(pending) - place.ask("SELECT count(*) FROM scheduler_job_queue"):
                    process.call("bulk", jobs=max(missing, 5), mixed=True)
                place.settle()
                measure_drain(bench, f"backlog {pending}", contender, place, 1, first, only_first=True)


def history(bench: Bench) -> None:
    """Drain 20,000 with a million finished jobs in the tables, and with none."""
    jobs = bench.size(20_000)
    with ExitStack() as stack:
        levels = {}
        for ended in (0, 1_000_000):
            levels[ended] = bench.alone(stack)
            if ended:
                bench.say(f"making {bench.size(ended):,} finished jobs")
                levels[ended][2].call("bulk", jobs=5)  # the streams
                levels[ended][2].call("history", jobs=bench.size(ended))
        for _ in range(bench.rounds):
            for ended, (contender, place, process) in levels.items():
                process.call("bulk", jobs=jobs)
                place.settle()
                measure_drain(bench, f"history {ended}", contender, place, 1, jobs)


def snapshot(bench: Bench) -> None:
    """
    Drain while another session holds a snapshot, so that no dead row can be removed.

    One worker runs all the time, as in production; what a process that starts in that state does is measured apart.
    """
    jobs = bench.size(20_000)
    marks = [(f"{minutes:g} min", minutes * 60) for minutes in (1.0, 5.0) if minutes <= bench.minutes]
    with ExitStack() as stack:
        contender, place, process = bench.alone(stack)
        worker = stack.enter_context(contender.start(place.url))
        worker.call("begin")
        _due_together(bench, None, contender, place, process, worker, jobs)  # warm
        place.settle()
        holder = psycopg.connect(place.url)
        stack.callback(holder.close)
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1 FROM pg_class LIMIT 1")
        begun = time.monotonic()
        for label, at in [("start", 0.0), *(marks or [(f"{bench.minutes:g} min", bench.minutes * 60)])]:
            while time.monotonic() - begun < at:  # dead rows are made all the time
                done = finished(place, [worker], jobs, since=process.call("mark"))
                process.call("bulk", jobs=jobs)
                wait_for(done, every=0.02)
            for _ in range(bench.rounds):
                _due_together(bench, f"snapshot {label}", contender, place, process, worker, jobs)
        worker.call("end")
        for _ in range(bench.rounds):
            since = process.call("mark")
            process.call("bulk", jobs=jobs)
            name = f"snapshot {label}: new process"
            measure_drain(bench, name, contender, place, 1, jobs, since=since)


def _due_together(
    bench: Bench,
    name: str | None,
    contender: Contender,
    place: PostgresqlPlace,
    process: Process,
    worker: Process,
    jobs: int,
) -> None:
    """Jobs that all become due at one moment, for a worker that runs already; the rate from that moment on."""
    done = finished(place, [worker], jobs, since=process.call("mark"))
    due = process.call("bulk_at", jobs=jobs, seconds=AHEAD)
    before = worker.call("usage")["cpu"]
    if due < time.time():
        bench.say(f"submitting {jobs:,} took longer than {AHEAD:g} s: this round says too little")
    time.sleep(max(0.0, due - time.time()))
    seconds = time.time() - due + wait_for(done, every=0.02)
    cpu = worker.call("usage")["cpu"] - before
    if name is not None:
        bench.results.of(name, contender.name, "jobs/s").add(jobs / seconds, cpu_us=cpu / jobs * 1e6)


def memory(bench: Bench) -> None:
    """What a worker has grown by after 500,000 jobs."""
    jobs, warm = bench.size(500_000), bench.size(20_000)
    with ExitStack() as stack:
        contender, place, process = bench.alone(stack)
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
