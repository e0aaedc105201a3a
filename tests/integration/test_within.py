"""``submit(within=…)`` on real databases: the job exists when, and only when, the caller commits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from ratchet import (
    RESULT,
    BusinessKeyBusy,
    ConfigurationError,
    InvalidJob,
    JobContext,
    JobFailedError,
    JobFilter,
    JobStatus,
    Options,
    Scheduler,
)

#: The scheduler of the running test, for jobs that submit.
current: list[Scheduler] = []


def charge(number: int) -> int:
    return number


def submitting(fail: bool) -> None:
    with JobContext.current().transaction() as transaction:
        transaction.execute("INSERT INTO ledger VALUES (1)")
        current[0].enqueue(charge, 1).with_tags("follower").submit()
        transaction.result = "stored"
        if fail:
            raise ValueError("no")


async def submitting_async(fail: bool) -> None:
    context = JobContext.current()
    async with context.aio.transaction() as transaction:
        await transaction.execute("INSERT INTO ledger VALUES (1)")
        await current[0].aio.enqueue(charge, 1).with_tags("follower").submit()
        await context.aio.progress(0.5, "half")
        transaction.result = "stored"
        if fail:
            raise ValueError("no")


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[tuple[Scheduler, str]]:
    path = tmp_path / "jobs.db"
    scheduler = Scheduler(f"sqlite:///{path}", allow=[__name__])
    scheduler.jobs.counts()
    yield scheduler, str(path)
    scheduler.close()


@pytest.fixture
def postgresql(postgresql_url: str) -> Iterator[tuple[Scheduler, str]]:
    scheduler = Scheduler(postgresql_url, allow=[__name__], options=Options(auto_migrate=True))
    scheduler.jobs.counts()
    yield scheduler, postgresql_url
    scheduler.close()


def alchemy(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def check(
    scheduler: Scheduler, connection: Any, within: Any, commit: Callable[[], Any], rollback: Callable[[], Any]
) -> None:
    """Rolled back: nothing. Committed: the whole chain, and not a moment earlier."""
    scheduler.enqueue(charge, 1).then(charge, RESULT).submit(within=within())
    rollback()
    assert scheduler.jobs.count() == 0
    handle = scheduler.enqueue(charge, 2).then(charge, RESULT).submit(within=within())
    assert scheduler.jobs.count() == 0
    commit()
    assert [step.status() for step in handle.steps] == [JobStatus.PENDING, JobStatus.WAITING]


class TestSqlite:
    def test_a_driver_connection(self, sqlite: tuple[Scheduler, str]) -> None:
        """sqlite3: the caller's open transaction carries the job."""
        scheduler, path = sqlite
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE ledger (number integer)")
        connection.commit()

        def open_transaction() -> sqlite3.Connection:
            connection.execute("INSERT INTO ledger VALUES (1)")
            return connection

        check(scheduler, connection, open_transaction, connection.commit, connection.rollback)
        connection.close()

    def test_the_first_use_inside_a_transaction(self, sqlite: tuple[Scheduler, str]) -> None:
        """A scheduler that is used for the first time inside the caller's write transaction does not wait for it."""
        _, path = sqlite
        scheduler = Scheduler(f"sqlite:///{path}", allow=[__name__], options=Options(sqlite_busy_timeout=1))
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE ledger (number integer)")
        connection.execute("INSERT INTO ledger VALUES (1)")
        handle = scheduler.enqueue(charge, 1).submit(within=connection)
        with pytest.raises(InvalidJob, match=r"limits\.set\('tenant', concurrent=2\)"):
            scheduler.enqueue(charge, 1).with_concurrency_key("tenant", limit=2).submit(within=connection)
        connection.commit()
        assert handle.status() is JobStatus.PENDING
        scheduler.limits.set("tenant", concurrent=2)
        connection.execute("INSERT INTO ledger VALUES (2)")
        scheduler.enqueue(charge, 1).with_concurrency_key("tenant", limit=2).submit(within=connection)
        connection.commit()
        assert scheduler.jobs.count() == 2
        connection.close()
        scheduler.close()

    def test_a_sqlalchemy_session(self, sqlite: tuple[Scheduler, str]) -> None:
        """SQLAlchemy: a Session on the same file."""
        scheduler, path = sqlite
        engine = create_engine(f"sqlite:///{path}")
        with engine.begin() as setup:
            setup.execute(text("CREATE TABLE ledger (number integer)"))
        with Session(engine) as session:

            def open_transaction() -> Session:
                session.execute(text("INSERT INTO ledger VALUES (1)"))
                return session

            check(scheduler, session, open_transaction, session.commit, session.rollback)
        engine.dispose()

    def test_an_async_session(self, sqlite: tuple[Scheduler, str]) -> None:
        """AsyncSession through the await face, with aiosqlite."""
        scheduler, path = sqlite

        async def scenario() -> None:
            engine = create_async_engine(f"sqlite+aiosqlite:///{path}")
            async with engine.begin() as setup:
                await setup.execute(text("CREATE TABLE ledger (number integer)"))
            async with AsyncSession(engine) as session:
                await session.execute(text("INSERT INTO ledger VALUES (1)"))
                await scheduler.enqueue(charge, 1).aio.submit(within=session)
                await session.rollback()
                assert scheduler.jobs.count() == 0
                await session.execute(text("INSERT INTO ledger VALUES (2)"))
                handle = await scheduler.aio.enqueue(charge, 2).submit(within=session)
                many = await scheduler.aio.enqueue_many(charge, [(3,), (4,)], within=session)
                await session.commit()
                assert await handle.aio.status() is JobStatus.PENDING
                assert len(many) == 2
                assert scheduler.jobs.count() == 3
            await engine.dispose()

        asyncio.run(scenario())


class TestPostgresql:
    def test_a_driver_connection(self, postgresql: tuple[Scheduler, str]) -> None:
        """psycopg: the caller's transaction carries the job, and stays usable after a busy key."""
        scheduler, url = postgresql
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE ledger (number integer)")
            connection.commit()
            check(scheduler, connection, lambda: connection, connection.commit, connection.rollback)
            holder = scheduler.enqueue(charge, 1).with_business_key("k").submit()
            connection.execute("INSERT INTO ledger VALUES (1)")
            with pytest.raises(BusinessKeyBusy) as busy:
                scheduler.enqueue(charge, 2).with_business_key("k").submit(within=connection)
            assert busy.value.holder == holder.id
            connection.execute("INSERT INTO ledger VALUES (2)")
            connection.commit()
            row = connection.execute("SELECT count(*) FROM ledger").fetchone()
            assert row == (2,)

    def test_sqlalchemy(self, postgresql: tuple[Scheduler, str]) -> None:
        """SQLAlchemy: a Session and a Connection."""
        scheduler, url = postgresql
        engine = create_engine(alchemy(url))
        with Session(engine) as session:
            check(scheduler, session, lambda: session, session.commit, session.rollback)
        with engine.connect() as connection:
            handle = scheduler.enqueue(charge, 3).submit(within=connection)
            connection.commit()
        assert handle.status() is JobStatus.PENDING
        engine.dispose()

    def test_an_async_session(self, postgresql: tuple[Scheduler, str]) -> None:
        """AsyncSession through the await face, with psycopg's async driver."""
        scheduler, url = postgresql

        async def scenario() -> None:
            engine = create_async_engine(alchemy(url))
            async with AsyncSession(engine) as session:
                await scheduler.enqueue(charge, 1).aio.submit(within=session)
                await session.rollback()
                assert scheduler.jobs.count() == 0
                handle = await scheduler.aio.enqueue(charge, 2).submit(within=session)
                await session.commit()
                assert await handle.aio.status() is JobStatus.PENDING
            await engine.dispose()

        asyncio.run(scenario())

    def test_what_cannot_be_joined(self, postgresql: tuple[Scheduler, str]) -> None:
        """Autocommit, an async session on the sync face, and strangers are refused; nothing is stored."""
        scheduler, url = postgresql
        with psycopg.connect(url, autocommit=True) as connection:
            with pytest.raises(ConfigurationError, match="autocommit"):
                scheduler.enqueue(charge, 1).submit(within=connection)
        with pytest.raises(ConfigurationError, match="await face"):
            scheduler.enqueue(charge, 1).submit(within=AsyncSession())
        with pytest.raises(ConfigurationError, match="within="):
            scheduler.enqueue(charge, 1).submit(within=object())
        assert scheduler.jobs.count() == 0


class TestInsideAJob:
    @pytest.mark.parametrize("job", [submitting, submitting_async], ids=["thread", "async"])
    @pytest.mark.parametrize("database", ["sqlite", "postgresql"])
    def test_submissions_join_the_job_s_transaction(
        self, request: pytest.FixtureRequest, database: str, job: Callable[[bool], Any]
    ) -> None:
        """What a job submits inside ``ctx.transaction()`` commits with its success, or not at all."""
        scheduler, where = request.getfixturevalue(database)
        current[:] = [scheduler]
        connect: Any = sqlite3.connect if database == "sqlite" else psycopg.connect
        connection = connect(where)
        connection.execute("CREATE TABLE ledger (number integer)")
        connection.commit()
        with scheduler:
            assert scheduler.enqueue_now(job, False).result(timeout=30) == "stored"
            with pytest.raises(JobFailedError, match="ValueError: no"):
                scheduler.enqueue_now(job, True).result(timeout=30)
            (follower,) = scheduler.jobs.find(JobFilter(tags=["follower"]))
            assert scheduler.handle(follower.id).result(timeout=30) == 1
        assert connection.execute("SELECT count(*) FROM ledger").fetchone() == (1,)
        connection.close()
