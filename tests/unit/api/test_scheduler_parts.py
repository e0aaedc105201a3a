"""What surrounds the jobs of a scheduler: listeners, middleware, hooks, and parts that were replaced."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest

from ratchet import (
    InvalidJob,
    JobCanceled,
    JobContext,
    JobEvent,
    JobFailed,
    JobPaused,
    LifecycleHook,
    Scheduler,
    StoreUnavailable,
)
from ratchet.defaults.principal_provider import ContextPrincipalProvider
from ratchet.stores.memory import MemoryStore
from tests.support.running_jobs import HERE, add, failing, slow_add
from tests.support.waiting import until

log: list[Any] = []


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    log.clear()
    made = Scheduler(store=MemoryStore(), allow=[HERE])
    yield made
    made.close()


class TestEvents:
    def test_listeners_hear_their_kind(self, scheduler: Scheduler) -> None:
        """A listener hears its class and what derives from it; stop() delivers what is pending."""
        everything: list[str] = []
        failures: list[JobFailed] = []
        scheduler.on(JobEvent)(lambda event: everything.append(type(event).__name__))

        @scheduler.on(JobFailed)
        def failed(event: JobFailed) -> None:
            failures.append(event)

        with scheduler:
            handle = scheduler.enqueue_now(failing)
            handle.wait(timeout=10)
        assert everything == ["JobSubmitted", "JobStarted", "JobFailed", "JobDeadLettered"]
        assert [(event.job_id, event.will_retry) for event in failures] == [(handle.id, False)]

    def test_a_process_that_is_no_node_hears_what_it_did(self, scheduler: Scheduler) -> None:
        """Events of control verbs arrive on a dispatcher thread although nothing runs here; close() delivers the rest."""
        threads: list[str] = []
        scheduler.on(JobPaused, JobCanceled)(lambda event: threads.append(threading.current_thread().name))
        handle = scheduler.enqueue_now(add, 1, 2)
        handle.pause()
        handle.cancel()
        until(lambda: len(threads) >= 2)
        assert set(threads) == {"ratchet-events"}

    @pytest.mark.parametrize(
        "register",
        [
            lambda s: s.on(ValueError),
            lambda s: s.on(JobEvent)("not callable"),
            lambda s: s.on(JobEvent)(slow_add),
            lambda s: s.around(slow_add),
            lambda s: s.around("nothing"),
        ],
    )
    def test_what_cannot_listen(self, scheduler: Scheduler, register: Any) -> None:
        """Coroutines and things that are no events are refused where they are registered."""
        with pytest.raises(InvalidJob):
            register(scheduler)


class TestMiddleware:
    def test_the_first_is_outermost(self, scheduler: Scheduler) -> None:
        """Generators, context managers and classes surround each run, in the order they were given."""

        @scheduler.around
        def outer(ctx: JobContext) -> Iterator[None]:
            log.append(("outer in", ctx.attempt))
            try:
                yield
            finally:
                log.append("outer out")

        @scheduler.around
        @contextmanager
        def inner(ctx: JobContext) -> Iterator[None]:
            log.append("inner in")
            yield
            log.append("inner out")

        @scheduler.around
        def plain(ctx: JobContext) -> AbstractContextManager[None]:
            return nullcontext()

        with scheduler:
            assert scheduler.enqueue_now(add, 1, 2).result(timeout=10) == 3
        assert log == [("outer in", 1), "inner in", "inner out", "outer out"]

    def test_middleware_that_surrounds_nothing(self, scheduler: Scheduler) -> None:
        """A function that returns no context manager fails the job with words that say why."""
        scheduler.around(lambda ctx: None)
        with scheduler:
            handle = scheduler.enqueue_now(add, 1, 2)
            handle.wait(timeout=10)
        assert "context manager" in (handle.job().error or "")


class Hook(LifecycleHook):
    def __init__(self, name: str, *, broken: str | None = None) -> None:
        self._name = name
        self._broken = broken

    def _note(self, step: str) -> None:
        log.append((self._name, step))
        if self._broken == step:
            raise RuntimeError(step)

    def before_start(self) -> None:
        self._note("before_start")

    def after_start(self) -> None:
        self._note("after_start")

    def before_stop(self) -> None:
        self._note("before_stop")

    def after_stop(self) -> None:
        self._note("after_stop")


class TestHooks:
    def test_order(self) -> None:
        """Hooks run in order around the start and in reverse around the stop; a broken one is only logged."""
        log.clear()
        scheduler = Scheduler(
            store=MemoryStore(),
            allow=[HERE],
            lifecycle_hooks=[Hook("a", broken="after_start"), Hook("b", broken="before_stop")],
        )
        with scheduler:
            pass
        assert log == [
            ("a", "before_start"),
            ("b", "before_start"),
            ("a", "after_start"),
            ("b", "after_start"),
            ("b", "before_stop"),
            ("a", "before_stop"),
            ("b", "after_stop"),
            ("a", "after_stop"),
        ]

    def test_a_hook_prevents_the_start(self) -> None:
        """What before_start raises comes through, and there is no node."""
        scheduler = Scheduler(
            store=MemoryStore(), allow=[HERE], lifecycle_hooks=[Hook("a", broken="before_start")]
        )
        with pytest.raises(RuntimeError, match="before_start"):
            scheduler.start()
        assert not scheduler.running
        assert scheduler.nodes.list() == []


class TestParts:
    def test_the_caller_is_kept(self) -> None:
        """The principal of the submitting code is stored with the job."""
        principals = ContextPrincipalProvider()
        scheduler = Scheduler(store=MemoryStore(), allow=[HERE], principal_provider=principals)
        with principals.acting_as("ann"):
            handle = scheduler.enqueue_now(add, 1, 2)
            many = scheduler.enqueue_many(add, [(1, 2), (3, 4)])
        assert {h.job().caller for h in (handle, *many)} == {"ann"}
        assert scheduler.enqueue_now(add, 1, 2).job().caller is None

    def test_health_of_a_store_that_is_away(self) -> None:
        """A health check reports; it does not raise."""

        class Away(MemoryStore):
            def database_time(self) -> Any:
                raise StoreUnavailable("connection refused")

        health = Scheduler(store=Away(), allow=[HERE]).health()
        assert (health.ok, health["reachable"]) == (False, False)
        assert "connection refused" in health["error"]
