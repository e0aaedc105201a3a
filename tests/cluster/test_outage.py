"""A database that is away for a while (one that is killed: test_chaos): nobody is rescued, and work goes on when it is back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.model.cluster import NodeState
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.workers import Worker
from tests.services.mariadb import MariaDB
from tests.services.postgresql import PostgreSQL
from tests.services.server import Server
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

AWAY = 10.0


@pytest.fixture(params=[PostgreSQL, MariaDB], ids=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of its own, since it is stopped."""
    with request.param() as made:
        yield made


def test_a_restart_of_the_database_rescues_nobody(server: Server, tmp_path: Path) -> None:
    """Ten seconds without a server that was stopped in order: every job ends in the run that had begun before, and new ones run."""
    url = server.create_database()
    ledger = str(tmp_path / "ledger")
    scheduler = Scheduler(url, allow=["tests.cluster.shop"])
    scheduler.migrate()
    workers = [Worker(url, tmp_path, f"w{n}", "--concurrency", "4").wait_ready() for n in range(3)]
    try:
        handles = [scheduler.enqueue_now(shop.slow, ledger, f"job-{n}", 18.0) for n in range(9)]
        until(lambda: len(shop.lines(ledger)) == 9, 10.0, "not every job has started")
        server.stop()
        time.sleep(AWAY)
        server.start()
        logs = "\n".join(worker.log for worker in workers)
        for handle in handles:
            assert handle.wait(timeout=60.0), logs
            job = handle.job()
            assert (job.attempts, job.crashes) == (1, 0), "\n".join(worker.log for worker in workers)
        assert len([words for words in shop.lines(ledger) if words[0] == "start"]) == 9
        after = scheduler.enqueue_now(shop.note, ledger, "after")
        assert after.result(timeout=30.0) == "after"
        assert [node.state for node in scheduler.nodes.list()] == [NodeState.ACTIVE] * 3
    finally:
        for worker in workers:
            worker.close()
        scheduler.close()
