"""Ratchet as a subject of the bench, through its public API."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ratchet.engine.node  # noqa: F401 - otherwise imported by the first start()
from bench.protocol import Subject, serve
from ratchet import Options, Priority, Scheduler
from ratchet.model.identifiers import new_id

# The ids are UUIDv7 of their own creation, as all ids are: whoever looks for what is old goes by the id.
HISTORY_POSTGRESQL = """
    WITH finished AS (
        INSERT INTO scheduler_job
               (job_id, root_id, target, payload, job_type, priority, stream_id, status, created_at, scheduled_at,
                attempts, started_at, finished_at, node_id)
        SELECT id, id, 'bench:noop', '[[1],{}]', 'SINGLE', 2, 1, 'SUCCEEDED', at, at, 1, at, at, 'bench'
          FROM (SELECT CAST(lpad(to_hex(floor(date_part('epoch', at) * 1000)::bigint), 12, '0') || '7'
                            || substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15) AS uuid) AS id,
                       at
                  FROM (SELECT n, now() - interval '1 day' + n * interval '1 millisecond' AS at
                          FROM generate_series(1, %(jobs)s) n) one) made
        RETURNING job_id, scheduled_at
    )
    INSERT INTO scheduler_job_execution
           (job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, status, counted)
    SELECT job_id, job_id, 1, 'bench', scheduled_at, scheduled_at, scheduled_at, 'SUCCEEDED', true FROM finished
"""


class Ratchet(Subject):
    """The scheduler with its default options."""

    OPEN = "SELECT EXISTS (SELECT 1 FROM scheduler_job_queue)"
    DONE = "SELECT count(*) FROM scheduler_job_execution"
    SINCE = "SELECT count(*) FROM scheduler_job_execution WHERE job_id >= '{}'"
    OPEN_MONGODB = (
        '[["scheduler_job","claim",{"status":"PENDING"}],["scheduler_job","running",{"status":"RUNNING"}]]'
    )

    def __init__(self, url: str, **parts: Any) -> None:
        super().__init__(url)
        self.trips = 0
        self.statements: list[int] = []
        self.opened: list[Any] = []
        self.scheduler = Scheduler(url, options=Options(auto_migrate=True), **parts)

        @self.scheduler.job(name="bench:noop")
        def noop(number: int) -> None:
            self.ran += 1

        @self.scheduler.job(name="bench:noop_async")
        async def noop_async(number: int) -> None:
            self.ran += 1

        @self.scheduler.job(name="bench:stamp")
        def stamp(sent: int) -> None:
            self.note(sent)

        @self.scheduler.job(name="bench:stamp_async")
        async def stamp_async(sent: int) -> None:
            self.note(sent)

        self.jobs = {False: noop, True: noop_async}
        self.ranked = [self._ranked(priority) for priority in Priority]
        self.stamps = {False: stamp, True: stamp_async}

    def _ranked(self, priority: Priority) -> Any:
        @self.scheduler.job(name=f"bench:noop_{priority.name}", priority=priority)
        def ranked(number: int) -> None:
            self.ran += 1

        return ranked

    def describe(self) -> dict[str, Any]:
        """What the bench has to know."""
        facts = {**super().describe(), "since": self.SINCE}
        return {**facts, "open": self.OPEN_MONGODB} if self.url.startswith("mongodb") else facts

    def prepare(self) -> None:
        """Make the schema; open a connection."""
        self.scheduler.migrate()
        self.scheduler.jobs.counts()

    def enqueue(self, jobs: int, awaiting: bool = False) -> float:
        """Submit jobs one by one; the seconds that took."""
        if awaiting:
            return asyncio.run(self._enqueue_awaiting(jobs))
        noop, enqueue = self.jobs[False], self.scheduler.enqueue_now
        enqueue(noop, 0)
        begun = time.perf_counter()
        for number in range(jobs):
            enqueue(noop, number)
        return time.perf_counter() - begun

    async def _enqueue_awaiting(self, jobs: int) -> float:
        noop, enqueue = self.jobs[False], self.scheduler.aio.enqueue_now
        await enqueue(noop, 0)
        begun = time.perf_counter()
        for number in range(jobs):
            await enqueue(noop, number)
        return time.perf_counter() - begun

    def bulk(self, jobs: int, coroutines: bool = False, mixed: bool = False) -> float:
        """Submit jobs at once, over five priorities if *mixed*; the seconds that took."""
        noop = self.jobs[coroutines]
        begun = time.perf_counter()
        if mixed:
            share = [(number,) for number in range(jobs // len(self.ranked))]
            for ranked in self.ranked:
                self.scheduler.enqueue_many(ranked, share)
        else:
            self.scheduler.enqueue_many(noop, [(number,) for number in range(jobs)])
        return time.perf_counter() - begun

    def bulk_at(self, jobs: int, seconds: float) -> float:
        """Submit jobs that all become due so many seconds from now; that time, in seconds of the epoch."""
        due = time.time() + seconds
        when = datetime.fromtimestamp(due, UTC)
        schedule, noop = self.scheduler.schedule, self.jobs[False]
        self.scheduler.submit_all(schedule(when, noop, number) for number in range(jobs))
        return due

    def mark(self) -> str:
        """An id below those of all jobs that this process submits from now on, and above all earlier ones."""
        return str(new_id())

    def begin(self, coroutines: bool = False) -> None:
        """Start to work."""
        self.scheduler.start()

    def release(self) -> None:
        """Close every connection; the next call opens new ones."""
        self.scheduler.close()

    def end(self) -> None:
        """Stop."""
        self.scheduler.stop(drain=True)

    def stamp(self, coroutines: bool = False) -> None:
        """Submit a job that carries the time of its submission."""
        self.scheduler.enqueue_now(self.stamps[coroutines], time.monotonic_ns())

    def watch(self) -> None:
        """Count round trips, or statements and rows on SQLite, from now on."""
        store = self.scheduler._core.raw_store
        if self.url.startswith("sqlite"):
            self._watch_sqlite(store)
            return
        from ratchet.stores.sql.dialects.postgresql.autocommit import Exchange
        from ratchet.stores.sql.dialects.postgresql.connections import Connection

        def counted(original: Any) -> Any:
            def wait(*args: Any, **kwargs: Any) -> Any:
                self.trips += 1
                return original(*args, **kwargs)

            return wait

        for talks in (Connection, Exchange):
            talks.wait = counted(talks.wait)  # type: ignore[method-assign]

    def round_trips(self) -> int:
        """How many there were."""
        return self.trips

    def _watch_sqlite(self, store: Any) -> None:
        connections = store.database.dialect._connections
        connections.close()
        original = connections._open

        def opened(**kwargs: Any) -> Any:
            connection = original(**kwargs)
            connection.set_trace_callback(lambda text: self.statements.append(1))
            self.opened.append(connection)
            return connection

        connections._open = opened

    def sqlite_counts(self) -> dict[str, float]:
        """Statements, rows changed and bytes written by this process."""
        written = Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0]
        rows = sum(connection.total_changes for connection in self.opened)
        return {"statements": len(self.statements), "rows": rows, "bytes": float(written)}

    def history(self, jobs: int) -> None:
        """Have so many finished jobs."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            connection.execute(HISTORY_POSTGRESQL, {"jobs": jobs})
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")


if __name__ == "__main__":
    serve(Ratchet)
