"""Waiting for a job that is gone says so; a job whose transaction is open is pending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from ratchet import JobCanceledError, JobHandle, JobNotFound, JobStatus, Scheduler
from ratchet.engine import waiter
from ratchet.model.identifiers import new_id
from ratchet.stores.memory import MemoryStore
from tests.support.running_jobs import HERE, add
from tests.support.waiting import until

PATIENCE = 20.0


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def scheduler(store: MemoryStore) -> Iterator[Scheduler]:
    made = Scheduler(store=store, allow=[HERE])
    yield made
    made.close()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be seen is gone after a moment."""
    monkeypatch.setattr(waiter, "UNSEEN_FOR", 0.05)


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was never seen is waited for."""
    monkeypatch.setattr(waiter, "UNSEEN_FOR", 3600.0)


def awaited(handle: JobHandle[Any]) -> Callable[[], Any]:
    return lambda: asyncio.run(handle.aio.result())


def in_background(wait: Callable[[], Any]) -> Future[Any]:
    """The outcome of *wait*, which a thread is in."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(wait())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def is_waited_for(scheduler: Scheduler) -> bool:
    waiting: dict[Any, Any] = scheduler._core.waiter._waiting
    return bool(waiting)


class TestGone:
    @pytest.mark.usefixtures("soon")
    def test_a_deleted_job(self, scheduler: Scheduler) -> None:
        """Without a timeout, too: `JobNotFound`, as status() says."""
        handle = scheduler.enqueue_now(add, 1, 2)
        assert scheduler.jobs.delete(handle.id)
        for wait in (handle.result, handle.wait, awaited(handle), lambda: handle.wait(timeout=PATIENCE)):
            with pytest.raises(JobNotFound, match=str(handle.id)):
                in_background(wait).result(PATIENCE)

    @pytest.mark.usefixtures("soon")
    def test_a_purged_job(self, scheduler: Scheduler, store: MemoryStore) -> None:
        """Retention has taken it from the archive."""
        handle = scheduler.enqueue_now(add, 1, 2)
        assert handle.cancel()
        later = scheduler._core.now() + timedelta(days=1)
        assert store.archive(before=later, limit=9, now=later) == 1
        with pytest.raises(JobCanceledError):
            handle.result()
        assert store.purge_archive(before=later + timedelta(days=1), limit=9) == 1
        with pytest.raises(JobNotFound):
            in_background(handle.result).result(PATIENCE)

    @pytest.mark.usefixtures("soon")
    def test_an_unknown_id(self, scheduler: Scheduler) -> None:
        """A handle for an id that nobody has stored."""
        handle = scheduler.handle(new_id())
        for wait in (handle.result, awaited(handle)):
            with pytest.raises(JobNotFound):
                in_background(wait).result(PATIENCE)

    @pytest.mark.usefixtures("never")
    def test_at_the_timeout(self, scheduler: Scheduler) -> None:
        """The timeout is over first, and the job is not there: that is what the error says."""
        with pytest.raises(JobNotFound):
            scheduler.handle(new_id()).result(timeout=0.01)
        with pytest.raises(JobNotFound):
            asyncio.run(scheduler.handle(new_id()).aio.wait(timeout=0.01))

    @pytest.mark.usefixtures("never")
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_deleted_while_somebody_waits(self, scheduler: Scheduler, asynchronous: bool) -> None:
        """It was there, so it is gone at once."""
        handle = scheduler.schedule(3600, add, 1, 2).submit()
        outcome = in_background(awaited(handle) if asynchronous else handle.result)
        until(lambda: is_waited_for(scheduler))
        until(lambda: all(wait.seen for wait in scheduler._core.waiter._waiting[handle.id]))
        assert scheduler.jobs.delete(handle.id)
        with pytest.raises(JobNotFound):
            outcome.result(PATIENCE)
        assert not is_waited_for(scheduler)


class TestNotCommitted:
    @pytest.mark.usefixtures("soon")
    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_it_is_pending(self, scheduler: Scheduler, store: MemoryStore, asynchronous: bool) -> None:
        """However long the transaction is open, its job and the jobs behind it are waited for; then they can be gone."""
        with store.begin() as connection:
            first = scheduler.enqueue(add, 1, 2).then(add, 3, 4).submit(within=connection)
            (many,) = scheduler.enqueue_many(add, [(5, 6)], within=connection)
            (other,) = scheduler.submit_all([scheduler.enqueue(add, 7, 8)], within=connection)
            handles = [first, *first.steps, first.last, many, other]
            outcomes = [
                in_background(awaited(handle) if asynchronous else handle.result) for handle in handles
            ]
            until(lambda: is_waited_for(scheduler))
            threading.Event().wait(0.5)
            assert not any(outcome.done() for outcome in outcomes)
            with pytest.raises(TimeoutError, match="not visible"):
                many.result(timeout=0.01)
        assert {handle.status() for handle in handles} <= {JobStatus.PENDING, JobStatus.WAITING}
        until(lambda: all(w.seen for waits in scheduler._core.waiter._waiting.values() for w in waits))
        for handle in (first.last, first, many, other):
            assert scheduler.jobs.delete(handle.id)
        for outcome in outcomes:
            with pytest.raises(JobNotFound):
                outcome.result(PATIENCE)

    def test_by_somebody_else(self, scheduler: Scheduler, store: MemoryStore) -> None:
        """Who got the id early sees the job when it is committed soon."""
        with store.begin() as connection:
            handle = scheduler.enqueue(add, 1, 2).submit(within=connection)
            outcome = in_background(scheduler.handle(handle.id).result)
            until(lambda: is_waited_for(scheduler))
            threading.Event().wait(0.1)
        with scheduler:
            assert outcome.result(PATIENCE) == 3

    @pytest.mark.usefixtures("never")
    def test_who_sees_it_sooner(self, scheduler: Scheduler, store: MemoryStore) -> None:
        """The answer to an older question, which does not show the job yet, means nothing to who has seen it since."""
        asking, go_on = threading.Event(), threading.Event()
        questions: list[list[Any]] = []
        results = store.results

        def slow_results(job_ids: Any) -> Any:
            answer = results(job_ids)
            questions.append(list(job_ids))
            if len(questions) == 2:  # the waiter's own question, asked before the commit
                asking.set()
                assert go_on.wait(PATIENCE)
            return answer

        store.results = slow_results  # type: ignore[method-assign]
        with store.begin() as connection:
            handle = scheduler.schedule(3600, add, 1, 2).submit(within=connection)
            early = in_background(handle.result)
            assert asking.wait(PATIENCE)
        late = in_background(handle.result)
        until(lambda: len(scheduler._core.waiter._waiting[handle.id]) == 2)
        go_on.set()
        until(lambda: len(questions) > 4)
        assert not early.done()
        assert not late.done()
        assert handle.cancel()
        for outcome in (early, late):
            with pytest.raises(JobCanceledError):
                outcome.result(PATIENCE)
