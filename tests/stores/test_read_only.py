"""A database that takes no writes for a while: one clear error, reads go on, and writes too once they are allowed."""

from __future__ import annotations

import logging
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymongo
import pymysql
import pytest

from ratchet import JobFilter, Options, Scheduler, StoreReadOnly, StoreUnavailable
from ratchet.stores import open_store
from ratchet.stores.sql.dialects.mysql.connections import Address
from ratchet.stores.sql.dialects.sqlite.errors import Location, meaning
from ratchet.tck.steps import Steps
from tests.services.mariadb import MariaDB
from tests.services.mongodb import MongoDB
from tests.services.server import database_name
from tests.support.waiting import until


def insert(store: Any) -> None:
    steps_on(store).submit(scheduled_at=datetime(2025, 1, 1, tzinfo=UTC))


def claim(store: Any) -> None:
    assert steps_on(store).claim(1)


def assert_told(store: Any) -> None:
    """The health check and the job that waits say that the database takes no writes; both only read for that."""
    scheduler = Scheduler(store=store, allow=["builtins:abs"])
    health = scheduler.health()
    assert "read_only" in [problem.code for problem in health.problems]
    assert (health.ok, health["reachable"], health["writable"], health["overdue"]) == (False, True, False, 1)
    (job,) = scheduler.jobs.find(JobFilter()).items
    assert [reason.code for reason in scheduler.explain(job.id)] == ["read_only", "no_nodes"]


def assert_writable(store: Any) -> None:
    assert Scheduler(store=store, allow=["builtins:abs"]).health()["writable"]


def steps_on(store: Any) -> Steps:
    steps = Steps()
    steps.store = store
    return steps


def admin(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True)


def freeze(url: str, value: str) -> None:
    """Let new sessions read only, or not, and end the others."""
    with admin(url) as connection:
        name = connection.info.dbname
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {value}')
        connection.execute(
            "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            (name,),
        )


class TestPostgresql:
    def test_a_freeze_is_respected(self, postgresql_url: str) -> None:
        """Nothing overrides default_transaction_read_only: not a submission, not a claim, not a transaction of a job."""
        with closing(open_store(postgresql_url, Options())) as store:
            store.migrate()
            insert(store)
            freeze(postgresql_url, "on")
            address = f"{urlsplit(postgresql_url).hostname}:{urlsplit(postgresql_url).port}"
            for write in (insert, claim):
                with pytest.raises(StoreReadOnly, match="is read-only") as caught:
                    write(store)
                assert address in str(caught.value)
                assert "default_transaction_read_only" in str(caught.value)
            assert_told(store)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), store.begin() as connection:
                connection.execute("DELETE FROM scheduler_queue")
            assert [queue.pending for queue in store.queues()] == [1]
            freeze(postgresql_url, "off")
            assert_writable(store)
            insert(store)
            claim(store)

    def test_a_scheduler_waits_and_goes_on_by_itself(
        self, postgresql_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Each service says it once, not once a second; when writes are allowed again, what was submitted before runs."""
        options = Options(
            heartbeat=0.5, silence=20, poll_delay_burst=0.1, poll_delay_min=0.1, poll_delay_max=0.2
        )
        with closing(Scheduler(postgresql_url, allow=["builtins:abs"], options=options)) as scheduler:
            scheduler.migrate()
            with scheduler, caplog.at_level(logging.INFO, "ratchet"):
                first = scheduler.enqueue_now(abs, -1)
                assert first.result(timeout=10) == 1
                caplog.clear()
                freeze(postgresql_url, "on")
                with pytest.raises(StoreReadOnly, match="is read-only"):
                    scheduler.enqueue_now(abs, -2)
                time.sleep(2)
                said = [record for record in caplog.records if "is read-only" in record.getMessage()]
                names = [record.getMessage().split(":")[0] for record in said]
                assert said
                assert len(names) == len(set(names)), names
                assert all(record.exc_info is None for record in said)
                freeze(postgresql_url, "off")
                until(lambda: works(scheduler), 20)


def works(scheduler: Scheduler) -> bool:
    try:
        return bool(scheduler.enqueue_now(abs, -3).result(timeout=10) == 3)
    except StoreUnavailable:
        return False


class TestMysql:
    def test_a_freeze_is_respected(self) -> None:
        """A server whose transactions only read, as a replica's do."""
        with MariaDB() as server:
            url = server.create_database()
            at = Address.of(url)

            def frozen(value: int) -> None:
                with (
                    pymysql.connect(
                        host=at.hosts[0][0],
                        port=at.hosts[0][1],
                        user=at.user,
                        password=at.password,
                        database=at.database,
                    ) as connection,
                    connection.cursor() as cursor,
                ):
                    cursor.execute(f"SET GLOBAL tx_read_only = {value}")

            with closing(open_store(url, Options())) as store:
                store.migrate()
                insert(store)
                frozen(1)
                store.close()  # a session keeps what it began with
                for write in (insert, claim):
                    with pytest.raises(StoreReadOnly, match="is read-only") as caught:
                        write(store)
                    assert str(at) in str(caught.value)
                assert_told(store)
                assert [queue.pending for queue in store.queues()] == [1]
                frozen(0)
                insert(store)
                claim(store)


class TestMongodb:
    def test_a_server_that_is_not_the_primary(self) -> None:
        """A URL that names one server and insists on it: its primary has stepped down."""
        with MongoDB() as server:
            url = f"mongodb://127.0.0.1:{server.port}/{database_name()}?directConnection=true"
            with closing(open_store(url, Options(connect_timeout=2))) as store:
                store.migrate()
                insert(store)
                client: pymongo.MongoClient[Any] = pymongo.MongoClient(url)
                with closing(client):
                    client.admin.command("replSetStepDown", 8, force=True)
                    with pytest.raises(
                        StoreReadOnly, match="is read-only, because the server is not the primary"
                    ) as caught:
                        insert(store)
                    assert f"127.0.0.1:{server.port}" in str(caught.value)
                    assert_told(store)
                    until(lambda: inserts(store), 40)


def inserts(store: Any) -> bool:
    try:
        insert(store)
    except StoreUnavailable:
        return False
    return True


class TestSqlite:
    def test_a_file_that_may_only_be_read(self, tmp_path: Path) -> None:
        """The message names the file and says what the process needs."""
        path = tmp_path / "jobs.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE t (x)")
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            with pytest.raises(sqlite3.OperationalError) as caught:
                connection.execute("INSERT INTO t VALUES (1)")
        found = meaning(caught.value, "INSERT", Location(path, 1.0))
        assert isinstance(found, StoreReadOnly)
        assert f"{path} is read-only" in str(found)
