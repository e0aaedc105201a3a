"""What a node can read about the claims that it holds."""

from __future__ import annotations

from ratchet.tck.harness import Harness


class TestBodies:
    def test_the_body_that_the_full_claim_brings(self, harness: Harness) -> None:
        """A body that is loaded later equals the one that came with the claim."""
        harness.submit_many(3, params='{"a":1}')
        jobs = harness.take()
        assert harness.store.bodies([job.claim for job in jobs]) == {
            job.body.job_id: job.body for job in jobs
        }

    def test_a_job_that_its_claim_lost_is_left_out(self, harness: Harness) -> None:
        """There is no body for a claim whose job was canceled, ended, or handed back and claimed again."""
        kept, canceled, ended, handed_back = (harness.running() for _ in range(4))
        harness.store.cancel(canceled.job_id, reason="r", now=harness.now)
        harness.end(ended)
        harness.store.hand_back([handed_back], now=harness.now)
        harness.claim_job(handed_back.job_id)
        claims = [kept, canceled, ended, handed_back, harness.forged_claim(kept.job_id)]
        assert set(harness.store.bodies(claims)) == {kept.job_id}
        assert harness.store.bodies([harness.forged_claim(kept.job_id)]) == {}
        assert harness.store.bodies([]) == {}

    def test_the_checkpoint_of_an_earlier_attempt(self, harness: Harness) -> None:
        """The next attempt gets the state that the earlier one saved."""
        claim = harness.running()
        assert harness.store.save_state(claim, '{"last_id":7}', now=harness.now)
        harness.end(claim, harness.another_try())
        (job,) = harness.take()
        assert job.body.state == '{"last_id":7}'


class TestClaimsOf:
    def test_what_a_node_runs(self, harness: Harness) -> None:
        """The job id and token of everything RUNNING on this node, and on no other."""
        mine = [harness.running(node="node-1") for _ in range(3)]
        harness.running(node="node-2")
        harness.end(mine.pop())
        assert harness.store.claims_of("node-1") == {c.job_id: c.claim_id for c in mine}
        assert harness.store.claims_of("nobody") == {}
