"""Workloads of several tenants: who waits for whom, and what many streams cost."""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.conversation import wait_for
from bench.drains import measure_drain
from bench.latencies import percentile
from bench.trial import Bench

SUBJECT = "bench.gated"
MANY = 50


def fairness(bench: Bench) -> None:
    """One tenant has 100,000 jobs of 5 ms, another submits one per second: how long the other one waits."""
    jobs, visits = bench.size(100_000, 2000), max(int(20 * bench.scale), 4)
    for name, tenants in (("with keys", (1, 2)), ("without keys", (0, 0))):
        with ExitStack() as stack:
            contender, place, sender = bench.alone(stack, SUBJECT)
            worker = stack.enter_context(contender.start(place.url))
            sender.call("tenants", jobs=jobs, keys=tenants[0], slow=True)
            place.settle()
            worker.call("begin")
            time.sleep(1.0)
            for number in range(visits):
                began = time.monotonic()
                sender.call("visit", tenant=tenants[1])
                if number < visits - 1:
                    time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))
            waits: list[float] = []

            def heard(worker: object = worker, waits: list[float] = waits) -> bool:
                waits.extend(delay / 1e6 for delay in worker.call("latencies"))  # type: ignore[attr-defined]
                return len(waits) >= visits

            wait_for(heard, every=0.1)
            worker.call("end")
            for percent in (50, 99):
                label = f"fairness: the other tenant's wait {name}, p{percent}"
                bench.results.of(label, contender.name, "ms").add(percentile(waits, percent))


def fairness_drain(bench: Bench) -> None:
    """Drain 20,000 jobs of 50 tenants, and as many that name none."""
    jobs = bench.size(20_000)
    with ExitStack() as stack:
        levels = {0: bench.alone(stack, SUBJECT), MANY: bench.alone(stack, SUBJECT)}
        for _ in range(bench.rounds):
            for keys, (contender, place, process) in levels.items():
                process.call("tenants", jobs=jobs, keys=keys)
                place.settle()
                name = f"fairness: {keys or 'no'} keys"
                measure_drain(bench, name, contender, place, 1, jobs)


def streams(bench: Bench) -> None:
    """Drain 20,000 jobs from one stream, from 50 queues, and from 50 resources whose limits never bind."""
    jobs = bench.size(20_000)
    with ExitStack() as stack:
        levels = {
            "1": (bench.alone(stack, SUBJECT), {}),
            f"{MANY} queues": (bench.alone(stack, SUBJECT), {"queues": MANY}),
            f"{MANY} resources": (bench.alone(stack, SUBJECT), {"resources": MANY}),
        }
        for _ in range(bench.rounds):
            for name, ((contender, place, process), over) in levels.items():
                process.call("spread", jobs=jobs, **over)
                place.settle()
                measure_drain(bench, f"streams: {name}", contender, place, 1, jobs)
