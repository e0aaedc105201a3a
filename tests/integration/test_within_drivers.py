"""``within=`` and every kind of connection it takes: commit, rollback, busy key, wrong database, autocommit, failed transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ratchet import (
    RESULT,
    BusinessKeyBusy,
    ConfigurationError,
    JobFilter,
    JobStatus,
    Options,
    Priority,
    Scheduler,
)
from ratchet.model.errors import StoreError
from ratchet.testing import run_worker_until_idle
from tests.integration.callers import CALLERS, WRONG, AlchemyAsyncSession, AlchemySession, Caller


def charge(number: int) -> int:
    return number


class Bench:
    """A scheduler, and applications that connect to its database or to another one."""

    def __init__(self, kind: type[Caller], url: str, other: str) -> None:
        self.kind, self.url, self.other = kind, url, other
        self.scheduler = Scheduler(url, allow=[__name__], options=Options(auto_migrate=True))
        self.scheduler.migrate()
        elsewhere = Scheduler(other, options=Options(auto_migrate=True))
        elsewhere.migrate()
        elsewhere.close()

    @asynccontextmanager
    async def caller(self, **given: Any) -> AsyncIterator[Caller]:
        caller = self.kind(given.pop("url", self.url), **given)
        await caller.open()
        try:
            yield caller
        finally:
            await caller.close()

    async def submit(self, caller: Caller, number: int = 1, key: str | None = None) -> Any:
        """One job with a second step (or with a key), by the face that the connection needs."""
        if key is None:
            builder: Any = self.scheduler.enqueue(charge, number).with_tags("mine").then(charge, RESULT)
        else:
            builder = self.keyed(key)
        if self.kind.is_async:
            return await builder.aio.submit(within=caller.within)
        return builder.submit(within=caller.within)

    def keyed(self, key: str) -> Any:
        return self.scheduler.enqueue(charge, 7).with_business_key(key)

    def count(self) -> int:
        return self.scheduler.jobs.count()


@pytest.fixture(params=CALLERS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    kind = CALLERS[request.param]
    if kind.store == "sqlite":
        url, other = (f"sqlite:///{tmp_path / name}" for name in ("jobs.db", "other.db"))
        bench = Bench(kind, url, other)
        yield bench
    else:
        server = request.getfixturevalue(
            {"postgresql": "postgresql_server", "mysql": "mariadb_server"}[kind.store]
        )
        url, other = server.create_database(), server.create_database()
        bench = Bench(kind, url, other)
        yield bench
        bench.scheduler.close()
        for one in (url, other):
            server.drop_database(one)
    bench.scheduler.close()


def awaited(scenario: Callable[[Bench], Coroutine[Any, Any, None]]) -> Callable[[Any, Bench], None]:
    """The scenario as a test."""

    def test(self: Any, bench: Bench) -> None:
        asyncio.run(scenario(bench))

    test.__doc__ = scenario.__doc__
    return test


async def commit_and_rollback(bench: Bench) -> None:
    """A job and what follows it are there after the commit, not a moment earlier, and not after a rollback; then they run."""
    async with bench.caller() as caller:
        await bench.submit(caller)
        await caller.rollback()
        assert bench.count() == 0
        handle = await bench.submit(caller, 2)
        assert bench.count() == 0
        await caller.commit()
        assert [step.status() for step in handle.steps] == [JobStatus.PENDING, JobStatus.WAITING]
    await asyncio.to_thread(run_worker_until_idle, bench.scheduler)
    assert await asyncio.to_thread(handle.last.result, 0) == 2


async def busy_key(bench: Bench) -> None:
    """A busy key is told with its holder, and what the application has written stays and can be committed."""
    async with bench.caller() as caller:
        await caller.run("CREATE TABLE ledger (number integer)")
        await caller.commit()
        holder = await asyncio.to_thread(bench.keyed("k").submit)
        await caller.run("INSERT INTO ledger VALUES (1)")
        with pytest.raises(BusinessKeyBusy) as busy:
            await bench.submit(caller, key="k")
        assert busy.value.holder == holder.id
        await bench.submit(caller, key="free")
        await caller.run("INSERT INTO ledger VALUES (2)")
        await caller.commit()
        await caller.run("DELETE FROM ledger WHERE number = 2")
        await caller.rollback()
    assert bench.count() == 2


async def wrong_database(bench: Bench) -> None:
    """A connection to another database that has our tables too is refused, and the message names it."""
    async with bench.caller(url=bench.other) as caller:
        with pytest.raises(ConfigurationError, match=r"within= got a connection to") as refused:
            await bench.submit(caller)
        assert bench.other.rpartition("/")[2] in str(refused.value)
        await caller.rollback()
    assert bench.count() == 0


async def autocommit(bench: Bench) -> None:
    """Without an open transaction there is nothing to join, and the message says what to do."""
    async with bench.caller(autocommit=True) as caller:
        with pytest.raises(
            ConfigurationError, match=r"in autocommit mode .* begin a transaction on it first"
        ):
            await bench.submit(caller)
    assert bench.count() == 0


async def failed_transaction(bench: Bench) -> None:
    """PostgreSQL wants a rollback after an error, and so do we; elsewhere the transaction goes on, with the job."""
    async with bench.caller() as caller:
        with contextlib.suppress(Exception):
            await caller.run(WRONG)
        if bench.kind.store == "postgresql":
            with pytest.raises(StoreError, match="transaction has failed; roll it back first"):
                await bench.submit(caller)
            await caller.rollback()
            assert bench.count() == 0
        await bench.submit(caller)
        await caller.commit()
    assert bench.count() == 2


async def every_verb(bench: Bench) -> None:
    """Changes, many jobs, a batch and a schedule are committed, and rolled back, with the application's own data."""
    scheduler: Any = bench.scheduler.aio if bench.kind.is_async else bench.scheduler
    waits = await asyncio.to_thread(lambda: bench.scheduler.enqueue(charge, 1).with_delay(3600).submit())
    spare = await asyncio.to_thread(lambda: bench.scheduler.enqueue(charge, 2).with_delay(3600).submit())

    async def verbs(within: Any) -> None:
        async def done(value: Any) -> Any:
            return await value if bench.kind.is_async else value

        assert await done(scheduler.set_priority(waits.id, Priority.HIGH, within=within))
        assert await done(scheduler.pause_job(waits.id, within=within))
        assert await done(scheduler.resume_job(waits.id, within=within))
        assert await done(scheduler.cancel_job(waits.id, within=within))
        assert await done(scheduler.retry_job(spare.id, within=within)) is False
        await done(scheduler.replace(spare.id, charge, 3, within=within))
        await done(scheduler.enqueue_many(charge, [(n,) for n in range(300)], within=within))
        await done(scheduler.enqueue_batch("b").for_each([1, 2], charge).submit(within=within))
        await done(scheduler.schedule_recurring("0 2 * * *", charge, 3, name="nightly", within=within))
        assert await done(scheduler.signal("nobody", {"waits": True}, within=within)) == 0
        assert await done(scheduler.cancel_jobs(JobFilter(targets=["never"]), within=within)) == 0

    async with bench.caller() as caller:
        await verbs(caller.within)
        await caller.rollback()
        assert waits.status() is JobStatus.PENDING
        assert bench.count() == 2
        assert [one.name for one in bench.scheduler.schedules.list()] == []
        await verbs(caller.within)
        await caller.commit()
    assert waits.status() is JobStatus.CANCELED
    assert waits.job().priority is Priority.HIGH
    assert spare.job().superseded_by is not None
    assert [one.name for one in bench.scheduler.schedules.list()] == ["nightly"]
    assert bench.scheduler.jobs.count(JobFilter(targets=[f"{__name__}:charge"])) == 2 + 1 + 300 + 2


async def sync_face(bench: Bench) -> None:
    """What only its event loop can use is refused there, and the message names the awaited form."""
    async with bench.caller() as caller:
        if bench.kind.is_async:
            builder = bench.scheduler.enqueue(charge, 1)
            with pytest.raises(
                ConfigurationError, match=r"await scheduler\.aio\.enqueue\(…\)\.submit\(within="
            ):
                await asyncio.to_thread(builder.submit, within=caller.within)
        else:
            await bench.submit(caller)
            await caller.rollback()
    assert bench.count() == 0


async def canceled(bench: Bench) -> None:
    """A task that is canceled while it waits for a lock gives its connection back in order: it can roll back, and go on."""
    dialect: Any = bench.scheduler.backend.store.database.dialect  # type: ignore[attr-defined]
    dialect.lock_wait = 3_600_000  # ms: longer than this test may take
    async with bench.caller() as holder, bench.caller() as caller:
        await bench.submit(holder, key="k")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bench.submit(caller, key="k"), 0.5)
        await caller.run("SELECT 1")
        await bench.submit(caller, key="other")
        await caller.commit()
        await holder.rollback()
    assert [job.business_key for job in bench.scheduler.jobs.find()] == ["other"]


async def prepared_at_once(bench: Bench) -> None:
    """A psycopg connection that prepares every statement the first time: what we send in one piece is not prepared."""
    async with bench.caller() as caller:
        (await psycopg_connection(caller)).prepare_threshold = 0
        for number in range(3):
            await bench.submit(caller, number)
            await bench.submit(caller, key=f"k{number}")
            with pytest.raises(BusinessKeyBusy):
                await bench.submit(caller, key=f"k{number}")
            await caller.commit()
    assert bench.count() == 3 * 3


async def psycopg_connection(caller: Caller) -> Any:
    """The driver's own connection, below SQLAlchemy if that is in between."""
    if isinstance(caller, AlchemyAsyncSession):
        return (await (await caller.connection.connection()).get_raw_connection()).driver_connection
    if isinstance(caller, AlchemySession):
        return caller.connection.connection().connection.driver_connection
    return caller.connection


class TestEveryConnection:
    test_commit_and_rollback = awaited(commit_and_rollback)
    test_busy_key = awaited(busy_key)
    test_wrong_database = awaited(wrong_database)
    test_autocommit = awaited(autocommit)
    test_failed_transaction = awaited(failed_transaction)
    test_every_verb = awaited(every_verb)
    test_sync_face = awaited(sync_face)


ON_POSTGRESQL = [name for name, kind in CALLERS.items() if kind.is_async and kind.store == "postgresql"]


@pytest.mark.parametrize("bench", ON_POSTGRESQL, indirect=True)
class TestAsyncDrivers:
    test_canceled = awaited(canceled)


ON_PSYCOPG = ["psycopg", "psycopg async", "Session on psycopg", "AsyncSession on psycopg"]


@pytest.mark.parametrize("bench", ON_PSYCOPG, indirect=True)
class TestPsycopg:
    test_prepared_at_once = awaited(prepared_at_once)
