"""Workloads about gates: what jobs behind a closed one cost, how soon they start, and how exact a rate is."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack

from bench.conversation import Process, wait_for
from bench.drains import measure_drain
from bench.servers import PostgresqlPlace
from bench.trial import Bench

SUBJECT = "bench.gated"
KINDS = ("breaker", "permit", "queue")
NODES = 3
RATE = 100
SECOND = 1_000_000_000

WRITES = """
    SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint
      FROM pg_stat_user_tables WHERE relname <> 'scheduler_node'
"""


def gates(bench: Bench) -> None:
    """100,000 jobs behind an open breaker, an empty pool of permits and a paused queue each."""
    jobs = bench.size(20_000)
    with ExitStack() as stack:
        free = bench.alone(stack, SUBJECT)
        beside = bench.alone(stack, SUBJECT)
        sender, place = beside[2], beside[1]
        for kind in KINDS:
            sender.call("close_gate", kind=kind)
            sender.call("fill", kind=kind, jobs=bench.size(100_000))
        for _ in range(bench.rounds):
            for name, (contender, where, process) in (("without", free), ("beside", beside)):
                since = process.call("mark")
                process.call("bulk", jobs=jobs)
                where.settle()
                text = f"gates: other work {name} them"
                measure_drain(bench, text, contender, where, 1, jobs, since=since)
        workers = [stack.enter_context(beside[0].start(place.url)) for _ in range(NODES)]
        for worker in workers:
            worker.call("begin")
        _count_writes(bench, place)
        for _ in range(bench.rounds):
            for kind in KINDS:
                _open(bench, kind, sender, workers)
        bench.results.of("gates: to first start", "limit", "ms").add(2000.0)
        for worker in workers:
            worker.call("end")


def _count_writes(bench: Bench, place: PostgresqlPlace) -> None:
    """Rows that anybody writes per second while three nodes have nothing to do but what is behind the gates."""
    time.sleep(15)  # a server process reports what it did ten seconds late when it idles
    before, seconds = place.ask(WRITES), max(30 * bench.scale, 15)
    time.sleep(seconds)
    written = (place.ask(WRITES) - before) / seconds
    bench.results.of("gates: writes", "ratchet", "rows/s").add(max(written, 0.001))
    bench.results.of("gates: writes", "limit", "rows/s").add(1.0)


def _open(bench: Bench, kind: str, sender: Process, workers: Sequence[Process]) -> None:
    for worker in workers:
        worker.call("started", kind=kind)
    said = sender.call("open_gate", kind=kind)
    starts: list[int] = []

    def started() -> bool:
        for worker in workers:
            starts.extend(worker.call("started", kind=kind))
        return bool(starts)

    wait_for(started, every=0.01, limit=60)
    time.sleep(0.1)
    started()  # what another node had started before
    sender.call("close_gate", kind=kind)
    time.sleep(1.0)  # until every node has heard of it, and what was claimed has run
    bench.results.of(f"gates: {kind} to first start", "ratchet", "ms").add((min(starts) - said) / 1e6)


def rate(bench: Bench) -> None:
    """100 per second for 30 s on three nodes, counted by the jobs themselves."""
    seconds = max(int(30 * bench.scale), 6)
    with ExitStack() as stack:
        contender, place, sender = bench.alone(stack, SUBJECT)
        workers = [stack.enter_context(contender.start(place.url)) for _ in range(NODES)]
        sender.call("limit_rate", rate=RATE)
        for worker in workers:
            worker.call("begin")
        time.sleep(1.0)
        sender.call("fill", kind="rate", jobs=RATE * (seconds + 1))
        wait_for(lambda: sum(worker.call("executed") for worker in workers) >= RATE * seconds, every=0.2)
        starts = sorted(start for worker in workers for start in worker.call("started", kind="rate"))
        for worker in workers:
            worker.call("end")
    for name, found in (
        ("in a second", consecutive(starts)),
        ("in a sliding second", sliding(starts)),
    ):
        bench.results.of(f"rate: fewest {name}", "ratchet", "starts").add(min(found))
        bench.results.of(f"rate: most {name}", "ratchet", "starts").add(max(found))
    bench.results.of("rate: fewest in a second", "limit", "starts").add(95.0)
    bench.results.of("rate: most in a second", "limit", "starts").add(float(RATE))


def consecutive(starts: Sequence[int]) -> list[int]:
    """How many started in each whole second, counted from the first start; without the first second."""
    seconds = (starts[-1] - starts[0]) // SECOND
    return [_within(starts, starts[0] + number * SECOND) for number in range(1, seconds)]


def sliding(starts: Sequence[int]) -> list[int]:
    """How many started in each window of one second, wherever it begins after the first second: the extremes are here."""
    first, last = starts[0] + SECOND, starts[-1] - SECOND
    # The number changes where a start comes in at the end or goes out at the beginning.
    edges = {first}
    edges.update(start for start in starts if first <= start <= last)
    edges.update(start + 1 for start in starts if first <= start + 1 <= last)
    return [_within(starts, edge) for edge in edges]


def _within(starts: Sequence[int], begin: int) -> int:
    return bisect_left(starts, begin + SECOND) - bisect_left(starts, begin)
