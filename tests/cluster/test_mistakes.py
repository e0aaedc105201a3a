"""Mistakes of whoever starts a worker: each is told in one line that says what to do, and never as a traceback."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from ratchet.model.options import Options
from ratchet.scheduler import Scheduler
from ratchet.stores import open_store
from tests.cluster import shop
from tests.cluster.conftest import StartWorker
from tests.cluster.workers import Worker
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.mark.parametrize("fixture", ["postgresql_url", "mysql_url"])
def test_a_schema_that_is_missing(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The worker does not wait for it: it says what to run, and ends with exit code 1. (SQLite and MongoDB make theirs.)"""
    worker = Worker(request.getfixturevalue(fixture), tmp_path, "one")
    try:
        assert worker.wait(90) == 1
    finally:
        worker.close()
    assert worker.log.count("ratchet db upgrade") == 1
    assert "Traceback" not in worker.log


def test_a_user_without_rights(postgresql_url: str, tmp_path: Path) -> None:
    """PostgreSQL says which table; the worker says that a grant is missing, without the text of its statement."""
    store = open_store(postgresql_url, Options())
    store.migrate()
    store.close()
    role = sql.Identifier("stranger")
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        owner = connection.info.user
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(role))
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
    worker = Worker(postgresql_url.replace(f"//{owner}", "//stranger", 1), tmp_path, "one")
    try:
        assert worker.wait(90) == 1, worker.log
    finally:
        worker.close()
        with psycopg.connect(postgresql_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP ROLE {}").format(role))
    assert "permission denied for table" in worker.log
    assert "`ratchet db grants` prints what each role needs" in worker.log
    assert "SELECT" not in worker.log
    assert "Traceback" not in worker.log


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_queue_that_nobody_has_used(scheduler: Scheduler, start_worker: StartWorker, ledger: str) -> None:
    """The worker serves it all the same, and names those that were used: it may be a slip."""
    scheduler.enqueue(shop.note, ledger, "one").with_queue("emails").submit()
    worker = start_worker("one", "--queues", "emials,emails").wait_ready(seconds=60)
    until(lambda: "no job was ever submitted to queue emials; those" in worker.log, 30, "nothing was said")
    worker.signal(signal.SIGTERM)
    assert worker.wait(60) == 0


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_two_workers_of_the_same_name(
    scheduler: Scheduler, start_worker: StartWorker, url: str, tmp_path: Path
) -> None:
    """A name is for people: both are nodes of their own, and neither takes the other for itself."""
    (tmp_path / "second").mkdir()
    first = start_worker("twin").wait_ready(seconds=60)
    second = Worker(url, tmp_path / "second", "twin")
    try:
        second.wait_ready(seconds=60)
        nodes = scheduler.nodes.list()
        assert {node.name for node in nodes} == {"twin"}
        assert {node.node_id for node in nodes} == {*first.nodes(), *second.nodes()}
        assert len(nodes) == 2
    finally:
        second.close()
