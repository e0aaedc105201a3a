"""The faults: each is played on a cluster of two workers with ten slots, and answers with what the file says."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.faults.cluster import BEGINNING, Cluster, family, send, until

STARTING = 60.0
#: How long the job that ends its process is watched.
WATCHED = 120.0
#: Longer than any limit of minutes by which a library takes a job for lost (Oban's is five minutes), below a time limit of ten (Dramatiq's).
LONG = 400
#: From the first start to the blow: between two ends of jobs of one second, since a job that has just said that it ends may run again.
BEFORE = 0.5


def _judge(cluster: Cluster, jobs: list[str]) -> dict[str, Any]:
    """Runs, ends and losses of *jobs*, and how the workers ended."""
    starts = Counter(line.job for line in cluster.starts())
    ends = Counter(cluster.ended())
    return {
        "jobs": len(jobs),
        "not_ended": sum(1 for job in jobs if not ends[job]),
        "ended_twice": sum(1 for job in jobs if ends[job] > 1),
        "started_twice": sum(1 for job in jobs if starts[job] > 1),
        "most_starts": max((starts[job] for job in jobs), default=0),
        "exits": cluster.exits(),
        "restarts": cluster.restarts,
    }


def _two_busy(cluster: Cluster, jobs: list[str]) -> str:
    """Start both workers and give them *jobs*; the worker that runs the first of them."""
    with BEGINNING:
        cluster.start("a")
        cluster.start("b")
        cluster.script("put", *jobs)
        if not until(lambda: bool(cluster.starts(jobs[0])), STARTING):
            raise RuntimeError(f"{cluster.subject.name} started nothing in {STARTING:.0f} s")
    time.sleep(BEFORE)
    return cluster.starts(jobs[0])[0].worker


def _again(cluster: Cluster, job: str, since: float) -> float | None:
    later = [line.at - since for line in cluster.starts(job) if line.at > since]
    return round(min(later), 1) if later else None


def kill(cluster: Cluster, limit: float) -> dict[str, Any]:
    """SIGKILL (kill -9) for a whole worker, with its children."""
    jobs = ["s5-long", *(f"s1-{number}" for number in range(20))]
    victim = _two_busy(cluster, jobs)
    at = time.time()
    send(family(cluster.workers[victim].pid), signal.SIGKILL)
    until(lambda: _again(cluster, jobs[0], at) is not None, limit)
    again = _again(cluster, jobs[0], at)
    if again is not None:
        until(lambda: set(cluster.ended()) >= set(jobs), 30)
    return {"again_after": again, "watched": round(time.time() - at), **_judge(cluster, jobs)}


def freeze(cluster: Cluster, _limit: float) -> dict[str, Any]:
    """SIGSTOP of a whole worker for 40 s, then SIGCONT."""
    jobs = ["s20-long"]
    victim = _two_busy(cluster, jobs)
    at = time.time()
    frozen = family(cluster.workers[victim].pid)
    send(frozen, signal.SIGSTOP)
    time.sleep(40)
    while_frozen = _again(cluster, jobs[0], at)
    send(frozen, signal.SIGCONT)
    until(lambda: len(cluster.ended()) >= len(cluster.starts()), 60)  # a run that was taken back never ends
    return {
        "again_after": _again(cluster, jobs[0], at),
        "again_while_frozen": while_frozen,
        **_judge(cluster, jobs),
    }


def restart(cluster: Cluster, limit: float) -> dict[str, Any]:
    """The server is stopped for 10 s; workers that ended are started again."""
    jobs = [f"s1-{number}" for number in range(100)]
    _two_busy(cluster, jobs)
    cluster.server.stop()
    time.sleep(10)
    cluster.server.start()
    back = time.time()

    def done() -> bool:
        cluster.supervise()
        return set(cluster.ended()) >= set(jobs)

    until(done, limit, every=1)
    later = [line.at - back for line in cluster.starts() if line.at > back]
    return {"again_after": round(min(later), 1) if later else None, **_judge(cluster, jobs)}


def terminate(cluster: Cluster, limit: float) -> dict[str, Any]:
    """SIGTERM for a worker with running jobs of 60 s, or what its docs say to send instead."""
    jobs = [f"s60-{number}" for number in range(4)]
    victim = _two_busy(cluster, jobs)
    at = time.time()
    worker = cluster.workers[victim]
    worker.send_signal(cluster.subject.stop_signal)
    until(lambda: worker.poll() is not None, 90)
    gone = round(time.time() - at, 1) if worker.poll() is not None else None
    until(lambda: set(cluster.ended()) >= set(jobs), limit + 60)  # to run again, and to end
    return {"exit_after": gone, "again_after": _again(cluster, jobs[0], at), **_judge(cluster, jobs)}


def poison(cluster: Cluster, _limit: float) -> dict[str, Any]:
    """A job that ends its process, beside healthy ones; workers that ended are started again."""
    healthy = [f"s1-{number}" for number in range(20)]
    _two_busy(cluster, ["die-0", *healthy])
    deadline = time.monotonic() + WATCHED
    while time.monotonic() < deadline:
        cluster.supervise()
        time.sleep(1)
    return {"poison_starts": len(cluster.starts("die-0")), "watched": WATCHED, **_judge(cluster, healthy)}


def long(cluster: Cluster, _limit: float) -> dict[str, Any]:
    """A healthy job of 400 s."""
    jobs = [f"s{LONG}-long"]
    _two_busy(cluster, jobs)
    until(lambda: bool(cluster.ended()), LONG + 60)
    time.sleep(3)
    return _judge(cluster, jobs)


def hold(cluster: Cluster, limit: float) -> dict[str, Any]:
    """A job that holds the interpreter for 10 s, in C code."""
    jobs = ["hold10-0"]
    _two_busy(cluster, jobs)
    until(lambda: bool(cluster.ended()), 10 + limit)
    time.sleep(3)
    return _judge(cluster, jobs)


FAULTS: dict[str, Callable[[Cluster, float], dict[str, Any]]] = {
    "kill": kill,
    "freeze": freeze,
    "restart": restart,
    "terminate": terminate,
    "poison": poison,
    "long": long,
    "hold": hold,
}
