"""What a node hands back is started by an idle neighbor at once, not when that one polls next."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from ratchet.defaults.redis_coordinator import RedisCoordinator
from ratchet.model.options import Options
from ratchet.scheduler import Scheduler
from tests.cluster import shop
from tests.cluster.conftest import StartWorker
from tests.support.waiting import until

logger = logging.getLogger(__name__)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

#: Nobody who waits for a poll is in time: `until` gives up long before.
NEVER = timedelta(minutes=10)
POLLS = dict.fromkeys(
    ("poll_delay_burst", "poll_delay_min", "poll_delay_max", "poll_delay_idle"), NEVER.total_seconds()
)


@contextmanager
def idle_neighbor(url: str, **parts: Any) -> Iterator[Scheduler]:
    """A node that does not look for work by itself, unless its store can wake nobody."""
    options = Options() if url.startswith("mysql") and not parts else Options(**POLLS)
    neighbor = Scheduler(url, allow=["tests.cluster.shop"], options=options, **parts)
    with neighbor:
        until(lambda: parts or neighbor.store.coordinator() is None or _is_woken(neighbor))
        yield neighbor
    neighbor.close()


def _is_woken(scheduler: Scheduler) -> bool:
    cluster: Any = scheduler.backend.cluster  # type: ignore[attr-defined]  # Core has it
    return bool(cluster.connected)


def _starts(ledger: str, name: str) -> list[int]:
    return [int(words[2]) for words in shop.lines(ledger) if words[:2] == ["start", name]]


def _started_here(ledger: str, *names: str) -> Callable[[], bool]:
    return lambda: all(os.getpid() in _starts(ledger, name) for name in names)


@pytest.mark.parametrize("job", [shop.slow_at_first, shop.deaf_at_first], ids=["python", "c-call"])
def test_after_a_drain_a_neighbor_goes_on_at_once(
    scheduler: Scheduler,
    start_worker: StartWorker,
    url: str,
    ledger: str,
    job: object,
) -> None:
    """Running jobs that did not finish are taken, and the log says what became of them."""
    worker = start_worker("one", "--drain", "500ms", "--concurrency", "2").wait_ready()
    for name in ("a", "b"):
        scheduler.enqueue_now(job, ledger, name)  # type: ignore[call-overload]
    until(lambda: len(shop.lines(ledger)) >= 2)
    with idle_neighbor(url):
        worker.signal(signal.SIGTERM)
        until(lambda: "drain time of 500ms" in worker.log)
        took = until(
            _started_here(ledger, "a", "b"), what=f"what was handed back was not taken\n{worker.log}"
        )
        logger.info("%s: started elsewhere %.2f s after the drain time was over", url.partition(":")[0], took)
        assert worker.wait(20.0) == 0
    assert "2 running jobs may finish within 500ms" in worker.log
    assert "2 jobs not finished within the drain time of 500ms" in worker.log
    if job is shop.slow_at_first:
        assert "0 jobs finished, 2 handed back" in worker.log
    else:
        assert "2 jobs did not stop when interrupted; handed back when this process ends" in worker.log
        assert "2 jobs whose code did not stop handed back" in worker.log
    assert "goes on beating" not in worker.log


def test_a_retry_that_falls_into_a_drain_is_not_late(
    scheduler: Scheduler, start_worker: StartWorker, url: str, ledger: str
) -> None:
    """The node that leaves does not look for it any more, and the others do not know yet when it is due."""
    worker = start_worker("one").wait_ready()
    scheduler.enqueue(shop.fail_once, ledger, "flaky", 3.0).with_max_retries(2).with_backoff(
        "FIXED", 1.0
    ).submit()
    scheduler.enqueue_now(shop.slow, ledger, "long", 7.0)
    until(lambda: _starts(ledger, "flaky") and _starts(ledger, "long"))
    with idle_neighbor(url):
        worker.signal(signal.SIGTERM)
        until(_started_here(ledger, "flaky"), what=f"the retry was not taken\n{worker.log}")
        assert worker.wait(20.0) == 0
    assert "1 running job may finish" in worker.log or "2 running jobs may finish" in worker.log


def test_a_second_interrupt_hands_over(
    scheduler: Scheduler, start_worker: StartWorker, url: str, ledger: str
) -> None:
    """A worker that is told to end at once still tells the others that there is work."""
    worker = start_worker("one").wait_ready()
    scheduler.enqueue_now(shop.deaf_at_first, ledger, "long")
    until(lambda: _starts(ledger, "long"))
    with idle_neighbor(url):
        worker.signal(signal.SIGINT)
        until(lambda: "SIGINT: stopping" in worker.log)
        time.sleep(0.4)  # a second one within 0.3 s counts as the same keystroke
        worker.signal(signal.SIGINT)
        assert worker.wait(10.0) == 0
        until(_started_here(ledger, "long"), what=f"what was handed back was not taken\n{worker.log}")


def test_over_redis(
    scheduler: Scheduler,
    start_worker: StartWorker,
    url: str,
    redis_url: str,
    ledger: str,
) -> None:
    """A coordinator of the app's own is told like the store's."""
    worker = start_worker(
        "one",
        "--drain",
        "500ms",
        app="tests.cluster.redis_app:scheduler",
        environment={"TEST_REDIS_URL": redis_url},
    ).wait_ready()
    scheduler.enqueue_now(shop.slow_at_first, ledger, "long")
    until(lambda: _starts(ledger, "long"))
    with idle_neighbor(url, cluster_coordinator=RedisCoordinator(redis_url)) as neighbor:
        until(lambda: _is_woken(neighbor))
        worker.signal(signal.SIGTERM)
        until(lambda: "drain time of 500ms" in worker.log)
        took = until(_started_here(ledger, "long"), what=f"what was handed back was not taken\n{worker.log}")
        logger.info("%s: started elsewhere %.2f s after the drain time was over", url.partition(":")[0], took)
        assert worker.wait(20.0) == 0


def test_one_number_limits_a_worker(scheduler: Scheduler, start_worker: StartWorker, ledger: str) -> None:
    """``--concurrency 3`` runs three coroutines at once, not 200, and the start line says so."""
    worker = start_worker("one", "--concurrency", "3").wait_ready()
    handles = [scheduler.enqueue_now(shop.count_neighbors, ledger, f"c{n}", 0.2) for n in range(12)]
    most = max(handle.result(timeout=60.0) for handle in handles)
    assert most <= 3, f"{most} coroutines ran at once"
    assert "at most 3 threads, 3 coroutines and " in worker.log
