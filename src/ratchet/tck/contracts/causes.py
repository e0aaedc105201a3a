"""Causes: which parent ends a job when several could, and with which reason."""

from __future__ import annotations

from typing import Any

import pytest

from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.decision import CountCrash, Decision, VerdictKind
from ratchet.model.job import JobFilter, JobSpec, SignalWait
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


def reason(harness: Harness, spec: JobSpec) -> str | None:
    """Why a job was canceled."""
    record = harness.record(spec.job_id)
    assert record.status is JobStatus.CANCELED
    return record.canceled_reason


def join(harness: Harness, *kinds: EdgeKind, **changes: Any) -> tuple[list[JobSpec], JobSpec]:
    """Store parents that are due, in id order, and a child that waits for them; by default it needs all of them."""
    parents = [harness.spec() for _ in kinds]
    child = harness.child(**{"needs": len(kinds), **changes})
    edges = [
        harness.edge(parent, child, kind, position=len(kinds) - number)
        for number, (parent, kind) in enumerate(zip(parents, kinds, strict=True))
    ]
    harness.insert([*parents, child], edges)
    return parents, child


class TestCauseOfAnEnd:
    def test_the_nearest_parent(self, harness: Harness) -> None:
        """A job waits for the failed job and for one that the failure cancels: the failure itself is its cause."""
        root, step, last = harness.spec(), harness.child(), harness.child(needs=2)
        edges = [harness.edge(root, step), harness.edge(step, last), harness.edge(root, last, position=9)]
        harness.insert([root, step, last], edges)
        answer = harness.end(harness.claim_job(root.job_id), harness.failure())
        assert (reason(harness, step), reason(harness, last)) == ("parent_failed", "parent_failed")
        assert [one.job_id for one in answer.canceled] == [step.job_id, last.job_id]

    def test_a_condition_that_raised(self, harness: Harness) -> None:
        """A condition that raised fails its job, even if the same end cancels another parent of that job."""
        root, step, last = harness.spec(), harness.child(), harness.child(needs=2)
        edges = [
            harness.edge(root, step, EdgeKind.FAILURE),
            harness.edge(step, last, position=1),
            harness.edge(root, last, EdgeKind.CONDITION, position=2),
        ]
        harness.insert([root, step, last], edges)
        raised = harness.verdict(last, VerdictKind.ERROR)
        harness.end(harness.claim_job(root.job_id), verdicts=(raised,))
        assert reason(harness, step) == "not_taken"
        assert harness.status(last.job_id) is JobStatus.FAILED

    @pytest.mark.parametrize("backwards", [False, True])
    def test_the_oldest_of_those_that_end_in_one_call(self, harness: Harness, backwards: bool) -> None:
        """
        Two parents end in one call and each would cancel the child: the one with the lower id is the cause,
        in any order.
        """
        parents, child = join(harness, EdgeKind.SUCCESS, EdgeKind.FAILURE)
        claims = {claim.job_id: claim for claim in harness.claim()}
        failed = harness.completion(claims[parents[0].job_id], harness.failure())
        fine = harness.completion(claims[parents[1].job_id])
        ends = [fine, failed] if backwards else [failed, fine]
        assert all(answer.won for answer in harness.store.complete(ends, now=harness.now))
        assert reason(harness, child) == "parent_failed"

    def test_the_last_of_those_that_end_one_after_the_other(self, harness: Harness) -> None:
        """The child needs one of two parents: the second end cancels it, although that parent is the younger one."""
        parents, child = join(harness, EdgeKind.FAILURE, EdgeKind.SUCCESS, needs=1)
        harness.end(harness.claim_job(parents[0].job_id))
        assert harness.status(child.job_id) is JobStatus.WAITING
        harness.end(harness.claim_job(parents[1].job_id), harness.failure())
        assert reason(harness, child) == "parent_failed"

    @pytest.mark.parametrize(
        "decision", [None, CountCrash(detail="boom", max_crashes=1)], ids=["failure", "crash"]
    )
    def test_a_level_at_a_time(self, harness: Harness, decision: Decision | None) -> None:
        """Jobs that wait for a job of the call are settled before jobs further down; a last crash is no exception."""
        first, second, step = harness.spec(), harness.spec(), harness.child()
        last = harness.child(needs=2)
        edges = [
            harness.edge(first, step),
            harness.edge(step, last, position=1),
            harness.edge(second, last, EdgeKind.FAILURE, position=2),
        ]
        harness.insert([first, second, step, last], edges)
        claims = {claim.job_id: claim for claim in harness.claim()}
        ends = [
            harness.completion(claims[first.job_id], decision or harness.failure()),
            harness.completion(claims[second.job_id]),
        ]
        harness.store.complete(ends, now=harness.now)
        assert (reason(harness, step), reason(harness, last)) == ("parent_failed", "not_taken")

    def test_of_those_that_a_person_names(self, harness: Harness) -> None:
        """Jobs that a bulk cancel matches get the reason of the call, even if a cascade would cancel them too."""
        specs = [harness.spec(tags=("red",)), harness.child(tags=("red",)), harness.child()]
        harness.insert(specs, [harness.edge(specs[0], specs[1]), harness.edge(specs[1], specs[2])])
        where = JobFilter(tags=["red"])
        canceled = harness.store.cancel_matching(where, limit=9, reason="why not", now=harness.now)
        assert {one.job_id: one.reason for one in canceled} == {
            specs[0].job_id: "why not",
            specs[1].job_id: "why not",
            specs[2].job_id: "parent_canceled",
        }

    def test_of_those_that_expire_in_one_sweep(self, harness: Harness) -> None:
        """A parent and its child have both expired: each is canceled as expired, not by the other."""
        soon = harness.after(minutes=1)
        specs = [harness.spec(expires_at=soon), harness.child(expires_at=soon)]
        harness.insert(specs, [harness.edge(specs[0], specs[1])])
        harness.advance(minutes=2)
        harness.store.expire(now=harness.now, limit=9)
        assert [reason(harness, spec) for spec in specs] == ["expired", "expired"]

    def test_of_those_that_get_no_signal_in_one_sweep(self, harness: Harness) -> None:
        """
        Each overdue job fails for its own missing signal; one whose parent expires in the same sweep is
        canceled with it.
        """
        soon, later = harness.after(minutes=1), harness.after(minutes=2)
        expired = harness.spec(expires_at=later)
        first = harness.spec(status=JobStatus.WAITING, signal=SignalWait(key="go", deadline=soon))
        second = harness.child(signal=SignalWait(key="go", deadline=later))
        third = harness.child(signal=SignalWait(key="go", deadline=soon))
        harness.insert(
            [expired, first, second, third], [harness.edge(first, second), harness.edge(expired, third)]
        )
        harness.advance(minutes=5)
        harness.store.expire(now=harness.now, limit=9)
        statuses = harness.statuses(one.job_id for one in (first, second))
        assert statuses == [JobStatus.FAILED, JobStatus.FAILED]
        assert (reason(harness, expired), reason(harness, third)) == ("expired", "parent_canceled")

    def test_of_those_that_a_dead_node_ran(self, harness: Harness) -> None:
        """Two jobs reach their last crash in one rescue: a job that waits for both is canceled once."""
        harness.register()
        parents, child = join(harness, EdgeKind.SUCCESS, EdgeKind.SUCCESS)
        assert len(harness.claim()) == len(parents)
        rescue = harness.rescue(max_crashes=1)
        assert [one.job_id for one in rescue.canceled] == [child.job_id]
        assert reason(harness, child) == "parent_failed"

    def test_the_longest_overdue_first(self, harness: Harness) -> None:
        """With a limit of one, each sweep ends the job whose time ran out first, be it an expiry or a signal's deadline."""
        late = harness.submit(expires_at=harness.after(minutes=2))
        signal = SignalWait(key="go", deadline=harness.after(minutes=1))
        early = harness.waiting(signal=signal)
        harness.advance(minutes=5)
        swept = [harness.store.expire(now=harness.now, limit=1) for _ in range(3)]
        assert [[one.job_id for one in ended] for ended in swept] == [[early], [late], []]


class TestWhoIsTold:
    def test_of_several_ends_that_finish_a_batch(self, harness: Harness) -> None:
        """All children of a batch end in one call: the answer for the highest id names the finished batch, in any order."""
        batch, children = harness.batch_of(3)
        claims = sorted(harness.claim(), key=lambda claim: claim.job_id.int, reverse=True)
        ends = [harness.completion(claims[0]), harness.completion(claims[1], harness.failure())]
        ends.append(harness.completion(claims[2]))
        answers = harness.store.complete(ends, now=harness.now)
        assert answers[0].job_id == max(child.job_id for child in children)
        assert [one.finished_batches for one in answers] == [(batch.batch_id,), (), ()]

    def test_of_a_batch_the_parent_first(self, harness: Harness) -> None:
        """The parent is canceled first, so that its children cannot release it, and it comes first in the answer."""
        batch, children = harness.batch_of(2)
        canceled = harness.store.cancel_batch(batch.batch_id, reason="stop", now=harness.now)
        ids = [batch.parent.job_id, *sorted(child.job_id for child in children)]
        assert [one.job_id for one in canceled] == ids


class TestRetriedCause:
    def test_a_job_behind_one_that_was_canceled_before(self, harness: Harness) -> None:
        """A job submitted behind a canceled dependant is not archived while a retry of the failed root can revive both."""
        root, step = harness.spec(), harness.child()
        harness.insert([root, step], [harness.edge(root, step)])
        harness.end(harness.claim_job(root.job_id), harness.failure())
        late = harness.child()
        harness.insert([late], [harness.edge(step.job_id, late)])
        assert reason(harness, late) == "parent_canceled"
        harness.advance(days=1)
        assert harness.store.archive(before=harness.now, limit=9, now=harness.now) == 0
        assert harness.store.retry(root.job_id, now=harness.now)
        assert harness.statuses([step.job_id, late.job_id]) == [JobStatus.WAITING] * 2

    def test_the_edge_to_a_job_that_stays_canceled(self, harness: Harness) -> None:
        """A job that a person canceled stays canceled after its parent's retry, but the edge between them is open again."""
        root, step = harness.spec(), harness.child()
        harness.insert([root, step], [harness.edge(root, step)])
        assert harness.store.cancel(step.job_id, reason="by hand", now=harness.now)
        harness.end(harness.claim_job(root.job_id), harness.failure())
        assert harness.store.retry(root.job_id, now=harness.now)
        assert [edge.state for edge in harness.store.edges_of(step.job_id)] == [EdgeState.OPEN]
        assert reason(harness, step) == "by hand"

    def test_a_batch_that_opens_again(self, harness: Harness) -> None:
        """The batch's parent has already run; it waits again, without a start time and without attempts."""
        batch, (child,) = harness.batch_of(1)
        harness.end(harness.claim_job(child.job_id), harness.failure())
        harness.end(harness.claim_job(batch.parent.job_id))
        assert harness.store.retry(child.job_id, now=harness.now)
        record = harness.record(batch.parent.job_id)
        assert (record.status, record.started_at, record.attempts) == (JobStatus.WAITING, None, 0)
