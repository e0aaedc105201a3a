"""What the transitions answer in SQL, and what they leave of jobs that are paused or suspected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ratchet.model.decision import CompletionAnswer, CountCrash
from ratchet.model.status import JobStatus
from tests.stores.sql_stores import KINDS, SqlSteps
from tests.stores.sql_transitions import intact


@pytest.fixture(params=KINDS)
def steps(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlSteps]:
    with intact(request.param, request, tmp_path) as found:
        yield found


class TestAnswers:
    def test_each_completion_is_told_what_followed_from_it(self, steps: SqlSteps) -> None:
        """In one call: releases, cancellations and batches stand with the job whose end brought them."""
        good, bad = steps.specs(2)
        released, canceled, below = steps.child(), steps.child(), steps.child()
        steps.insert(
            [good, bad, released, canceled, below],
            [steps.edge(good, released), steps.edge(bad, canceled), steps.edge(canceled, below)],
        )
        batch, _ = steps.batch_of(1)
        claims = {claim.job_id: claim for claim in steps.claim()}
        child = next(iter(claims.keys() - {good.job_id, bad.job_id}))
        answers: list[CompletionAnswer] = steps.store.complete(
            [
                steps.completion(claims[child]),
                steps.completion(claims[bad.job_id], steps.failure()),
                steps.completion(claims[good.job_id]),
            ],
            now=steps.now,
        )
        assert [answer.job_id for answer in answers] == [child, bad.job_id, good.job_id]
        assert answers[0].finished_batches == (batch.batch_id,)
        assert answers[0].released == (batch.parent.job_id,)
        assert [one.job_id for one in answers[1].canceled] == [canceled.job_id, below.job_id]
        assert (answers[1].dead_lettered, answers[1].alerted) == (True, True)
        assert (answers[2].released, answers[2].canceled) == ((released.job_id,), ())

    def test_the_cascade_is_told_depth_first(self, steps: SqlSteps) -> None:
        """Each canceled child stands before its own children, in the order of definition."""
        root, left, left_below, right, right_below = [steps.spec()] + [steps.child() for _ in range(4)]
        steps.insert(
            [root, left, left_below, right, right_below],
            [
                steps.edge(root, right, position=2),
                steps.edge(root, left, position=1),
                steps.edge(left, left_below),
                steps.edge(right, right_below),
            ],
        )
        ended = steps.store.cancel(root.job_id, reason="not needed", now=steps.now)
        assert [one.job_id for one in ended] == [
            spec.job_id for spec in (root, left, left_below, right, right_below)
        ]
        assert [one.reason for one in ended] == ["not needed"] + ["parent_canceled"] * 4


class TestPausedAfterFailure:
    def test_canceled_it_is_counted_once(self, steps: SqlSteps) -> None:
        """A failed child that is paused and then canceled moves from failed to canceled in its batch."""
        batch, (child,) = steps.batch_of(1)
        steps.end(steps.claim_job(child.job_id), steps.failure())
        assert steps.store.pause(child.job_id, now=steps.now)
        assert steps.store.cancel(child.job_id, reason="r", now=steps.now)
        counters = steps.store.batch(batch.batch_id)
        assert counters is not None
        assert (counters.completed, counters.failed, counters.canceled) == (0, 0, 1)

    def test_resumed_it_is_a_dead_letter_again(self, steps: SqlSteps) -> None:
        """With the time of its failure, so that retention counts from then."""
        job_id = steps.failed()
        failed_at = steps.now
        steps.advance(days=1)
        steps.store.pause(job_id, now=steps.now)
        steps.store.resume(job_id, now=steps.now)
        (letter,) = steps.store.dead_letters().items
        assert (letter.job_id, letter.failed_at) == (job_id, failed_at)


class TestSuspects:
    def test_from_the_second_crash_on(self, steps: SqlSteps) -> None:
        """One crash changes nothing but the count; after two the job is a suspect, at the third a dead letter."""
        claim = steps.running()
        job_id = claim.job_id
        steps.end(claim, CountCrash(detail="killed", max_crashes=3))
        assert (steps.record(job_id).crashes, steps.record(job_id).stream.suspect) == (1, False)
        steps.end(steps.claim_job(job_id), CountCrash(detail="killed", max_crashes=3))
        assert (steps.record(job_id).crashes, steps.record(job_id).stream.suspect) == (2, True)
        assert steps.claim() == []
        claim = steps.claim_job(job_id, suspects=True)
        assert steps.end(claim, CountCrash(detail="killed", max_crashes=3)).dead_lettered
        record = steps.record(job_id)
        assert (record.status, record.dead_letter_reason) == (JobStatus.FAILED, "crashed 3 times")

    def test_retried_by_hand_it_is_none(self, steps: SqlSteps) -> None:
        """A person's retry clears the suspicion, and a parked target too."""
        claim = steps.running()
        assert steps.store.park(claim, "shop.jobs:charge", now=steps.now)
        claim = steps.claim_job(claim.job_id, parked_targets=frozenset({"shop.jobs:charge"}))
        steps.end(claim, CountCrash(detail="killed", max_crashes=1))
        assert steps.store.retry(claim.job_id, now=steps.now)
        record = steps.record(claim.job_id)
        assert (record.crashes, record.stream.suspect, record.stream.parked_target) == (0, False, None)
        assert [again.job_id for again in steps.claim()] == [claim.job_id]

    def test_paused_and_resumed_it_stays_one(self, steps: SqlSteps) -> None:
        """The stream of a suspect survives a pause."""
        claim = steps.running()
        steps.end(claim, CountCrash(detail="killed", max_crashes=9))
        steps.end(steps.claim_job(claim.job_id), CountCrash(detail="killed", max_crashes=9))
        steps.store.pause(claim.job_id, now=steps.now)
        steps.store.resume(claim.job_id, now=steps.now)
        record = steps.record(claim.job_id)
        assert (record.status, record.crashes, record.stream.suspect) == (JobStatus.PENDING, 2, True)
