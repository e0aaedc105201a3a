"""What a node that holds claims can read of them."""

from __future__ import annotations

from ratchet.tck.harness import Harness


class TestBodies:
    def test_the_body_that_the_full_claim_brings(self, harness: Harness) -> None:
        """Loaded later, a body is the same."""
        harness.submit_many(3, params='{"a":1}')
        jobs = harness.take()
        assert harness.store.bodies([job.claim for job in jobs]) == {
            job.body.job_id: job.body for job in jobs
        }

    def test_a_job_that_its_claim_lost_is_left_out(self, harness: Harness) -> None:
        """Canceled, ended, handed back and claimed anew: no body for the old claim."""
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
        """What one attempt saved, the next one gets."""
        claim = harness.running()
        assert harness.store.save_state(claim, '{"last_id":7}', now=harness.now)
        harness.end(claim, harness.another_try())
        (job,) = harness.take()
        assert job.body.state == '{"last_id":7}'


class TestClaimsOf:
    def test_what_a_node_runs(self, harness: Harness) -> None:
        """Job to token of everything RUNNING under this node, and of nobody else."""
        mine = [harness.running(node="node-1") for _ in range(3)]
        harness.running(node="node-2")
        harness.end(mine.pop())
        assert harness.store.claims_of("node-1") == {c.job_id: c.claim_id for c in mine}
        assert harness.store.claims_of("nobody") == {}
