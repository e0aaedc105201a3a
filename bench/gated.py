"""Ratchet as a subject of the bench: jobs behind gates, under limits, and of several tenants."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from bench.protocol import serve
from bench.subject import Ratchet
from ratchet import circuit_breaker
from ratchet.model.claim import ClaimRequest, party_of
from ratchet.model.identifiers import new_id

#: Jobs in one submission.
PORTION = 5_000
SERVICE, POOL, QUEUE, RATED = "bench-service", "bench-pool", "bench-paused", "bench-rate"


class Gated(Ratchet):
    """Every job that passes a gate notes when it started, by the clock that all processes of a machine share."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.starts: dict[str, list[int]] = {}
        scheduler = self.scheduler

        @scheduler.job(name="bench:breaker")
        @circuit_breaker(SERVICE)
        def guarded(number: int) -> None:
            self._started("breaker")

        @scheduler.job(name="bench:permit", resource=POOL)
        def pooled(number: int) -> None:
            self._started("permit")

        @scheduler.job(name="bench:queue", queue=QUEUE)
        def queued(number: int) -> None:
            self._started("queue")

        @scheduler.job(name="bench:rated", resource=RATED)
        def rated(number: int) -> None:
            self._started("rate")

        @scheduler.job(name="bench:slow")
        def slow(number: int) -> None:
            time.sleep(0.005)
            self.ran += 1

        self.gated = {"breaker": guarded, "permit": pooled, "queue": queued, "rate": rated}
        self.slow = slow

    def _started(self, kind: str) -> None:
        self.ran += 1
        self.starts.setdefault(kind, []).append(time.monotonic_ns())

    def started(self, kind: str) -> list[int]:
        """When the jobs behind a gate started here; forgets them."""
        return self.starts.pop(kind, [])

    def close_gate(self, kind: str) -> None:
        """Let nothing through."""
        if kind == "breaker":
            self.scheduler.breakers.open(SERVICE)
        elif kind == "permit":
            self.scheduler.limits.set(POOL, concurrent=0)
        else:
            self.scheduler.queues.pause(QUEUE)

    def open_gate(self, kind: str) -> int:
        """Let everything through; when that was said."""
        said = time.monotonic_ns()
        if kind == "breaker":
            self.scheduler.breakers.reset(SERVICE)
        elif kind == "permit":
            self.scheduler.limits.set(POOL, concurrent=5)
        else:
            self.scheduler.queues.resume(QUEUE)
        return said

    def fill(self, kind: str, jobs: int) -> None:
        """Submit jobs behind a gate."""
        self.scheduler.enqueue_many(self.gated[kind], [(number,) for number in range(jobs)])

    def limit_rate(self, rate: int) -> None:
        """At most so many starts per second."""
        self.scheduler.limits.set_rate(RATED, rate, per=timedelta(seconds=1))

    def tenants(self, jobs: int, keys: int, slow: bool = False) -> None:
        """Submit the jobs of so many tenants in turn; 0 keys: without saying whose they are."""
        job = self.slow if slow else self.jobs[False]
        builders = (self._of_tenant(job, number, keys and number % keys + 1) for number in range(jobs))
        self.scheduler.submit_all(builders)

    def visit(self, tenant: int) -> None:
        """Submit one stamped job of another tenant; 0: without saying whose it is."""
        self._of_tenant(self.stamps[False], time.monotonic_ns(), tenant).submit()

    def _of_tenant(self, job: Any, argument: int, tenant: int) -> Any:
        builder = self.scheduler.enqueue(job, argument)
        return builder.with_fairness_key(f"tenant-{tenant}") if tenant else builder

    def keyed(self, jobs: int, keys: int, kind: str, first: int = 0) -> None:
        """
        Submit jobs over so many fairness keys, or over so many concurrency keys whose limits never bind.

        *first*: so many jobs of the first key come before them.
        """
        numbers = [0] * first + [number % keys for number in range(jobs)]
        for start in range(0, len(numbers), PORTION):
            self.scheduler.submit_all(
                self.scheduler.enqueue(self.jobs[False], number).with_fairness_key(f"key-{number}")
                if kind == "fairness"
                else self.scheduler.enqueue(self.jobs[False], number).with_concurrency_key(
                    f"key-{number}", limit=1_000_000
                )
                for number in numbers[start : start + PORTION]
            )

    def claims(self, claims: int, most: int) -> list[float]:
        """The milliseconds that each of so many claims takes, the jobs staying claimed; after two that warm up."""
        store, taken = self.scheduler._core.raw_store, []
        served: str | None = None
        for _ in range(claims + 2):
            # as a node asks: the key goes on that comes after the last one that was served
            request = ClaimRequest(node_id="bench", claim_id=new_id(), limit=most, after=served)
            now = store.database_time()
            begun = time.perf_counter()
            found = store.claim_next_batch(request, now=now)
            taken.append((time.perf_counter() - begun) * 1000)
            if len(found) != most:
                raise RuntimeError(f"a claim took {len(found)} jobs")
            served = party_of(found[-1].body.fairness_key)
        return taken[2:]

    def spread(self, jobs: int, queues: int = 0, resources: int = 0) -> None:
        """Submit jobs over so many queues, or over so many resources whose limits never bind; neither: one stream."""
        for number in range(resources):
            self.scheduler.limits.set(f"bench-resource-{number}", concurrent=10_000)
        self.scheduler.submit_all(self._spread(number, queues, resources) for number in range(jobs))

    def _spread(self, number: int, queues: int, resources: int) -> Any:
        builder = self.scheduler.enqueue(self.jobs[False], number)
        if queues:
            return builder.with_queue(f"bench-queue-{number % queues}")
        return builder.with_resource(f"bench-resource-{number % resources}") if resources else builder


if __name__ == "__main__":
    serve(Gated)
