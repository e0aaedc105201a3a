"""Workloads that submit: one by one, through the await face, and many at once."""

from __future__ import annotations

import time
from contextlib import ExitStack

import psycopg

from bench.trial import Bench

RAW_TABLE = "CREATE TABLE raw (id uuid PRIMARY KEY, target text, payload text, at timestamptz)"
RAW_INSERT = "INSERT INTO raw VALUES (gen_random_uuid(), 'bench:noop', '[[1],{}]', now())"


def enqueue(bench: Bench, *, awaiting: bool) -> None:
    """Submit one by one, each committed; beside it the rate of bare INSERTs."""
    name = f"enqueue {'async' if awaiting else 'sync'}"
    jobs = bench.size(3000)
    with ExitStack() as stack:
        subjects = bench.subjects(stack, [c for c in bench.on("postgresql") if c.awaits or not awaiting])
        raw = psycopg.connect(stack.enter_context(bench.places["postgresql"].new()).url, autocommit=True)
        stack.callback(raw.close)
        raw.execute(RAW_TABLE)
        for order in bench.in_rounds(subjects):
            if not awaiting:
                bench.results.of(name, "raw", "jobs/s").add(jobs / _raw_inserts(raw, jobs))
            for contender, _, process in order:
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
        subjects = bench.subjects(stack, bench.on("postgresql"))
        for order in bench.in_rounds(subjects):
            for contender, _, process in order:
                seconds = process.call("bulk", jobs=jobs)
                bench.results.of("bulk", contender.name, "jobs/s").add(jobs / seconds)


def sqlite_enqueue(bench: Bench) -> None:
    """Submit one by one, and at once, on SQLite."""
    with ExitStack() as stack:
        subjects = bench.subjects(stack, bench.on("sqlite"), store="sqlite")
        for order in bench.in_rounds(subjects):
            for contender, _, process in order:
                jobs = bench.size(3000)
                seconds = process.call("enqueue", jobs=jobs)
                bench.results.of("sqlite enqueue", contender.name, "jobs/s").add(jobs / seconds)
                seconds = process.call("bulk", jobs=(many := bench.size(20_000)))
                bench.results.of("sqlite bulk", contender.name, "jobs/s").add(many / seconds)
