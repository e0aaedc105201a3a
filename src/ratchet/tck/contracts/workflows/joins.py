"""Jobs that wait for several parents."""

from __future__ import annotations

from ratchet.model.job import JobSpec
from ratchet.model.status import JobType
from ratchet.tck.contracts.workflows.edges import C, P, W, finish
from ratchet.tck.harness import Harness


class TestJoin:
    def join(self, harness: Harness, parents: int, needs: int) -> tuple[list[JobSpec], JobSpec]:
        specs = harness.specs(parents)
        child = harness.child(needs=needs, type=JobType.WORKFLOW_JOIN)
        edges = [harness.edge(parent, child, position=i) for i, parent in enumerate(specs)]
        harness.insert([*specs, child], edges)
        return specs, child

    def test_all(self, harness: Harness) -> None:
        """The join is released with its last parent, not before."""
        parents, child = self.join(harness, 3, 3)
        for parent in parents[:2]:
            assert finish(harness, parent.job_id, "success")[0] == ()
        assert harness.status(child.job_id) is W
        assert finish(harness, parents[2].job_id, "success")[0] == (child.job_id,)

    def test_all_in_one_flush(self, harness: Harness) -> None:
        """All parents end in one call: the join is released once."""
        _, child = self.join(harness, 3, 3)
        answers = harness.end_all(harness.claim())
        assert [job_id for a in answers for job_id in a.released] == [child.job_id]
        assert harness.status(child.job_id) is P

    def test_one_broken_edge_is_enough_for_all(self, harness: Harness) -> None:
        """One parent failed: the join can never be reached, so it is canceled at once."""
        parents, child = self.join(harness, 3, 3)
        _, canceled = finish(harness, parents[0].job_id, "failure")
        assert [(c.job_id, c.reason) for c in canceled] == [(child.job_id, "parent_failed")]
        assert finish(harness, parents[1].job_id, "success") == ((), ())
        assert harness.status(child.job_id) is C

    def test_at_least_two_of_three(self, harness: Harness) -> None:
        """One parent may fail; the second success releases the join."""
        parents, child = self.join(harness, 3, 2)
        finish(harness, parents[0].job_id, "failure")
        assert harness.status(child.job_id) is W
        finish(harness, parents[1].job_id, "success")
        assert harness.status(child.job_id) is W
        assert finish(harness, parents[2].job_id, "success")[0] == (child.job_id,)

    def test_more_than_needed(self, harness: Harness) -> None:
        """The join has already run: a parent that ends later neither runs it again nor cancels it."""
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
