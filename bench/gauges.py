"""
What it costs to look: the gauges of a store and every page of a dashboard, with a long history and a large backlog.

``python -m bench.gauges --scale 0.1`` fills a new database of each product with 100,000 finished jobs, 10,000 that wait and 1,000
queues, calls each verb, and prints how long it takes and how many rows the database reads for it. Without a scale it is ten times
as much, but for the queues.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import psycopg
import pymongo
import pymysql

from bench.servers import Places, mariadb_server, mongodb_server, postgresql_server
from ratchet import JobFilter, JobStatus, Options, Scheduler, SortBy
from ratchet.api.observe.gauges import StoreGauges
from ratchet.model.flow_history import MERGED, MINUTE, FlowPeriod, Tally, floor, with_total
from ratchet.model.identifiers import new_id
from ratchet.model.job import StreamKey

FINISHED, PENDING, QUEUES, TARGETS = 1_000_000, 100_000, 1_000, 40
#: One finished job in so many is a dead letter, and one in so many has a tag.
FAILED, TAGGED = 100, 10
CHUNK = 10_000
STORES = ("sqlite", "postgresql", "mariadb", "mongodb")
ROUNDS = 5


def work(number: int = 0) -> int:
    """A job."""
    return number


def fail(number: int = 0) -> None:
    """A job that never succeeds."""
    raise ValueError(f"number {number}")


# --- filling ------------------------------------------------------------------------------------


class Filling:
    """Copies of three real jobs (one that succeeded, one dead letter, one that waits), with ids, times, queues and targets of their own."""

    def __init__(self, scheduler: Scheduler, url: str, scale: float) -> None:
        self.scheduler = scheduler
        self.store: Any = scheduler.backend.store
        self.url = url
        self.finished, self.pending = int(FINISHED * scale), int(PENDING * scale)
        self.now = datetime.now(UTC)

    def fill(self) -> None:
        """Make everything."""
        scheduler = self.scheduler
        scheduler.migrate()
        done = scheduler.enqueue(work, 1).with_tags("red").submit()
        failed = scheduler.enqueue(fail, 1).submit()
        scheduler.start()
        done.wait(timeout=60)
        failed.wait(timeout=60)
        scheduler.stop()
        waiting = scheduler.enqueue(work, 2).submit()
        models = (done.id, failed.id, waiting.id)
        keys = [StreamKey(queue=f"queue-{number:04}") for number in range(QUEUES)]
        if self.url.startswith("mongodb"):
            streams = [self.store.database.streams.id_of(key) for key in keys]
            self._fill_documents(models, streams)
        else:
            found = self.store.stream_registry.ids_of(None, set(keys))
            self._fill_rows(models, [found[key] for key in keys])
        self._fill_rates()

    def _jobs(self, streams: list[int]) -> Iterator[list[dict[str, Any]]]:
        """What differs from job to job, oldest first, in chunks; history spreads over a day, the backlog over an hour."""
        chunk: list[dict[str, Any]] = []
        for number in range(self.finished + self.pending):
            waits = number >= self.finished
            age = (
                timedelta(hours=1) * (self.finished + self.pending - number) / self.pending
                if waits
                else timedelta(days=1) * (self.finished - number) / self.finished + timedelta(hours=1)
            )
            chunk.append(
                {
                    "id": new_id(),
                    "model": 2 if waits else 1 if number % FAILED == 0 else 0,
                    "stream": streams[number % QUEUES],
                    "target": f"shop.jobs:target_{number % TARGETS}",
                    "priority": (0, 2, 2, 2, 4)[number % 5],
                    "at": self.now - age,
                    "tagged": number % TAGGED == 0,
                }
            )
            if len(chunk) == CHUNK:
                yield chunk
                chunk = []
        if chunk:
            yield chunk

    def _fill_rows(self, models: tuple[Any, ...], streams: list[int]) -> None:
        database = self.store.database
        job_columns, jobs = self._models("scheduler_job", models)
        run_columns, runs = self._models("scheduler_job_execution", models[:2])
        queue_columns, queued = self._models("scheduler_job_queue", models[2:])
        for chunk in self._jobs(streams):
            rows: dict[str, list[Any]] = {"job": [], "run": [], "queue": [], "tag": []}
            for one in chunk:
                at, model = one["at"], one["model"]
                facts = {
                    "job_id": one["id"],
                    "root_id": one["id"],
                    "target": one["target"],
                    "stream_id": one["stream"],
                    "priority": one["priority"],
                    "claim_id": one["id"],
                    **dict.fromkeys(
                        ("created_at", "scheduled_at", "started_at", "finished_at", "scheduled_time"), at
                    ),
                }
                if model == 1:
                    facts["dead_lettered_at"] = at
                if model == 2:
                    rows["queue"].append(_filled(queue_columns, queued[0], {**facts, "claim_id": None}))
                    facts = {
                        name: value
                        for name, value in facts.items()
                        if name not in ("started_at", "finished_at")
                    }
                else:
                    rows["run"].append(_filled(run_columns, runs[model], facts))
                rows["job"].append(_filled(job_columns, jobs[model], facts))
                if one["tagged"]:
                    rows["tag"].append(("blue" if model == 2 else "red", one["id"]))

            def insert(session: Any, rows: dict[str, list[Any]] = rows) -> None:
                session.insert_rows("scheduler_job", job_columns, rows["job"])
                session.insert_rows("scheduler_job_execution", run_columns, rows["run"])
                session.insert_rows("scheduler_job_queue", queue_columns, rows["queue"])
                session.insert_rows("scheduler_job_tag", ("tag", "job_id"), rows["tag"])
                session.backdated(streams)

            database.run(insert)

    def _models(self, table: str, ids: tuple[Any, ...]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The columns of a table, and its rows of these jobs."""
        from ratchet.stores.sql.history import JOB_COLUMNS

        names = {
            "scheduler_job": [one.strip() for one in JOB_COLUMNS.split(",")],
            "scheduler_job_execution": [
                "job_id",
                "claim_id",
                "attempt",
                "node_id",
                "scheduled_at",
                "started_at",
                "finished_at",
                "status",
                "counted",
                "error",
                "error_type",
                "traceback",
            ],
            "scheduler_job_queue": [
                "job_id",
                "stream_id",
                "priority",
                "status",
                "job_type",
                "attempts",
                "crashes",
                "max_retries",
                "timeout_us",
                "scheduled_time",
                "picked_by",
                "picked_at",
                "claim_id",
                "held_claim_id",
            ],
        }[table]
        sql = f"SELECT {', '.join(names)} FROM {table} WHERE job_id = :job_id"
        rows = [
            self.store.database.read(lambda session, one=one: session.row(sql, {"job_id": one}))
            for one in ids
        ]
        return names, rows

    def _fill_documents(self, models: tuple[Any, ...], streams: list[int]) -> None:
        from ratchet.stores.mongo.documents.jobs import Link, link
        from ratchet.stores.mongo.documents.values import micros
        from ratchet.stores.mongo.schema import Names

        collections = self.store.database.collections()
        jobs = [collections[Names.JOBS].find_one({"_id": one}) for one in models]
        runs = [collections[Names.EXECUTIONS].find_one({"_id.job_id": one}) for one in models[:2]]
        for chunk in self._jobs(streams):
            documents, ran = [], []
            for one in chunk:
                at, model = micros(one["at"]), one["model"]
                facts = {"target": one["target"], "stream_id": one["stream"], "priority": one["priority"]}
                times = (
                    "created_at",
                    "due_at",
                    "started_at",
                    "finished_at",
                    "dead_lettered_at",
                    "scheduled_at",
                )
                document = {
                    **jobs[model],
                    **facts,
                    **{name: at for name in times if name in jobs[model]},
                    "_id": one["id"],
                }
                document.pop("tags", None)
                document.pop("links", None)
                if one["tagged"]:
                    tag = "blue" if model == 2 else "red"
                    document |= {"tags": [tag], "links": [link(Link.TAG, tag)]}
                documents.append(document)
                if model < 2:
                    identity = {**runs[model]["_id"], "job_id": one["id"]}
                    ran.append(
                        {
                            **runs[model],
                            "_id": identity,
                            **{name: at for name in times if name in runs[model]},
                        }
                    )
            collections[Names.JOBS].insert_many(documents, ordered=False)
            if ran:
                collections[Names.EXECUTIONS].insert_many(ran, ordered=False)

    def _fill_rates(self) -> None:
        """A day of minutes of three nodes with a hundred queues."""
        runs = with_total(
            {
                f"queue-{number:04}": Tally(50, 48, 1, 1, {30: 40, 31: 10}, {8: 25, 9: 25})
                for number in range(100)
            }
        )
        begin = floor(self.now, MERGED)
        for minutes in range(24 * 60):
            at = begin - minutes * MINUTE
            self.store.record_flow([FlowPeriod(at=at, source=f"node-{node}", runs=runs) for node in range(3)])
        while self.store.merge_flow(before=begin - timedelta(hours=3)):
            pass


def _filled(columns: list[str], model: tuple[Any, ...], facts: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(facts.get(name, value) for name, value in zip(columns, model, strict=True))


# --- reading ------------------------------------------------------------------------------------


class Reader(Protocol):
    """Says how many rows a database has read for a call."""

    unit: str

    def rows(self, call: Callable[[], object]) -> int: ...


class PostgresqlReader:
    """Rows of sequential scans and entries of index scans, as the server counts them for each table and index."""

    unit = "rows and index entries"
    COUNTED = """
        SELECT coalesce((SELECT sum(seq_tup_read) FROM pg_stat_user_tables), 0)
             + coalesce((SELECT sum(idx_tup_read) FROM pg_stat_user_indexes), 0)
    """

    def __init__(self, url: str, store: Any) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._store = store
        self._connection.execute("VACUUM ANALYZE")

    def rows(self, call: Callable[[], object]) -> int:
        """What a call has read. A connection tells its counts when it is closed."""
        self._store.close()
        before = self._counted()
        call()
        self._store.close()
        return self._counted() - before

    def _counted(self) -> int:
        time.sleep(0.3)
        self._connection.execute("SELECT pg_stat_clear_snapshot()")
        row = self._connection.execute(self.COUNTED).fetchone()
        return int(row[0]) if row else 0


class MariadbReader:
    """Rows and index entries that the storage engine was asked for."""

    unit = "rows and index entries"

    def __init__(self, url: str, store: Any) -> None:
        parts = urlsplit(url)
        self._connection = pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=parts.path.lstrip("/"),
            autocommit=True,
        )
        with self._connection.cursor() as cursor:
            for table in (
                "scheduler_job",
                "scheduler_job_queue",
                "scheduler_job_execution",
                "scheduler_job_tag",
            ):
                cursor.execute(f"ANALYZE TABLE {table}")

    def rows(self, call: Callable[[], object]) -> int:
        """What a call has read."""
        before = self._counted()
        call()
        return self._counted() - before

    def _counted(self) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Handler_read%'")
            return sum(int(value) for _, value in cursor.fetchall())


class MongodbReader:
    """Index entries and documents that plans have looked at."""

    unit = "index entries and documents"

    def __init__(self, url: str, store: Any) -> None:
        self._client: Any = pymongo.MongoClient(url)

    def rows(self, call: Callable[[], object]) -> int:
        """What a call has read."""
        before = self._counted()
        call()
        return self._counted() - before

    def _counted(self) -> int:
        found = self._client.admin.command("serverStatus")["metrics"]["queryExecutor"]
        return int(found["scanned"]) + int(found["scannedObjects"])


class SqliteReader:
    """Steps of SQLite's machine, in hundreds; a row costs it ten or more."""

    unit = "steps / 100"
    steps = 0

    def __init__(self, url: str, store: Any) -> None:
        store.database.run(lambda session: session.execute("ANALYZE"))

    def rows(self, call: Callable[[], object]) -> int:
        """What a call took."""
        before = SqliteReader.steps
        call()
        return SqliteReader.steps - before

    @classmethod
    def watch(cls) -> None:
        """Count the steps of every connection that is opened from now on."""
        connect = sqlite3.connect

        def step() -> int:
            cls.steps += 1
            return 0

        def watched(*arguments: Any, **more: Any) -> sqlite3.Connection:
            connection = connect(*arguments, **more)
            connection.set_progress_handler(step, 100)
            return connection

        sqlite3.connect = watched  # type: ignore[assignment]  # the same, with a look at it


READERS: dict[str, Callable[[str, Any], Reader]] = {
    "sqlite": SqliteReader,
    "postgresql": PostgresqlReader,
    "mariadb": MariadbReader,
    "mongodb": MongodbReader,
}


def verbs(scheduler: Scheduler) -> dict[str, Callable[[], object]]:
    """Everything that a dashboard or an exporter asks, again and again."""
    jobs, letters = scheduler.jobs, scheduler.dead_letters
    target = "shop.jobs:target_7"

    def find(**criteria: Any) -> Callable[[], object]:
        return lambda: jobs.find(JobFilter(**criteria))

    return {
        "gauges": lambda: StoreGauges(scheduler.backend, max_age=0).read(),
        "health()": scheduler.health,
        "jobs.find()": jobs.find,
        "jobs.find, sorted": lambda: jobs.find(sort=SortBy.FINISHED),
        **{f"jobs.find {status}": find(statuses=[status]) for status in JobStatus},
        "jobs.find queue": find(queue="queue-0007"),
        "jobs.find queue, PENDING": find(queue="queue-0007", statuses=[JobStatus.PENDING]),
        "jobs.find unused queue": find(queue="nobody"),
        "jobs.find target": find(targets=[target]),
        "jobs.find target, FAILED": find(targets=[target], statuses=[JobStatus.FAILED]),
        "jobs.find unknown target": find(targets=["shop.jobs:nothing"]),
        "jobs.find tag": find(tags=["red"]),
        "jobs.find unknown tag": find(tags=["green"]),
        "jobs.counts()": jobs.counts,
        "jobs.count(FAILED)": lambda: jobs.count(JobFilter(statuses=[JobStatus.FAILED])),
        "jobs.statistics()": jobs.statistics,
        "jobs.history(1 h)": jobs.history,
        "jobs.history(1 day)": lambda: jobs.history(timedelta(days=1)),
        "jobs.tags()": jobs.tags,
        "dead_letters.find()": letters.find,
        "dead_letters.summary()": letters.summary,
        "queues.list()": scheduler.queues.list,
        "nodes.list()": scheduler.nodes.list,
    }


def measure(name: str, url: str, scale: float, only: str) -> dict[str, tuple[float, int]]:
    """Fill a store and call everything; milliseconds and rows read, by verb."""
    scheduler = Scheduler(url, options=Options(auto_migrate=True, log_level="CRITICAL"), allow=[__name__])
    begun = time.monotonic()
    Filling(scheduler, url, scale).fill()
    sys.stderr.write(f"{name}: filled in {time.monotonic() - begun:.0f} s\n")
    reader = READERS[name](url, scheduler.backend.store)
    found: dict[str, tuple[float, int]] = {}
    for verb, call in verbs(scheduler).items():
        if only not in verb:
            continue
        call()  # plans, caches
        taken = [_seconds(call) for _ in range(ROUNDS)]
        found[verb] = (1000 * statistics.median(taken), reader.rows(call))
        sys.stderr.write(
            f"{name:11} {verb:28} {found[verb][0]:10.1f} ms {found[verb][1]:12,} {reader.unit}\n"
        )
    scheduler.close()
    return found


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


@contextmanager
def places(stores: list[str]) -> Iterator[dict[str, Places]]:
    """Where each of these stores can be made."""
    servers = {"postgresql": postgresql_server, "mariadb": mariadb_server, "mongodb": mongodb_server}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ratchet-gauges-"))
        yield {
            name: Places(name, folder if name == "sqlite" else stack.enter_context(servers[name](None)))
            for name in stores
        }


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--only", default="", help="verbs whose name contains this")
    parser.add_argument("--json", help="a file for the numbers")
    chosen = parser.parse_args()
    stores = chosen.stores.split(",")
    SqliteReader.watch()
    found = {}
    with places(stores) as made:
        for name in stores:
            with made[name].new() as place:
                found[name] = measure(name, place.url, chosen.scale, chosen.only)
    if chosen.json:
        text = json.dumps({"scale": chosen.scale, "found": found}, indent=1)
        Path(chosen.json).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
