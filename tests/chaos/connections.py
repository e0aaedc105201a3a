"""Connections that are cut, swallow what is sent, or are too few."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pymysql

from ratchet.tck.faults import Proxy
from tests.chaos.scenario import Scenario
from tests.chaos.stage import Stage

ROUND = 10.0
BETWEEN_CUTS = 0.5
#: Longer than the silence after which a worker counts as dead.
SILENT = 12.0

NO_CONNECTIONS = {"sqlite": "there is no connection to cut: the database is a file"}
ONE_WRITER = {"sqlite": "there is no pool: a process has one connection that writes, and jobs queue for it"}


def backends(stage: Stage, rounds: int) -> None:
    """Twice a second about half of all connections are ended by the server, or cut on their way to it."""
    with _cutting(stage) as (url, cut):
        for _ in range(3):
            stage.start_worker(url=url)
        for worker in stage.workers:
            worker.wait_ready(seconds=60)
        over = threading.Event()
        thread = threading.Thread(target=_repeatedly, args=(cut, over), daemon=True)
        thread.start()
        try:
            with stage.load(20, 0.1, hold=0.05, retries=20):
                time.sleep(ROUND * rounds)
        finally:
            over.set()
            thread.join(10)
        stage.recoveries.append(stage.wait_for_progress())
        stage.wait_until_all_ended()


def _repeatedly(cut: Callable[[], None], over: threading.Event) -> None:
    while not over.wait(BETWEEN_CUTS):
        cut()


@contextmanager
def _cutting(stage: Stage) -> Iterator[tuple[str, Callable[[], None]]]:
    """Where workers connect to, and what cuts their connections."""
    dice = random.Random(7)
    if stage.kind == "postgresql":
        yield stage.url, lambda: _terminate_postgresql(stage.url)
    elif stage.kind == "mysql":
        yield stage.url, lambda: _kill_mysql(stage.url, dice)
    else:
        with proxied(stage) as (url, proxy):
            yield url, proxy.cut_all


def _terminate_postgresql(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5"
        )


def _kill_mysql(url: str, dice: random.Random) -> None:
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username, autocommit=True
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = %s", (parts.path.removeprefix("/"),)
        )
        for (session,) in cursor.fetchall():
            if dice.random() < 0.5:
                try:
                    cursor.execute(f"KILL {int(session)}")
                except pymysql.err.Error:
                    pass  # it ended in between


@contextmanager
def proxied(stage: Stage) -> Iterator[tuple[str, Proxy]]:
    """The same database by way of a proxy."""
    parts = urlsplit(stage.url)
    assert parts.hostname is not None
    assert parts.port is not None
    with Proxy((parts.hostname, parts.port)) as proxy:
        host, port = proxy.address
        user = f"{parts.username}@" if parts.username else ""
        url = parts._replace(netloc=f"{user}{host}:{port}")
        if stage.kind == "mongodb":
            # As a member of its replica set the server would be asked at its own address, past the proxy.
            url = url._replace(query="directConnection=true")
        yield url.geturl(), proxy


def blackhole(stage: Stage, rounds: int) -> None:
    """One worker's connections swallow every byte in the middle of a job: others take its work over."""
    with proxied(stage) as (url, proxy):
        victim = stage.start_worker(url=url)
        stage.start_worker()
        stage.start_worker()
        for worker in stage.workers:
            worker.wait_ready(seconds=60)
        with stage.load(6, 2.0, retries=5):
            for _ in range(rounds):
                run = stage.wait_for_work(victim)
                stage.note_blow(victim)
                proxy.silent = True
                stage.wait_until_taken_over(run)
                time.sleep(SILENT / 4)
                proxy.silent = False
                proxy.cut_all()  # what was swallowed is missing: these connections are of no use any more
        stage.wait_until_all_ended()


def pool(stage: Stage, rounds: int) -> None:
    """Twenty threads want a transaction at once, and a process has one connection for them."""
    for _ in range(3):
        stage.start_worker(RATCHET_POOL_SIZE="3")
    for worker in stage.workers:
        worker.wait_ready(seconds=60)
    with stage.load(20, 0.0, hold=0.4, retries=20):
        time.sleep(ROUND * rounds)


SCENARIOS = [
    Scenario("backends", backends, rounds=3, needs_server=True, left_out=NO_CONNECTIONS, retried=True),
    Scenario("blackhole", blackhole, rounds=3, needs_server=True, left_out=NO_CONNECTIONS, retried=True),
    Scenario("pool", pool, rounds=2, left_out=ONE_WRITER, retried=True, patience=300),
]
