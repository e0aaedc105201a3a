"""Awaited submissions on PostgreSQL: the event loop sends and waits by itself, and nothing is lost when that ends badly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest

import ratchet.api.submit.immediate as immediate
from ratchet import JobHandle, JobSubmitted, Options, Priority, Scheduler
from ratchet.stores.sql.dialects.postgresql.connections import Connections
from tests.stores.sql_stores import REFUSED_COMMITS
from tests.support.waiting import happens, until

POOL = 4
PATIENCE = 10.0
SENDER = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@pytest.fixture
def scheduler(postgresql_url: str) -> Iterator[Scheduler]:
    made = Scheduler(postgresql_url, options=Options(auto_migrate=True, pool_size=POOL))
    made.job(name="work")(work)
    for _ in range(2):  # opened, checked, prepared
        made.enqueue_now(work, 0)
    yield made
    made.close()


def work(number: Any) -> None: ...


def declared(number: Any) -> None: ...


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What threads were asked to do for coroutines."""
    asked: list[str] = []
    in_thread, start_in_thread = immediate.in_thread, immediate.start_in_thread

    def noted(verb: Callable[..., Any], *args: Any) -> Coroutine[Any, Any, Any]:
        asked.append(verb.__name__)
        return in_thread(verb, *args)

    def started(verb: Callable[..., Any], *args: Any) -> None:
        asked.append(f"start {verb.__name__}")
        start_in_thread(verb, *args)

    monkeypatch.setattr(immediate, "in_thread", noted)
    monkeypatch.setattr(immediate, "start_in_thread", started)
    return asked


@contextmanager
def held_up(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Nobody can store a job inside the block."""
    with psycopg.connect(url, autocommit=True) as admin, psycopg.connect(url) as holder:
        holder.execute("LOCK TABLE scheduler_job IN EXCLUSIVE MODE")
        yield admin


async def until_sent(admin: psycopg.Connection[Any]) -> int:
    """The server's process that waits with what was sent."""
    for _ in range(1000):
        if row := admin.execute(SENDER).fetchone():
            return int(row[0])
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was sent")


def is_stored(scheduler: Scheduler, handle: JobHandle[Any]) -> bool:
    return scheduler.store.get(handle.id) is not None


def jobs(scheduler: Scheduler) -> int:
    return scheduler.jobs.count() - 2


def pool(scheduler: Scheduler) -> Connections:
    found = scheduler.store.database.dialect._connections  # type: ignore[attr-defined]
    assert isinstance(found, Connections)
    return found


def all_are_back(scheduler: Scheduler) -> bool:
    """True if no connection is lent: as many can be taken as there may be."""
    return happens(lambda: pool(scheduler)._slots.qsize() >= POOL, PATIENCE)


def test_the_loop_does_it_all(scheduler: Scheduler, threads: list[str]) -> None:
    """No thread takes part, and a loop that is used for many is used for others meanwhile."""

    async def submit() -> list[JobHandle[Any]]:
        return [await scheduler.aio.enqueue_now(work, number) for number in range(20)]

    handles = asyncio.run(submit())
    assert threads == []
    assert all(is_stored(scheduler, handle) for handle in handles)
    assert jobs(scheduler) == 20
    assert all_are_back(scheduler)


def test_a_declared_job(scheduler: Scheduler, threads: list[str]) -> None:
    """With retries, a timeout and a queue of its own it is sent by the loop as well, once its stream is known."""
    scheduler.job(name="declared", max_retries=3, timeout=5, queue="mail", priority=Priority.HIGH)(declared)

    async def submit() -> list[JobHandle[Any]]:
        return [await scheduler.aio.enqueue_now(declared, number) for number in range(3)]

    handles = asyncio.run(submit())
    assert threads == ["send"]
    for handle in handles:
        job = handle.job()
        assert (job.max_retries, job.queue, job.priority) == (3, "mail", Priority.HIGH)


def test_a_process_that_has_not_submitted_yet(postgresql_url: str, threads: list[str]) -> None:
    """A thread opens, checks and prepares; from then on the loop does it."""
    with closing(Scheduler(postgresql_url, options=Options(auto_migrate=True))) as fresh:
        fresh.job(name="work")(work)

        async def submit() -> None:
            for number in range(4):
                await fresh.aio.enqueue_now(work, number)

        asyncio.run(submit())
        assert threads[0] == "submit_now"
        assert len(threads) < 4
        assert fresh.jobs.count() == 4


def test_more_at_once_than_there_are_connections(scheduler: Scheduler) -> None:
    async def submit() -> list[JobHandle[Any]]:
        return await asyncio.gather(*(scheduler.aio.enqueue_now(work, number) for number in range(100)))

    handles = asyncio.run(submit())
    assert len({handle.id for handle in handles}) == 100
    assert jobs(scheduler) == 100
    assert all_are_back(scheduler)


def test_the_loop_is_free_while_the_server_thinks(
    scheduler: Scheduler, postgresql_url: str, threads: list[str]
) -> None:
    """And after a second a thread goes on waiting, by the deadline that every statement has."""

    async def submit() -> int:
        turns = 0
        with held_up(postgresql_url) as admin:
            task = asyncio.create_task(scheduler.aio.enqueue_now(work, 1))
            await until_sent(admin)
            begun = time.monotonic()
            while time.monotonic() - begun < 1.5:
                await asyncio.sleep(0.01)
                turns += 1
            assert not task.done()
        assert is_stored(scheduler, await task)
        return turns

    assert asyncio.run(submit()) > 20
    assert threads == ["_finish"]
    assert jobs(scheduler) == 1
    assert all_are_back(scheduler)


def test_whoever_waits_is_canceled(scheduler: Scheduler, postgresql_url: str, threads: list[str]) -> None:
    """The job was sent, so it is stored; a thread reads the answer, also when the loop is gone by then."""

    async def submit() -> None:
        with held_up(postgresql_url) as admin:
            task = asyncio.create_task(scheduler.aio.enqueue_now(work, 1))
            await until_sent(admin)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(submit())
    assert threads == ["start _finish"]
    assert all_are_back(scheduler)
    assert jobs(scheduler) == 1


def test_a_loop_that_is_closed_without_a_word(
    scheduler: Scheduler, postgresql_url: str, threads: list[str]
) -> None:
    """Its coroutines are thrown away where they stand: the connection comes back all the same."""
    loop = asyncio.new_event_loop()
    with held_up(postgresql_url) as admin:
        waiting = loop.create_task(scheduler.aio.enqueue_now(work, 1))
        loop.run_until_complete(until_sent(admin))
        loop.stop()
        loop.close()
        waiting.get_coro().close()  # type: ignore[union-attr]
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]
        del waiting
    assert threads == ["start _finish"]
    assert all_are_back(scheduler)
    assert jobs(scheduler) == 1


def test_a_connection_that_is_lost_meanwhile(
    scheduler: Scheduler, postgresql_url: str, threads: list[str]
) -> None:
    """The job is sent again under its id, by another connection."""

    async def submit() -> JobHandle[Any]:
        with held_up(postgresql_url) as admin:
            task = asyncio.create_task(scheduler.aio.enqueue_now(work, 1))
            sender = await until_sent(admin)
            admin.execute("SELECT pg_terminate_backend(%s)", (sender,))
            async with asyncio.timeout(PATIENCE):
                while "send" not in threads:
                    await asyncio.sleep(0.01)
        return await task

    assert is_stored(scheduler, asyncio.run(submit()))
    assert jobs(scheduler) == 1
    assert all_are_back(scheduler)


def test_a_connection_that_died_while_idle(scheduler: Scheduler, postgresql_url: str) -> None:
    with psycopg.connect(postgresql_url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert is_stored(scheduler, asyncio.run(scheduler.aio.enqueue_now(work, 1)))
    assert jobs(scheduler) == 1
    assert all_are_back(scheduler)


def test_a_refused_commit(scheduler: Scheduler, postgresql_url: str) -> None:
    """Nothing is stored, and that is what the caller hears."""
    with psycopg.connect(postgresql_url, autocommit=True) as admin:
        admin.execute(REFUSED_COMMITS.format(event="INSERT", table="scheduler_job"))
    with pytest.raises(Exception, match="not today"):
        asyncio.run(scheduler.aio.enqueue_now(work, 1))
    assert jobs(scheduler) == 0
    assert all_are_back(scheduler)


def test_what_does_not_fit_into_one_packet(scheduler: Scheduler, threads: list[str]) -> None:
    """Sending it may take waiting: a thread does it."""
    handle = asyncio.run(scheduler.aio.enqueue_now(work, "x" * 50_000))
    assert threads == ["send"]
    assert is_stored(scheduler, handle)


def test_a_loop_that_cannot_wait_for_files(
    scheduler: Scheduler, threads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the default one on Windows: the answer is read by a thread."""

    async def submit() -> JobHandle[Any]:
        def unable(*args: Any) -> None:
            raise NotImplementedError

        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", unable)
        return await scheduler.aio.enqueue_now(work, 1)

    assert is_stored(scheduler, asyncio.run(submit()))
    assert threads == ["_finish"]
    assert all_are_back(scheduler)


def test_loops_in_several_threads(scheduler: Scheduler) -> None:
    async def submit() -> None:
        for number in range(25):
            await scheduler.aio.enqueue_now(work, number)

    threads = [threading.Thread(target=asyncio.run, args=(submit(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert jobs(scheduler) == 75
    assert all_are_back(scheduler)


def test_everybody_is_told(scheduler: Scheduler, postgresql_url: str, threads: list[str]) -> None:
    """Of a job that the loop has sent, and of one whose submitter was canceled."""
    heard: list[Any] = []
    scheduler.on(JobSubmitted)(lambda event: heard.append(event.job_id))

    async def submit() -> JobHandle[Any]:
        handle = await scheduler.aio.enqueue_now(work, 1)
        with held_up(postgresql_url) as admin:
            task = asyncio.create_task(scheduler.aio.enqueue_now(work, 2))
            await until_sent(admin)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        return handle

    handle = asyncio.run(submit())
    assert threads == ["start _finish"]
    until(lambda: len(heard) >= 2, PATIENCE)
    assert len(heard) == jobs(scheduler) == 2
    assert handle.id in heard
