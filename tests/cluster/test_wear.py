"""``ratchet worker --max-jobs --max-memory``: processes that have run enough are replaced, and no job notices."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.conftest import StartWorker
from tests.cluster.workers import Worker, is_running
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

on_sqlite = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


def replaced(worker: Worker) -> list[int]:
    """The processes that were replaced, by the supervisor's own word."""
    return [int(pid) for pid in re.findall(r"process (\d+) is replaced", worker.log)]


def test_after_so_many_jobs_a_process_is_replaced(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str, tmp_path: Path
) -> None:
    """
    The next process takes over when it is ready. What runs in the old one finishes there, even beyond the drain
    time, and is counted once.
    """
    gate = tmp_path / "gate"
    worker = start_worker("one", "--max-jobs", "3", "--drain", "100ms").wait_ready()
    (old,) = worker.children()
    long = scheduler.enqueue_now(shop.gated, ledger, "long", str(gate))
    handles = [scheduler.enqueue_now(shop.note, ledger, str(number)) for number in range(3)]
    assert [handle.result(timeout=30) for handle in handles] == ["0", "1", "2"], worker.log
    until(lambda: len(worker.nodes()) == 2, 40, f"no successor came:\n{worker.log}")
    until(lambda: "leaving: it is replaced" in worker.log, 30, worker.log)
    after = scheduler.enqueue_now(shop.note, ledger, "after")
    after.result(timeout=30)
    assert int(shop.lines(ledger)[-1][2]) != old, "the new process runs what comes"
    assert is_running(old), "it waits for its job"
    gate.touch()
    long.result(timeout=30)
    until(lambda: not is_running(old), 30, f"the old process did not leave:\n{worker.log}")
    assert "it has run 3 jobs, and --max-jobs is 3" in worker.log
    assert [(one.job().attempts, one.job().crashes) for one in (long, *handles, after)] == [(1, 0)] * 5
    assert worker.process.poll() is None
    assert [node.node_id for node in scheduler.nodes.list()] == worker.nodes()[1:]


@on_sqlite
def test_a_process_that_has_grown_is_replaced(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str
) -> None:
    """Any process holds more than a megabyte, so each one is replaced; jobs run all the same."""
    worker = start_worker("one", "--max-memory", "1M", "--processes", "2").wait_ready(2)
    until(lambda: len(replaced(worker)) >= 3, 90, worker.log)
    handles = [scheduler.enqueue_now(shop.note, ledger, str(number)) for number in range(5)]
    assert [handle.result(timeout=30) for handle in handles] == ["0", "1", "2", "3", "4"]
    assert re.search(r"it holds \S+ MiB of memory, and --max-memory is 1\.0 MiB", worker.log)
    worker.signal(signal.SIGTERM)
    assert worker.wait(40) == 0, worker.log
    assert all(handle.job().crashes == 0 for handle in handles)
    assert "killed" not in worker.log


@on_sqlite
def test_a_stop_does_not_wait_for_a_replaced_process_without_end(
    scheduler: Scheduler, start_worker: StartWorker, ledger: str, tmp_path: Path
) -> None:
    """A process that took its time is hurried when the worker stops; its job is handed back uncounted."""
    worker = start_worker("one", "--max-jobs", "1", "--drain", "300ms").wait_ready()
    (old,) = worker.children()
    long = scheduler.enqueue_now(shop.gated, ledger, "long", str(tmp_path / "gate"))
    scheduler.enqueue_now(shop.note, ledger, "short").result(timeout=30)
    until(lambda: "leaving: it is replaced" in worker.log, 40, worker.log)
    assert is_running(old)
    worker.signal(signal.SIGTERM)
    assert worker.wait(40) == 0, worker.log
    assert not is_running(old)
    assert (long.status(), long.job().attempts, long.job().crashes) == (JobStatus.PENDING, 0, 0)


@on_sqlite
def test_a_size_that_is_none(start_worker: StartWorker) -> None:
    """The worker does not start, and says how a size is written."""
    worker = start_worker("one", "--max-memory", "lots")
    assert worker.wait(30) == 2
    assert "'lots' is not a size such as 512M or 1.5G" in worker.log.replace("\n", " ")
