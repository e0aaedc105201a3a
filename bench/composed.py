"""Ratchet as a subject of the bench: chains and batches."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.protocol import serve
from bench.subject import Ratchet

#: The submitter's memory is looked at whenever so many items were read.
LOOK = 5_000


class Composed(Ratchet):
    """Jobs that belong together."""

    def chains(self, chains: int, steps: int) -> float:
        """Submit chains; the seconds that took."""
        begun = time.perf_counter()
        self.scheduler.submit_all(self._chain(steps) for _ in range(chains))
        return time.perf_counter() - begun

    def _chain(self, steps: int) -> object:
        noop = self.jobs[False]
        builder = self.scheduler.enqueue(noop, 0)
        for number in range(1, steps):
            builder = builder.then(noop, number)
        return builder

    def batch(self, items: int) -> float:
        """Submit a batch; the seconds that took."""
        begun = time.perf_counter()
        self.scheduler.enqueue_batch("bench").for_each(range(items), self.jobs[False]).submit()
        return time.perf_counter() - begun

    def stream(self, items: int) -> dict[str, float]:
        """Submit a streaming batch; the seconds that took, and by how many bytes this process grew after the first items."""
        sizes: list[float] = []

        def source() -> Iterator[int]:
            for number in range(items):
                if number % LOOK == 0:
                    sizes.append(self.usage()["rss"])
                yield number

        begun = time.perf_counter()
        self.scheduler.streaming_batch("bench").from_iterable(source()).process(self.jobs[False]).start()
        seconds = time.perf_counter() - begun
        sizes.append(self.usage()["rss"])
        warm = sizes[min(2, len(sizes) - 1)]
        return {"seconds": seconds, "grown": max(sizes[2:] or sizes) - warm}


if __name__ == "__main__":
    serve(Composed)
