"""A drill: the primary of a cluster falls under load, and the cluster's standstill is measured beside that of the jobs."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tests.chaos import diary, jobs
from tests.chaos.stage import Stage
from tests.support.waiting import until

#: Clusters replace a silent primary after 3 to 20 s: a call that waits longer than this for it waits in vain.
PATIENCE = 8.0
#: One job is in a transaction for so many seconds when the primary falls: it cannot commit before.
HELD = 6.0
BETWEEN_PROBES = 0.25


class Cluster(Protocol):
    """Servers of which one takes writes."""

    def primary(self) -> Any:
        """The one that takes writes now."""
        ...

    def wait_until_whole(self) -> None:
        """Until there is one primary, and all others follow it."""
        ...


def start_workers(stage: Stage) -> None:
    """Three workers that do not wait long for a silent server."""
    for _ in range(3):
        stage.start_worker(RATCHET_FAILOVER_PATIENCE=f"{PATIENCE:.0f}s")
    for worker in stage.workers:
        worker.wait_ready(seconds=60)


def drill(
    stage: Stage,
    cluster: Cluster,
    rounds: int,
    blow: Callable[[Any], None],
    probe: Callable[[], object],
) -> None:
    """
    The *blow* to the primary, under load of jobs without retries; each time until the cluster is whole again.

    *probe* writes something, as a client does that knows nothing of Ratchet: what it cannot do is not our fault.
    """
    held: list[int] = []
    with _probed(probe) as answered, stage.load(10, 0.3, hold=0.05):
        for number in range(rounds):
            stage.wait_for_work(stage.workers[number % 3])
            held.append(_in_a_transaction(stage))
            former, begun = cluster.primary(), time.monotonic()
            blow(former)
            cluster.wait_until_whole()
            whole = time.monotonic() - begun
            stage.recoveries.append(stage.wait_for_progress())
            if cluster.primary() is former:
                stage.broken.append("the primary is the same as before: the drill has shown nothing")
            ends = [entry.at for entry in diary.read(stage.book) if entry.verb == "end"]
            halt = _longest_gap(answered, begun), _longest_gap(ends, begun)
            stage.halts.append(halt)
            stage.notes.append(
                f"without a primary {halt[0]:.1f} s, without progress {halt[1]:.1f} s, whole again after {whole:.1f} s"
            )
    stage.wait_until_all_ended()
    started = Counter(entry.number for entry in diary.read(stage.book) if entry.verb == "start")
    stage.notes.append(
        f"jobs that were in a transaction were started {[started[number] for number in held]} times"
    )
    if all(started[number] == 1 for number in held):
        stage.broken.append("no transaction was cut: the drill has shown nothing")
    refused = ", ".join(f"{count} {name}" for name, count in stage.refusals.items()) or "none"
    stage.notes.append(f"refused submissions: {refused}; the longest call took {stage.longest_call:.1f} s")


def _in_a_transaction(stage: Stage) -> int:
    """A job that has begun a transaction, and will be in it when the primary falls."""
    number = stage.submit(jobs.pay, 0.0, HELD)
    assert number is not None, f"nobody takes submissions: {stage.refusals}"

    def has_begun() -> bool:
        return any(entry.number == number for entry in diary.read(stage.book))

    until(has_begun, 60, f"job {number} is not started")
    return number


def _longest_gap(times: list[float], begun: float) -> float:
    # From the blow itself: the first round may have nothing to show before it.
    seen = [begun, *(at for at in sorted(times) if at > begun)]
    return max((after - before for before, after in itertools.pairwise(seen)), default=float("inf"))


@contextmanager
def _probed(probe: Callable[[], object]) -> Iterator[list[float]]:
    """The moments at which *probe* came through."""
    answered: list[float] = []
    over = threading.Event()

    def once() -> None:
        try:
            probe()
        except Exception:  # whatever the driver raises: no primary at this moment
            return
        answered.append(time.monotonic())

    def repeat() -> None:
        # Each in a thread of its own: one that meets a silent server must not hold up the next.
        while not over.wait(BETWEEN_PROBES):
            threading.Thread(target=once, daemon=True).start()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield answered
    finally:
        over.set()
        thread.join(10)
