"""Jobs on the threads of the application's own pool."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import timedelta

import pytest

from ratchet import ConfigurationError, JobStatus, Options, Scheduler
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.engine.lanes import threads
from ratchet.stores.memory import MemoryStore
from tests.support.waiting import until

tenant = threading.local()
go_on = threading.Event()


def where() -> str:
    return f"{threading.current_thread().name} {tenant.name}"


def thread() -> str:
    return threading.current_thread().name


def deaf() -> None:
    """Does not hear an interruption: it waits in C."""
    go_on.wait(60)


class Pool(DefaultExecutorProvider):
    """A pool whose threads the application has prepared."""

    def __init__(self, size: int) -> None:
        self.pool = ThreadPoolExecutor(size, "shop", initializer=self._prepare)

    @staticmethod
    def _prepare() -> None:
        tenant.name = "acme"

    def job_pool(self, slots: int) -> Executor:
        return self.pool


@pytest.fixture
def provider() -> Iterator[Pool]:
    provider = Pool(4)
    yield provider
    go_on.set()
    provider.pool.shutdown()
    go_on.clear()


def scheduler_on(provider: Pool, concurrency: int = 3) -> Scheduler:
    return Scheduler(
        store=MemoryStore(),
        allow=[where.__module__],
        options=Options(concurrency=concurrency, interrupt_grace=timedelta(milliseconds=50)),
        executor_provider=provider,
    )


def test_jobs_run_on_its_threads_and_it_outlives_the_node(provider: Pool) -> None:
    """Threads have what the pool gave them; after a stop the application uses them again, and so does a second start."""
    scheduler = scheduler_on(provider)
    for _ in range(2):
        with scheduler:
            handles = [scheduler.enqueue_now(where) for _ in range(8)]
            found = {handle.result(timeout=30) for handle in handles}
            assert all(name.startswith("shop_") and name.endswith(" acme") for name in found)
        assert provider.pool.submit(where).result(30).startswith("shop_")
    scheduler.close()


def test_a_pool_without_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start fails, names both numbers, and gives back the threads that it had taken."""
    monkeypatch.setattr(threads, "POOL_PATIENCE", 0.3)
    provider = Pool(2)
    scheduler = scheduler_on(provider, concurrency=5)
    with pytest.raises(ConfigurationError, match=r"room for 2 of 5 jobs.*concurrency to 2"):
        scheduler.start()
    assert not scheduler.running
    assert scheduler.nodes.list() == []
    assert provider.pool.submit(where).result(30).startswith("shop_")
    provider.pool.shutdown()
    scheduler.close()


def test_a_job_that_does_not_stop_leaves_its_slot_to_another_thread(provider: Pool) -> None:
    """Its thread stays in the pool until it ends; as many jobs as before run beside it."""
    scheduler = scheduler_on(provider, concurrency=1)
    with scheduler:
        stuck = scheduler.enqueue(deaf).with_timeout(timedelta(milliseconds=100)).submit()
        until(lambda: stuck.status() is JobStatus.FAILED, 30, "it was not given up")
        assert scheduler.enqueue_now(thread).result(timeout=30).startswith("ratchet-worker-")
        go_on.set()
    scheduler.close()
