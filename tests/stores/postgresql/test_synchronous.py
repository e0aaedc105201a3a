"""A synchronous standby that never answers: no submission is acknowledged without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest

from ratchet import JobFilter, Options, Scheduler, StoreUnavailable
from ratchet.stores import open_store
from tests.services.postgresql import PostgreSQL
from tests.support.waiting import until

END_WAITING = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def url() -> Iterator[str]:
    """A database on a server whose settings nobody else depends on."""
    with PostgreSQL() as server:
        yield server.create_database()


@contextmanager
def unanswered_commits(admin: psycopg.Connection) -> Iterator[None]:
    """Inside the block every commit that has written waits for a standby that does not exist."""
    admin.execute("SET synchronous_commit = local")
    admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
    admin.execute("SELECT pg_reload_conf()")
    until(lambda: admin.execute("SHOW synchronous_standby_names").fetchone() == ("ghost",), 30, "no reload")
    try:
        yield
    finally:
        admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        admin.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("key", [None, "k"])
def test_what_only_the_primary_has_is_no_answer(url: str, key: str | None) -> None:
    """A try that was ended while it waited for the standby has left its job; the next try finds it, and waits as well."""
    answers: list[object] = []

    with (
        closing(open_store(url, Options(failover_patience=3))) as store,
        psycopg.connect(url, autocommit=True) as admin,
    ):
        store.migrate()
        scheduler = Scheduler(store=store, allow=["builtins:abs"])

        def submit() -> None:
            draft = scheduler.enqueue(abs, 1)
            try:
                answers.append((draft if key is None else draft.with_idempotency_key(key)).submit())
            except StoreUnavailable as error:
                answers.append(error)

        scheduler.enqueue(abs, 0).submit()
        with unanswered_commits(admin):
            thread = threading.Thread(target=submit)
            thread.start()
            until(lambda: bool(admin.execute(END_WAITING).fetchall()), 30, "no commit waits")
            until(
                lambda: scheduler.jobs.count(JobFilter()) == 2, 30, "the job of the first try is not visible"
            )
            thread.join(60)
        assert [isinstance(answer, StoreUnavailable) for answer in answers] == [True], answers
