from __future__ import annotations

from typing import Any

import pymongo

from tests.services.mongodb import MongoDB


def test_transactions_and_change_streams_work(mongodb_url: str) -> None:
    """The server is a replica set: a transaction rolls back as a whole, and a stream sees what commits."""
    client: pymongo.MongoClient[dict[str, Any]]
    with pymongo.MongoClient(mongodb_url) as client:
        jobs = client.get_default_database()["jobs"]
        jobs.insert_one({"_id": 0})
        with jobs.watch() as changes, client.start_session() as session:
            session.start_transaction()
            jobs.insert_one({"_id": 1}, session=session)
            session.abort_transaction()
            with session.start_transaction():
                jobs.insert_one({"_id": 2}, session=session)
            assert next(changes)["documentKey"] == {"_id": 2}
        assert jobs.count_documents({}) == 2


def test_keeps_its_data_through_restart_and_kill() -> None:
    """What a majority acknowledged is there after an orderly restart, and after SIGKILL and recovery."""
    with MongoDB() as server:
        url = server.create_database()
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(url, w="majority", journal=True) as client:
            client.get_default_database()["kept"].insert_one({"answer": 42})
        for interrupt in (server.restart, server.kill):
            interrupt()
            server.start()
            with pymongo.MongoClient(url) as client:
                assert client.get_default_database()["kept"].count_documents({"answer": 42}) == 1
