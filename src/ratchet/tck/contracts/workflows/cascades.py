"""What an end does to jobs further down, and how a retry undoes it."""

from __future__ import annotations

import pytest

from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.decision import VerdictKind
from ratchet.model.status import JobStatus
from ratchet.tck.contracts.workflows.edges import C, P, W, finish
from ratchet.tck.harness import Harness


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
        """A child with an END edge runs however its parent ends."""
        root, step, cleanup = harness.spec(), harness.child(), harness.child()
        harness.insert(
            [root, step, cleanup], [harness.edge(root, step), harness.edge(step, cleanup, EdgeKind.END)]
        )
        released, canceled = finish(harness, root.job_id, "failure")
        assert released == (cleanup.job_id,)
        assert [c.job_id for c in canceled] == [step.job_id]

    def test_a_diamond_is_canceled_once(self, harness: Harness) -> None:
        """Two paths lead to one job: it is canceled and reported once."""
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
        """A dependant that was already released is not canceled."""
        a, b, child = harness.spec(), harness.spec(), harness.child(needs=1)
        harness.insert([a, b, child], [harness.edge(a, child), harness.edge(b, child, position=1)])
        finish(harness, a.job_id, "success")
        assert harness.store.pause(child.job_id, now=harness.now)
        assert finish(harness, b.job_id, "failure")[1] == ()
        assert harness.status(child.job_id) is JobStatus.PAUSED

    def test_the_keys_of_canceled_dependants_are_free(self, harness: Harness) -> None:
        """A WAITING job holds its business key; once it is canceled with its parent, the key is free."""
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
        """The parent fails and is retried twice: the child is canceled and revived each time."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        for _ in range(2):
            finish(harness, parent.job_id, "failure")
            assert harness.status(child.job_id) is C
            assert harness.store.retry(parent.job_id, now=harness.now)
            assert harness.status(child.job_id) is W

    def test_what_a_person_canceled_stays_canceled(self, harness: Harness) -> None:
        """Only the jobs that this failure canceled come back."""
        parent, mine, theirs = harness.spec(), harness.child(), harness.child()
        harness.insert(
            [parent, mine, theirs], [harness.edge(parent, mine), harness.edge(parent, theirs, position=1)]
        )
        harness.store.cancel(theirs.job_id, reason="not needed", now=harness.now)
        finish(harness, parent.job_id, "failure")
        assert harness.store.retry(parent.job_id, now=harness.now)
        assert harness.statuses([mine.job_id, theirs.job_id]) == [W, C]

    def test_a_failure_branch_that_ran_is_not_run_again(self, harness: Harness) -> None:
        """The branch has ended; the retry of its parent does not bring it back."""
        parent, alarm = harness.spec(), harness.child()
        harness.insert([parent, alarm], [harness.edge(parent, alarm, EdgeKind.FAILURE)])
        finish(harness, parent.job_id, "failure")
        finish(harness, alarm.job_id, "success")
        assert harness.store.retry(parent.job_id, now=harness.now)
        finish(harness, parent.job_id, "success")
        assert harness.status(alarm.job_id) is JobStatus.SUCCEEDED

    def test_a_join_keeps_what_it_has(self, harness: Harness) -> None:
        """One parent succeeded and one failed; after the retry the join waits only for the second."""
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
        """Two parents failed and both are retried: the later retry brings the join back."""
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
        """
        The join needs two of three: one fails, is retried and succeeds, one fails, one succeeds. The join
        is released.
        """
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
        """The branch is not taken after the failure, and taken when the retry succeeds."""
        parent, branch = harness.spec(), harness.child()
        harness.insert([parent, branch], [harness.edge(parent, branch, EdgeKind.CONDITION)])
        finish(harness, parent.job_id, "failure", branch, VerdictKind.NOT_TAKEN)
        assert harness.status(branch.job_id) is C
        assert harness.store.retry(parent.job_id, now=harness.now)
        assert harness.status(branch.job_id) is W
        finish(harness, parent.job_id, "success", branch, VerdictKind.TAKEN)
        assert harness.status(branch.job_id) is P
