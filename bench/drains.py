"""Workloads that work off what waits, until the last job is terminal in the database."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bench.conversation import Contender, Process, wait_for
from bench.servers import Place
from bench.trial import Bench


def drain(bench: Bench, *, coroutines: bool, processes: int) -> None:
    """Work off 20,000 jobs that do nothing."""
    name = f"drain {_kind(coroutines)} {processes}"
    with ExitStack() as stack:
        subjects = bench.subjects(stack, bench.on("postgresql"))
        for order in bench.in_rounds(subjects):
            for contender, place, process in order:
                # procrastinate needs 30 times as long; its rate does not depend on the number
                jobs = bench.size(20_000 if contender.name != "procrastinate" else 400)
                process.call("bulk", jobs=jobs, coroutines=coroutines)
                measure_drain(bench, name, contender, place, processes, jobs, coroutines=coroutines)


def sqlite_drain(bench: Bench) -> None:
    """The same on SQLite with synchronous FULL."""
    with ExitStack() as stack:
        subjects = bench.subjects(stack, bench.on("sqlite"), store="sqlite")
        for order in bench.in_rounds(subjects):
            for contender, place, process in order:
                jobs = bench.size(20_000)
                process.call("bulk", jobs=jobs)
                measure_drain(bench, "sqlite drain 1", contender, place, 1, jobs)


def other_store_drain(bench: Bench, *, store: str) -> None:
    """The same on another product, and in the same rounds pgqueuer on PostgreSQL, with which it is compared."""
    jobs = bench.size(20_000)
    peers = [contender for contender in bench.on("postgresql") if contender.name == "pgqueuer"]
    with ExitStack() as stack:
        subjects = bench.subjects(stack, bench.on(store), store=store)
        if peers:
            subjects += bench.subjects(stack, peers)
        for order in bench.in_rounds(subjects):
            for coroutines in (False, True):
                for contender, place, process in order:
                    process.call("bulk", jobs=jobs, coroutines=coroutines)
                    name = f"{store} drain {_kind(coroutines)} 1"
                    measure_drain(bench, name, contender, place, 1, jobs, coroutines=coroutines)


def _kind(coroutines: bool) -> str:
    return "async" if coroutines else "sync"


def measure_drain(
    bench: Bench,
    name: str,
    contender: Contender,
    place: Place,
    processes: int,
    jobs: int,
    *,
    coroutines: bool = False,
    only_first: bool = False,
    since: str | None = None,
) -> float:
    """
    Start workers on what waits, until it is all done or, *only_first*, so many are; the rate.

    *since*: a mark that was made before these jobs were submitted (see `finished`).
    """
    with ExitStack() as stack:
        workers = [stack.enter_context(contender.start(place.url)) for _ in range(processes)]
        done = finished(place, workers, jobs, only_first=only_first, since=since)
        before = sum(worker.call("usage")["cpu"] for worker in workers)
        begun = time.perf_counter()
        for worker in workers:
            worker.call("begin", coroutines=coroutines)
        seconds = time.perf_counter() - begun + wait_for(done, every=0.02)
        cpu = sum(worker.call("usage")["cpu"] for worker in workers) - before
        bench.results.of(name, contender.name, "jobs/s").add(jobs / seconds, cpu_us=cpu / jobs * 1e6)
        for worker in workers:
            worker.call("end")
    return jobs / seconds


def finished(
    place: Place,
    workers: Sequence[Process],
    jobs: int,
    *,
    only_first: bool = False,
    since: str | None = None,
) -> Callable[[], bool]:
    """
    A condition: these workers have run so many jobs from now on, and the database says so too.

    Without a mark, nothing is open any more. With one, the runs of the jobs submitted *since* are counted, in
    a table that only grows: where dead rows cannot be removed, a look into an empty queue reads them all.
    """
    facts = workers[0].facts
    ran = sum(worker.call("executed") for worker in workers)
    before = place.ask(facts["done"]) if only_first else 0

    def done() -> bool:
        # The workers are asked first: looking into a table full of dead rows disturbs what is measured.
        if sum(worker.call("executed") for worker in workers) - ran < jobs:
            return False
        if since is not None:
            return bool(place.ask(facts["since"].format(since)) >= jobs)
        if facts["open"] is None:
            return True
        return bool(place.ask(facts["done"]) - before >= jobs) if only_first else not place.ask(facts["open"])

    return done
