"""How long a job waits on a system that has nothing else to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

import psycopg

from bench.conversation import Process, wait_for
from bench.trial import Bench, alternating

PORTIONS = 10
#: What no arrangement of the rest can save: a job is committed when it is submitted, and again when it is claimed.
COMMITS = "two commits"
COMMITS_TABLE = "CREATE TABLE commits (id bigserial PRIMARY KEY, payload text, claimed_by text)"
SUBMIT = "INSERT INTO commits (payload) VALUES ('[[1],{}]')"
CLAIM = "UPDATE commits SET claimed_by = 'bench' WHERE id = (SELECT max(id) FROM commits)"


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
            for contender, place, process in bench.subjects(stack, bench.on("postgresql"))
        ]
        bare = _connections(bench, stack)
        for _, _, sender, worker in subjects:
            worker.call("begin")
            if elsewhere:
                time.sleep(1.0)  # until it listens
            _stamp(sender, worker, 10)
        for _ in range(bench.rounds):
            # in portions, turn by turn: how long a commit takes differs more from minute to minute than we do
            found: dict[str, list[float]] = {contender.name: [] for contender, *_ in subjects} | {COMMITS: []}
            for order in alternating(subjects, PORTIONS):
                for contender, _, sender, worker in order:
                    found[contender.name] += _stamp(sender, worker, stamps // PORTIONS)
                found[COMMITS] += _commits(bare, stamps // PORTIONS)
            for who, delays in found.items():
                bench.results.of(f"{name} p50", who, "ms").add(percentile(delays, 50))
                bench.results.of(f"{name} p99", who, "ms").add(percentile(delays, 99))
    if not elsewhere:
        bench.results.of(f"{name} p50", "limit", "ms").add(1.0)


def _stamp(sender: Process, worker: Process, times: int) -> list[float]:
    for _ in range(times):
        before = worker.call("executed")
        sender.call("stamp")
        time.sleep(0.01)  # whoever asks a worker now whether it has started keeps it from starting
        wait_for(lambda: worker.call("executed") > before, every=0.01, limit=60)  # noqa: B023 - used at once
        time.sleep(0.01)
    return [delay / 1e6 for delay in worker.call("latencies")][-times:]


def _connections(bench: Bench, stack: ExitStack) -> list[psycopg.Connection]:
    """Two bare connections to a table: one submits, one claims."""
    url = stack.enter_context(bench.places["postgresql"].new()).url
    made = [stack.enter_context(psycopg.connect(url, autocommit=True, prepare_threshold=0)) for _ in range(2)]
    made[0].execute(COMMITS_TABLE)
    return made


def _commits(connections: Sequence[psycopg.Connection], times: int) -> list[float]:
    """How long both commits take, one after the other, on a system that rests in between."""
    delays: list[float] = []
    for _ in range(times):
        time.sleep(0.02)
        begun = time.perf_counter()
        for connection, statement in zip(connections, (SUBMIT, CLAIM), strict=True):
            connection.execute(statement)
        delays.append((time.perf_counter() - begun) * 1e3)
    return delays


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
