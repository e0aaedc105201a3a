"""Successes of jobs that are tied to nobody: one update for all, and the same documents as by the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from ratchet.model.decision import Completion, Succeed
from ratchet.model.status import JobStatus
from ratchet.stores.mongo import transitions
from ratchet.stores.mongo.schema import Names
from tests.stores.mongo_store import MongoSteps, opened

#: Jobs as they may be when they are claimed, and how they succeed.
SHAPES: dict[str, tuple[dict[str, Any], Succeed]] = {
    "bare": ({}, Succeed(result=None)),
    "with a result": ({"max_retries": 3}, Succeed(result='"$receipt"')),
    "truncated": ({"tags": ("a", "b")}, Succeed(result='"long', truncated=True)),
    "with a deadline": ({"queue": "mail"}, Succeed(result="1")),
}


@pytest.fixture
def steps(mongodb_url: str) -> Iterator[MongoSteps]:
    with opened(mongodb_url) as found:
        yield found


@pytest.fixture
def ruled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and the rules decide about every success from then on."""
    return lambda: monkeypatch.setattr(transitions, "plain_successes", lambda *_: [])


class TestSameDocuments:
    def test_both_ways_write_the_same(self, steps: MongoSteps, ruled: Callable[[], None]) -> None:
        """Also after a failed try, and with deadlines: every field of the job and of its run, and no other."""
        fast = _lives(steps)
        ruled()
        assert _lives(steps) == fast


class TestNotPlain:
    def test_a_lost_claim_costs_the_others_nothing(self, steps: MongoSteps) -> None:
        """One job was taken back and claimed again meanwhile: its first run is refused, all others count, once."""
        steps.submit_many(20)
        claims = steps.claim(20)
        lost = claims[7]
        assert steps.store.hand_back([lost], now=steps.now) == 1
        (again,) = steps.claim(20)
        answers = steps.end_all(claims)
        assert [answer.won for answer in answers] == [claim is not lost for claim in claims]
        assert steps.status(lost.job_id) is JobStatus.RUNNING
        assert all(answer.won for answer in steps.end_all([again]))
        assert steps.store.counts()[JobStatus.SUCCEEDED] == 20
        assert steps.collections[Names.EXECUTIONS].count_documents({}) == 20

    def test_sent_again_after_a_lost_answer(self, steps: MongoSteps) -> None:
        """The same completions twice: the second time all are told that they had won, and nothing is written."""
        steps.submit_many(5)
        claims = steps.claim(5)
        steps.end_all(claims)
        before = _documents(steps)
        answers = steps.end_all(claims)
        assert [(answer.won, answer.replayed) for answer in answers] == [(True, True)] * 5
        assert _documents(steps) == before

    def test_a_dependant_that_came_after_the_claim_is_released(self, steps: MongoSteps) -> None:
        """Nobody knew of it when the parent was claimed; the parent's end lets it go all the same."""
        parents = steps.submit_many(3)
        claims = steps.claim(3)
        child = steps.child()
        steps.insert([child], edges=[steps.edge(parents[1], child)])
        answers = {answer.job_id: answer for answer in steps.end_all(claims)}
        assert answers[parents[1]].released == (child.job_id,)
        assert steps.status(child.job_id) is JobStatus.PENDING
        assert set(steps.statuses(parents)) == {JobStatus.SUCCEEDED}

    def test_tied_and_untied_jobs_in_one_call(self, steps: MongoSteps) -> None:
        """A key, a batch and a permit among plain ones: keys and permits are free and the batch has counted."""
        steps.store.set_limit("printer", concurrent=5, now=steps.now)
        plain = steps.submit_many(10)
        keyed, printing = steps.submit(business_key="k"), steps.submit(resource="printer")
        batch, children = steps.batch_of(2)
        claims = steps.claim(100)
        assert all(answer.won for answer in steps.end_all(claims))
        ended = [*plain, keyed, printing, *(child.job_id for child in children)]
        assert set(steps.statuses(ended)) == {JobStatus.SUCCEEDED}
        assert steps.store.holders("printer", limit=5) == []
        counted = steps.store.batch(batch.batch_id)
        assert counted is not None
        assert counted.completed == 2
        assert steps.submit(business_key="k") != keyed

    def test_a_job_that_stands_there_twice(self, steps: MongoSteps) -> None:
        """The first of its two ends counts, whatever the order of the ways they take."""
        job_id = steps.submit(max_retries=3)
        (claim,) = steps.claim(1)
        ends = [steps.completion(claim, steps.another_try()), steps.completion(claim)]
        answers = steps.store.complete(ends, now=steps.now)
        assert [answer.won for answer in answers] == [True, False]
        assert steps.status(job_id) is JobStatus.PENDING


class TestHistory:
    def test_the_looks_of_every_second_pass_ended_jobs_by(self, steps: MongoSteps) -> None:
        """Who runs what, whose node is absent, and what waits in which queue: none of them reads a job that has ended."""
        steps.register()
        steps.submit_many(200)
        steps.end_all(steps.claim(200))
        steps.submit_many(3)
        steps.claim(2)
        database = steps.collections.database
        database.command("profile", 2)
        try:
            assert [node.running for node in steps.store.nodes()] == [2]
            assert steps.store.absent_nodes() == []
            assert [(queue.pending, queue.running) for queue in steps.store.queues()] == [(1, 2)]
        finally:
            database.command("profile", 0)
        looks = list(database["system.profile"].find({"ns": f"{database.name}.{Names.JOBS}"}))
        assert looks
        assert max(look["docsExamined"] for look in looks) <= 2


def _lives(steps: MongoSteps) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Let one job of each shape fail once and succeed then; its document and that of its last run."""
    ids = [steps.submit(expires_at=_deadline(steps, name), **shape) for name, (shape, _) in SHAPES.items()]
    for claim in steps.claim(100):
        if claim.max_retries:
            steps.complete(claim, steps.another_try(), finished_at=steps.now)
        else:
            steps.store.hand_back([claim], now=steps.now)
    claims = {claim.job_id: claim for claim in steps.claim(100)}
    ends: list[Completion] = []
    for number, (job_id, (_, decision)) in enumerate(zip(ids, SHAPES.values(), strict=True)):
        started = steps.after(seconds=number)
        one = steps.completion(claims[job_id], decision, started_at=started)
        ends.append(replace(one, finished_at=steps.after(seconds=number, milliseconds=5) if number else None))
    assert all(answer.won for answer in steps.store.complete(ends, now=steps.after(seconds=9)))
    return [_life(steps, job_id, claims[job_id].claim_id) for job_id in ids]


def _deadline(steps: MongoSteps, name: str) -> Any:
    return steps.after(hours=1) if name == "with a deadline" else None


def _life(steps: MongoSteps, job_id: UUID, claim_id: UUID) -> tuple[dict[str, Any], dict[str, Any]]:
    job = steps.collections[Names.JOBS].find_one({"_id": job_id})
    run = steps.collections[Names.EXECUTIONS].find_one({"_id": {"job_id": job_id, "claim_id": claim_id}})
    assert job is not None
    assert run is not None
    return {**job, "_id": None}, {**run, "_id": None}


def _documents(steps: MongoSteps) -> list[dict[str, Any]]:
    return [
        one
        for name in (Names.JOBS, Names.EXECUTIONS)
        for one in steps.collections[name].find().sort("_id", 1)
    ]
