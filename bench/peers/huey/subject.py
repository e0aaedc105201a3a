"""huey on SQLite as a subject of the bench, through its public API."""

from __future__ import annotations

import time

from huey import SqliteHuey
from huey.consumer import Consumer

from bench.protocol import Subject, serve


class QuietConsumer(Consumer):
    """A consumer in a thread: signals are the main thread's."""

    def _set_signal_handlers(self) -> None:
        pass


class Huey(Subject):
    """A consumer with 20 threads; synchronous FULL, as Ratchet."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.huey = SqliteHuey(filename=url.removeprefix("sqlite:///") + "-huey", fsync=True)
        self.consumer: QuietConsumer | None = None

        @self.huey.task()
        def noop(number: int) -> None:
            self.ran += 1

        @self.huey.task()
        def stamp(sent: int) -> None:
            self.note(sent)

        self.noop, self.stamped = noop, stamp

    def prepare(self) -> None:
        """Nothing: the file is there."""

    def enqueue(self, jobs: int, awaiting: bool = False) -> float:
        """Submit jobs one by one; the seconds that took."""
        begun = time.perf_counter()
        for number in range(jobs):
            self.noop(number)
        return time.perf_counter() - begun

    def bulk(self, jobs: int, coroutines: bool = False, mixed: bool = False) -> float:
        """Submit jobs, which huey does one by one; the seconds that took."""
        return self.enqueue(jobs)

    def begin(self, coroutines: bool = False) -> None:
        """Start to work."""
        self.ran = 0
        self.consumer = QuietConsumer(
            self.huey, workers=20, periodic=False, initial_delay=0.001, max_delay=0.05
        )
        self.consumer.start()

    def end(self) -> None:
        """Stop."""
        if self.consumer is not None:
            self.consumer.stop(graceful=True)

    def stamp(self, coroutines: bool = False) -> None:
        """Submit a job that carries the time of its submission."""
        self.stamped(time.monotonic_ns())


if __name__ == "__main__":
    serve(Huey)
