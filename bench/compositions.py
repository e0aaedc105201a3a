"""Workloads of jobs that belong together, against as many that do not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from bench.conversation import Process, wait_for
from bench.counts import count_phase, watch
from bench.drains import finished, measure_drain
from bench.servers import PostgresqlPlace
from bench.trial import Bench

SUBJECT = "bench.composed"
STEPS = 10


def chains(bench: Bench) -> None:
    """1,000 chains of 10 steps against 10,000 plain jobs: the rates, and what each job costs the server."""
    many = bench.size(1000, 50)
    with ExitStack() as stack:
        contender, place, process = bench.alone(stack, SUBJECT)
        for _ in range(bench.rounds):
            process.call("bulk", jobs=many * STEPS)
            place.settle()
            measure_drain(bench, "chains: plain jobs", contender, place, 1, many * STEPS)
            process.call("chains", chains=many, steps=STEPS)
            place.settle()
            measure_drain(bench, "chains of 10", contender, place, 1, many * STEPS)


def composition_counts(bench: Bench) -> None:
    """What a plain job, a step of a chain and a child of a batch cost on PostgreSQL: first to submit, then to drain."""
    many = bench.size(10_000)
    kinds = {
        "plain jobs": lambda process: process.call("bulk", jobs=many),
        "chains of 10": lambda process: process.call("chains", chains=many // STEPS, steps=STEPS),
        "batch": lambda process: process.call("batch", items=many),
    }
    rows: list[Mapping[str, Any]] = []
    with ExitStack() as stack:
        _, place, process = bench.alone(stack, SUBJECT)
        watch(place, process)
        _work_off(place, process)
        for kind, submit in kinds.items():
            rows.append(count_phase(place, process, f"submit: {kind}", many, submit))
            place.settle()
            begin = count_phase(place, process, f"claim, run, complete: {kind}", many, _begin)
            rows.append(begin)
    bench.results.tables["Composition on PostgreSQL, per job"] = rows


def _begin(process: Process) -> None:
    process.call("begin")


def _work_off(place: PostgresqlPlace, process: Process) -> None:
    process.call("begin")
    wait_for(lambda: not place.ask(process.facts["open"]), every=0.05)
    process.call("end")


def batch(bench: Bench) -> None:
    """A batch of 100,000 children against 100,000 plain jobs; the worker's memory while it works on the batch."""
    items = bench.size(100_000)
    with ExitStack() as stack:
        contender, place, process = bench.alone(stack, SUBJECT)
        for _ in range(bench.rounds):
            process.call("bulk", jobs=items)
            place.settle()
            measure_drain(bench, "batch: plain jobs", contender, place, 1, items)
            process.call("batch", items=items)
            place.settle()
            with contender.start(place.url) as worker:
                _drain_batch(bench, place, worker, items)
        bench.results.of("batch: worker memory", "limit", "MB").add(20.0)


def _drain_batch(bench: Bench, place: PostgresqlPlace, worker: Process, items: int) -> None:
    """Work off a batch; its rate, and by how much the worker grew after the first fifth."""
    done = finished(place, [worker], items)
    cpu = worker.call("usage")["cpu"]
    begun = time.perf_counter()
    worker.call("begin")
    wait_for(lambda: worker.call("executed") >= items // 5, every=0.02)
    warm = worker.call("usage")["rss"]
    wait_for(done, every=0.02)
    seconds = time.perf_counter() - begun
    usage = worker.call("usage")
    worker.call("end")
    bench.results.of("batch of 100,000", "ratchet", "jobs/s").add(
        items / seconds, cpu_us=(usage["cpu"] - cpu) / items * 1e6
    )
    bench.results.of("batch: worker memory", "ratchet", "MB").add(max((usage["rss"] - warm) / 1e6, 0.1))


def stream(bench: Bench) -> None:
    """A streaming batch of 1,000,000 items while another process works on them: the submitter's rate and memory."""
    items = bench.size(1_000_000)
    with ExitStack() as stack:
        contender, place, process = bench.alone(stack, SUBJECT)
        worker = stack.enter_context(contender.start(place.url))
        worker.call("begin")
        found = process.call("stream", items=items)
        bench.results.of("streaming batch: submit", "ratchet", "jobs/s").add(items / found["seconds"])
        bench.results.of("streaming batch: submitter's memory", "ratchet", "MB").add(
            max(found["grown"] / 1e6, 0.1)
        )
        bench.results.of("streaming batch: submitter's memory", "limit", "MB").add(20.0)
        ended = worker.call("executed")
        bench.results.of("streaming batch: ended while the stream was read", "ratchet", "%").add(
            max(ended / items * 100, 0.1)
        )
        worker.call("end")
