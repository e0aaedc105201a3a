"""Claims in MongoDB: few round trips, late ones, and jobs that somebody else has in hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.model.status import Busy, JobStatus, Priority
from ratchet.stores.mongo.schema import CLAIM_INDEX, Names
from tests.stores.mongo_store import Commands, MongoSteps, opened
from tests.support.waiting import until


@pytest.fixture
def steps(mongodb_url: str) -> Iterator[MongoSteps]:
    with opened(mongodb_url) as found:
        yield found


@pytest.fixture
def commands(steps: MongoSteps) -> Commands:
    """What a new handle, `steps.store`, sends."""
    return steps.listened()


class TestRoundTrips:
    def test_a_batch_takes_three(self, steps: MongoSteps, commands: Commands) -> None:
        """Look, take, read: however many jobs of however many priorities, and bodies included."""
        for priority in Priority:
            steps.submit_many(60, priority=priority)
        assert len(steps.claim(10)) == 10
        commands.names.clear()
        assert len(steps.take(250)) == 250  # more than the server sends at once unless it is told to
        assert commands.names == ["aggregate", "update", "find"]

    def test_nothing_to_do_takes_one(self, steps: MongoSteps, commands: Commands) -> None:
        """An idle poll reads once and writes nothing."""
        steps.submit(scheduled_at=steps.after(hours=1))
        assert steps.claim() == []
        commands.names.clear()
        assert steps.claim() == []
        assert commands.names == ["aggregate"]

    def test_many_completions_take_one_transaction(self, steps: MongoSteps, commands: Commands) -> None:
        """A hundred plain successes: write, write, commit."""
        steps.submit_many(100)
        claims = steps.claim(100)
        commands.names.clear()
        assert all(answer.won for answer in steps.end_all(claims))
        assert commands.names == ["update", "insert", "commitTransaction"]

    def test_successes_of_jobs_with_keys_are_read_first(self, steps: MongoSteps, commands: Commands) -> None:
        """The claim has seen their keys, so nobody tries to end them as jobs that are tied to nobody."""
        for number in range(10):
            steps.submit(business_key=f"key-{number}")
        claims = steps.claim(10)
        commands.names.clear()
        assert all(answer.won for answer in steps.end_all(claims))
        assert commands.names.count("update") == 1
        assert commands.names[0] == "find"
        assert "abortTransaction" not in commands.names

    def test_a_plain_submission_takes_one(self, steps: MongoSteps, commands: Commands) -> None:
        """A job without keys is one document, and one document needs no transaction."""
        steps.submit()
        commands.names.clear()
        steps.submit()
        assert commands.names == ["insert"]

    def test_history_and_backlog_do_not_make_it_dearer(self, steps: MongoSteps) -> None:
        """A claim looks at as many index entries as it takes jobs, and at no document."""
        steps.submit_many(300)
        steps.end_all(steps.claim(100))
        steps.submit_many(100, queue="other")
        match = {"status": "PENDING", "stream_id": 1, "priority": 2, "due_at": {"$lte": 2**62}}
        jobs = steps.collections[Names.JOBS]
        found = jobs.find(match, {"stream_id": 1, "priority": 1, "due_at": 1})
        plan: dict[str, Any] = found.sort([("due_at", 1), ("_id", 1)]).limit(10).explain()
        assert plan["executionStats"]["totalKeysExamined"] <= 11
        assert plan["executionStats"]["nReturned"] == 10
        assert CLAIM_INDEX in str(plan["queryPlanner"]["winningPlan"])
        assert "SORT" not in str(plan["queryPlanner"]["winningPlan"])


class TestRaces:
    def test_a_claim_that_lost_all_looks_behind_them(
        self, steps: MongoSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another node takes what was chosen before it could be taken: the next jobs are claimed, and each once."""
        jobs = steps.submit_many(10)
        faster, take = steps.another(), steps.store._take
        others: list[object] = []

        def overtaken(*given: Any) -> Any:
            if not others:
                others.extend(claim.job_id for claim in steps.claim(5, store=faster, node_id="node-2"))
            return take(*given)

        monkeypatch.setattr(steps.store, "_take", overtaken)
        assert [claim.job_id for claim in steps.claim(5)] == jobs[5:]
        assert others == jobs[:5]
        assert steps.claim(5) == []


class TestLateClaim:
    def test_one_that_arrives_after_its_time_is_handed_back(
        self, steps: MongoSteps, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The node gave up waiting; the server claims for it all the same; the node finds and returns it."""
        monkeypatch.setattr("ratchet.stores.mongo.claims.LOCKED_JOB_WAIT", 60)  # the server does not give up
        job_id = steps.submit()
        hasty = steps.another(statement_timeout=1)
        hasty.counts()
        request = steps.request(1)
        with steps.failing("update", 1, blockConnection=True, blockTimeMS=2000):
            with pytest.raises(CommitUnknown):
                hasty.claim_next_batch(request, now=steps.now)
            assert steps.status(job_id) is JobStatus.PENDING
            until(lambda: _answers(lambda: steps.status(job_id) is JobStatus.RUNNING))
        assert steps.store.hand_back_unknown("node-1", [request.claim_id], now=steps.now) == []
        assert steps.store.hand_back_unknown("node-1", [], now=steps.now) == [job_id]
        assert steps.status(job_id) is JobStatus.PENDING


class TestAnswer:
    @pytest.mark.parametrize("free", [0, 1])
    def test_who_holds_jobs_is_not_told_that_nothing_happened(
        self, steps: MongoSteps, monkeypatch: pytest.MonkeyPatch, free: int
    ) -> None:
        """
        The server is gone when jobs with a limit, which are claimed already, are to be read; or jobs without one are held
        already when those with a limit are to be claimed.
        """
        ids = set(steps.submit_many(free))
        limited = steps.submit(resource="gateway")
        other = steps.another()
        other.counts()

        def gone(*arguments: object, **options: object) -> None:
            raise StoreUnavailable("the server is gone")

        asked = steps.request(5)
        if free:
            monkeypatch.setattr(other.database, "run", gone)
        else:
            taking = other.database.run

            def taken(*arguments: Any, **options: Any) -> Any:
                found = taking(*arguments, **options)
                monkeypatch.setattr(other.database, "read", gone)
                return found

            monkeypatch.setattr(other.database, "run", taken)
        with pytest.raises(CommitUnknown, match="jobs were claimed, but could not be read"):
            other.claim_next_batch(asked, now=steps.now)
        assert set(steps.store.claims_of(asked.node_id)) == (ids or {limited})


class TestOpenTransactions:
    def test_a_job_that_one_has_changed_is_passed_by(self, steps: MongoSteps) -> None:
        """A caller's transaction replaces a job and stays open: claims go on without it, and soon as fast as ever."""
        held = steps.submit(business_key="k")
        other = steps.another()
        with steps.store.begin() as session:
            new = steps.spec(business_key="k", busy=Busy.REPLACE)
            steps.store.insert([new], now=steps.now, within=session)
            free = steps.submit_many(5)
            claimed: set[object] = set()
            begin = time.monotonic()
            while claimed != set(free):
                claimed |= {claim.job_id for claim in steps.claim(10, store=other)}
                assert time.monotonic() - begin < 5
            begin = time.monotonic()
            later = steps.submit_many(5)
            assert {claim.job_id for claim in steps.claim(10, store=other)} == set(later)
            assert time.monotonic() - begin < 2
        assert steps.status(held) is JobStatus.CANCELED
        assert steps.status(new.job_id) is JobStatus.PENDING


def _answers(question: Callable[[], bool]) -> bool:
    """What the store answers; False while the server plays a fault."""
    try:
        return question()
    except StoreUnavailable:
        return False


class TestExpiry:
    def test_only_what_the_sweep_finds_is_given_an_expiry(self, steps: MongoSteps) -> None:
        """
        A document has lost the deadline by which `expire` finds it: the job is given to a worker without one, and runs.

        With its expiry, the worker would give it back for the store to end, and the next claim would bring it again, for ever.
        """
        expires_at = steps.after(seconds=10)
        whole, *broken = [steps.submit(expires_at=expires_at) for _ in range(3)]
        jobs = steps.collections[Names.JOBS]
        jobs.update_one({"_id": broken[0]}, {"$unset": {"deadline_at": ""}})
        jobs.update_one({"_id": broken[1]}, {"$set": {"deadline_at": "soon"}})
        found = {job.claim.job_id: job.body.expires_at for job in steps.take()}
        assert found == {whole: expires_at, broken[0]: None, broken[1]: None}
