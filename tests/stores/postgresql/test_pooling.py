"""How many connections a process opens on PostgreSQL, and what PgBouncer makes of them."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from ratchet import JobContext, Options, Scheduler
from ratchet.model.errors import ConfigurationError, StoreError
from tests.cluster.workers import ROOT, Worker
from tests.services.pgbouncer import PgBouncer
from tests.services.postgresql import PostgreSQL
from tests.support.waiting import until

OURS = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'ratchet %%'
"""
#: As docs/how-to/sizing.md has it.
PAGE = ROOT / "docs" / "how-to" / "sizing.md"


def of_submitter(pool_size: int) -> int:
    """The pool, and one that tells the nodes."""
    return pool_size + 1


def of_node(pool_size: int) -> int:
    """The pool, those that claim, one that listens and one that tells."""
    return pool_size + max(pool_size // 4, 2) + 2


#: The supervisor of a worker beats and does nothing else.
SUPERVISOR = 1

arrived = threading.Semaphore(0)
gate = threading.Event()


def hold() -> None:
    """A job that has a transaction open until the gate is."""
    with JobContext.current().transaction() as tx:
        tx.execute("SELECT 1")
        arrived.release()
        gate.wait(60)


def quick() -> None:
    """A job that is over at once."""


class Most:
    """The most connections of ours that were open at once, while the block ran."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.count = 0

    def _look(self) -> None:
        with psycopg.connect(self._url, autocommit=True, application_name="the test") as connection:
            while not self._over.wait(0.005):
                (found,) = connection.execute(OURS, ()).fetchone() or (0,)
                self.count = max(self.count, found)

    def __enter__(self) -> Most:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def everywhere(count: int, do: Callable[[], object]) -> None:
    """Do it in so many threads at once."""
    threads = [threading.Thread(target=do) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_what_a_process_opens(postgresql_url: str) -> None:
    """
    Thirty threads submit, then a node runs as many transactions of jobs as it may, while others submit: never more than the page says.

    And the page does not exaggerate: a process that is that busy comes close to it.
    """
    options = Options(pool_size=6, concurrency=12)
    scheduler = Scheduler(postgresql_url, allow=[__name__], options=options)
    with closing(scheduler):
        scheduler.migrate()
        with Most(postgresql_url) as submitting:
            everywhere(30, lambda: [scheduler.enqueue_now(quick) for _ in range(20)])
        assert 6 <= submitting.count <= of_submitter(6)

        handles = [scheduler.enqueue_now(hold) for _ in range(6)]
        with Most(postgresql_url) as running, scheduler:
            for _ in range(4):  # two are kept for the engine
                assert arrived.acquire(timeout=60)
            everywhere(30, lambda: [scheduler.enqueue_now(quick) for _ in range(5)])
            gate.set()
            for handle in handles:
                handle.wait(timeout=60)
        assert of_node(6) - 3 <= running.count <= of_node(6)


def test_what_a_worker_opens(postgresql_url: str, tmp_path: Path) -> None:
    """The supervisor has one connection, whatever its number of processes; each of these has what a node has."""
    with closing(Scheduler(postgresql_url)) as scheduler:
        scheduler.migrate()
    with Most(postgresql_url) as found:
        worker = Worker(postgresql_url, tmp_path, "w", "--processes", "2", "--concurrency", "4")
        try:
            worker.wait_ready(2)
            until(lambda: found.count > SUPERVISOR + 2, 30, worker.log)
        finally:
            worker.close()
    assert found.count <= SUPERVISOR + 2 * of_node(Options().pool_size)


def test_the_page_says_the_same() -> None:
    """The numbers of the page about sizes are those of these tests, for the default pool."""
    text = PAGE.read_text()
    size = Options().pool_size
    assert f"| a process that submits | {size} + 1 = {of_submitter(size)} |" in text
    assert f"| a process that runs jobs | {size} + 2 + 2 = {of_node(size)} |" in text
    assert re.search(rf"\| the supervisor of `ratchet worker` \| {SUPERVISOR} \|", text)


def test_statement_pooling_is_refused(postgresql_server: PostgreSQL) -> None:
    """There are no transactions in that mode. The error says which mode to set, and is none that is tried again for ever."""
    with PgBouncer(upstream=postgresql_server.url, mode="statement") as pooler:
        url = pooler.create_database()
        with closing(Scheduler(url)) as scheduler:
            for verb in (scheduler.migrate, scheduler.jobs.counts):
                with pytest.raises(ConfigurationError, match="set pool_mode = transaction"):
                    verb()
        pooler.drop_database(url)


def test_what_a_caller_has_prepared_is_not_there(pgbouncer_url: str) -> None:
    """A caller's connection that prepares statements fails behind the pooler sooner or later; the error says how to open it."""
    with closing(Scheduler(pgbouncer_url, allow=[__name__])) as scheduler, contextlib.ExitStack() as others:
        scheduler.migrate()
        for threshold, refusal in ((None, None), (0, r"open the connection .* prepare_threshold=None")):
            caller = others.enter_context(psycopg.connect(pgbouncer_url, prepare_threshold=threshold))
            for _ in range(4):
                scheduler.enqueue(quick).submit(within=caller)
                caller.commit()
            # the server that it had is lent to somebody else, and its next transaction gets another one
            other = others.enter_context(psycopg.connect(pgbouncer_url, prepare_threshold=None))
            other.execute("SELECT 1")
            if refusal is None:
                scheduler.enqueue(quick).submit(within=caller)
            else:
                with pytest.raises(StoreError, match=refusal):
                    scheduler.enqueue(quick).submit(within=caller)
            caller.rollback()
