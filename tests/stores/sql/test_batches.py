"""Batches in SQL: exact counters and one completion, whatever happens at once."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from ratchet.model.composition import BatchRecord, BatchSpec
from ratchet.model.identifiers import new_id
from ratchet.model.status import Busy, JobStatus, JobType
from tests.stores.counting import Statements
from tests.stores.sql_stores import SqlSteps, at_once, opened

ROUNDS = 8


def counters(steps: SqlSteps, batch_id: UUID) -> tuple[int, int, int, int]:
    """Total, completed, failed, canceled."""
    batch = record(steps, batch_id)
    return batch.total, batch.completed, batch.failed, batch.canceled


def record(steps: SqlSteps, batch_id: UUID) -> BatchRecord:
    """The batch, which must be there."""
    batch = steps.store.batch(batch_id)
    assert batch is not None
    return batch


class TestRace:
    def test_the_last_children_end_at_once(self, shared: SqlSteps) -> None:
        """Children succeed, fail and are canceled in six transactions: exact counts, one of them finishes it."""
        for _ in range(ROUNDS):
            batch, children = shared.batch_of(6)
            claims = {claim.job_id: claim for claim in shared.claim()}
            ends = []
            for number, child in enumerate(children):
                claim = claims[child.job_id]
                if number < 2:
                    ends.append(
                        lambda c=claim: shared.store.cancel(c.job_id, reason="r", now=shared.now) and []
                    )
                else:
                    decision = shared.success() if number % 2 else shared.failure()
                    completion = shared.completion(claim, decision)
                    ends.append(
                        lambda c=completion: list(
                            shared.store.complete([c], now=shared.now)[0].finished_batches
                        )
                    )
            answers = at_once(*ends)
            told = [batch_id for finished in answers for batch_id in finished]
            assert told in ([batch.batch_id], [])  # empty where a cancellation was the last end
            assert counters(shared, batch.batch_id) == (6, 2, 2, 2)
            assert record(shared, batch.batch_id).finished_at == shared.now
            shared.end(shared.claim_job(batch.parent.job_id))

    def test_the_end_of_the_last_child_against_sealing(self, shared: SqlSteps) -> None:
        """Sealed in the moment in which the last child ends: finished, once."""
        for _ in range(ROUNDS):
            batch, (child,) = shared.batch_of(1, sealed=False)
            completion = shared.completion(shared.claim_job(child.job_id))
            at_once(
                lambda c=completion: shared.store.complete([c], now=shared.now),
                lambda b=batch: shared.store.seal(b.batch_id, now=shared.now),
            )
            assert shared.status(batch.parent.job_id) is JobStatus.PENDING
            shared.end(shared.claim_job(batch.parent.job_id))

    def test_children_that_are_appended_against_sealing(self, shared: SqlSteps) -> None:
        """Either they are counted, or they are not stored."""
        for _ in range(ROUNDS):
            batch, _ = shared.batch_of(0, sealed=False)
            more = shared.specs(3, type=JobType.BATCH_CHILD, batch_id=batch.batch_id)
            appended, sealed = at_once(
                lambda b=batch, m=more: shared.store.append_children(b.batch_id, m, now=shared.now),
                lambda b=batch: shared.store.seal(b.batch_id, now=shared.now),
            )
            assert sealed
            stored = [shared.store.get(spec.job_id) is not None for spec in more]
            assert stored == [appended] * 3
            assert record(shared, batch.batch_id).total == (3 if appended else 0)
            shared.end_all(shared.claim())

    def test_cancel_batch_against_its_children(self, shared: SqlSteps) -> None:
        """The batch is canceled while its children end: nobody deadlocks, the parent is not released."""
        for _ in range(ROUNDS):
            batch, _ = shared.batch_of(8)
            claims = shared.claim(6)
            halves = [[shared.completion(c) for c in half] for half in (claims[:3], claims[3:])]
            at_once(
                lambda h=halves[0]: shared.store.complete(h, now=shared.now),
                lambda h=halves[1]: shared.store.complete(h, now=shared.now),
                lambda b=batch: shared.store.cancel_batch(b.batch_id, reason="stop", now=shared.now),
            )
            total, completed, failed, canceled = counters(shared, batch.batch_id)
            assert (total, failed, completed + canceled) == (8, 0, 8)
            parent = shared.status(batch.parent.job_id)
            # all children may have ended before the cancellation came, but then it found the parent PENDING
            assert parent is JobStatus.CANCELED


class TestCost:
    def test_children_are_counted_in_one_statement_on_postgresql(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The ends of a hundred children of one batch that goes on are two statements; the counters are exact."""
        with opened("postgresql", request, tmp_path) as steps:
            batch, _ = steps.batch_of(101)
            *claims, last = steps.claim()
            completions = [steps.completion(claim) for claim in claims]
            sent = Statements(monkeypatch)
            assert len(sent.of(lambda: steps.store.complete(completions, now=steps.now))) == 2
            assert counters(steps, batch.batch_id) == (101, 100, 0, 0)
            metrics = steps.store.batch_metrics(batch.batch_id)
            assert metrics is not None
            assert metrics.runs == 100
            answer = steps.end(last)
            assert record(steps, batch.batch_id).finished_at == steps.now
            assert steps.status(batch.parent.job_id) is JobStatus.PENDING
            assert answer.finished_batches == (batch.batch_id,)


class TestAppend:
    def test_sent_again_it_counts_once(self, steps: SqlSteps) -> None:
        """The answer was lost: the same children again raise the total by nothing; new ones among them count."""
        batch, _ = steps.batch_of(1, sealed=False)
        children = steps.specs(3, type=JobType.BATCH_CHILD, batch_id=batch.batch_id)
        assert steps.store.append_children(batch.batch_id, children[:2], now=steps.now)
        assert steps.store.append_children(batch.batch_id, children, now=steps.now)
        assert record(steps, batch.batch_id).total == 4

    def test_a_child_whose_key_returned_another_job_is_not_counted(self, steps: SqlSteps) -> None:
        """The total is the number of children that are really stored."""
        steps.submit(business_key="k")
        parent = steps.spec(status=JobStatus.WAITING, type=JobType.BATCH_PARENT)
        batch_id = new_id()
        children = [
            steps.spec(type=JobType.BATCH_CHILD, batch_id=batch_id, business_key="k", busy=Busy.RETURN),
            steps.spec(type=JobType.BATCH_CHILD, batch_id=batch_id),
        ]
        batch = BatchSpec(batch_id=batch_id, name="b", parent=parent, total=2)
        answers = steps.store.insert(children, now=steps.now, batch=batch)
        assert [answer.created for answer in answers] == [False, True]
        assert record(steps, batch_id).total == 1


class TestReopening:
    def test_its_parent_waits_again_and_is_released_again(self, steps: SqlSteps) -> None:
        """Whatever the parent did meanwhile, retried children give it another run."""
        for parent_has_run in (False, True):
            batch, children = steps.batch_of(2)
            for child in children:
                steps.end(steps.claim_job(child.job_id), steps.failure())
            if parent_has_run:
                steps.end(steps.claim_job(batch.parent.job_id))
            assert steps.store.retry_failed(batch.batch_id, now=steps.now) == 2
            assert steps.status(batch.parent.job_id) is JobStatus.WAITING
            assert record(steps, batch.batch_id).finished_at is None
            assert counters(steps, batch.batch_id) == (2, 0, 0, 0)
            for child in children:
                steps.end(steps.claim_job(child.job_id))
            assert counters(steps, batch.batch_id) == (2, 2, 0, 0)
            steps.end(steps.claim_job(batch.parent.job_id))

    def test_what_the_parent_s_end_decided_is_open_again(self, steps: SqlSteps) -> None:
        """A branch that was not taken after the first round can be taken after the second."""
        batch, (child,) = steps.batch_of(1)
        branch = steps.child()
        steps.insert([branch], [steps.edge(batch.parent.job_id, branch)])
        steps.end(steps.claim_job(child.job_id), steps.failure())
        steps.end(steps.claim_job(batch.parent.job_id), steps.failure())
        assert steps.status(branch.job_id) is JobStatus.CANCELED
        assert steps.store.retry_failed(batch.batch_id, now=steps.now) == 1
        assert steps.status(branch.job_id) is JobStatus.WAITING
        steps.end(steps.claim_job(child.job_id))
        steps.end(steps.claim_job(batch.parent.job_id))
        assert steps.status(branch.job_id) is JobStatus.PENDING

    def test_a_parent_at_work_is_left_alone(self, steps: SqlSteps) -> None:
        """Its run goes on and ends; the children are retried all the same."""
        batch, (child,) = steps.batch_of(1)
        steps.end(steps.claim_job(child.job_id), steps.failure())
        claim = steps.claim_job(batch.parent.job_id)
        assert steps.store.retry_failed(batch.batch_id, now=steps.now) == 1
        steps.end(claim)
        assert steps.statuses([child.job_id, batch.parent.job_id]) == [JobStatus.PENDING, JobStatus.SUCCEEDED]


class TestMetrics:
    def test_every_run_counts(self, steps: SqlSteps) -> None:
        """Retries and failures cost time too; cancellations and hand-backs do not."""
        batch, children = steps.batch_of(3)
        claims = {claim.job_id: claim for claim in steps.claim()}
        started_at = steps.now
        steps.advance(seconds=10)
        one, two, three = (claims[child.job_id] for child in children)
        steps.end(one, steps.another_try())
        steps.end(two, steps.failure())
        steps.store.cancel(three.job_id, reason="r", now=steps.now)
        again = steps.claim_job(one.job_id)
        steps.advance(seconds=5)
        steps.end(again)
        metrics = steps.store.batch_metrics(batch.batch_id)
        assert metrics is not None
        assert (metrics.runs, metrics.run_time.total_seconds()) == (3, 25)
        assert (metrics.started_at, metrics.finished_at) == (started_at, steps.now)
