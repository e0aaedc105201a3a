"""Procrastinate as a subject of the bench, through its public API."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import procrastinate

from bench.protocol import Subject, serve


class Procrastinate(Subject):
    """A worker with 20 slots in a thread of its own."""

    OPEN = "SELECT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
    DONE = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
        self.sync_app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=url))
        self.tasks: dict[tuple[str, bool], Any] = {}
        for app, sync in ((self.app, False), (self.sync_app, True)):
            for name, function in (
                ("noop", self._noop),
                ("noop_async", self._noop_async),
                ("stamp", self._stamp),
                ("stamp_async", self._stamp_async),
            ):
                self.tasks[name, sync] = app.task(name=name)(function)
        self.sync_app.open()
        self._await(self.app.open_async())
        self.working: Any = None

    def _await(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def _noop(self, number: int) -> None:
        self.ran += 1

    async def _noop_async(self, number: int) -> None:
        self.ran += 1

    def _stamp(self, sent: int) -> None:
        self.note(sent)

    async def _stamp_async(self, sent: int) -> None:
        self.note(sent)

    def prepare(self) -> None:
        """Make the schema."""
        try:
            self.sync_app.schema_manager.apply_schema()
        except procrastinate.exceptions.ConnectorException:
            pass  # it is there

    def enqueue(self, jobs: int, awaiting: bool = False) -> float:
        """Submit jobs one by one; the seconds that took."""
        if awaiting:
            return float(self._await(self._enqueue_awaiting(jobs)))
        noop = self.tasks["noop", True]
        noop.defer(number=0)
        begun = time.perf_counter()
        for number in range(jobs):
            noop.defer(number=number)
        return time.perf_counter() - begun

    async def _enqueue_awaiting(self, jobs: int) -> float:
        noop = self.tasks["noop", False]
        await noop.defer_async(number=0)
        begun = time.perf_counter()
        for number in range(jobs):
            await noop.defer_async(number=number)
        return time.perf_counter() - begun

    def bulk(self, jobs: int, coroutines: bool = False, mixed: bool = False) -> float:
        """Submit jobs at once, over five priorities if *mixed*; the seconds that took."""
        noop = self.tasks["noop_async" if coroutines else "noop", True]
        begun = time.perf_counter()
        for start in range(0, jobs, 1000):
            numbers = range(start, min(start + 1000, jobs))
            if mixed:
                for priority in range(5):
                    ranked = noop.configure(priority=priority)
                    ranked.batch_defer(*({"number": n} for n in numbers if n % 5 == priority))
            else:
                noop.batch_defer(*({"number": number} for number in numbers))
        return time.perf_counter() - begun

    def begin(self, coroutines: bool = False) -> None:
        """Start to work."""
        running = self.app.run_worker_async(concurrency=20, install_signal_handlers=False)
        self.working = asyncio.run_coroutine_threadsafe(running, self.loop)

    def end(self) -> None:
        """Stop."""
        self.working.cancel()

    def stamp(self, coroutines: bool = False) -> None:
        """Submit a job that carries the time of its submission."""
        self.tasks["stamp_async" if coroutines else "stamp", True].defer(sent=time.monotonic_ns())


if __name__ == "__main__":
    serve(Procrastinate)
