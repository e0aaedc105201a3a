"""Charges: which of a dead node's jobs its end is charged to."""

from __future__ import annotations

from uuid import UUID

from ratchet.model.claim import DOUBTFUL, LONGEST_DOUBT, JobClaim, ahead_token, is_ahead
from ratchet.model.identifiers import new_id
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


def claim_ahead(harness: Harness, node_id: str) -> list[JobClaim]:
    """Claim everything with the token of a claim ahead."""
    return harness.claim(node_id=harness.register(node_id), claim_id=ahead_token(new_id()))


def crashes_of(harness: Harness, claims: list[JobClaim]) -> list[int]:
    """How many crashes each job is charged with."""
    return [harness.record(claim.job_id).crashes for claim in claims]


class TestWhatRan:
    """Where somebody knows what ran, that is charged and nothing else."""

    def test_what_did_not_run_is_handed_back(self, harness: Harness) -> None:
        """Of three claimed jobs one ran: it has a crash, the others have neither that nor a run, and are due as before."""
        harness.submit_many(3)
        node = harness.register("node-2")
        ran, *others = harness.claim(node_id=node)
        rescue = harness.rescue(node, ran={ran.job_id: ran.claim_id})
        assert rescue.requeued == (ran.job_id,)
        assert set(rescue.handed_back) == {claim.job_id for claim in others}
        assert crashes_of(harness, [ran, *others]) == [1, 0, 0]
        for claim in others:
            assert harness.store.executions(claim.job_id, uncounted=True) == []
            record = harness.record(claim.job_id)
            assert (record.status, record.scheduled_at) == (JobStatus.PENDING, claim.scheduled_at)
        assert {claim.job_id for claim in harness.claim()} == {ran.job_id, *rescue.handed_back}

    def test_another_run_of_the_job_does_not_count(self, harness: Harness) -> None:
        """What ran is compared with the claim: an earlier run of the same job is not this one."""
        (job_id,) = harness.submit_many(1)
        node = harness.register("node-2")
        (claim,) = harness.claim(node_id=node)
        rescue = harness.rescue(node, ran={job_id: new_id()})
        assert rescue.handed_back == (job_id,)
        assert crashes_of(harness, [claim]) == [0]

    def test_the_last_crash_of_what_ran(self, harness: Harness) -> None:
        """At the limit the job that ran becomes a dead letter; its neighbor, which had not started, does not."""
        harness.submit_many(2)
        node = harness.register("node-2")
        ran, other = harness.claim(node_id=node)
        rescue = harness.rescue(node, max_crashes=1, ran={ran.job_id: ran.claim_id})
        assert (rescue.dead_lettered, rescue.handed_back) == ((ran.job_id,), (other.job_id,))

    def test_what_was_seen_is_told(self, harness: Harness) -> None:
        """The run and the dead letter say how the node ended; without a witness, that it stopped beating."""
        job_id = harness.submit()
        for number, seen in enumerate((None, "was killed by SIGKILL", "ended with exit code 3")):
            node = harness.register(f"node-{number + 2}")
            assert harness.claim(node_id=node, suspects=number == 2)
            harness.rescue(node, seen=seen)
            run = harness.store.executions(job_id, uncounted=True)[-1]
            assert run.error is not None
            assert run.status == ExecutionStatus.CRASHED
            assert (seen or "stopped beating") in run.error
        record = harness.record(job_id)
        assert record.status is JobStatus.FAILED
        assert record.error is not None
        assert "ended with exit code 3" in record.error


class TestClaimedAhead:
    """Where nobody knows, the claim tells."""

    def test_its_token_says_so(self, harness: Harness) -> None:
        """The token of a claim ahead is told from others after it was stored."""
        harness.submit_many(1)
        (claim,) = claim_ahead(harness, "node-2")
        assert is_ahead(claim.claim_id)
        assert all(is_ahead(token) for token in harness.store.claims_of("node-2").values())

    def test_what_is_not_known_to_have_started_is_not_charged(self, harness: Harness) -> None:
        """Two of three jobs were marked as started: they are charged, the third is handed back, and its run says why."""
        harness.submit_many(3)
        claims = claim_ahead(harness, "node-2")
        assert harness.store.mark_started(claims[:2], now=harness.now) == 2
        rescue = harness.rescue("node-2")
        assert set(rescue.requeued) == {claim.job_id for claim in claims[:2]}
        assert rescue.handed_back == (claims[2].job_id,)
        assert crashes_of(harness, claims) == [1, 1, 0]
        (run,) = harness.store.executions(claims[2].job_id, uncounted=True)
        assert (run.status, run.error_type, run.counted) == (ExecutionStatus.HANDED_BACK, DOUBTFUL, False)
        assert run.started_at is None

    def test_a_job_is_in_doubt_only_so_often(self, harness: Harness) -> None:
        """A job that kills its node before it is marked would do so for ever: after two deaths in doubt it is charged."""
        job_id = harness.submit()
        for number in range(LONGEST_DOUBT + 1):
            (claim,) = claim_ahead(harness, f"node-{number + 2}")
            harness.rescue(f"node-{number + 2}")
            assert crashes_of(harness, [claim]) == [0 if number < LONGEST_DOUBT else 1]
        assert harness.record(job_id).status is JobStatus.PENDING

    def test_a_mark_ends_with_its_claim(self, harness: Harness) -> None:
        """Handed back and claimed ahead again, the job counts as not started again; a stale mark changes nothing."""
        harness.submit()
        (first,) = claim_ahead(harness, "node-2")
        assert harness.store.mark_started([first], now=harness.now) == 1
        assert harness.store.hand_back([first], now=harness.now) == 1
        (second,) = claim_ahead(harness, "node-3")
        assert harness.store.mark_started([first], now=harness.now) == 0
        assert harness.rescue("node-3").handed_back == (second.job_id,)
        assert crashes_of(harness, [second]) == [0]

    def test_a_marked_run_ends_as_usual(self, harness: Harness) -> None:
        """A retry of a marked run is due when it should be, and waits for nobody."""
        job_id: UUID = harness.submit(max_retries=2)
        (claim,) = claim_ahead(harness, "node-2")
        harness.store.mark_started([claim], now=harness.now)
        harness.end(claim, harness.another_try())
        assert harness.store.explain(job_id, now=harness.now) == []
        (again,) = harness.claim()
        harness.end(again)
        assert harness.record(job_id).status is JobStatus.SUCCEEDED

    def test_an_empty_mark(self, harness: Harness) -> None:
        """No claims: nothing happens."""
        assert harness.store.mark_started([], now=harness.now) == 0
