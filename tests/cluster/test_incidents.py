"""
Each incident, as an operator sees it: what the probes say, what `health` says, and which alert rules fire.

The rules of ``ops/prometheus/alerts.yml`` are evaluated over pages that were scraped from real workers; how long a rule waits
(``for``) is left out.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import yaml

from ratchet import JobHandle, JobStatus, Scheduler
from tests.cluster import errands, idlers
from tests.cluster.workers import ROOT, Worker
from tests.services.postgresql import PostgreSQL
from tests.support.promql import Page, fires
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

APP = "tests.cluster.idlers:scheduler"
QUICK = {"RATCHET_HEARTBEAT": "0.5", "RATCHET_SILENCE": "4", "RATCHET_CONCURRENCY": "2"}
HTTP = ("--http", "127.0.0.1:0", "--store-metrics")
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "ops" / "prometheus" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
StartWorker = Callable[..., Worker]


class Seen(NamedTuple):
    """What is seen at one moment: status of the probes, codes of problems, names of alerts."""

    live: int
    ready: int
    problems: set[str]
    alerts: set[str]


class Operator:
    """Looks at a worker and at its cluster, as Prometheus and a person would."""

    def __init__(self, scheduler: Scheduler, worker: Worker) -> None:
        self._scheduler = scheduler
        self.worker = worker
        until(lambda: "probes and metrics on" in worker.log, 30, worker.log)
        found = re.search(r"probes and metrics on (\S+)", worker.log)
        assert found is not None
        self._base = found.group(1)
        self._pages: list[Page] = []
        self.last: Seen | None = None

    def look(self) -> Seen:
        """Everything, now. Pages are taken as a minute apart."""
        page = self._get("/metrics")[1]
        self._pages.append(Page.of(page, 60.0 * len(self._pages)))
        self.last = Seen(
            live=self._get("/live")[0],
            ready=self._get("/ready")[0],
            problems={problem.code for problem in self._scheduler.health().problems},
            alerts=fired(self._pages),
        )
        return self.last

    def sees(self, live: int, ready: int, problems: set[str], alerts: set[str]) -> Callable[[], bool]:
        """Whether exactly this is seen now, a minute after the page before; `RatchetUnhealthy` comes with every problem."""
        catch_all = {"RatchetUnhealthy"} if problems else set()
        before = list(self._pages)

        def look_again() -> bool:
            self._pages = list(before)  # a page that was taken too early is not of this minute
            return self.look() == Seen(live, ready, problems, alerts | catch_all)

        return look_again

    def expect(
        self, live: int, ready: int, problems: set[str], alerts: set[str], seconds: float = 60
    ) -> None:
        """Wait until exactly this is seen."""
        wanted = self.sees(live, ready, problems, alerts)
        if not _happens(wanted, seconds):
            pytest.fail(f"{self.last} instead of {(live, ready, problems, alerts)}\n{self.worker.log}")

    def asked(self, page: str) -> tuple[int, str]:
        """What a page answers."""
        return self._get(page)

    def _get(self, page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self._base}{page}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


def _happens(condition: Callable[[], bool], seconds: float) -> bool:
    try:
        until(condition, seconds)
    except AssertionError:
        return False
    return True


def fired(pages: list[Page]) -> set[str]:
    """The rules that fire after these pages."""
    return {rule["alert"] for rule in RULES if fires(rule["expr"], pages)}


@pytest.fixture
def scheduler(url: str) -> Any:
    """Submits and looks on; it knows a function that no worker knows."""
    made = Scheduler(url, allow=["tests.cluster.idlers", "tests.cluster.errands"])
    yield made
    made.close()


def test_no_worker(scheduler: Scheduler, url: str) -> None:
    """`ratchet metrics` runs without any, and tells that there is none."""
    scheduler.enqueue_now(idlers.greet, "ann")
    printed = subprocess.run(
        [sys.executable, "-m", "ratchet", "metrics", "--url", url],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    ).stdout
    assert fired([Page.of(printed, 0.0)]) == {"RatchetNoNodes", "RatchetUnhealthy"}
    assert {problem.code for problem in scheduler.health().problems} == {"no_nodes"}
    assert fired([Page.of("", 0.0)]) == {"RatchetMetricsMissing"}


def test_jobs_that_are_held_back(scheduler: Scheduler, start_worker: StartWorker) -> None:
    """Paused queue, open breaker, missing function, unserved queue: the worker itself is well, and each alert ends with its cause."""
    worker = start_worker("one", "--queues", "default,emails", *HTTP, app=APP, environment=QUICK).wait_ready(
        seconds=60
    )
    operator = Operator(scheduler, worker)
    operator.expect(200, 200, set(), set())

    scheduler.queues.pause("emails")
    operator.expect(200, 200, set(), set())  # nothing is due there
    paused = scheduler.enqueue(idlers.greet, "ann").with_queue("emails").submit()
    operator.expect(200, 200, {"paused_queue"}, {"RatchetQueuePaused"})
    scheduler.queues.resume("emails")
    assert paused.result(timeout=60) == "hello ann"
    operator.expect(200, 200, set(), set())

    scheduler.breakers.open("bank")
    broken = scheduler.enqueue_now(idlers.pay, "ann")
    operator.expect(200, 200, {"open_breaker"}, {"RatchetBreakerOpen"})
    scheduler.breakers.reset("bank")
    assert broken.result(timeout=60) == "paid ann"
    operator.expect(200, 200, set(), set())

    unknown: JobHandle[Any] = scheduler.enqueue_now(errands.greet, "ann")
    operator.expect(200, 200, {"parked"}, {"RatchetJobsParked"})
    assert unknown.cancel()
    operator.expect(200, 200, set(), set())

    scheduler.enqueue(idlers.greet, "ann").with_queue("reports").submit()
    operator.expect(200, 200, {"no_node_for_queue"}, {"RatchetQueueNotServed"})


def test_a_dead_lane(scheduler: Scheduler, start_worker: StartWorker) -> None:
    """A job blocks the event loop: only a new process helps, so /live says so; other jobs of this worker still run."""
    worker = start_worker("one", *HTTP, app=APP, environment=QUICK).wait_ready(seconds=60)
    operator = Operator(scheduler, worker)
    scheduler.enqueue_now(idlers.block, 3600)
    operator.expect(
        503, 503, {"lane_down"}, {"RatchetLaneDown", "RatchetWorkerNotLive", "RatchetWorkerNotReady"}
    )
    assert "async jobs do not run: its event loop has been blocked" in operator.asked("/live")[1]
    assert scheduler.enqueue_now(idlers.greet, "ann").result(timeout=60) == "hello ann"


def test_a_crash_loop(scheduler: Scheduler, start_worker: StartWorker) -> None:
    """A job kills three processes: the deaths are counted by the supervisor, and health tells of them though all works again."""
    worker = start_worker("one", *HTTP, app=APP, environment=QUICK).wait_ready(seconds=60)
    operator = Operator(scheduler, worker)
    operator.expect(200, 200, set(), set())
    poison = scheduler.enqueue(idlers.kill).with_max_retries(0).submit()
    assert poison.wait(timeout=90) is JobStatus.FAILED
    operator.expect(200, 200, {"silent_nodes"}, {"RatchetCrashLoop", "RatchetNodesDie"})


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_hang(scheduler: Scheduler, start_worker: StartWorker) -> None:
    """A job holds the interpreter: the worker is alive but not ready, until the supervisor replaces the process; that is one death."""
    worker = start_worker("one", *HTTP, "--unresponsive-after", "25", app=APP, environment=QUICK).wait_ready(
        seconds=60
    )
    operator = Operator(scheduler, worker)
    operator.expect(200, 200, set(), set())
    scheduler.enqueue(idlers.hang).with_max_retries(0).submit()
    operator.expect(200, 503, set(), {"RatchetWorkerNotReady"})
    assert "has shown no sign of life" in operator.asked("/ready")[1]
    until(lambda: "its threads were here" in worker.log, 90, worker.log)
    until(lambda: "ratchet_process_deaths_total 1.0" in operator.asked("/metrics")[1], 30, worker.log)


def test_a_database_that_is_away_or_takes_no_writes(tmp_path: Path) -> None:
    """PostgreSQL stops, comes back as a standby, and is promoted: each is told, the worker is never restarted, and goes on."""
    with PostgreSQL() as server:
        url = server.create_database()
        scheduler = Scheduler(url, allow=["tests.cluster.idlers"])
        scheduler.migrate()
        worker = Worker(url, tmp_path, "one", *HTTP, app=APP, environment=QUICK)
        try:
            operator = Operator(scheduler, worker.wait_ready(seconds=60))
            operator.expect(200, 200, set(), set())
            server.stop()
            until(lambda: "RatchetStoreUnreachable" in operator.look().alerts, 60, worker.log)
            until(lambda: operator.look()[:2] == (200, 503), 60, worker.log)
            assert operator.look().problems == {"unreachable"}
            (server.directory / "data" / "standby.signal").touch(mode=0o666)
            server.start()
            until(lambda: "RatchetStoreReadOnly" in operator.look().alerts, 60, worker.log)
            seen = operator.look()
            assert (seen.live, seen.ready) == (200, 503)  # although nothing is due
            assert "read_only" in seen.problems
            with psycopg.connect(server.url, autocommit=True) as admin:
                admin.execute("SELECT pg_promote()")
            until(lambda: operator.look()[:3] == (200, 200, set()), 90, worker.log)
            assert scheduler.enqueue_now(idlers.greet, "ann").result(timeout=60) == "hello ann"
        finally:
            worker.close()
            scheduler.close()


def test_a_full_disk(tmp_path: Path) -> None:
    """SQLite on a disk without room: told like a database that takes no writes, and work goes on when there is room again."""
    unshare = shutil.which("unshare")
    assert unshare is not None, (
        "this test makes a small disk of its own: install util-linux, which has `unshare`"
    )
    done = subprocess.run(
        [unshare, "--user", "--map-root-user", "--mount", sys.executable, "-m", "tests.cluster.full_disk", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["full"]["live"] == 200
    assert seen["full"]["ready"] == 503
    assert "read_only" in seen["full"]["problems"]
    assert {"RatchetStoreReadOnly", "RatchetWorkerNotReady"} <= set(seen["full"]["alerts"])
    assert "disk is full" in seen["text"]
    assert seen["after"]["problems"] == []
    assert seen["result"] == "hello ann"
