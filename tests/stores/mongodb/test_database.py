"""MongoDB: which servers are accepted, how the schema is made, and what becomes of commits that got no answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymongo
import pytest

from ratchet.model.errors import (
    CommitUnknown,
    ConfigurationError,
    MissingDriver,
    SchemaOutOfDate,
    SchemaTooNew,
    StoreUnavailable,
    SubmissionBlocked,
)
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.stores import open_store
from ratchet.stores.mongo.errors import SubmissionAborted, TransactionAborted
from ratchet.stores.mongo.schema import ALL_NAMES, CLAIM_INDEX, STEPS, Names, Schema, Step
from ratchet.stores.mongo.store import MongoStore
from tests.services.mongodb import MongoDB
from tests.stores.mongo_store import MongoSteps, opened

QUICK = Options(connect_timeout=1, statement_timeout=2)


@pytest.fixture
def steps(mongodb_url: str) -> Iterator[MongoSteps]:
    with opened(mongodb_url) as found:
        yield found


class Standalone(MongoDB):
    """A mongod that is no replica set."""

    def command(self) -> list[str]:
        words = super().command()
        at = words.index("--replSet")
        return words[:at] + words[at + 2 :]

    def private_url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/"

    def answers(self) -> bool:
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(self.url, serverSelectionTimeoutMS=500) as client:
            try:
                return bool(client.admin.command("ping")["ok"])
            except pymongo.errors.PyMongoError:
                return False


class TestServers:
    def test_a_standalone_is_refused_with_the_fix(self) -> None:
        """With the name of a replica set in the URL or without: one error, which says how to make it one."""
        with Standalone() as server:
            for tail in ("jobs", "jobs?replicaSet=rs0"):
                store = MongoStore(server.url + tail, QUICK)
                with pytest.raises(ConfigurationError, match=r"--replSet rs0.*rs\.initiate\(\)"):
                    store.counts()
                store.close()

    def test_nobody_there(self) -> None:
        """No server at all is StoreUnavailable: it may come."""
        store = MongoStore("mongodb://127.0.0.1:9/jobs", QUICK)
        with pytest.raises(StoreUnavailable):
            store.counts()
        store.close()

    def test_nothing_is_connected_before_the_first_use(self) -> None:
        """Opening a store of a server that is not there is fine, and so is closing it."""
        open_store("mongodb://127.0.0.1:9/jobs").close()

    def test_a_url_that_is_none(self) -> None:
        """It is refused where it is given, as for every store, and without a connection."""
        with pytest.raises(ConfigurationError, match="MongoDB URL has a host or port that cannot be read"):
            open_store("mongodb://127.0.0.1:port/jobs")

    def test_without_the_driver_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A missing pymongo says what to install."""
        monkeypatch.setattr("ratchet.stores.find_spec", lambda name: None)
        with pytest.raises(MissingDriver, match=r"ratchet-jobs\[mongodb\]"):
            open_store("mongodb://127.0.0.1/jobs")


class TestSchema:
    def test_made_at_the_first_use(self, mongodb_url: str) -> None:
        """A store of an empty database makes its collections and indexes, and the TTL of locks, by itself."""
        with_store = MongoStore(mongodb_url)
        with pytest.raises(SchemaOutOfDate):
            with_store.check_schema()
        assert with_store.counts()[JobStatus.PENDING] == 0
        with_store.check_schema()
        collections = with_store.database.collections()
        assert set(ALL_NAMES) <= set(collections.database.list_collection_names())
        claim = collections[Names.JOBS].index_information()[CLAIM_INDEX]
        assert claim["partialFilterExpression"] == {"status": "PENDING"}
        assert collections[Names.LOCKS].index_information()["forgotten"]["expireAfterSeconds"] == 0
        with_store.close()

    def test_interrupted_and_done_again(self, steps: MongoSteps) -> None:
        """A start that was killed before it recorded its step is simply done again."""
        steps.collections[Names.VERSION].delete_many({})
        steps.collections[Names.JOBS].drop_index(CLAIM_INDEX)
        assert steps.another().migrate() == [step.name for step in STEPS]
        assert CLAIM_INDEX in steps.collections[Names.JOBS].index_information()

    def test_two_at_once(self, mongodb_url: str) -> None:
        """Both end up with the schema, and one of them has recorded it."""
        from tests.stores.sql_stores import at_once

        stores = [MongoStore(mongodb_url) for _ in range(3)]
        recorded = at_once(*(store.migrate for store in stores))
        assert sorted(name for names in recorded for name in names) == [step.name for step in STEPS]
        for store in stores:
            store.check_schema()
            store.close()

    def test_a_newer_one_is_refused(self, steps: MongoSteps) -> None:
        """A step that this version does not know was made by a newer one."""
        steps.collections[Names.VERSION].insert_one({"_id": "V999__tomorrow"})
        newer = steps.another()
        with pytest.raises(SchemaTooNew, match="V999__tomorrow"):
            newer.counts()

    def test_a_newer_one_that_serves_this_version(self, steps: MongoSteps) -> None:
        """A step of a newer version that says that it serves the code of this one is no obstacle."""
        version = STEPS[-1].version
        steps.collections[Names.VERSION].insert_one({"_id": "V999__tomorrow", "serves": version})
        steps.another().counts()
        steps.collections[Names.VERSION].insert_one({"_id": "V998__later", "serves": version + 1})
        with pytest.raises(SchemaTooNew, match="V998__later"):
            steps.another().counts()

    def test_an_older_one_is_told(self, steps: MongoSteps) -> None:
        """A step that is missing is named."""
        later = Step("V002__more", lambda collections: None)
        schema = Schema(steps.store.database, (Step("V001__initial", lambda collections: None), later))
        with pytest.raises(SchemaOutOfDate, match="V002__more"):
            schema.check()
        assert schema.migrate() == ["V002__more"]
        schema.check()


class TestCommits:
    def test_an_answer_that_was_lost(self, steps: MongoSteps) -> None:
        """The connection dies with the commit, four times: it is asked about again, and made exactly once."""
        spec = steps.spec(idempotency_key="k")
        with steps.failing("commitTransaction", 4, closeConnection=True):
            (answer,) = steps.store.insert([spec], now=steps.now)
        assert answer.created
        assert steps.store.counts()[JobStatus.PENDING] == 1

    def test_one_that_was_made_though_the_answer_was_an_error(self, steps: MongoSteps) -> None:
        """The commit took effect, the majority was not heard of: it is asked about again, and made exactly once."""
        failed = {"code": 64, "codeName": "WriteConcernFailed", "errmsg": "waiting for replication timed out"}
        spec = steps.spec(idempotency_key="k")
        with steps.failing("commitTransaction", 1, writeConcernError=failed):
            (answer,) = steps.store.insert([spec], now=steps.now)
        assert answer.created
        assert steps.store.counts()[JobStatus.PENDING] == 1

    def test_one_that_never_gets_an_answer(self, steps: MongoSteps, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody knows: CommitUnknown, and submitting the same again answers as if it were the first time."""
        impatient = steps.another()
        spec = steps.spec(idempotency_key="k")
        impatient.counts()
        # only how long it asks about a commit: what comes before may take its time
        monkeypatch.setattr(impatient.database, "answer_timeout", 1.0)
        with steps.failing("commitTransaction", 1000, closeConnection=True):
            with pytest.raises(CommitUnknown):
                impatient.insert([spec], now=steps.now)
        (answer,) = steps.store.insert([spec], now=steps.now)
        assert (answer.job_id, answer.created) == (spec.job_id, True)
        assert steps.store.counts()[JobStatus.PENDING] == 1

    def test_conflicts_are_not_the_caller_s_business(self, steps: MongoSteps) -> None:
        """The server reports a conflict, again and again; the work is done again from its start, once."""
        claim = steps.running(business_key="k")
        labels = ["TransientTransactionError"]
        with steps.failing("insert", 3, errorCode=112, errorLabels=labels):
            assert steps.complete(claim).won
        assert len(steps.store.executions(claim.job_id)) == 1


class TestWithin:
    def test_a_session_of_the_caller_s_own_client(self, steps: MongoSteps) -> None:
        """The caller's document and the job commit together, or not at all."""
        client: pymongo.MongoClient[dict[str, Any]]
        with pymongo.MongoClient(steps.url) as client, client.start_session() as session:
            orders = client.get_default_database()["orders"]
            for commits in (False, True):
                spec = steps.spec()
                session.start_transaction()
                orders.insert_one({"_id": str(spec.job_id)}, session=session)
                steps.store.insert([spec], now=steps.now, within=session)
                assert steps.store.get(spec.job_id) is None
                session.commit_transaction() if commits else session.abort_transaction()
                assert (steps.store.get(spec.job_id) is not None) is commits
            assert orders.count_documents({}) == 1

    def test_what_is_no_transaction_is_refused(self, steps: MongoSteps) -> None:
        """A client, and a session that has not begun one, would write each document by itself."""
        client = steps.store.database.client()
        with pytest.raises(ConfigurationError, match="ClientSession"):
            steps.store.insert([steps.spec()], now=steps.now, within=client)
        with client.start_session() as session, pytest.raises(ConfigurationError, match="start_transaction"):
            steps.store.insert([steps.spec()], now=steps.now, within=session)
        assert sum(steps.store.counts().values()) == 0

    def test_a_conflict_is_told_in_the_driver_s_words_too(self, steps: MongoSteps) -> None:
        """A key that another open transaction holds ends this one; with_transaction runs it again by itself."""
        client = steps.store.database.client()
        other = steps.another()
        tries = 0
        with steps.store.begin() as holder:
            steps.store.insert([steps.spec(idempotency_key="k")], now=steps.now, within=holder)
            with client.start_session() as session:
                session.start_transaction()
                rival = steps.spec(idempotency_key="k")
                with pytest.raises(SubmissionAborted) as caught:
                    steps.store.insert([rival], now=steps.now, within=session)
                assert isinstance(caught.value, SubmissionBlocked)
                assert caught.value.has_error_label("TransientTransactionError")
                session.abort_transaction()

        def submit(session: Any) -> bool:
            nonlocal tries
            tries += 1
            if tries == 1:
                session.client.get_default_database()["x"].find_one(
                    {}, session=session
                )  # the snapshot begins
                other.insert([steps.spec(idempotency_key="again")], now=steps.now)
            return steps.store.insert([steps.spec(idempotency_key="again")], now=steps.now, within=session)[
                0
            ].created

        with client.start_session() as session:
            assert session.with_transaction(submit) is False
        assert tries == 2

    def test_a_lost_race_for_a_completion(self, steps: MongoSteps) -> None:
        """The job is canceled after the transaction began to read: it is over, and says so."""
        claim = steps.running()

        def finish_too_late() -> None:
            with steps.store.begin() as session:
                session.client["x"]["x"].find_one({}, session=session)  # the snapshot begins
                steps.store.cancel(claim.job_id, reason="r", now=steps.now)
                steps.store.complete([steps.completion(claim)], now=steps.now, within=session)

        with pytest.raises(TransactionAborted):
            finish_too_late()
        assert steps.status(claim.job_id) is JobStatus.CANCELED
