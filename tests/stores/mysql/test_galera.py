"""
A Galera cluster of three, written to through all of its nodes at once: what holds on one server holds there too.

`python -m tests.stores.mysql.galera_rounds` plays hundreds of the rounds of which there are a few here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import pytest

from ratchet import JobContext, Scheduler
from ratchet.model.options import Options
from ratchet.stores.sql.store import open_store
from ratchet.tck.race import race, results
from tests.services.galera import GaleraCluster
from tests.stores.mysql.galera_rounds import ROUNDS, Nodes, play
from tests.stores.mysql_server import ask

FEW = 4
ITEMS = 60
BUSY = Options(auto_migrate=True, poll_delay_unwoken=timedelta(milliseconds=50), max_prefetch=0)

#: Migrates, and stops for ever before its n-th statement.
STOPPED = """
import sys, time
from ratchet.stores.sql.dialects.mysql.session import MysqlSession
from ratchet.stores.sql.store import open_store
url, number = sys.argv[1], int(sys.argv[2])
plain, sent = MysqlSession.plain, 0
def counted(self, text):
    global sent
    sent += 1
    if sent == number:
        print("stopped", flush=True)
        time.sleep(600)
    return plain(self, text)
MysqlSession.plain = counted
open_store(url).migrate()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[GaleraCluster]:
    with GaleraCluster() as running:
        yield running


class TestRaces:
    def test_every_invariant_holds(self, cluster: GaleraCluster) -> None:
        """Joins, dependants, signals, batches, limits, rates, keys, schedules, claims and reads, raced through three nodes."""
        with Nodes.on(cluster.create_database()) as nodes:
            assert all(steps.store.capabilities.several_writers for steps in nodes)
            said = {name: wrong[1] for name in ROUNDS if (wrong := play(nodes, name, FEW))[0]}
            assert said == {}
            assert not nodes.errors

    def test_a_conflict_in_a_transaction_costs_no_attempt(self, cluster: GaleraCluster) -> None:
        """Jobs without retries, in transactions of their own, end through three nodes that all count one batch: none fails."""
        with ExitStack() as stack:
            schedulers = [
                stack.enter_context(closing(Scheduler(url, allow=[__name__], options=BUSY)))
                for url in cluster.create_database()
            ]
            batch = schedulers[0].enqueue_batch("import").for_each(range(ITEMS), book).submit()
            for scheduler in schedulers:
                stack.enter_context(scheduler)
            counted = batch.wait(timeout=60)
            assert (counted.completed_items, counted.failed_items) == (ITEMS, 0)
            ((nodes,),) = rows(schedulers[0], "SELECT count(DISTINCT node_id) FROM scheduler_job")
            assert nodes == 3, "not every node took part"


class TestMigrations:
    def test_three_nodes_at_once(self, cluster: GaleraCluster) -> None:
        """A user of this database alone makes the schema through three nodes at the same moment: each succeeds, each script is applied once."""
        urls = cluster.create_database()
        cluster.nodes[0].execute("CREATE USER app IDENTIFIED BY 'app'")
        cluster.nodes[0].execute(f"GRANT ALL ON {urls[0].rpartition('/')[2]}.* TO app")
        stores = [open_store(url.replace("root@", "app:app@")) for url in urls]
        applied = [name for names in results([store.migrate for store in stores]) for name in names]
        assert sorted(applied) == [name for name, _ in stores[0].migrator.status()]
        for store in stores:
            store.check_schema()
            store.close()

    def test_three_workers_that_migrate_when_they_start(self, cluster: GaleraCluster) -> None:
        """Stores with ``auto_migrate`` are used for the first time through three nodes at once: all work."""
        stores = [open_store(url, Options(auto_migrate=True)) for url in cluster.create_database()]
        assert [one.error for one in race([store.counts for store in stores])] == [None] * 3
        for store in stores:
            store.close()

    def test_a_migration_that_dies(self, cluster: GaleraCluster) -> None:
        """While one stands still, others wait for it; when its process is killed, one through another node goes on with it."""
        urls = cluster.create_database()
        command = [sys.executable, "-c", STOPPED, urls[0], "40"]
        with ExitStack() as stack:
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)  # it would not end by itself
            assert process.stdout is not None
            assert process.stdout.readline() == "stopped\n"
            store = open_store(urls[1])
            with ThreadPoolExecutor() as threads:
                waiting = threads.submit(store.migrate)
                with pytest.raises(TimeoutError):
                    waiting.result(2)
                os.kill(process.pid, signal.SIGKILL)
                assert waiting.result(60)
            process.wait()
        store.check_schema()
        store.close()


def rows(scheduler: Scheduler, query: str) -> Any:
    """What a query of our own finds."""
    with scheduler.store.begin() as connection:
        return ask(connection, query)


def book(n: int) -> int:
    """A job with a transaction of its own."""
    with JobContext.current().transaction() as transaction:
        transaction.result = n
    return n
