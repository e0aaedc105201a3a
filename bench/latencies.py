"""How long a job waits on a system that has nothing else to do."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack

from bench.conversation import Process, wait_for
from bench.trial import Bench

PORTIONS = 10


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
        for _, _, sender, worker in subjects:
            worker.call("begin")
            if elsewhere:
                time.sleep(1.0)  # until it listens
            _stamp(sender, worker, 10)
        for _ in range(bench.rounds):
            # in portions, turn by turn: how long a commit takes differs more from minute to minute than we do
            found: dict[str, list[float]] = {contender.name: [] for contender, *_ in subjects}
            for _ in range(PORTIONS):
                for contender, _, sender, worker in subjects:
                    found[contender.name] += _stamp(sender, worker, stamps // PORTIONS)
            for contender, *_ in subjects:
                delays = found[contender.name]
                bench.results.of(f"{name} p50", contender.name, "ms").add(percentile(delays, 50))
                bench.results.of(f"{name} p99", contender.name, "ms").add(percentile(delays, 99))
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


def percentile(values: Sequence[float], percent: int) -> float:
    """The value that so many percent do not exceed."""
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
