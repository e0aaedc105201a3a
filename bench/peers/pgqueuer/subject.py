"""pgqueuer as a subject of the bench, through its public API."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import uvloop
from pgqueuer import AsyncpgDriver, Job, Queries, QueueManager
from pgqueuer.db import SyncPsycopgDriver
from pgqueuer.queries import SyncQueries

from bench.protocol import Subject, serve

#: Faster here than 10, 50, 100 and 250; 1000 is no faster.
BATCH = 500


class Pgqueuer(Subject):
    """A queue manager on asyncpg and uvloop, in a thread of its own."""

    OPEN = "SELECT EXISTS (SELECT 1 FROM pgqueuer)"
    DONE = "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.loop = uvloop.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        self.manager: QueueManager | None = None
        self.working: Any = None
        self.queries = self._await(self._connect())
        self.sync_queries = SyncQueries(SyncPsycopgDriver(psycopg.connect(url, autocommit=True)))

    def _await(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    async def _connect(self) -> Queries:
        return Queries(AsyncpgDriver(await asyncpg.connect(self.url)))

    def prepare(self) -> None:
        """Make the schema."""
        if not self._await(self.queries.has_table("pgqueuer")):
            self._await(self.queries.install())

    def enqueue(self, jobs: int, awaiting: bool = False) -> float:
        """Submit jobs one by one; the seconds that took."""
        if awaiting:
            return float(self._await(self._enqueue_awaiting(jobs)))
        self.sync_queries.enqueue("noop", b"0")
        begun = time.perf_counter()
        for number in range(jobs):
            self.sync_queries.enqueue("noop", b"%d" % number)
        return time.perf_counter() - begun

    async def _enqueue_awaiting(self, jobs: int) -> float:
        await self.queries.enqueue("noop", b"0")
        begun = time.perf_counter()
        for number in range(jobs):
            await self.queries.enqueue("noop", b"%d" % number)
        return time.perf_counter() - begun

    def bulk(self, jobs: int, coroutines: bool = False, mixed: bool = False) -> float:
        """Submit jobs at once, over five priorities if *mixed*; the seconds that took."""
        name = "noop_async" if coroutines else "noop"
        begun = time.perf_counter()
        for start in range(0, jobs, 1000):
            numbers = range(start, min(start + 1000, jobs))
            self._await(
                self.queries.enqueue(
                    [name] * len(numbers),
                    [b"%d" % number for number in numbers],
                    [number % 5 if mixed else 0 for number in numbers],
                )
            )
        return time.perf_counter() - begun

    def begin(self, coroutines: bool = False) -> None:
        """Start to work."""
        self.manager = self._await(self._manager())
        running = self.manager.run(dequeue_timeout=timedelta(seconds=5), batch_size=BATCH)
        self.working = asyncio.run_coroutine_threadsafe(running, self.loop)

    async def _manager(self) -> QueueManager:
        manager = QueueManager(await self._connect())

        def work() -> None:
            self.ran += 1

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None:
            await asyncio.to_thread(work)  # pgqueuer's own advice for code that is not async

        @manager.entrypoint("noop_async")
        async def noop_async(job: Job) -> None:
            self.ran += 1

        @manager.entrypoint("stamp")
        async def stamp(job: Job) -> None:
            await asyncio.to_thread(self.note, int(job.payload or b"0"))

        @manager.entrypoint("stamp_async")
        async def stamp_async(job: Job) -> None:
            self.note(int(job.payload or b"0"))

        return manager

    def end(self) -> None:
        """Stop."""
        if self.manager is not None:
            self.loop.call_soon_threadsafe(self.manager.shutdown.set)
            self.working.result(30)

    def stamp(self, coroutines: bool = False) -> None:
        """Submit a job that carries the time of its submission."""
        name = "stamp_async" if coroutines else "stamp"
        self._await(self.queries.enqueue(name, b"%d" % time.monotonic_ns()))


if __name__ == "__main__":
    serve(Pgqueuer)
