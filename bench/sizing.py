"""How large: what idle nodes ask of the database, how soon a job starts, and how evenly nodes share the work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from bench.conversation import Process, wait_for
from bench.servers import PostgresqlPlace
from bench.trial import Bench
from tests.cluster.measured import is_quiet, record

NODES = (1, 5, 20)
# of the tables, without those that begin and end transactions
ASKED = """
    SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
     WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND query LIKE '%scheduler_%'
"""
SLOTS = 4
#: Seconds that a node without work is watched, beginning when it has polled for a while.
WATCHED = 20.0
SETTLED = 6.0
#: Jobs for each node, and how long each of them takes.
SHARE = 100
SECONDS = 0.02
#: Jobs whose way from submission to start is measured, one after the other.
SAMPLES = 8


def sizing(bench: Bench) -> None:
    """Clusters of 1, 5 and 20 nodes on PostgreSQL, first with the default options, then without prefetch."""
    rows: list[Mapping[str, Any]] = []
    quiet = is_quiet()
    with ExitStack() as stack:
        _, place, fleet = bench.alone(stack, "bench.fleet")
        place.connection.execute("CREATE EXTENSION pg_stat_statements")
        for nodes in NODES:
            bench.say(f"{nodes} nodes")
            row = _measure(place, fleet, nodes)
            rows.append({"nodes": nodes, **row})
            record("sizing", f"{nodes:02d}", nodes=nodes, quiet=quiet, **row)
    bench.results.tables["Sizing, PostgreSQL"] = rows


def _measure(place: PostgresqlPlace, fleet: Process, nodes: int) -> dict[str, float]:
    fleet.call("start", nodes=nodes, options={"concurrency": SLOTS})
    busiest = _busiest(place, fleet, nodes)
    time.sleep(SETTLED)
    before = place.ask(ASKED)
    time.sleep(WATCHED)
    statements = float(place.ask(ASKED) - before) / WATCHED
    woken, polled = _delay(fleet, wakes=True), _delay(fleet, wakes=False)
    fleet.call("stop")
    fleet.call("start", nodes=nodes, options={"concurrency": SLOTS, "max_prefetch": 0})
    evenly = _busiest(place, fleet, nodes)
    fleet.call("stop")
    return {
        "idle statements per second": round(statements, 2),
        "ms to start, woken": round(woken, 1),
        "ms to start, without wakeups": round(polled, 1),
        "busiest node / fair share": round(busiest, 2),
        "without prefetch": round(evenly, 2),
    }


def _busiest(place: PostgresqlPlace, fleet: Process, nodes: int) -> float:
    """How much more than its fair share the busiest node has run of many short jobs."""
    before = fleet.call("shares")
    fleet.call("submit", jobs=SHARE * nodes, seconds=SECONDS)
    wait_for(lambda: not place.ask(fleet.facts["open"]), every=0.05)
    ran = [now - then for now, then in zip(fleet.call("shares"), before, strict=True)]
    return max(ran) / (sum(ran) / nodes)


def _delay(fleet: Process, *, wakes: bool) -> float:
    """Milliseconds from submission to start of a single job, in the middle."""
    fleet.call("latencies")
    for _ in range(SAMPLES):
        ran = fleet.call("executed")
        fleet.call("send", wakes=wakes)
        wait_for(lambda ran=ran: fleet.call("executed") > ran, every=0.02)
        time.sleep(0.3)
    return statistics.median(fleet.call("latencies")) / 1e6
