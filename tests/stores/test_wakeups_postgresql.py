"""LISTEN and NOTIFY, also behind PgBouncer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from ratchet.model.options import Options
from ratchet.model.status import Priority
from ratchet.stores.sql.dialects.postgresql.dialect import PostgresqlDialect
from ratchet.stores.sql.dialects.postgresql.wakeups import notify_within, postgresql_wakeups
from tests.services.pgbouncer import PgBouncer
from tests.services.postgresql import PostgreSQL
from tests.services.server import with_database
from tests.stores.wakeup_rigs import TABLE, Heard, threads_end, waking_threads
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    with threads_end():
        yield


@pytest.fixture
def installed_url(postgresql_url: str) -> str:
    """A PostgreSQL database with the one table that names the channel."""
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(TABLE)
    return postgresql_url


class TestPostgresql:
    def test_two_installations_in_one_database_do_not_wake_each_other(self, installed_url: str) -> None:
        """Each schema has its own channel."""
        with psycopg.connect(installed_url, autocommit=True) as connection:
            connection.execute('CREATE SCHEMA "Second ""one"""')
            connection.execute('CREATE TABLE "Second ""one""".scheduler_job_queue (job_id text)')
        table = '"Second ""one""".scheduler_job_queue'
        first, second = postgresql_wakeups(installed_url), postgresql_wakeups(installed_url, table)
        heard = Heard(), Heard()
        try:
            for coordinator, listener in zip((first, second), heard, strict=True):
                coordinator.register_wakeup_listener(listener)
                coordinator.start()
            until(lambda: first.connected and second.connected and all(heard))
            before = [len(listener) for listener in heard]
            sender = postgresql_wakeups(installed_url, table)
            sender.notify_new_work(Priority.NORMAL)
            sender.stop()
            assert heard[1].within(5, after=before[1])
            time.sleep(0.1)
            assert len(heard[0]) == before[0]
        finally:
            first.stop()
            second.stop()

    def test_it_waits_for_the_schema(self, postgresql_url: str) -> None:
        """Before the tables exist nothing is heard and nothing breaks; afterwards it connects by itself."""
        coordinator = postgresql_wakeups(postgresql_url)
        coordinator.start()
        coordinator.notify_new_work(Priority.NORMAL)
        time.sleep(0.3)
        assert not coordinator.connected
        with psycopg.connect(postgresql_url, autocommit=True) as connection:
            connection.execute(TABLE)
        until(lambda: coordinator.connected)
        coordinator.stop()

    def test_a_message_within_the_callers_transaction(self, installed_url: str) -> None:
        """A commit wakes, once, the caller's own process too; a rollback wakes nobody."""
        coordinator, heard = postgresql_wakeups(installed_url), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        dialect = PostgresqlDialect(installed_url, Options())
        try:
            until(lambda: coordinator.connected and len(heard) > 0)
            before = len(heard)
            with psycopg.connect(installed_url) as connection:
                with dialect.enlist(connection) as session:
                    notify_within(session)
                connection.rollback()
                time.sleep(0.1)
                assert len(heard) == before
                for _ in range(2):
                    with dialect.enlist(connection) as session:
                        notify_within(session)
                time.sleep(0.1)
                assert len(heard) == before
                connection.commit()
                assert heard.within(5, after=before)
                time.sleep(0.1)
                assert len(heard) == before + 1
        finally:
            coordinator.stop()
            dialect.close()

    @pytest.mark.parametrize(("url", "afterwards"), [("installed_url", "off"), ("pgbouncer_url", "on")])
    def test_sending_does_not_wait_for_the_disk(
        self, request: pytest.FixtureRequest, url: str, afterwards: str
    ) -> None:
        """Our own connection never flushes; a pooler's is used by others, and what is set there ends with the message."""
        coordinator = postgresql_wakeups(request.getfixturevalue(url))
        sender = coordinator._medium.sender()
        try:
            sender.send()
            connection: Any = sender._connection  # type: ignore[attr-defined]
            connection.prepare_threshold = None
            assert connection.execute("SHOW synchronous_commit").fetchone() == (afterwards,)
        finally:
            sender.close()

    def test_behind_a_pooler_in_transaction_mode_it_says_so_once(
        self, pgbouncer_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """One warning, no thread that goes on trying, no LISTEN left on a connection that others use."""
        with psycopg.connect(pgbouncer_url, autocommit=True, prepare_threshold=None) as connection:
            connection.execute(TABLE)
        coordinator, heard = postgresql_wakeups(pgbouncer_url), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        until(lambda: bool(caplog.records) and not waking_threads())
        assert not coordinator.connected
        assert len(heard) == 0
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "pooler in transaction mode" in caplog.text
        assert pooled_channels(pgbouncer_url) == []
        coordinator.stop()

    def test_through_a_pooler_in_transaction_mode_it_can_send(
        self, pgbouncer_url: str, postgresql_server: PostgreSQL
    ) -> None:
        """A submitter behind PgBouncer wakes a worker that has a direct connection."""
        direct = with_database(postgresql_server.url, urlsplit(pgbouncer_url).path[1:])
        with psycopg.connect(direct, autocommit=True) as connection:
            connection.execute(TABLE)
        coordinator, sender, heard = postgresql_wakeups(direct), postgresql_wakeups(pgbouncer_url), Heard()
        coordinator.register_wakeup_listener(heard)
        coordinator.start()
        try:
            until(lambda: coordinator.connected and len(heard) > 0)
            before = len(heard)
            sender.notify_new_work(Priority.NORMAL)
            assert heard.within(5, after=before)
        finally:
            sender.stop()
            coordinator.stop()

    def test_through_a_pooler_in_session_mode_it_listens(self, postgresql_server: PostgreSQL) -> None:
        """PgBouncer's default mode keeps the session, so LISTEN works there; own messages are still recognised."""
        with PgBouncer(upstream=postgresql_server.url, mode="session") as pooler:
            url = pooler.create_database()
            with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
                connection.execute(TABLE)
            coordinator, sender, heard = postgresql_wakeups(url), postgresql_wakeups(url), Heard()
            coordinator.register_wakeup_listener(heard)
            coordinator.start()
            try:
                until(lambda: coordinator.connected and len(heard) > 0)
                before = len(heard)
                coordinator.notify_new_work(Priority.NORMAL)
                time.sleep(0.2)
                assert len(heard) == before
                sender.notify_new_work(Priority.NORMAL)
                assert heard.within(5, after=before)
            finally:
                sender.stop()
                coordinator.stop()
            pooler.drop_database(url)


def pooled_channels(url: str) -> list[str]:
    """What the pooler's server connections listen to; several transactions at once see several of them."""
    connections = [psycopg.connect(url, prepare_threshold=None) for _ in range(5)]
    try:
        return [
            str(row[0])
            for connection in connections
            for row in connection.execute("SELECT pg_listening_channels()").fetchall()
        ]
    finally:
        for connection in connections:
            connection.close()
