"""`isolated` on a real server: the server itself says that nobody has connected."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from ratchet import RESULT, Scheduler
from ratchet.testing import isolated, run_worker_until_idle
from tests.support.waiting import until


def double(number: int) -> int:
    return 2 * number


def add(one: int, two: int) -> int:
    return one + two


def sessions(url: str) -> int:
    """How many connections to this database the server has ever seen; asked through another database."""
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url, dbname="postgres") as connection:
        row = connection.execute(
            "SELECT sessions FROM pg_stat_database WHERE datname = %s", [name]
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_nobody_connects_while_tests_run(postgresql_url: str) -> None:
    """Fifty tests in four threads submit, await, drain and ask; the database does not see one connection."""
    scheduler = Scheduler(postgresql_url, allow=[__name__])
    before = sessions(postgresql_url)

    def one(number: int) -> int:
        with isolated(scheduler) as test:
            handle = scheduler.enqueue_now(double, number)
            test.drain()
            scheduler.jobs.counts()
            scheduler.health()
            return handle.result(timeout=0)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(50))) == [2 * number for number in range(50)]
    assert sessions(postgresql_url) == before

    scheduler.migrate()  # the count works: this one is seen
    handle = scheduler.enqueue_now(double, 4)
    run_worker_until_idle(scheduler)
    assert handle.result(timeout=0) == 8
    scheduler.close()
    until(lambda: sessions(postgresql_url) > before)


SHOP = """
import os
from ratchet import Scheduler

scheduler = Scheduler(os.environ["SHOP_URL"])

@scheduler.job(max_retries=2)
def charge(order: int) -> str:
    return f"receipt {order}"

@scheduler.job
async def mail(text: str) -> str:
    return f"sent {text}"

def checkout(order: int):
    return charge.enqueue(order).with_business_key(f"order-{order % 3}").then(mail, "thanks").submit()

kept = charge.enqueue(0)  # a builder that was made when the application was imported
"""

TESTS = """
import asyncio
import threading
import pytest
import shop
from ratchet.testing import IsolatedTestCase

@pytest.mark.parametrize("order", range(47))
def test_checkout(ratchet_isolated, order):
    handle = shop.checkout(order)
    ratchet_isolated.assert_enqueued(shop.charge, order)
    assert len(ratchet_isolated.enqueued()) == 2
    ratchet_isolated.drain()
    assert handle.result(timeout=0) == f"receipt {order}"

def test_the_await_face(ratchet_isolated):
    async def scenario():
        handle = await shop.scheduler.aio.enqueue_now(shop.mail, "x")
        await asyncio.to_thread(ratchet_isolated.drain)
        assert await handle.aio.result() == "sent x"
        assert await shop.scheduler.aio.jobs.count() == 1
    asyncio.run(scenario())

def test_threads_of_the_application(ratchet_isolated):
    threads = [threading.Thread(target=shop.checkout, args=(order,)) for order in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert len(ratchet_isolated.enqueued(shop.charge)) == 3

class TestUnittest(IsolatedTestCase):
    ratchet_schedulers = [shop.scheduler]

    def test_a_builder_that_was_made_before(self):
        shop.kept.submit()
        self.ratchet.assert_enqueued(shop.charge, 0)
        shop.scheduler.health()
        self.assertEqual(self.ratchet.drain(), 1)
"""


@pytest.mark.parametrize("workers", [0, 2], ids=["one process", "xdist"])
def test_an_application_s_own_tests(postgresql_url: str, tmp_path: Path, workers: int) -> None:
    """Fifty tests of an application, by fixture and by mixin, with and without xdist: the server sees no connection of theirs."""
    (tmp_path / "shop.py").write_text(textwrap.dedent(SHOP))
    (tmp_path / "test_shop.py").write_text(textwrap.dedent(TESTS))
    (tmp_path / "pytest.ini").write_text("[pytest]\nratchet_schedulers = shop:scheduler\n")
    before = sessions(postgresql_url)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(workers), "test_shop.py"],
        cwd=tmp_path,
        env={**os.environ, "SHOP_URL": postgresql_url, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert "50 passed" in done.stdout, done.stdout
    psycopg.connect(
        postgresql_url
    ).close()  # the server tells of sessions that have ended; this one is the last
    until(lambda: sessions(postgresql_url) > before)
    assert sessions(postgresql_url) == before + 1


@pytest.mark.parametrize("store", ["sqlite", "postgresql", "mysql", "mongodb"])
def test_the_real_thing_goes_on_until_nothing_follows(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    """A chain of twenty steps is worked off to its end: the moment between two of them is not taken for the end."""
    url = (
        f"sqlite:///{tmp_path / 'jobs.db'}" if store == "sqlite" else request.getfixturevalue(f"{store}_url")
    )
    scheduler = Scheduler(url, allow=[__name__])
    scheduler.migrate()
    for _ in range(3):
        builder = scheduler.enqueue(add, 0, 1)
        for _ in range(19):
            builder = builder.then(add, RESULT, 1)
        handle = builder.submit()
        run_worker_until_idle(scheduler)
        assert handle.last.result(timeout=0) == 20
    scheduler.close()
