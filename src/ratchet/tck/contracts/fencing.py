"""Fencing: a run that has lost its job cannot change it any more."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from msgspec import structs

from ratchet.model.cluster import NodeState
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobRecord
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness
from ratchet.tck.losses import ATTEMPTS, CALLBACK, KEY, LOSSES, failed_and_retried, fresh


def world(harness: Harness, job_id: UUID) -> tuple[object, ...]:
    """Everything that a stale worker could have changed."""
    record: JobRecord = harness.record(job_id)
    return (
        record,
        harness.store.counts(),
        harness.store.executions(job_id, uncounted=True),
        [(limit.name, limit.held) for limit in harness.store.limits()],
        harness.store.alerts(),
        harness.store.get(CALLBACK),
        harness.store.claims_of("node-1"),
        harness.store.claims_of("node-2"),
    )


def key_is_taken(harness: Harness) -> bool:
    """True if a second live job with the key is refused."""
    try:
        harness.submit(business_key=KEY)
    except BusinessKeyBusy:
        return True
    return False


class TestStaleClaim:
    @pytest.mark.parametrize("node", ["same node", "other node"])
    @pytest.mark.parametrize("loss", LOSSES)
    def test_a_lost_run_changes_nothing(self, harness: Harness, loss: str, node: str) -> None:
        """Whatever the old run still tries, the new run keeps the job, key, permit and checkpoint, and can end."""
        old = fresh(harness)
        assert harness.store.save_state(old, '{"n":1}', now=harness.now)
        harness.advance(seconds=1)
        new = LOSSES[loss](harness, old, old.node_id if node == "same node" else "node-2")
        before = world(harness, old.job_id)
        for name, attempt in ATTEMPTS.items():
            harness.advance(seconds=1)
            assert not attempt(harness, old), f"the store accepted a stale {name} after {loss}"
            assert world(harness, old.job_id) == before, f"a stale {name} changed something after {loss}"
        assert key_is_taken(harness)
        harness.end(new)
        assert harness.status(old.job_id) is JobStatus.SUCCEEDED

    @pytest.mark.parametrize("attempt", ATTEMPTS)
    def test_a_token_that_was_never_given_out(self, harness: Harness, attempt: str) -> None:
        """The right job under a wrong token counts as no claim at all."""
        claim = fresh(harness)
        before = world(harness, claim.job_id)
        assert not ATTEMPTS[attempt](harness, harness.forged_claim(claim.job_id, claim.node_id))
        assert world(harness, claim.job_id) == before
        assert key_is_taken(harness)
        harness.end(claim)

    @pytest.mark.parametrize("attempt", ATTEMPTS)
    def test_a_token_of_another_job(self, harness: Harness, attempt: str) -> None:
        """A live token with the id of another job is refused: job and token belong together."""
        mine = fresh(harness)
        theirs = harness.running(node="node-2")
        mixed = structs.replace(mine, claim_id=theirs.claim_id)
        before, other = world(harness, mine.job_id), harness.record(theirs.job_id)
        assert not ATTEMPTS[attempt](harness, mixed)
        assert world(harness, mine.job_id) == before
        assert harness.record(theirs.job_id) == other

    @pytest.mark.parametrize("attempt", ATTEMPTS)
    def test_a_canceled_run_changes_nothing(self, harness: Harness, attempt: str) -> None:
        """CANCELED stays CANCELED; only `settle` and `release_permits` free what the run still holds."""
        claim = fresh(harness)
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        before = harness.record(claim.job_id)
        done = ATTEMPTS[attempt](harness, claim)
        assert done == (attempt == "release_permits")
        assert harness.record(claim.job_id) == before
        assert harness.store.get(CALLBACK) is None
        assert len(harness.store.executions(claim.job_id, uncounted=True)) == 1
        assert key_is_taken(harness) == (attempt != "settle")

    @pytest.mark.parametrize("attempt", ATTEMPTS)
    def test_a_finished_run_changes_nothing(self, harness: Harness, attempt: str) -> None:
        """The job has SUCCEEDED under this claim: whatever the claim tries afterwards is ignored."""
        claim = fresh(harness)
        harness.end(claim)
        before = world(harness, claim.job_id)
        assert not ATTEMPTS[attempt](harness, claim)
        assert world(harness, claim.job_id) == before

    @pytest.mark.parametrize("attempt", ATTEMPTS)
    def test_a_rescued_run_changes_nothing(self, harness: Harness, attempt: str) -> None:
        """The job is PENDING after the rescue: the CRASHED row of the run does not prove that its completion won."""
        claim = fresh(harness)
        harness.register(claim.node_id)
        harness.rescue(claim.node_id)
        before = world(harness, claim.job_id)
        assert not ATTEMPTS[attempt](harness, claim)
        assert world(harness, claim.job_id) == before
        assert key_is_taken(harness)

    @pytest.mark.parametrize("attempt", ATTEMPTS)
    def test_a_deleted_job(self, harness: Harness, attempt: str) -> None:
        """There is nothing left to change, and nothing comes back."""
        claim = fresh(harness)
        harness.end(claim)
        assert harness.store.delete(claim.job_id)
        assert not ATTEMPTS[attempt](harness, claim)
        assert harness.store.get(claim.job_id) is None
        assert harness.store.executions(claim.job_id, uncounted=True) == []
        assert sum(harness.store.counts().values()) == 0

    def test_many_stale_claims_in_one_call(self, harness: Harness) -> None:
        """Old and new claims of the same jobs come in one call: exactly those that still hold their job win."""
        harness.submit_many(20)
        old = harness.claim()
        assert harness.store.hand_back(old[::2], now=harness.now) == 10
        new = harness.claim()
        answers = harness.end_all([*old, *new])
        expected = [i % 2 == 1 for i in range(20)] + [True] * 10
        assert [answer.won for answer in answers] == expected
        assert harness.store.counts()[JobStatus.SUCCEEDED] == 20
        for claim in new:
            (row,) = [r for r in harness.store.executions(claim.job_id) if r.counted]
            assert row.claim_id == claim.claim_id

    def test_stale_successes_of_plain_jobs(self, harness: Harness) -> None:
        """A store may end jobs without key, batch and permit in a shorter way: that way is fenced too."""
        harness.submit_many(6)
        old = harness.claim()
        assert harness.store.hand_back(old[::2], now=harness.now) == 3
        new = harness.claim(node_id="node-2")
        assert [answer.won for answer in harness.end_all(old)] == [False, True] * 3
        assert harness.store.claims_of("node-2") == {c.job_id: c.claim_id for c in new}
        assert [answer.won for answer in harness.end_all(new)] == [True] * 3
        assert all(len(harness.store.executions(claim.job_id)) == 1 for claim in old)

    def test_many_stale_claims_are_handed_back_by_nobody(self, harness: Harness) -> None:
        """Given old and new claims, `hand_back` and `bodies` act only on those that still hold their job."""
        harness.submit_many(6)
        old = harness.claim()
        assert harness.store.hand_back(old[:3], now=harness.now) == 3
        new = harness.claim(node_id="node-2")
        assert harness.store.hand_back(old, now=harness.now) == 3
        assert harness.store.claims_of("node-2") == {c.job_id: c.claim_id for c in new}
        assert set(harness.store.bodies([*old, *new])) == {c.job_id for c in new}

    def test_completed_retried_and_claimed_again_by_the_same_node(self, harness: Harness) -> None:
        """The node and the attempt number are the same: the old claim still cannot finish the new run."""
        old = fresh(harness)
        new = failed_and_retried(harness, old, old.node_id)
        assert (old.attempt, old.node_id) == (new.attempt, new.node_id)
        assert old.claim_id != new.claim_id
        answer = harness.complete(old, harness.success('"stale"'))
        assert not answer.won or answer.replayed
        assert harness.record(old.job_id).result is None
        assert harness.status(old.job_id) is JobStatus.RUNNING
        harness.end(new, harness.success('"fresh"'))
        assert harness.record(old.job_id).result == '"fresh"'

    @pytest.mark.parametrize(
        "loss", ["rescued", "deregistered", "handed_back", "handed_back_as_unknown", "canceled", "parked"]
    )
    def test_somebody_else_s_row_is_no_proof(self, harness: Harness, loss: str) -> None:
        """Someone else wrote the end of this run: a late completion has lost, and is not taken for a repeated one."""
        claim = fresh(harness)
        if loss == "canceled":
            harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        elif loss == "parked":
            assert harness.store.park(claim, "a:b", now=harness.now)
        else:
            LOSSES[loss](harness, claim, "node-2")
        for decision in (harness.success(), harness.failure(), harness.another_try()):
            answer = harness.complete(claim, decision)
            assert (answer.won, answer.replayed) == (False, False)


class TestSettleFence:
    def test_a_key_that_waits_for_another_run(self, harness: Harness) -> None:
        """The first run was handed back and the second canceled: settling the first does not free what the second holds."""
        first = fresh(harness)
        harness.store.hand_back([first], now=harness.now)
        second = harness.claim_job(first.job_id)
        harness.store.cancel(second.job_id, reason="r", now=harness.now)
        harness.store.settle([first], now=harness.now)
        assert key_is_taken(harness)
        assert [limit.held for limit in harness.store.limits()] == [1]
        harness.store.settle([second], now=harness.now)
        assert not key_is_taken(harness)
        assert [limit.held for limit in harness.store.limits()] == [0]

    def test_a_retry_that_waits_for_another_run(self, harness: Harness) -> None:
        """A held-back retry is released only by the run that it waits for."""
        first = harness.running()
        harness.store.hand_back([first], now=harness.now)
        second = harness.claim_job(first.job_id)
        harness.end(second, harness.another_try(), still_running=True)
        harness.store.settle([first, harness.forged_claim(first.job_id)], now=harness.now)
        assert harness.claim() == []
        harness.store.settle([second], now=harness.now)
        assert len(harness.claim()) == 1

    def test_a_key_that_waits_for_the_later_of_two_runs(self, harness: Harness) -> None:
        """Code of two runs of one job is still running: when the earlier one ends, the key stays taken."""
        first = harness.running(business_key=KEY)
        harness.end(first, harness.another_try(), still_running=True)
        harness.advance(seconds=61)  # longer than a retry is held back
        second = harness.claim_job(first.job_id)
        harness.store.cancel(second.job_id, reason="r", now=harness.now)
        harness.store.settle([first], now=harness.now)
        assert key_is_taken(harness)
        harness.store.settle([second], now=harness.now)
        assert not key_is_taken(harness)

    def test_a_retry_that_waits_for_the_later_of_two_runs(self, harness: Harness) -> None:
        """Code of two runs of one job is still running: when the earlier one ends, the retry is still held back."""
        first = harness.running()
        harness.end(first, harness.another_try(), still_running=True)
        harness.advance(seconds=61)
        second = harness.claim_job(first.job_id)
        harness.end(second, harness.another_try(), still_running=True)
        harness.store.settle([first], now=harness.now)
        assert harness.claim() == []
        harness.store.settle([second], now=harness.now)
        assert len(harness.claim()) == 1

    def test_the_key_of_the_next_holder(self, harness: Harness) -> None:
        """A run is settled twice: by the second time the key belongs to another job, which keeps it."""
        claim = fresh(harness)
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        harness.store.settle([claim], now=harness.now)
        harness.submit(business_key=KEY)
        harness.store.settle([claim], now=harness.now)
        assert key_is_taken(harness)


class TestNodeFence:
    def test_a_dead_node_cannot_come_back(self, harness: Harness) -> None:
        """A node that was declared dead can neither beat nor change its state, and it is not rescued again."""
        harness.register()
        harness.rescue()
        before = harness.store.nodes()
        assert not harness.store.beat("node-1", now=harness.now).alive
        assert harness.store.beat_only(["node-1"], now=harness.now) == set()
        assert not harness.store.set_node_state("node-1", NodeState.ACTIVE, now=harness.now)
        assert harness.store.rescue("node-1", seen_beat=0, by="r", max_crashes=3, now=harness.now) is None
        assert harness.store.nodes() == before

    def test_a_lock_s_token(self, harness: Harness) -> None:
        """The old token of a lost lease neither renews nor releases the lock."""
        old, new, ttl = new_id(), new_id(), timedelta(seconds=30)
        assert harness.store.acquire_lock("sweep", holder="a", token=old, ttl=ttl, now=harness.now)
        harness.advance(seconds=31)
        assert harness.store.acquire_lock("sweep", holder="a", token=new, ttl=ttl, now=harness.now)
        assert not harness.store.release_lock("sweep", token=old)
        assert not harness.store.acquire_lock("sweep", holder="a", token=old, ttl=ttl, now=harness.now)
        lock = harness.store.lock("sweep")
        assert lock is not None
        assert lock.token == new
