"""A worker that is started against a standby waits for it to be promoted, as it waits for a server that is down."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.workers import Worker
from tests.services.postgresql import PostgreSQL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


def test_a_worker_waits_for_the_promotion(tmp_path: Path) -> None:
    """It says once what it waits for, does not give up, and works as soon as the server takes writes."""
    with PostgreSQL() as server:
        url = server.create_database()
        ledger = str(tmp_path / "ledger")
        scheduler = Scheduler(url, allow=["tests.cluster.shop"])
        scheduler.migrate()
        handle = scheduler.enqueue_now(shop.note, ledger, "before")
        server.stop()
        (server.directory / "data" / "standby.signal").touch(mode=0o666)
        server.start()
        worker = Worker(url, tmp_path, "w", "--concurrency", "4")
        try:
            time.sleep(8)
            assert worker.process.poll() is None, worker.log
            assert worker.nodes() == []
            assert worker.log.count("is read-only") == 1, worker.log
            assert "connect to its primary" in worker.log
            with psycopg.connect(server.url, autocommit=True) as admin:
                admin.execute("SELECT pg_promote()")
            worker.wait_ready()
            assert handle.result(timeout=30) == "before"
        finally:
            worker.close()
            scheduler.close()
