"""The store fails inside ctx.transaction(): the run does not count, and each effect is there once."""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymongo
import pymysql
import pytest

from ratchet import JobContext, JobStatus, Options, Scheduler
from ratchet.stores.sql.dialects.mysql.connections import Address
from ratchet.tck.faults import Moment, Proxy
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.postgresql import PostgreSQL
from tests.services.server import Server
from tests.support.store_urls import fresh_url
from tests.support.waiting import until

NAMES = ["ann", "bob", "cleo"]

runs: Counter[str] = Counter()
scene: Scene


class Scene:
    """A table of the user's in the database of the store, and ways to break the transaction that writes to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.disturb: Callable[[Any], None] = lambda tx: None
        self.locked = threading.Event()
        self.locked.set()

    def write(self, tx: Any, name: str) -> None:
        """An effect of a job."""
        tx.connection.cursor().execute(f"INSERT INTO effects VALUES ('{name}')")

    def written(self) -> list[str]:
        """The effects that are there."""
        raise NotImplementedError

    def lose_connection(self, tx: Any) -> None:
        """The server ends the connection; the next statement notices."""
        self.end_connection(tx)
        tx.execute("SELECT 1")

    def end_connection(self, tx: Any) -> None:
        """The server ends the connection; nothing in the block notices."""
        raise NotImplementedError

    def conflict(self, tx: Any) -> None:
        """Another transaction wins."""
        raise NotImplementedError

    def wrapped(self, tx: Any) -> None:
        """The job's code makes an error of its own from the driver's."""
        try:
            self.lose_connection(tx)
        except Exception as error:
            raise RuntimeError("the account cannot be read") from error

    def elsewhere(self, tx: Any) -> None:
        """A database of the user's fails in the same way; the one of the store is well."""
        raise NotImplementedError

    def refused(self, tx: Any) -> None:
        """The database refuses what the job wants to write."""
        tx.execute("INSERT INTO effects VALUES (NULL)")


class Postgresql(Scene):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.admin = psycopg.connect(url, autocommit=True, prepare_threshold=None)  # it may be a pooler
        self.admin.execute("CREATE TABLE effects (name text NOT NULL)")

    def written(self) -> list[str]:
        with psycopg.connect(self.url) as reader:
            return [name for (name,) in reader.execute("SELECT name FROM effects ORDER BY name")]

    def end_connection(self, tx: Any) -> None:
        self.end_server_of(tx.connection)

    def conflict(self, tx: Any) -> None:
        tx.execute("DO $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '40001'; END $$")

    def elsewhere(self, tx: Any) -> None:
        with psycopg.connect(self.url) as other:
            self.end_server_of(other)
            other.execute("SELECT 1")

    def end_server_of(self, connection: psycopg.Connection[Any]) -> None:
        """End the process that answers on it: behind a pooler it is another than libpq was told of at the start."""
        (process,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        assert self.admin.execute("SELECT pg_terminate_backend(%s, 5000)", (process,)).fetchone() == (True,)


class Mysql(Scene):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.admin = self.connect()
        self.admin.cursor().execute("CREATE TABLE effects (name varchar(40) NOT NULL)")

    def connect(self) -> Any:
        at = Address.of(self.url)
        return pymysql.connect(
            host=at.hosts[0][0],
            port=at.hosts[0][1],
            user=at.user,
            password=at.password,
            database=at.database,
            autocommit=True,
        )

    def written(self) -> list[str]:
        with self.connect() as reader, reader.cursor() as cursor:
            cursor.execute("SELECT name FROM effects ORDER BY name")
            return [name for (name,) in cursor.fetchall()]

    def end_connection(self, tx: Any) -> None:
        with self.connect() as killer:  # jobs run at the same time, and no two threads may share one of these
            killer.cursor().execute(f"KILL {tx.connection.thread_id()}")

    def conflict(self, tx: Any) -> None:
        tx.execute("ROLLBACK")  # as the server does
        tx.execute("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock found'")

    def elsewhere(self, tx: Any) -> None:
        with self.connect() as other:
            other.cursor().execute(
                "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'Deadlock'"
            )


class Mongodb(Scene):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.admin: pymongo.MongoClient[Any] = pymongo.MongoClient(url)
        self.name = urlsplit(url).path.strip("/")
        self.admin[self.name].effects.create_index("name", unique=True)
        self.admin[self.name].effects.insert_one({"name": "taken", "count": 0})

    def write(self, tx: Any, name: str) -> None:
        effects = tx.connection.client[self.name].effects
        effects.insert_one({"name": name}, session=tx.connection)

    def written(self) -> list[str]:
        found = self.admin[self.name].effects.find({"name": {"$ne": "taken"}}).sort("name")
        return [one["name"] for one in found]

    def end_connection(self, tx: Any) -> None:
        session = {"id": tx.connection.session_id["id"]}
        self.admin.admin.command("killSessions", [session])

    def lose_connection(self, tx: Any) -> None:
        self.end_connection(tx)
        self.write(tx, "more")

    def conflict(self, tx: Any) -> None:
        for session in (None, tx.connection):
            effects = tx.connection.client[self.name].effects
            effects.update_one({"name": "taken"}, {"$inc": {"count": 1}}, session=session)

    def elsewhere(self, tx: Any) -> None:
        with pymongo.MongoClient[Any]("mongodb://127.0.0.1:9", serverSelectionTimeoutMS=200) as other:
            other.shop.orders.find_one()

    def refused(self, tx: Any) -> None:
        self.write(tx, "taken")


class Sqlite(Scene):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.path = url.removeprefix("sqlite:///")
        self.admin = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.admin.execute("CREATE TABLE effects (name text NOT NULL)")

    def written(self) -> list[str]:
        return [name for (name,) in self.admin.execute("SELECT name FROM effects ORDER BY name")]

    def elsewhere(self, tx: Any) -> None:
        with closing(sqlite3.connect("/nowhere/at/all.db")) as other:
            other.execute("SELECT 1")


STAGES: dict[str, type[Any]] = {
    "postgresql": Postgresql,
    "mysql": Mysql,
    "mongodb": Mongodb,
    "sqlite": Sqlite,
}


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    global scene
    runs.clear()
    scene = made = STAGES[request.param](fresh_url(request.param, request, tmp_path))
    yield made
    made.admin.close()


@pytest.fixture
def scheduler(stage: Scene) -> Iterator[Scheduler]:
    options = Options(concurrency=3, sqlite_busy_timeout=0.3)
    made = Scheduler(stage.url, allow=["tests.lifecycle"], options=options)
    yield made
    made.close()


def pay(name: str) -> None:
    """Writes an effect in its transaction; the first run is disturbed there."""
    runs[name] += 1
    scene.locked.wait(20)
    with JobContext.current().transaction() as tx:
        scene.write(tx, name)
        if runs[name] == 1:
            scene.disturb(tx)


async def pay_async(name: str) -> None:
    """The same on the event loop."""
    runs[name] += 1
    scene.locked.wait(20)
    async with JobContext.current().aio.transaction() as tx:
        thread, inner = tx._thread, tx._transaction  # type: ignore[attr-defined]
        await thread.run(lambda: scene.write(inner, name))
        if runs[name] == 1:
            await thread.run(lambda: scene.disturb(inner))


def pay_wrapped(name: str) -> None:
    """The same, with an error of the application's own."""
    try:
        pay(name)
    except Exception as error:
        raise RuntimeError(f"{name} cannot be paid") from error


TARGETS: list[Callable[[str], Any]] = [pay, pay_async, pay_wrapped]
SERVERS = ["postgresql", "mysql", "mongodb"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("broken", ["lose_connection", "end_connection", "conflict", "wrapped"])
@pytest.mark.parametrize("stage", SERVERS, indirect=True)
def test_an_error_of_the_store_costs_no_attempt(
    scheduler: Scheduler, stage: Scene, broken: str, target: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs without retries: nobody becomes a dead letter, each runs again and leaves its effect once."""
    stage.disturb = getattr(stage, broken)
    with scheduler:
        handles = [scheduler.enqueue(target, name).with_max_retries(0).submit() for name in NAMES]
        assert all(handle.wait(timeout=30) for handle in handles)
    jobs = [handle.job() for handle in handles]
    assert [(job.status, job.attempts, job.error) for job in jobs] == [(JobStatus.SUCCEEDED, 1, None)] * 3
    assert stage.written() == NAMES
    assert runs == dict.fromkeys(NAMES, 2)
    assert len([line for line in caplog.messages if "so this run does not count" in line]) == 3


@pytest.mark.parametrize("stage", ["sqlite"], indirect=True)
@pytest.mark.parametrize("target", TARGETS)
def test_a_database_that_somebody_holds_costs_no_attempt(
    scheduler: Scheduler, stage: Sqlite, target: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Another program keeps the write lock of the file for longer than the busy timeout."""
    stage.locked.clear()
    with scheduler:
        handle = scheduler.enqueue(target, "ann").with_max_retries(0).submit()
        with closing(sqlite3.connect(stage.path, isolation_level=None)) as holder:
            until(lambda: runs["ann"] == 1)
            holder.execute("BEGIN IMMEDIATE")
            stage.locked.set()
            until(lambda: "so this run does not count" in caplog.text)
            holder.execute("ROLLBACK")
        assert handle.wait(timeout=30)
    assert (handle.job().status, handle.job().attempts) == (JobStatus.SUCCEEDED, 1)
    assert stage.written() == ["ann"]


@pytest.mark.parametrize("broken", ["elsewhere", "refused"])
@pytest.mark.parametrize("stage", [*SERVERS, "sqlite"], indirect=True)
def test_errors_of_the_jobs_own_count(scheduler: Scheduler, stage: Scene, broken: str) -> None:
    """Another database of the application fails, or this one refuses a row: without retries that is a dead letter."""
    stage.disturb = getattr(stage, broken)
    with scheduler:
        handle = scheduler.enqueue(pay, "ann").with_max_retries(0).submit()
        assert handle.wait(timeout=30)
    assert (handle.job().status, handle.job().attempts) == (JobStatus.FAILED, 1)
    assert (stage.written(), runs["ann"]) == ([], 1)


@pytest.mark.parametrize("stage", ["postgresql"], indirect=True)
def test_one_that_goes_on_failing_waits_longer_each_time(
    scheduler: Scheduler, stage: Scene, caplog: Any
) -> None:
    """A job that the store fails again and again does not keep a slot busy, and never becomes a dead letter."""

    def disturb_again(tx: Any) -> None:
        if runs["ann"] < 4:
            stage.conflict(tx)
        runs["disturbed"] += 1

    stage.disturb = disturb_again
    with scheduler:
        handle = scheduler.enqueue(pay_always_disturbed, "ann").with_max_retries(0).submit()
        assert handle.wait(timeout=60)
    assert (handle.job().status, handle.job().attempts) == (JobStatus.SUCCEEDED, 1)
    pauses = [
        float(found[1]) for line in caplog.messages if (found := re.search(r"again in ([\d.]+) s", line))
    ]
    assert len(pauses) == 3
    assert pauses[0] < pauses[1] < pauses[2]


def pay_always_disturbed(name: str) -> None:
    """Every run is disturbed."""
    runs[name] += 1
    with JobContext.current().transaction() as tx:
        scene.disturb(tx)


def pay_slowly(name: str) -> None:
    """Is in its transaction most of the time."""
    runs[name] += 1
    with JobContext.current().transaction() as tx:
        scene.write(tx, name)
        time.sleep(0.2)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("ending", ["restart", "kill"])
@pytest.mark.parametrize("kind", [PostgreSQL, MariaDB, MongoDB])
def test_a_server_that_restarts_costs_no_attempt(kind: type[Server], ending: str) -> None:
    """A hundred jobs without retries, eight at a time: no dead letter, each effect once."""
    global scene
    runs.clear()
    names = [f"job-{number:03}" for number in range(100)]
    with kind() as server:
        url = server.create_database()
        with closing(Scheduler(url, allow=["tests.lifecycle"], options=Options(concurrency=8))) as scheduler:
            scheduler.migrate()
            scene = stage = STAGES[url.split(":")[0].split("+")[0]](url)
            with closing(stage.admin), scheduler:
                handles = [scheduler.enqueue(pay_slowly, name).with_max_retries(0).submit() for name in names]
                until(lambda: len(runs) >= 24)
                if ending == "restart":
                    server.stop()
                else:
                    server.kill()
                time.sleep(1)
                server.start()
                assert all(handle.wait(timeout=60) for handle in handles)
                jobs = [handle.job() for handle in handles]
                assert {(job.status, job.attempts) for job in jobs} == {(JobStatus.SUCCEEDED, 1)}
                assert stage.written() == names
        assert sum(runs.values()) > len(names)  # some were in the middle


cut: Callable[[], None]


def pay_cut(name: str) -> None:
    """The connection that sends a certain request after this is cut."""
    runs[name] += 1
    if runs[name] == 1:
        cut()
    with JobContext.current().transaction() as tx:
        scene.write(tx, name)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("stage", SERVERS, indirect=True)
def test_a_connection_that_is_cut_anywhere_costs_no_attempt(stage: Scene, moment: Moment) -> None:
    """Before and after each request of the transaction, its commit included, whose fate is unknown then."""
    global cut
    parts = urlsplit(stage.url)
    with Proxy((parts.hostname or "", parts.port or 0)) as proxy:
        user = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        through = parts._replace(netloc=f"{user}127.0.0.1:{proxy.address[1]}")
        if parts.scheme == "mongodb":
            through = through._replace(query="directConnection=true")
        options = Options(concurrency=1, heartbeat=5, poll_delay_min=0.5, poll_delay_max=0.5)
        with (
            closing(Scheduler(through.geturl(), allow=["tests.lifecycle"], options=options)) as scheduler,
            scheduler,
        ):
            names = [f"job-{number:02}" for number in range(1, 13)]
            for number, name in enumerate(names, 1):
                cut = partial(proxy.arm, number, moment)
                handle = scheduler.enqueue(pay_cut, name).with_max_retries(0).submit()
                assert handle.wait(timeout=30)
                proxy.arm()
                assert (name, handle.job().status, handle.job().attempts) == (name, JobStatus.SUCCEEDED, 1)
    assert stage.written() == names
    assert sum(runs.values()) > len(names)
