"""Code that is still running after its run has ended on record, and what it keeps until it ends."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import pytest

from ratchet.model.composition import EdgeKind
from ratchet.model.decision import CountCrash, HandBack, Reschedule
from ratchet.model.job import JobFilter, SignalWait
from ratchet.model.status import Busy, JobStatus
from ratchet.tck.harness import Harness
from ratchet.tck.steps import OTHER_NODE


def key_is_free(harness: Harness, key: str = "k") -> bool:
    """True if a submission could take the business key now."""
    spec = harness.spec(business_key=key, busy=Busy.RETURN, scheduled_at=harness.after(days=365))
    (answer,) = harness.store.insert([spec], now=harness.now)
    return answer.created and harness.store.delete(spec.job_id)


def held(harness: Harness) -> int:
    """How many permits of the resource are taken."""
    return len(harness.store.holders("gateway", limit=99))


def reasons(harness: Harness, job_id: UUID) -> list[tuple[str, datetime | None]]:
    """What keeps the job from being claimed now, and until when."""
    return [(code, until) for code, _, until in harness.store.explain(job_id, now=harness.now)]


def fail(harness: Harness, job_id: UUID) -> None:
    """Claim a job that is due, and let it fail for good."""
    harness.end(harness.claim_job(job_id), harness.failure())


class TestCodeThatStillRuns:
    def test_a_rescheduled_job_waits_for_it(self, harness: Harness) -> None:
        """
        A rescheduled job waits as a retry does: it is not claimed while the old code is running, and is due
        when that has ended.
        """
        claim = harness.running()
        harness.end(claim, Reschedule(at=harness.now), still_running=True)
        assert harness.claim() == []
        assert reasons(harness, claim.job_id) == [("still_running", harness.after(minutes=1))]
        harness.store.settle([claim], now=harness.now)
        assert [one.job_id for one in harness.claim()] == [claim.job_id]

    def test_the_end_of_the_wait_is_the_due_time(self, harness: Harness) -> None:
        """A job that waited its full minute is due since the end of that minute, also after a claim and a hand-back."""
        claim = harness.running()
        harness.end(claim, harness.another_try(), still_running=True)
        due_at = harness.record(claim.job_id).scheduled_at
        assert due_at == harness.after(minutes=1)
        harness.advance(minutes=2)
        (again,) = harness.claim()
        assert again.scheduled_at == due_at
        assert harness.record(claim.job_id).scheduled_at == due_at
        harness.end(again, HandBack())
        assert harness.record(claim.job_id).scheduled_at == due_at

    def test_a_retry_is_due_when_its_backoff_says(self, harness: Harness) -> None:
        """The wait for the old code does not move the due time of a retry: when the code has ended, that counts."""
        claim = harness.running()
        due_at = harness.after(seconds=5)
        harness.end(claim, harness.another_try(due_at), still_running=True)
        expected = [("not_due", due_at), ("still_running", harness.after(minutes=1))]
        assert reasons(harness, claim.job_id) == expected
        harness.advance(seconds=1)
        harness.store.settle([claim], now=harness.now)
        assert reasons(harness, claim.job_id) == [("not_due", due_at)]
        assert harness.record(claim.job_id).scheduled_at == due_at
        harness.now = due_at
        assert [one.job_id for one in harness.claim()] == [claim.job_id]

    def test_a_late_retry_does_not_wait_longer(self, harness: Harness) -> None:
        """A retry that is due after the minute is over only waits for its own time."""
        claim = harness.running()
        due_at = harness.after(minutes=2)
        harness.end(claim, harness.another_try(due_at), still_running=True)
        assert reasons(harness, claim.job_id) == [("not_due", due_at)]
        harness.now = due_at
        assert [one.job_id for one in harness.claim()] == [claim.job_id]

    @pytest.mark.parametrize("key", [None, "k"])
    @pytest.mark.parametrize("crashed", [False, True])
    def test_a_retry_by_hand_waits_for_it(self, harness: Harness, key: str | None, crashed: bool) -> None:
        """A dead letter that is retried by hand holds its key again, and runs when the old code has ended."""
        claim = harness.running(business_key=key)
        harness.end(
            claim,
            CountCrash(detail="boom", max_crashes=1) if crashed else harness.failure(),
            still_running=True,
        )
        assert harness.store.retry(claim.job_id, now=harness.now)
        assert harness.claim() == []
        assert reasons(harness, claim.job_id) == [("still_running", harness.after(minutes=1))]
        harness.advance(seconds=1)
        harness.store.settle([claim], now=harness.now)
        (again,) = harness.claim()
        assert again.job_id == claim.job_id
        assert key_is_free(harness) == (key is None)
        harness.end(again)
        assert key_is_free(harness)

    @pytest.mark.parametrize("key", [None, "k"])
    def test_a_retry_by_hand_waits_a_minute_at_most(self, harness: Harness, key: str | None) -> None:
        """Then it runs beside the old code; its key is free when both have ended."""
        claim = harness.running(business_key=key)
        harness.end(claim, harness.failure(), still_running=True)
        assert harness.store.retry(claim.job_id, now=harness.now)
        harness.advance(minutes=1)
        (again,) = harness.claim()
        assert again.job_id == claim.job_id
        harness.end(again)
        assert key_is_free(harness) == (key is None)
        harness.store.settle([claim], now=harness.now)
        assert key_is_free(harness)

    def test_a_retry_of_many_waits_for_it(self, harness: Harness) -> None:
        """The retry of a batch's failed children, and of all jobs that match: each waits for its own old code."""
        batch, (slow, quick) = harness.batch_of(2)
        first, second = harness.claim_job(slow.job_id), harness.claim_job(quick.job_id)
        alone = harness.running(tags=("t",))
        for claim in (first, alone):
            harness.end(claim, harness.failure(), still_running=True)
        harness.end(second, harness.failure())
        assert harness.store.retry_failed(batch.batch_id, now=harness.now) == 2
        assert harness.store.retry_matching(JobFilter(tags=("t",)), limit=9, now=harness.now) == [
            alone.job_id
        ]
        assert [one.job_id for one in harness.claim()] == [quick.job_id]
        harness.store.settle([first, alone], now=harness.now)
        assert {one.job_id for one in harness.claim()} == {slow.job_id, alone.job_id}

    def test_a_retry_by_hand_waits_for_an_earlier_run(self, harness: Harness) -> None:
        """The last run has ended, but the code of the one before it has not."""
        first = harness.running(max_retries=1)
        harness.end(first, harness.another_try(), still_running=True)
        harness.advance(minutes=2)
        fail(harness, first.job_id)
        assert harness.store.retry(first.job_id, now=harness.now)
        assert harness.claim() == []
        harness.store.settle([first], now=harness.now)
        assert [one.job_id for one in harness.claim()] == [first.job_id]

    def test_a_retry_by_hand_after_its_end(self, harness: Harness) -> None:
        """Where the old code has ended before, the job runs at once."""
        claim = harness.running()
        harness.end(claim, harness.failure(), still_running=True)
        harness.store.settle([claim], now=harness.now)
        assert harness.store.retry(claim.job_id, now=harness.now)
        assert [one.job_id for one in harness.claim()] == [claim.job_id]

    @pytest.mark.parametrize("key", [None, "k"])
    def test_a_dead_node_ends_the_wait_of_a_retry(self, harness: Harness, key: str | None) -> None:
        """The code has ended with its node: what was retried by hand is due."""
        harness.register()
        claim = harness.running(business_key=key)
        harness.end(claim, harness.failure(), still_running=True)
        assert harness.store.retry(claim.job_id, now=harness.now)
        assert harness.claim(node_id=OTHER_NODE) == []
        harness.rescue()
        (again,) = harness.claim(node_id=OTHER_NODE)
        harness.end(again)
        assert key_is_free(harness)

    def test_a_paused_job_does_not_wait_for_it(self, harness: Harness) -> None:
        """A job that is paused meanwhile is due after the full minute, even if the old code ends earlier."""
        claim = harness.running()
        harness.end(claim, harness.another_try(), still_running=True)
        due_at = harness.after(minutes=1)
        assert harness.store.pause(claim.job_id, now=harness.now)
        harness.store.settle([claim], now=harness.now)
        assert harness.record(claim.job_id).scheduled_at == due_at
        assert harness.store.resume(claim.job_id, now=harness.now)
        assert harness.record(claim.job_id).scheduled_at == due_at
        harness.advance(minutes=1)
        assert [one.job_id for one in harness.claim()] == [claim.job_id]

    def test_a_deleted_job_leaves_what_its_code_uses(self, harness: Harness) -> None:
        """Key and permit are free when the code has ended, not when the job is deleted."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        claim = harness.running(business_key="k", resource="gateway")
        harness.end(claim, harness.failure(), still_running=True)
        assert harness.store.delete(claim.job_id)
        assert (key_is_free(harness), held(harness)) == (False, 1)
        harness.store.settle([claim], now=harness.now)
        assert (key_is_free(harness), held(harness)) == (True, 0)


class TestLimitOnRunningJobs:
    def test_they_count_from_its_first_moment(self, harness: Harness) -> None:
        """Two jobs are running: a new limit of two lets no third start before one of them has ended."""
        ids = harness.submit_many(2, resource="gateway") + harness.submit_many(1, limit_key="gateway")
        first, second = harness.claim(2)
        harness.store.set_limit("gateway", concurrent=2, now=harness.now)
        assert {one.job_id for one in harness.store.holders("gateway", limit=9)} == set(ids[:2])
        assert harness.claim() == []
        harness.end(first)
        assert [one.job_id for one in harness.claim()] == [ids[2]]
        harness.end(second)
        assert held(harness) == 1

    def test_also_one_that_was_removed_meanwhile(self, harness: Harness) -> None:
        """Runs from before the removal and from the time without a limit count, each once."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        old = harness.running(resource="gateway")
        harness.store.remove_limit("gateway", now=harness.now)
        new = harness.running(resource="gateway")
        assert held(harness) == 1
        harness.store.set_limit("gateway", concurrent=5, now=harness.now)
        harness.store.set_limit("gateway", concurrent=4, now=harness.now)
        assert [one.job_id for one in harness.store.holders("gateway", limit=9)] == [old.job_id, new.job_id]
        harness.end_all([old, new])
        assert held(harness) == 0

    def test_other_jobs_do_not(self, harness: Harness) -> None:
        """Jobs of other resources, jobs that wait and jobs that have ended do not count."""
        harness.running(resource="elsewhere")
        harness.running()
        harness.succeeded(resource="gateway")
        harness.submit(resource="gateway")
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        assert held(harness) == 0
        assert len(harness.claim()) == 1

    def test_a_limit_of_nothing_in_particular(self, harness: Harness) -> None:
        """A limit with neither a number nor a rate holds nothing back and counts nothing."""
        harness.store.set_limit("gateway", now=harness.now)
        ids = harness.submit_many(3, resource="gateway")
        assert harness.store.explain(ids[2], now=harness.now) == []
        assert [one.job_id for one in harness.claim()] == ids
        assert held(harness) == 0


class TestRetriedParent:
    def test_a_failure_branch_that_has_not_started(self, harness: Harness) -> None:
        """
        The failure satisfied it, but it still waits for a signal: when a retry of the parent succeeds, it
        is not taken.
        """
        parent, alarm = harness.spec(), harness.child(signal=SignalWait(key="go"))
        harness.insert([parent, alarm], [harness.edge(parent, alarm, EdgeKind.FAILURE)])
        fail(harness, parent.job_id)
        assert harness.status(alarm.job_id) is JobStatus.WAITING
        assert harness.store.retry(parent.job_id, now=harness.now)
        harness.end(harness.claim_job(parent.job_id))
        record = harness.record(alarm.job_id)
        assert (record.status, record.canceled_reason) == (JobStatus.CANCELED, "not_taken")

    def test_a_dependant_whose_key_was_taken(self, harness: Harness) -> None:
        """It stays canceled, with the jobs behind it; the other dependants wait again."""
        parent, keyed, behind, plain = (
            harness.spec(),
            harness.child(business_key="k"),
            harness.child(),
            harness.child(),
        )
        edges = [harness.edge(parent, keyed), harness.edge(keyed, behind), harness.edge(parent, plain)]
        harness.insert([parent, keyed, behind, plain], edges)
        fail(harness, parent.job_id)
        holder = harness.submit(business_key="k")
        assert harness.store.retry(parent.job_id, now=harness.now)
        assert harness.statuses(one.job_id for one in (parent, keyed, behind, plain)) == [
            JobStatus.PENDING,
            JobStatus.CANCELED,
            JobStatus.CANCELED,
            JobStatus.WAITING,
        ]
        assert harness.status(holder) is JobStatus.PENDING
