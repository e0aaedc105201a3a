"""Business keys that stay with an ended job while the code of one of its runs is still running."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.decision import CountCrash, Decision, HandBack
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.status import Busy, JobStatus
from ratchet.tck.contracts.still_running import held, key_is_free
from ratchet.tck.harness import Harness
from ratchet.tck.race import ROUNDS, results


def goes_on(harness: Harness, decision: Decision | None = None, **spec: Any) -> tuple[JobClaim, JobClaim]:
    """Two runs of one job with a key: the code of the first is still running, and the second holds the job now."""
    first = harness.running(business_key="k", max_retries=9, node="node-1", **spec)
    return first, again(harness, first, decision)


def again(harness: Harness, run: JobClaim, decision: Decision | None = None) -> JobClaim:
    """End a run whose code is still running, and claim its job again."""
    harness.end(run, decision or harness.another_try(), still_running=True)
    harness.advance(minutes=2)
    return harness.claim_job(run.job_id, node_id="node-2")


class TestKeyOfEarlierRuns:
    def test_it_is_kept_until_that_code_has_ended(self, harness: Harness) -> None:
        """The retry has succeeded, but the code of the run that timed out before it may still act under the key."""
        first, second = goes_on(harness)
        harness.end(second)
        assert not key_is_free(harness)
        harness.store.settle([second], now=harness.now)
        assert not key_is_free(harness)
        harness.store.settle([first], now=harness.now)
        assert key_is_free(harness)

    def test_code_that_has_ended_meanwhile_keeps_nothing(self, harness: Harness) -> None:
        """The code of the first run ends during the second run: the end of the job frees the key."""
        first, second = goes_on(harness)
        harness.store.settle([first], now=harness.now)
        assert not key_is_free(harness)
        harness.end(second)
        assert key_is_free(harness)

    @pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
    def test_of_several_runs_the_last_to_end(self, harness: Harness, order: tuple[int, ...]) -> None:
        """Three runs time out and cannot be stopped: the key is free when the code of all three has ended, in any order."""
        first, second = goes_on(harness)
        third = again(harness, second)
        harness.end(third, harness.failure(), still_running=True)
        runs = (first, second, third)
        for number in order:
            assert not key_is_free(harness)
            harness.store.settle([runs[number]], now=harness.now)
        assert key_is_free(harness)

    def test_all_of_them_in_one_call(self, harness: Harness) -> None:
        """Settling all runs in one call frees the key."""
        first, second = goes_on(harness)
        harness.end(second, harness.failure(), still_running=True)
        harness.store.settle([first, second], now=harness.now)
        assert key_is_free(harness)

    def test_also_after_a_retry_by_hand(self, harness: Harness) -> None:
        """The job holds its key again at once; after its minute it runs, but no other job gets the key before the old code ends."""
        claim = harness.running(business_key="k", node="node-1")
        harness.end(claim, harness.failure(), still_running=True)
        assert harness.store.retry(claim.job_id, now=harness.now)
        assert not key_is_free(harness)
        harness.advance(minutes=1)
        harness.end(harness.claim_job(claim.job_id, node_id="node-2"))
        assert not key_is_free(harness)
        harness.store.settle([claim], now=harness.now)
        assert key_is_free(harness)

    @pytest.mark.parametrize(
        "decision", [HandBack(), CountCrash(detail="boom", max_crashes=3)], ids=["hand back", "crash"]
    )
    def test_however_the_run_has_ended(self, harness: Harness, decision: Decision) -> None:
        """
        After a hand-back or a crash, the job waits at most a minute for the old code, and the key until
        that code ends.
        """
        harness.store.set_limit("gateway", concurrent=5, now=harness.now)
        first = harness.running(business_key="k", resource="gateway")
        due_at = harness.record(first.job_id).scheduled_at
        harness.end(first, decision, still_running=True)
        assert harness.record(first.job_id).scheduled_at == harness.after(minutes=1)
        assert (harness.claim(), held(harness)) == ([], 1)
        harness.advance(minutes=2)
        second = harness.claim_job(first.job_id)
        harness.end(second)
        assert (key_is_free(harness), held(harness)) == (False, 1)
        harness.store.settle([first], now=harness.now)
        assert (key_is_free(harness), held(harness)) == (True, 0)
        assert due_at < harness.record(first.job_id).scheduled_at

    @pytest.mark.parametrize(
        "decision", [HandBack(), CountCrash(detail="boom", max_crashes=3)], ids=["hand back", "crash"]
    )
    def test_a_job_that_waits_for_it_is_due_as_before(self, harness: Harness, decision: Decision) -> None:
        """The job's own due time is kept, and counts again when the old code has ended."""
        claim = harness.running()
        due_at = harness.record(claim.job_id).scheduled_at
        harness.end(claim, decision, still_running=True)
        harness.store.settle([claim], now=harness.now)
        assert harness.record(claim.job_id).scheduled_at == due_at
        assert [one.job_id for one in harness.claim()] == [claim.job_id]

    def test_a_crash_that_is_one_too_many(self, harness: Harness) -> None:
        """A dead letter keeps key and permit while the code of its last run is still running."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        claim = harness.running(business_key="k", resource="gateway")
        harness.end(claim, CountCrash(detail="boom", max_crashes=1), still_running=True)
        assert harness.status(claim.job_id) is JobStatus.FAILED
        assert (key_is_free(harness), held(harness)) == (False, 1)
        harness.store.settle([claim], now=harness.now)
        assert (key_is_free(harness), held(harness)) == (True, 0)

    def test_nobody_replaces_such_a_job(self, harness: Harness) -> None:
        """The waiting job is canceled for its replacement, but its key is not free yet."""
        first, second = goes_on(harness)
        harness.end(second, harness.another_try())
        spec = harness.spec(business_key="k", busy=Busy.REPLACE)
        with pytest.raises(BusinessKeyBusy):
            harness.store.insert([spec], now=harness.now)
        assert harness.status(first.job_id) is JobStatus.CANCELED
        assert harness.store.get(spec.job_id) is None
        harness.store.settle([first], now=harness.now)
        assert harness.store.insert([spec], now=harness.now)[0].created

    def test_a_dead_node_frees_it(self, harness: Harness) -> None:
        """No key is kept forever: the code ends with its node at the latest."""
        harness.register("node-1")
        _, second = goes_on(harness)
        harness.end(second)
        assert not key_is_free(harness)
        harness.rescue("node-1")
        assert key_is_free(harness)

    def test_a_dead_node_frees_it_for_a_job_that_lives(self, harness: Harness) -> None:
        """The node of the first run dies during the second run: the end of the job frees the key."""
        harness.register("node-1")
        _, second = goes_on(harness)
        harness.rescue("node-1")
        assert not key_is_free(harness)
        harness.end(second)
        assert key_is_free(harness)

    @pytest.mark.parametrize("nodes", [("node-1", "node-2"), ("node-2", "node-1")])
    def test_one_of_two_nodes_dies(self, harness: Harness, nodes: tuple[str, str]) -> None:
        """The code on the other node is still running, so the key stays taken."""
        harness.register("node-1")
        harness.register("node-2")
        _, second = goes_on(harness)
        harness.end(second, harness.failure(), still_running=True)
        harness.rescue(nodes[0])
        assert not key_is_free(harness)
        harness.store.deregister(nodes[1], now=harness.now)
        assert key_is_free(harness)

    def test_it_is_no_permit(self, harness: Harness) -> None:
        """Releasing permits does not free the key."""
        first, second = goes_on(harness)
        assert harness.store.release_permits([first]) == 0
        harness.end(second)
        assert not key_is_free(harness)
        assert harness.store.release_permits([first]) == 0
        assert not key_is_free(harness)

    def test_both_end_at_the_same_moment(self, harness: Harness) -> None:
        """The later run and the code of the earlier one end at once: whichever is first, the key is free."""
        one, other = harness.reopen_many(2)
        for _ in range(ROUNDS):
            first, second = goes_on(harness)
            calls: list[Callable[[], object]] = [
                partial(harness.end, second, store=one),
                partial(other.settle, [first], now=harness.now),
            ]
            results(calls)
            assert key_is_free(harness)

    def test_a_retry_by_hand_at_the_same_moment(self, harness: Harness) -> None:
        """The old code ends while its job is retried: the job holds its key, and its end frees it."""
        one, other = harness.reopen_many(2)
        for _ in range(ROUNDS):
            claim = harness.running(business_key="k")
            harness.end(claim, harness.failure(), still_running=True)
            calls: list[Callable[[], object]] = [
                partial(one.retry, claim.job_id, now=harness.now),
                partial(other.settle, [claim], now=harness.now),
            ]
            results(calls)
            assert not key_is_free(harness)
            harness.end(harness.claim_job(claim.job_id))
            assert key_is_free(harness)


class TestKeysOfOneCall:
    def test_a_key_that_is_freed_in_the_same_call(self, harness: Harness) -> None:
        """A replacement cancels a job and a dependant that holds another key: that key is free for the next call only."""
        holder, behind = harness.spec(business_key="a"), harness.child(business_key="b")
        harness.insert([holder, behind], [harness.edge(holder, behind)])
        specs = [harness.spec(business_key="a", busy=Busy.REPLACE), harness.spec(business_key="b")]
        with pytest.raises(BusinessKeyBusy):
            harness.store.insert(specs, now=harness.now)
        assert harness.statuses([holder.job_id, behind.job_id]) == [JobStatus.PENDING, JobStatus.WAITING]
        assert harness.store.insert(specs[:1], now=harness.now)[0].replaced == holder.job_id
        assert harness.store.insert(specs[1:], now=harness.now)[0].created

    def test_of_two_replaced_jobs_one_behind_the_other(self, harness: Harness) -> None:
        """Both are superseded, each by its own replacement."""
        holder, behind = harness.spec(business_key="a"), harness.child(business_key="b")
        harness.insert([holder, behind], [harness.edge(holder, behind)])
        specs = [harness.spec(business_key=key, busy=Busy.REPLACE) for key in "ab"]
        answers = harness.store.insert(specs, now=harness.now)
        assert [answer.replaced for answer in answers] == [holder.job_id, behind.job_id]
        assert harness.record(behind.job_id).canceled_reason == "superseded"
