"""``ratchet worker --http``: what an orchestrator and Prometheus are told, over real HTTP."""

from __future__ import annotations

import json
import os
import re
import signal
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ratchet.model.metrics import METRICS
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.conftest import StartWorker
from tests.cluster.workers import Worker
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

#: Families that have no sample before something has gone wrong, or that need a breaker.
ABSENT = {"ratchet_store_errors_total", "ratchet_breaker_open"}


def address(worker: Worker) -> str:
    """Where this worker listens, by its own word."""
    until(lambda: "probes and metrics on" in worker.log, 30, worker.log)
    found = re.search(r"probes and metrics on (\S+)", worker.log)
    assert found is not None
    return found.group(1)


def ask(url: str) -> tuple[int, dict[str, object]]:
    """The status and the answer of a probe."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def scrape(base: str) -> dict[str, float]:
    """The sum of each sample over its labels."""
    with urllib.request.urlopen(f"{base}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def test_metrics_of_all_processes(scheduler: Scheduler, start_worker: StartWorker, ledger: str) -> None:
    """Runs of both processes are on one page, with the metrics of the store; every metric of the reference is there."""
    worker = start_worker("one", "--processes", "2", "--http", "127.0.0.1:0", "--store-metrics").wait_ready(2)
    base = address(worker)
    handles = [scheduler.enqueue_now(shop.note, ledger, f"job-{number}") for number in range(20)]
    for handle in handles:
        handle.wait(timeout=30)
    until(lambda: scrape(base).get("ratchet_jobs_total") == 20, 20, "the runs are not on the page")
    sums = scrape(base)
    assert sums["ratchet_job_duration_seconds_count"] == 20
    assert sums["ratchet_slots"] >= 4
    assert "process_resident_memory_bytes" in sums
    missing = [
        metric.name
        for metric in METRICS
        if metric.name not in ABSENT and not {metric.name, f"{metric.name}_count"} & set(sums)
    ]
    assert not missing


def test_alive_while_a_job_holds_the_interpreter(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """The supervisor answers at once, whatever the child's interpreter does, and so does /metrics, from the last snapshot."""
    worker = start_worker("one", "--http", "127.0.0.1:0").wait_ready()
    base = address(worker)
    assert ask(f"{base}/live") == (200, {"ok": True, "problems": []})
    until(lambda: ask(f"{base}/ready")[0] == 200, 20, worker.log)
    until(lambda: "ratchet_slots" in scrape(base), 20, worker.log)
    handle = scheduler.enqueue_now(shop.greedy, ledger, "greedy", 29)
    until(lambda: any(words[:2] == ["start", "greedy"] for words in shop.lines(ledger)), 20, worker.log)
    answers = []
    while not any(words[:2] == ["end", "greedy"] for words in shop.lines(ledger)):
        begun = time.monotonic()
        assert ask(f"{base}/live")[0] == 200
        answers.append(time.monotonic() - begun)
        assert "ratchet_slots" in scrape(base)
    assert answers, "the interpreter was not held: the test has shown nothing"
    assert handle.result(timeout=60) is not None


def test_ready_means_that_it_claims(scheduler: Scheduler, start_worker: StartWorker, ledger: str) -> None:
    """A stopped child, and a worker that drains, are alive but not ready."""
    worker = start_worker("one", "--http", "127.0.0.1:0").wait_ready()
    base = address(worker)
    until(lambda: ask(f"{base}/ready")[0] == 200, 20, worker.log)
    child = worker.children()[-1]
    os.kill(child, signal.SIGSTOP)
    try:
        until(lambda: ask(f"{base}/ready")[0] == 503, 20, "a stopped child is not noticed")
        assert ask(f"{base}/ready")[1]["problems"] == ["process 1 is stopped"]
        assert ask(f"{base}/live")[0] == 200
    finally:
        os.kill(child, signal.SIGCONT)
    until(lambda: ask(f"{base}/ready")[0] == 200, 20, worker.log)
    scheduler.enqueue_now(shop.slow, ledger, "slow", 3.0)
    until(lambda: any(words[:2] == ["start", "slow"] for words in shop.lines(ledger)), 20, worker.log)
    worker.signal(signal.SIGTERM)
    until(lambda: "it is stopping" in str(ask(f"{base}/ready")[1]), 10, worker.log)
    assert ask(f"{base}/live")[0] == 200
    assert worker.wait(60) == 0
