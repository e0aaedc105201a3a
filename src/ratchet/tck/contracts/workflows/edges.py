"""How the end of a parent settles its edges."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import pytest

from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.decision import CanceledJob, Reschedule, VerdictKind
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus, JobType
from ratchet.tck.harness import Harness

ParentEnd: TypeAlias = str  # "success", "failure", "cancel"

P, C, W = JobStatus.PENDING, JobStatus.CANCELED, JobStatus.WAITING

#: (edge, verdict, how the parent ends) -> status of the child, and why
OUTCOMES: list[tuple[EdgeKind, VerdictKind | None, ParentEnd, JobStatus, str | None]] = [
    (EdgeKind.SUCCESS, None, "success", P, None),
    (EdgeKind.SUCCESS, None, "failure", C, "parent_failed"),
    (EdgeKind.SUCCESS, None, "cancel", C, "parent_canceled"),
    (EdgeKind.FAILURE, None, "success", C, "not_taken"),
    (EdgeKind.FAILURE, None, "failure", P, None),
    (EdgeKind.FAILURE, None, "cancel", C, "parent_canceled"),
    (EdgeKind.CONDITION, VerdictKind.TAKEN, "success", P, None),
    (EdgeKind.CONDITION, VerdictKind.NOT_TAKEN, "success", C, "not_taken"),
    (EdgeKind.CONDITION, None, "success", C, "not_taken"),
    (EdgeKind.CONDITION, VerdictKind.ERROR, "success", JobStatus.FAILED, None),
    (EdgeKind.CONDITION, VerdictKind.TAKEN, "failure", P, None),
    (EdgeKind.CONDITION, VerdictKind.NOT_TAKEN, "failure", C, "not_taken"),
    (EdgeKind.CONDITION, VerdictKind.ERROR, "failure", JobStatus.FAILED, None),
    (EdgeKind.CONDITION, None, "cancel", C, "parent_canceled"),
    (EdgeKind.END, None, "success", P, None),
    (EdgeKind.END, None, "failure", P, None),
    (EdgeKind.END, None, "cancel", P, None),
]


def finish(
    harness: Harness,
    job_id: UUID,
    how: ParentEnd,
    child: JobSpec | None = None,
    verdict: VerdictKind | None = None,
) -> tuple[tuple[UUID, ...], tuple[CanceledJob, ...]]:
    """End a PENDING job; the jobs that this released, and the jobs that it canceled or failed."""
    if how == "cancel":
        canceled = harness.store.cancel(job_id, reason="r", now=harness.now)
        return (), tuple(canceled[1:])
    verdicts = (harness.verdict(child, verdict),) if child is not None and verdict is not None else ()
    decision = harness.success() if how == "success" else harness.failure()
    answer = harness.end(harness.claim_job(job_id), decision, verdicts=verdicts)
    return answer.released, answer.canceled


class TestEdgeSettlement:
    @pytest.mark.parametrize(
        ("kind", "verdict", "ending", "status", "reason"),
        [
            pytest.param(*case, id=f"{case[0].value}-{case[1] and case[1].value}-{case[2]}")
            for case in OUTCOMES
        ],
    )
    def test_each_edge_for_each_end(
        self,
        harness: Harness,
        kind: EdgeKind,
        verdict: VerdictKind | None,
        ending: ParentEnd,
        status: JobStatus,
        reason: str | None,
    ) -> None:
        """The child is released, canceled or failed as its edge says, and the answer reports it."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child, kind)])
        released, canceled = finish(harness, parent.job_id, ending, child, verdict)
        record = harness.record(child.job_id)
        assert (record.status, record.canceled_reason) == (status, reason)
        (edge,) = harness.store.edges_of(child.job_id)
        if status is P:
            assert edge.state is EdgeState.SATISFIED
            assert canceled == ()
            if ending != "cancel":
                assert released == (child.job_id,)
        else:
            assert edge.state is EdgeState.BROKEN
            assert released == ()
            assert [(c.job_id, c.previous, c.status) for c in canceled] == [(child.job_id, W, status)]

    def test_a_condition_that_raised_makes_a_dead_letter(self, harness: Harness) -> None:
        """The job behind the condition fails with ConditionFailed; the parent has succeeded."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child, EdgeKind.CONDITION)])
        finish(harness, parent.job_id, "success", child, VerdictKind.ERROR)
        record = harness.record(child.job_id)
        assert (record.error_type or "").endswith("ConditionFailed")
        assert record.dead_letter_reason
        assert [letter.job_id for letter in harness.store.dead_letters()] == [child.job_id]
        assert harness.status(parent.job_id) is JobStatus.SUCCEEDED

    def test_a_failed_branch_settles_its_own_edges(self, harness: Harness) -> None:
        """Jobs that waited for the branch's failure are released; jobs that waited for its success are canceled."""
        parent, branch, alarm, step = harness.spec(), harness.child(), harness.child(), harness.child()
        harness.insert(
            [parent, branch, alarm, step],
            [
                harness.edge(parent, branch, EdgeKind.CONDITION),
                harness.edge(branch, alarm, EdgeKind.FAILURE),
                harness.edge(branch, step),
            ],
        )
        released, _ = finish(harness, parent.job_id, "success", branch, VerdictKind.ERROR)
        assert released == (alarm.job_id,)
        assert harness.statuses(s.job_id for s in (branch, alarm, step)) == [JobStatus.FAILED, P, C]

    def test_a_retry_settles_nothing(self, harness: Harness) -> None:
        """Only an end settles edges: between attempts the children wait."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        harness.end(harness.claim_job(parent.job_id), harness.another_try())
        harness.end(harness.claim_job(parent.job_id), Reschedule(at=harness.now))
        assert harness.status(child.job_id) is W

    def test_a_released_child_is_due_at_the_later_time(self, harness: Harness) -> None:
        """The child is due now, or at its own due time if that is later."""
        parent = harness.spec()
        soon = harness.child(scheduled_at=harness.after(hours=-1))
        late = harness.child(scheduled_at=harness.after(hours=5))
        harness.insert(
            [parent, soon, late], [harness.edge(parent, soon), harness.edge(parent, late, position=1)]
        )
        harness.advance(minutes=1)
        finish(harness, parent.job_id, "success")
        assert harness.record(soon.job_id).scheduled_at == harness.now
        assert harness.record(late.job_id).scheduled_at == harness.after(hours=5, minutes=-1)
        assert [c.job_id for c in harness.claim()] == [soon.job_id]

    def test_a_chain_runs_step_by_step(self, harness: Harness) -> None:
        """Each step starts when the one before it has succeeded."""
        specs = [harness.spec(), harness.child(), harness.child()]
        harness.insert(specs, [harness.edge(specs[0], specs[1]), harness.edge(specs[1], specs[2])])
        order = []
        while claims := harness.claim():
            (claim,) = claims
            order.append(claim.job_id)
            harness.end(claim)
        assert order == [spec.job_id for spec in specs]

    def test_released_and_canceled_in_one_end(self, harness: Harness) -> None:
        """Each branch of one parent is released or canceled by its own edge, in one transaction."""
        parent = harness.spec()
        good, bad, high, low = (harness.child(type=JobType.WORKFLOW_BRANCH) for _ in range(4))
        harness.insert(
            [parent, good, bad, high, low],
            [
                harness.edge(parent, good, position=0),
                harness.edge(parent, bad, EdgeKind.FAILURE, position=1),
                harness.edge(parent, high, EdgeKind.CONDITION, position=2),
                harness.edge(parent, low, EdgeKind.CONDITION, position=3),
            ],
        )
        verdicts = (harness.verdict(high, VerdictKind.TAKEN), harness.verdict(low, VerdictKind.NOT_TAKEN))
        answer = harness.end(harness.claim_job(parent.job_id), verdicts=verdicts)
        assert set(answer.released) == {good.job_id, high.job_id}
        assert {(c.job_id, c.reason) for c in answer.canceled} == {
            (bad.job_id, "not_taken"),
            (low.job_id, "not_taken"),
        }
