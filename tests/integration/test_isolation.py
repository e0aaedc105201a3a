"""`isolated` on a real server: the server itself says that nobody has connected."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg

from ratchet import Scheduler
from ratchet.testing import isolated, run_worker_until_idle
from tests.support.waiting import until


def double(number: int) -> int:
    return 2 * number


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
