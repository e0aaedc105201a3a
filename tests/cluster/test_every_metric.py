"""Each metric of the reference moves with what it is about: read over HTTP from a real worker, by Prometheus' own parser."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ratchet import Scheduler
from ratchet.model import metrics
from ratchet.model.metrics import BUCKETS, METRICS, Metric, MetricKind
from tests.cluster import errands, idlers
from tests.cluster.workers import Worker
from tests.services.postgresql import PostgreSQL
from tests.support.waiting import happens, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

QUICK = {"RATCHET_HEARTBEAT": "0.5", "RATCHET_SILENCE": "4", "RATCHET_CONCURRENCY": "3"}
Sample = tuple[str, frozenset[tuple[str, str]]]


class Scraped:
    """The metrics of one worker, and every value that each of their series has had."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        until(lambda: "probes and metrics on" in worker.log, 60, worker.log)
        found = re.search(r"probes and metrics on (\S+)", worker.log)
        assert found is not None
        self._url = f"{found.group(1)}/metrics"
        self._seen: dict[Sample, set[float]] = defaultdict(set)

    def page(self) -> dict[Sample, float]:
        """What there is now."""
        with urllib.request.urlopen(self._url, timeout=60) as answer:
            text = answer.read().decode()
        found = {
            (sample.name, frozenset(sample.labels.items()) - {("process", "1")}): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        for sample, value in found.items():
            self._seen[sample].add(value)
        return found

    def shows(self, metric: Metric, at_least: float, *, below: float | None = None, **labels: str) -> float:
        """Wait for a value of one series, of a histogram for how many values it was told; exactly this one, unless *below* is given."""
        suffix = "_count" if metric.kind is MetricKind.HISTOGRAM else ""
        sample = f"{metric.name}{suffix}", frozenset(labels.items())
        until_below = at_least + 0.5 if below is None else below

        def shown() -> bool:
            return at_least <= self.page().get(sample, -1.0) < until_below

        if not happens(shown, 60):
            pytest.fail(f"{sample} had {sorted(self._seen[sample])}, not {at_least:g}\n{self._worker.log}")
        return self.page()[sample]

    def unmoved(self) -> list[str]:
        """Metrics of which no series has ever changed."""
        moved = {name.removesuffix("_count") for (name, _), values in self._seen.items() if len(values) > 1}
        return [metric.name for metric in METRICS if metric.name not in moved]

    def edges(self, metric: Metric) -> set[str]:
        """The upper ends of the buckets of a histogram."""
        return {dict(labels)["le"] for name, labels in self._seen if name == f"{metric.name}_bucket"}


class Place:
    """A server, a scheduler that looks on, and a worker with one process."""

    def __init__(self, server: PostgreSQL, scheduler: Scheduler, worker: Worker, gates: Path) -> None:
        self.server = server
        self.scheduler = scheduler
        self.worker = worker
        self.gates = gates
        self.scraped = Scraped(worker)

    def gate(self, name: str) -> str:
        """A file that a job waits for."""
        return str(self.gates / name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Its process stands still."""
        (child,) = self.worker.children()
        os.kill(child, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(child, signal.SIGCONT)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """On PostgreSQL, because its server can be stopped."""
    with PostgreSQL() as server:
        url = server.create_database()
        scheduler = Scheduler(url, allow=["tests.cluster.idlers", "tests.cluster.errands"])
        scheduler.migrate()
        worker = Worker(
            url, tmp_path, "one", "--http", "127.0.0.1:0", "--store-metrics",
            app="tests.cluster.idlers:scheduler", environment=QUICK,
        )  # fmt: skip
        try:
            yield Place(server, scheduler, worker.wait_ready(seconds=60), tmp_path)
        finally:
            worker.close()
            scheduler.close()


def test_each_metric_moves(place: Place) -> None:
    """What happens is on the page, in the series that it belongs to; a metric that is added without a step here fails this."""
    shows = place.scraped.shows
    _runs(place, shows)
    _what_runs_now(place, shows)
    _what_is_held_back(place, shows)
    _a_process_that_stands_still(place, shows)
    _a_store_that_is_away(place, shows)
    _processes_that_die(place, shows)
    # How many slots there are is what the worker was told: it does not change.
    assert place.scraped.unmoved() == [metrics.SLOTS.name]
    shows(metrics.SLOTS, 3, lane="thread")
    for metric in METRICS:
        if metric.kind is MetricKind.HISTOGRAM:
            assert place.scraped.edges(metric) == {*map(str, BUCKETS), "+Inf"}, metric.name


def _runs(place: Place, shows: Any) -> None:
    shows(metrics.WORKER_READY, 1)
    shows(metrics.NODES, 1, state="active")
    shows(metrics.HEALTHY, 1)
    claims = shows(metrics.CLAIM_DURATION, 1, below=1000)
    greet = {"target": "tests.cluster.idlers:greet", "queue": "emails"}
    for count in (1, 2):
        place.scheduler.enqueue(idlers.greet, "ann").with_queue("emails").submit().result(timeout=60)
        shows(metrics.JOBS, count, outcome="succeeded", **greet)
        shows(metrics.JOB_DURATION, count, **greet)
        shows(metrics.JOB_WAIT, count, queue="emails")
        shows(metrics.CLAIMED, count, lane="thread")
        shows(metrics.COMPLETION_DURATION, count)
        shows(metrics.WAKEUPS, count, below=1000)
    shows(metrics.CLAIM_DURATION, claims + 1, below=claims + 1000)
    place.scheduler.enqueue(idlers.fail).with_max_retries(0).submit().wait(timeout=60)
    shows(metrics.JOBS, 1, outcome="failed", target="tests.cluster.idlers:fail", queue="default")
    shows(metrics.DEAD_LETTERS, 1)


def _what_runs_now(place: Place, shows: Any) -> None:
    gate = place.gate("running")
    shows(metrics.JOBS_RUNNING, 0, queue="default")
    shows(metrics.SLOTS_BUSY, 0, lane="thread")
    running = place.scheduler.enqueue_now(idlers.wait_for, gate)
    shows(metrics.JOBS_RUNNING, 1, queue="default")
    shows(metrics.SLOTS_BUSY, 1, lane="thread")
    shows(metrics.QUEUE_DEPTH, 1, queue="default", status="running")
    Path(gate).touch()
    running.wait(timeout=60)
    shows(metrics.JOBS_RUNNING, 0, queue="default")
    shows(metrics.SLOTS_BUSY, 0, lane="thread")
    shows(metrics.STILL_RUNNING, 0)
    place.scheduler.enqueue(idlers.sleep_through, 8).with_timeout(0.5).with_max_retries(0).submit()
    shows(metrics.STILL_RUNNING, 1)
    shows(metrics.STILL_RUNNING, 0)


def _what_is_held_back(place: Place, shows: Any) -> None:
    scheduler = place.scheduler
    shows(metrics.PARKED_JOBS, 0)
    scheduler.queues.pause("emails")
    waiting = scheduler.enqueue(idlers.greet, "cleo").with_queue("emails").submit()
    scheduler.breakers.open("bank")
    unknown = scheduler.enqueue_now(errands.greet, "ann")  # the worker does not know this function
    shows(metrics.QUEUE_DEPTH, 1, queue="emails", status="due")
    shows(metrics.OLDEST_AGE, 1, below=120, queue="emails")
    shows(metrics.BREAKER_OPEN, 1, service="bank")
    shows(metrics.PARKED_JOBS, 1)
    shows(metrics.HEALTHY, 0)
    shows(metrics.PROBLEMS, 1, code="paused_queue")
    scheduler.queues.resume("emails")
    scheduler.breakers.reset("bank")
    assert unknown.cancel()
    waiting.result(timeout=60)
    shows(metrics.QUEUE_DEPTH, 0, queue="emails", status="due")
    shows(metrics.OLDEST_AGE, 0, queue="emails")
    shows(metrics.BREAKER_OPEN, 0, service="bank")
    shows(metrics.PARKED_JOBS, 0)
    shows(metrics.PROBLEMS, 0, code="paused_queue")


def _a_process_that_stands_still(place: Place, shows: Any) -> None:
    shows(metrics.SCHEDULE_LATENESS, 0)
    with place.held():
        place.scheduler.schedule_recurring("every 1s", idlers.greet, "dora", name="late")
        shows(metrics.WORKER_READY, 0)
        shows(metrics.NODES, 1, state="silent")
        shows(metrics.SCHEDULE_LATENESS, 1, below=120)
        place.scheduler.schedules.get("late").remove()
    shows(metrics.WORKER_READY, 1)
    shows(metrics.SCHEDULE_LATENESS, 0)


def _a_store_that_is_away(place: Place, shows: Any) -> None:
    gate = place.gate("unwritten")
    shows(metrics.UNWRITTEN, 0)
    ends = place.scheduler.enqueue_now(idlers.wait_for, gate)
    shows(metrics.JOBS_RUNNING, 1, queue="default")
    place.server.stop()
    Path(gate).touch()
    shows(metrics.UNWRITTEN, 1)
    errors = shows(metrics.STORE_ERRORS, 1, below=1000, error="StoreUnavailable")
    shows(metrics.STORE_ERRORS, errors + 1, below=1000, error="StoreUnavailable")
    shows(metrics.PROBLEMS, 1, code="unreachable")
    place.server.start()
    shows(metrics.UNWRITTEN, 0)
    ends.wait(timeout=60)


def _processes_that_die(place: Place, shows: Any) -> None:
    gate = place.gate("killed")
    shows(metrics.PROCESS_DEATHS, 0)
    shows(metrics.RESCUES, 0)
    running = place.scheduler.enqueue_now(idlers.wait_for, gate)
    shows(metrics.JOBS_RUNNING, 1, queue="default")
    os.kill(place.worker.children()[0], signal.SIGKILL)
    shows(metrics.PROCESS_DEATHS, 1)
    shows(metrics.RESCUES, 1)  # by the process that was started instead
    Path(gate).touch()
    running.wait(timeout=60)
    shows(metrics.WORKER_LIVE, 1)
    place.scheduler.enqueue_now(idlers.block, 3600)  # the event loop
    shows(metrics.WORKER_LIVE, 0)
