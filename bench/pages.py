"""
What the pages of the dashboard cost on PostgreSQL, with a long history and a large backlog.

``python -m bench.pages`` fills a new database like `bench.gauges` does (1,000,000 finished jobs, 100,000 that wait, 1,000
queues), asks for each page, and prints how long the server takes and how many statements it sends. Then ten browsers keep
each page open: how many statements that costs in a second. ``--url`` uses a database that was filled before.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import psycopg
import pytest
import uvicorn
from starlette.testclient import TestClient

from bench.gauges import Filling, fail, work
from bench.servers import Places, postgresql_server
from ratchet import JobFilter, JobStatus, Options, Scheduler, dashboard
from ratchet.dashboard.app import Dashboard
from tests.stores.counting import Statements

ROUNDS = 9
BROWSERS = 10
#: What a page costs is looked at for so many seconds.
WATCHED = 20.0
#: A page of each kind, to which browsers stay connected.
KINDS = (
    "overview, an hour",
    "jobs",
    "a failed job",
    "a pending job",
    "a graph of 500",
    "dead letters",
    "queues",
    "limits",
    "schedules",
    "a schedule",
    "batches",
    "a batch",
    "nodes",
    "audit",
)
#: What is more than a list of jobs: items of a batch, jobs of a graph, schedules.
ITEMS, NODES, SCHEDULES = 1_000, 500, 50


def filled(url: str, scale: float) -> Scheduler:
    """A scheduler on a database that is filled now, unless it was before."""
    scheduler = Scheduler(url, options=Options(auto_migrate=True, log_level="CRITICAL"), allow=["bench"])
    scheduler.migrate()
    if scheduler.schedules.records():
        return scheduler
    begun = time.monotonic()
    Filling(scheduler, url, scale).fill()
    later = timedelta(days=1)
    scheduler.enqueue_batch("import").for_each(range(ITEMS), work).submit()
    scheduler.join([scheduler.enqueue(work, number).with_delay(later) for number in range(NODES)]).then(
        fail
    ).submit()
    for number in range(SCHEDULES):
        scheduler.schedule_recurring("0 2 * * *", work, number, name=f"schedule-{number:02}")
        scheduler.limits.set(f"resource-{number:02}", concurrent=5)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    sys.stderr.write(f"filled in {time.monotonic() - begun:.0f} s\n")
    return scheduler


def pages(scheduler: Scheduler) -> dict[str, str]:
    """The pages, by what they show."""
    jobs = scheduler.jobs
    batch = scheduler.batches.records(limit=1)[0]
    failed = jobs.find(JobFilter(statuses=[JobStatus.FAILED]), limit=1).items[0]
    waiting = jobs.find(JobFilter(statuses=[JobStatus.PENDING], queue="queue-0007"), limit=1).items[0]
    join = jobs.find(JobFilter(statuses=[JobStatus.WAITING]), limit=1).items[0]
    return {
        "overview, an hour": "/",
        "overview, a day": "/?window=day",
        "jobs": "/jobs",
        "jobs, failed": "/jobs?status=FAILED",
        "jobs, pending, by due time": "/jobs?status=PENDING&sort=SCHEDULED&order=asc",
        "jobs of a queue": "/jobs?queue=queue-0007",
        "jobs of a function": "/jobs?target=shop.jobs%3Atarget_7",
        "jobs with a tag": "/jobs?tag=red",
        "jobs by words of an error": "/jobs?error=number",
        "jobs by words that no error has": "/jobs?error=nothing",
        "jobs of a queue that is unused": "/jobs?queue=nobody",
        "a failed job": f"/jobs/{failed.id}",
        "a pending job": f"/jobs/{waiting.id}",
        f"a job among {NODES} others": f"/jobs/{join.id}",
        f"a graph of {NODES}": f"/graphs/{join.id}",
        "dead letters": "/dead-letters",
        "queues": "/queues",
        "limits": "/limits",
        "schedules": "/schedules",
        "a schedule": "/schedules/schedule-07",
        "batches": "/batches",
        "a batch": f"/batches/{batch.batch_id}",
        "nodes": "/nodes",
        "audit": "/audit",
    }


class Work:
    """Milliseconds for which this process and those of the database have worked: what a page takes where nobody disturbs."""

    PIDS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def done(self) -> float:
        """So far; None of the connections may come or go between two calls."""
        worked = sum(self._of(pid) for (pid,) in self._connection.execute(self.PIDS))
        return 1000 * time.process_time() + worked

    @staticmethod
    def _of(pid: int) -> float:
        nanoseconds = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]
        return int(nanoseconds) / 1e6


def measure(scheduler: Scheduler, app: Dashboard, statements: Statements, work: Work, only: str) -> None:
    """Ask for each page a few times, each time as if for the first."""
    client = TestClient(app, client=("127.0.0.1", 1), base_url="http://localhost")
    for name, path in pages(scheduler).items():
        if only not in name:
            continue

        def ask(path: str = path) -> None:
            app.forget()
            answer = client.get(path)
            assert answer.status_code == 200, (path, answer.text[:300])

        ask()  # plans, caches, connections
        begun = work.done()
        taken = [_milliseconds(ask) for _ in range(ROUNDS)]
        worked = (work.done() - begun) / ROUNDS
        sent = statements.of(ask)
        print(
            f"{name:34} {worked:8.1f} ms of work, {min(taken):8.1f} to {statistics.median(taken):8.1f} ms"
            f" {len(sent):4} statements",
            flush=True,
        )


def _milliseconds(call: object) -> float:
    begun = time.perf_counter()
    call()  # type: ignore[operator]  # a function
    return 1000 * (time.perf_counter() - begun)


@contextmanager
def served(app: Dashboard) -> Iterator[str]:
    """The address of the dashboard, served by a thread of this process."""
    config = uvicorn.Config(
        app, port=0, log_level="warning", lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


async def _browse(address: str, path: str, seconds: float) -> None:
    """Keep a page open as the script of the dashboard does."""
    ends = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=address, timeout=None) as client:
        await client.get(path)
        try:
            async with (
                asyncio.timeout(seconds),
                client.stream("GET", "/live", params={"page": path}) as hints,
            ):
                async for line in hints.aiter_lines():
                    if line.startswith("event: changed") and time.monotonic() < ends:
                        await asyncio.sleep(0.25)
                        await client.get(path, headers={"Ratchet-Fragment": "1"})
        except TimeoutError:
            pass


def watch(scheduler: Scheduler, app: Dashboard, statements: Statements, only: str, seconds: float) -> None:
    """Ten browsers on each page, while jobs come and end."""
    with served(app) as address:
        for name, path in pages(scheduler).items():
            if only not in name or name not in KINDS:
                continue
            while app.live.watched:
                time.sleep(0.1)
            time.sleep(1)  # what is being read for the page before
            app.forget()

            async def all_of_them(path: str = path) -> None:
                await asyncio.gather(*(_browse(address, path, seconds) for _ in range(BROWSERS)))

            sent = statements.of(functools.partial(asyncio.run, all_of_them()))
            print(f"{name:34} {len(sent) / seconds:6.2f} statements a second", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--url", help="a database that was filled before, or shall be")
    parser.add_argument("--only", default="", help="pages whose name contains this")
    parser.add_argument("--browsers", action="store_true", help="only what ten browsers cost")
    parser.add_argument("--seconds", type=float, default=WATCHED, help="how long they look at each page")
    chosen = parser.parse_args()
    with ExitStack() as stack:
        url = chosen.url
        if url is None:
            server = stack.enter_context(postgresql_server(None))
            url = stack.enter_context(Places("postgresql", server).new()).url
        scheduler = filled(url, chosen.scale)
        stack.callback(scheduler.close)
        # A node that beats, and takes none of the jobs.
        node = stack.enter_context(Scheduler(url, options=Options(queues=("idle",)), allow=["bench"]))
        patches = stack.enter_context(pytest.MonkeyPatch.context())
        app = dashboard.asgi(scheduler)
        if not chosen.browsers:
            node.stop()  # what it sends would be counted
            measure(scheduler, app, Statements(patches), Work(url), chosen.only)
        else:
            node.stop()
            watch(scheduler, app, Statements(patches), chosen.only, chosen.seconds)


if __name__ == "__main__":
    main()
