"""``within=`` and a session of pymongo: commit, rollback, busy key, no transaction, failed transaction, the sync and the await face."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pymongo
import pytest
from pymongo.errors import OperationFailure

from ratchet import (
    RESULT,
    BusinessKeyBusy,
    ConfigurationError,
    JobStatus,
    Options,
    Scheduler,
    SubmissionBlocked,
)
from ratchet.testing import run_worker_until_idle


def charge(number: int) -> int:
    return number


class Shop:
    """A scheduler, and an application with a client of its own."""

    def __init__(self, url: str) -> None:
        self.scheduler = Scheduler(url, allow=[__name__], options=Options(auto_migrate=True))
        self.scheduler.migrate()
        self.client: pymongo.MongoClient[Any] = pymongo.MongoClient(url)
        self.ledger = self.client.get_default_database()["ledger"]
        self.ledger.insert_one(
            {"number": 0}
        )  # a collection cannot be made in a transaction that others wait for

    def keyed(self, key: str) -> Any:
        return self.scheduler.enqueue(charge, 7).with_business_key(key)


@pytest.fixture
def shop(mongodb_url: str) -> Iterator[Shop]:
    made = Shop(mongodb_url)
    yield made
    made.client.close()
    made.scheduler.close()


@pytest.mark.parametrize("awaited", [False, True], ids=["sync", "await"])
def test_commit_and_rollback(shop: Shop, awaited: bool) -> None:
    """A job and what follows it are there after the commit, not a moment earlier, and not after a rollback; then they run."""

    def submit(within: Any) -> Any:
        builder = shop.scheduler.enqueue(charge, 2).then(charge, RESULT)
        return asyncio.run(builder.aio.submit(within=within)) if awaited else builder.submit(within=within)

    with shop.client.start_session() as session:
        session.start_transaction()
        shop.ledger.insert_one({"number": 1}, session=session)
        submit(session)
        session.abort_transaction()
        assert shop.scheduler.jobs.count() == 0
        session.start_transaction()
        shop.ledger.insert_one({"number": 2}, session=session)
        handle = submit(session)
        assert shop.scheduler.jobs.count() == 0
        session.commit_transaction()
    assert [row["number"] for row in shop.ledger.find().sort("number")] == [0, 2]
    assert [step.status() for step in handle.steps] == [JobStatus.PENDING, JobStatus.WAITING]
    run_worker_until_idle(shop.scheduler)
    assert handle.last.result(timeout=0) == 2


def test_busy_key(shop: Shop) -> None:
    """A busy key is told with its holder, and what the application has written stays and can be committed."""
    holder = shop.keyed("k").submit()
    with shop.client.start_session() as session:
        session.start_transaction()
        shop.ledger.insert_one({"number": 1}, session=session)
        with pytest.raises(BusinessKeyBusy) as busy:
            shop.keyed("k").submit(within=session)
        assert busy.value.holder == holder.id
        shop.keyed("free").submit(within=session)
        session.commit_transaction()
    assert shop.scheduler.jobs.count() == 2
    assert shop.ledger.count_documents({}) == 2


def test_without_a_transaction(shop: Shop) -> None:
    """There is nothing to join, and the message says what to do; so it does for what is no session."""
    with shop.client.start_session() as session:
        with pytest.raises(ConfigurationError, match=r"start_transaction\(\) first"):
            shop.scheduler.enqueue(charge, 1).submit(within=session)
    with pytest.raises(ConfigurationError, match="pass a pymongo ClientSession in a transaction"):
        shop.scheduler.enqueue(charge, 1).submit(within=shop.client)
    assert shop.scheduler.jobs.count() == 0


def test_failed_transaction(shop: Shop) -> None:
    """MongoDB has ended a transaction in which it refused a statement: a submission is told so, and nothing of it is stored."""
    with shop.client.start_session() as session:
        session.start_transaction()
        shop.ledger.insert_one({"_id": "one", "number": 1}, session=session)
        with pytest.raises(OperationFailure):
            shop.ledger.insert_one({"_id": "one", "number": 2}, session=session)
        with pytest.raises(SubmissionBlocked, match=r"MongoDB has aborted your transaction.* run it again"):
            shop.scheduler.enqueue(charge, 1).submit(within=session)
        session.abort_transaction()
        assert shop.scheduler.jobs.count() == 0
        session.start_transaction()
        shop.scheduler.enqueue(charge, 1).submit(within=session)
        session.commit_transaction()
    assert shop.scheduler.jobs.count() == 1
