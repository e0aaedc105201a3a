"""Workflows: how a parent's end settles its edges, and what that does to those who wait."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

import pytest

from ratchet.model.composition import Condition, EdgeKind, EdgeState
from ratchet.model.decision import CanceledJob, Reschedule, VerdictKind
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus, JobType
from ratchet.tck.harness import Harness

Ending: TypeAlias = str  # "success", "failure", "cancel"

P, C, W = JobStatus.PENDING, JobStatus.CANCELED, JobStatus.WAITING

#: (edge, verdict, how the parent ends) -> what becomes of the child, and why
SETTLEMENT: list[tuple[EdgeKind, VerdictKind | None, Ending, JobStatus, str | None]] = [
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
    how: Ending,
    child: JobSpec | None = None,
    verdict: VerdictKind | None = None,
) -> tuple[tuple[UUID, ...], tuple[CanceledJob, ...]]:
    """End a PENDING job; whom that released, and whom it canceled or failed."""
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
            for case in SETTLEMENT
        ],
    )
    def test_each_edge_for_each_end(
        self,
        harness: Harness,
        kind: EdgeKind,
        verdict: VerdictKind | None,
        ending: Ending,
        status: JobStatus,
        reason: str | None,
    ) -> None:
        """The child is released, canceled or failed exactly as its edge says, and the answer tells."""
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
        """The branch's own job fails, with ConditionFailed; the parent has succeeded."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child, EdgeKind.CONDITION)])
        finish(harness, parent.job_id, "success", child, VerdictKind.ERROR)
        record = harness.record(child.job_id)
        assert (record.error_type or "").endswith("ConditionFailed")
        assert record.dead_letter_reason
        assert [letter.job_id for letter in harness.store.dead_letters()] == [child.job_id]
        assert harness.status(parent.job_id) is JobStatus.SUCCEEDED

    def test_a_failed_branch_settles_its_own_edges(self, harness: Harness) -> None:
        """What waited for the branch's failure is released, what waited for its success is canceled."""
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
        """Only an end counts: between attempts the children wait."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        harness.end(harness.claim_job(parent.job_id), harness.another_try())
        harness.end(harness.claim_job(parent.job_id), Reschedule(at=harness.now))
        assert harness.status(child.job_id) is W

    def test_a_released_child_is_due_at_the_later_time(self, harness: Harness) -> None:
        """Now, or its own due time if that is later."""
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
        """Each step starts when the one before has succeeded."""
        specs = [harness.spec(), harness.child(), harness.child()]
        harness.insert(specs, [harness.edge(specs[0], specs[1]), harness.edge(specs[1], specs[2])])
        order = []
        while claims := harness.claim():
            (claim,) = claims
            order.append(claim.job_id)
            harness.end(claim)
        assert order == [spec.job_id for spec in specs]

    def test_released_and_canceled_in_one_end(self, harness: Harness) -> None:
        """Several branches of one parent: each goes its own way, in one transaction."""
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


class TestJoin:
    def join(self, harness: Harness, parents: int, needs: int) -> tuple[list[JobSpec], JobSpec]:
        specs = harness.specs(parents)
        child = harness.child(needs=needs, type=JobType.WORKFLOW_JOIN)
        edges = [harness.edge(parent, child, position=i) for i, parent in enumerate(specs)]
        harness.insert([*specs, child], edges)
        return specs, child

    def test_all(self, harness: Harness) -> None:
        """Released with the last parent, not before."""
        parents, child = self.join(harness, 3, 3)
        for parent in parents[:2]:
            assert finish(harness, parent.job_id, "success")[0] == ()
        assert harness.status(child.job_id) is W
        assert finish(harness, parents[2].job_id, "success")[0] == (child.job_id,)

    def test_all_in_one_flush(self, harness: Harness) -> None:
        """Every parent ends in one call: released once."""
        _, child = self.join(harness, 3, 3)
        answers = harness.end_all(harness.claim())
        assert [job_id for a in answers for job_id in a.released] == [child.job_id]
        assert harness.status(child.job_id) is P

    def test_one_broken_edge_is_enough_for_all(self, harness: Harness) -> None:
        """One parent failed: the join can never be reached, and is canceled at once."""
        parents, child = self.join(harness, 3, 3)
        _, canceled = finish(harness, parents[0].job_id, "failure")
        assert [(c.job_id, c.reason) for c in canceled] == [(child.job_id, "parent_failed")]
        assert finish(harness, parents[1].job_id, "success") == ((), ())
        assert harness.status(child.job_id) is C

    def test_at_least_two_of_three(self, harness: Harness) -> None:
        """One may fail; the second success releases, and the third changes nothing."""
        parents, child = self.join(harness, 3, 2)
        finish(harness, parents[0].job_id, "failure")
        assert harness.status(child.job_id) is W
        finish(harness, parents[1].job_id, "success")
        assert harness.status(child.job_id) is W
        assert finish(harness, parents[2].job_id, "success")[0] == (child.job_id,)

    def test_more_than_needed(self, harness: Harness) -> None:
        """The join has started: a late parent neither starts it again nor stops it."""
        parents, child = self.join(harness, 3, 1)
        finish(harness, parents[0].job_id, "success")
        harness.end(harness.claim_job(child.job_id))
        before = harness.record(child.job_id)
        assert finish(harness, parents[1].job_id, "success") == ((), ())
        assert finish(harness, parents[2].job_id, "failure") == ((), ())
        assert harness.record(child.job_id) == before

    def test_impossible_only_when_too_few_are_left(self, harness: Harness) -> None:
        """Two of three are needed: the second failure cancels, the first does not."""
        parents, child = self.join(harness, 3, 2)
        assert finish(harness, parents[0].job_id, "failure")[1] == ()
        _, canceled = finish(harness, parents[1].job_id, "failure")
        assert [c.job_id for c in canceled] == [child.job_id]

    def test_of_jobs_that_were_already_there(self, harness: Harness) -> None:
        """Parents that ended before the join was submitted count."""
        done, open_ = harness.succeeded(), harness.submit()
        child = harness.child(needs=2)
        harness.insert([child], [harness.edge(done, child), harness.edge(open_, child, position=1)])
        assert harness.status(child.job_id) is W
        finish(harness, open_, "success")
        assert harness.status(child.job_id) is P


class TestCascade:
    def test_depth_first_with_reasons(self, harness: Harness) -> None:
        """A failure cancels the whole tree behind it, each branch to its end before the next."""
        root, a, a1, b = harness.spec(), harness.child(), harness.child(), harness.child()
        harness.insert(
            [root, a, a1, b],
            [harness.edge(root, a, position=0), harness.edge(a, a1), harness.edge(root, b, position=1)],
        )
        _, canceled = finish(harness, root.job_id, "failure")
        order = [c.job_id for c in canceled]
        assert sorted(order) == sorted(s.job_id for s in (a, a1, b))
        assert order.index(a1.job_id) == order.index(a.job_id) + 1
        reasons = {c.job_id: c.reason for c in canceled}
        assert reasons == {
            a.job_id: "parent_failed",
            b.job_id: "parent_failed",
            a1.job_id: "parent_canceled",
        }

    def test_an_end_edge_stops_the_cascade(self, harness: Harness) -> None:
        """However its parent ends, a child that only waits for the end runs."""
        root, step, cleanup = harness.spec(), harness.child(), harness.child()
        harness.insert(
            [root, step, cleanup], [harness.edge(root, step), harness.edge(step, cleanup, EdgeKind.END)]
        )
        released, canceled = finish(harness, root.job_id, "failure")
        assert released == (cleanup.job_id,)
        assert [c.job_id for c in canceled] == [step.job_id]

    def test_a_diamond_is_canceled_once(self, harness: Harness) -> None:
        """Two ways lead to one job: it is canceled and reported once."""
        root, left, right, join = harness.spec(), harness.child(), harness.child(), harness.child(needs=2)
        harness.insert(
            [root, left, right, join],
            [
                harness.edge(root, left, position=0),
                harness.edge(root, right, position=1),
                harness.edge(left, join, position=0),
                harness.edge(right, join, position=1),
            ],
        )
        _, canceled = finish(harness, root.job_id, "failure")
        assert sorted(c.job_id for c in canceled) == sorted(s.job_id for s in (left, right, join))

    def test_only_waiting_jobs_are_canceled(self, harness: Harness) -> None:
        """A dependant that was released before goes on."""
        a, b, child = harness.spec(), harness.spec(), harness.child(needs=1)
        harness.insert([a, b, child], [harness.edge(a, child), harness.edge(b, child, position=1)])
        finish(harness, a.job_id, "success")
        assert harness.store.pause(child.job_id, now=harness.now)
        assert finish(harness, b.job_id, "failure")[1] == ()
        assert harness.status(child.job_id) is JobStatus.PAUSED

    def test_the_keys_of_canceled_dependants_are_free(self, harness: Harness) -> None:
        """A WAITING job holds its business key; canceled with its parent it does not."""
        parent, child = harness.spec(), harness.child(business_key="k")
        harness.insert([parent, child], [harness.edge(parent, child)])
        finish(harness, parent.job_id, "failure")
        harness.submit(business_key="k")


class TestRevive:
    def test_a_retry_returns_what_the_failure_canceled(self, harness: Harness) -> None:
        """The whole chain waits again, and runs when the retry succeeds."""
        specs = [harness.spec(), harness.child(), harness.child()]
        harness.insert(specs, [harness.edge(specs[0], specs[1]), harness.edge(specs[1], specs[2])])
        finish(harness, specs[0].job_id, "failure")
        assert harness.store.retry(specs[0].job_id, now=harness.now)
        assert harness.statuses(s.job_id for s in specs) == [P, W, W]
        record = harness.record(specs[1].job_id)
        assert (record.canceled_reason, record.finished_at) == (None, None)
        assert all(e.state is EdgeState.OPEN for e in harness.store.edges_of(specs[1].job_id))
        for spec in specs:
            finish(harness, spec.job_id, "success")
        assert harness.statuses(s.job_id for s in specs) == [JobStatus.SUCCEEDED] * 3

    def test_a_second_failure_cancels_again(self, harness: Harness) -> None:
        """Fail, retry, fail, retry: the child follows each time."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        for _ in range(2):
            finish(harness, parent.job_id, "failure")
            assert harness.status(child.job_id) is C
            assert harness.store.retry(parent.job_id, now=harness.now)
            assert harness.status(child.job_id) is W

    def test_what_a_person_canceled_stays_canceled(self, harness: Harness) -> None:
        """Only this failure's victims come back."""
        parent, mine, theirs = harness.spec(), harness.child(), harness.child()
        harness.insert(
            [parent, mine, theirs], [harness.edge(parent, mine), harness.edge(parent, theirs, position=1)]
        )
        harness.store.cancel(theirs.job_id, reason="not needed", now=harness.now)
        finish(harness, parent.job_id, "failure")
        assert harness.store.retry(parent.job_id, now=harness.now)
        assert harness.statuses([mine.job_id, theirs.job_id]) == [W, C]

    def test_a_failure_branch_that_ran_is_not_run_again(self, harness: Harness) -> None:
        """It has ended; the retry of its parent does not bring it back."""
        parent, alarm = harness.spec(), harness.child()
        harness.insert([parent, alarm], [harness.edge(parent, alarm, EdgeKind.FAILURE)])
        finish(harness, parent.job_id, "failure")
        finish(harness, alarm.job_id, "success")
        assert harness.store.retry(parent.job_id, now=harness.now)
        finish(harness, parent.job_id, "success")
        assert harness.status(alarm.job_id) is JobStatus.SUCCEEDED

    def test_a_join_keeps_what_it_has(self, harness: Harness) -> None:
        """One parent succeeded, one failed; after the retry only that one is missing."""
        a, b, join = harness.spec(), harness.spec(), harness.child(needs=2)
        harness.insert([a, b, join], [harness.edge(a, join), harness.edge(b, join, position=1)])
        finish(harness, a.job_id, "success")
        finish(harness, b.job_id, "failure")
        assert harness.status(join.job_id) is C
        assert harness.store.retry(b.job_id, now=harness.now)
        assert harness.status(join.job_id) is W
        finish(harness, b.job_id, "success")
        assert harness.status(join.job_id) is P

    def test_a_join_with_another_broken_parent_stays_canceled(self, harness: Harness) -> None:
        """Two parents failed; the retry of one cannot make the join reachable."""
        a, b, join = harness.spec(), harness.spec(), harness.child(needs=2)
        harness.insert([a, b, join], [harness.edge(a, join), harness.edge(b, join, position=1)])
        finish(harness, a.job_id, "failure")
        finish(harness, b.job_id, "failure")
        assert harness.store.retry(b.job_id, now=harness.now)
        finish(harness, b.job_id, "success")
        assert harness.status(join.job_id) is C

    @pytest.mark.parametrize("last", [0, 1], ids=["the first that failed", "the second"])
    def test_the_retry_that_makes_a_join_reachable_revives_it(self, harness: Harness, last: int) -> None:
        """Two parents failed and both are retried: whichever comes last brings the join back."""
        a, b, join = harness.spec(), harness.spec(), harness.child(needs=2)
        harness.insert([a, b, join], [harness.edge(a, join), harness.edge(b, join, position=1)])
        finish(harness, a.job_id, "failure")
        finish(harness, b.job_id, "failure")
        order = [b, a] if last == 0 else [a, b]
        assert harness.store.retry(order[0].job_id, now=harness.now)
        finish(harness, order[0].job_id, "success")
        assert harness.status(join.job_id) is C
        assert harness.store.retry(order[1].job_id, now=harness.now)
        assert harness.status(join.job_id) is W
        finish(harness, order[1].job_id, "success")
        assert harness.status(join.job_id) is P

    def test_a_join_that_still_waits_counts_on_a_retried_parent_again(self, harness: Harness) -> None:
        """Two of three: one fails, is retried and succeeds, one succeeds, one fails: that is two."""
        parents = [harness.spec() for _ in range(3)]
        join = harness.child(needs=2)
        harness.insert(
            [*parents, join], [harness.edge(each, join, position=n) for n, each in enumerate(parents)]
        )
        finish(harness, parents[0].job_id, "failure")
        assert harness.status(join.job_id) is W
        assert harness.store.retry(parents[0].job_id, now=harness.now)
        finish(harness, parents[0].job_id, "success")
        finish(harness, parents[1].job_id, "failure")
        assert harness.status(join.job_id) is W
        finish(harness, parents[2].job_id, "success")
        assert harness.status(join.job_id) is P

    def test_a_condition_is_asked_again(self, harness: Harness) -> None:
        """Not taken for the failure, taken for the success after the retry."""
        parent, branch = harness.spec(), harness.child()
        harness.insert([parent, branch], [harness.edge(parent, branch, EdgeKind.CONDITION)])
        finish(harness, parent.job_id, "failure", branch, VerdictKind.NOT_TAKEN)
        assert harness.status(branch.job_id) is C
        assert harness.store.retry(parent.job_id, now=harness.now)
        assert harness.status(branch.job_id) is W
        finish(harness, parent.job_id, "success", branch, VerdictKind.TAKEN)
        assert harness.status(branch.job_id) is P


class TestGraph:
    def test_conditions_by_order_then_position(self, harness: Harness) -> None:
        """Lower order first, definition order among equals; edges without a condition are left out."""
        parent = harness.spec()
        children = [harness.child() for _ in range(4)]
        orders = [1, 0, 0]
        edges = [
            harness.edge(
                parent,
                child,
                EdgeKind.CONDITION,
                position=i,
                condition=Condition(
                    kind="result", predicate="a:b", argument="[1]", order=order, description="dé"
                ),
            )
            for i, (child, order) in enumerate(zip(children, orders, strict=False))
        ]
        harness.insert([parent, *children], [*edges, harness.edge(parent, children[3], position=3)])
        found = harness.store.conditions_of(parent.job_id)
        assert found == [edges[1], edges[2], edges[0]]
        assert harness.store.conditions_of(children[0].job_id) == []

    def test_edges_in_and_out(self, harness: Harness) -> None:
        """All edges of a job, with their state."""
        specs = [harness.spec(), harness.child(), harness.child()]
        edges = [harness.edge(specs[0], specs[1]), harness.edge(specs[1], specs[2], EdgeKind.END, position=2)]
        harness.insert(specs, edges)
        assert set(harness.store.edges_of(specs[1].job_id)) == set(edges)
        assert harness.store.edges_of(specs[0].job_id) == edges[:1]
        assert harness.store.edges_of(new_id()) == []

    def test_parents_in_definition_order(self, harness: Harness) -> None:
        """The order of the edges, not of the ids: RESULTS depends on it."""
        parents = harness.specs(4)
        child = harness.child(needs=4)
        order = [parents[2], parents[0], parents[3], parents[1]]
        edges = [harness.edge(parent, child, position=i) for i, parent in enumerate(order)]
        harness.insert([*parents, child], edges[::-1])
        assert harness.store.parents_of(child.job_id) == [spec.job_id for spec in order]
        assert harness.store.parents_of(parents[0].job_id) == []

    def test_the_jobs_of_one_root(self, harness: Harness) -> None:
        """Every job that shares the root, with edges and states; no stranger."""
        root = harness.spec()
        step = harness.child(root_id=root.job_id)
        stranger = harness.spec()
        edge = harness.edge(root, step)
        harness.insert([root, step, stranger], [edge])
        finish(harness, root.job_id, "failure")
        graph = harness.store.graph(root.job_id)
        assert {(n.job_id, n.status, n.canceled_reason) for n in graph.nodes} == {
            (root.job_id, JobStatus.FAILED, None),
            (step.job_id, C, "parent_failed"),
        }
        assert [(e.parent_id, e.child_id) for e in graph.edges] == [(root.job_id, step.job_id)]

    def test_of_an_unknown_root(self, harness: Harness) -> None:
        """Empty."""
        graph = harness.store.graph(new_id())
        assert (graph.nodes, graph.edges) == ((), ())
