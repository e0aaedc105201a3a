"""What a run saves while it is running."""

from __future__ import annotations

from ratchet.model.job import Progress
from ratchet.tck.harness import Harness


class TestProgress:
    def test_what_a_run_says_is_seen(self, harness: Harness) -> None:
        """The latest progress replaces the earlier one."""
        claim = harness.running()
        assert harness.record(claim.job_id).progress is None
        assert harness.store.save_progress(claim, Progress(fraction=0.25, message="päcked"), now=harness.now)
        assert harness.record(claim.job_id).progress == Progress(fraction=0.25, message="päcked")
        assert harness.store.save_progress(claim, Progress(fraction=0.5), now=harness.now)
        assert harness.record(claim.job_id).progress == Progress(fraction=0.5)

    def test_a_checkpoint_survives_attempts(self, harness: Harness) -> None:
        """State is kept through retry, hand-back, rescue and failure."""
        harness.register()
        claim = harness.running()
        assert harness.store.save_state(claim, '{"n":1}', now=harness.now)
        harness.end(claim, harness.another_try())
        harness.store.hand_back([harness.claim_job(claim.job_id)], now=harness.now)
        harness.claim_job(claim.job_id)
        harness.rescue()
        harness.end(harness.claim_job(claim.job_id), harness.failure())
        assert harness.record(claim.job_id).state == '{"n":1}'
        assert harness.store.retry(claim.job_id, now=harness.now)
        (job,) = harness.take()
        assert job.body.state == '{"n":1}'

    def test_only_a_held_job_takes_them(self, harness: Harness) -> None:
        """Without a claim neither progress nor state is stored."""
        job_id = harness.submit()
        forged = harness.forged_claim(job_id)
        assert not harness.store.save_progress(forged, Progress(fraction=0.5), now=harness.now)
        assert not harness.store.save_state(forged, "{}", now=harness.now)
        assert harness.record(job_id).progress is None
        assert harness.record(job_id).state is None
