"""Jobs that go back or are set aside: retried, paused, handed back, parked."""

from __future__ import annotations

import pytest

from ratchet.model.decision import CountCrash
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


class TestRetry:
    def test_a_failed_job_starts_over(self, harness: Harness) -> None:
        """Attempts and crashes are 0, there is no error, and the job is due now; its history stays."""
        claim = harness.running(max_retries=1)
        harness.end(claim, CountCrash(detail="boom", max_crashes=3))
        harness.end(harness.claim_job(claim.job_id), harness.another_try())
        harness.end(harness.claim_job(claim.job_id), harness.failure())
        harness.advance(hours=1)
        assert harness.store.retry(claim.job_id, now=harness.now)
        record = harness.record(claim.job_id)
        assert (record.status, record.attempts, record.crashes) == (JobStatus.PENDING, 0, 0)
        assert (record.error, record.error_type, record.dead_letter_reason) == (None, None, None)
        assert (record.scheduled_at, record.finished_at) == (harness.now, None)
        assert len(harness.store.executions(claim.job_id, uncounted=True)) == 3
        again = harness.claim_job(claim.job_id)
        assert (again.attempts, again.crashes, again.max_retries) == (0, 0, 1)
        assert list(harness.store.dead_letters()) == []

    def test_paused_from_failed(self, harness: Harness) -> None:
        """A paused dead letter can be retried without resuming it first; one paused from PENDING cannot."""
        job_id, pending = harness.failed(), harness.paused()
        assert harness.store.pause(job_id, now=harness.now)
        assert harness.store.retry(job_id, now=harness.now)
        assert harness.status(job_id) is JobStatus.PENDING
        assert harness.record(job_id).paused_from is None
        assert not harness.store.retry(pending, now=harness.now)
        assert harness.status(pending) is JobStatus.PAUSED

    def test_a_suspect_that_is_retried_is_a_suspect_no_longer(self, harness: Harness) -> None:
        """Its crashes are 0 again, so any node may claim it beside other jobs."""
        job_id = harness.submit()
        for suspects in (False, False, True):
            harness.end(
                harness.claim_job(job_id, suspects=suspects), CountCrash(detail="boom", max_crashes=3)
            )
        assert harness.store.retry(job_id, now=harness.now)
        assert not harness.record(job_id).stream.suspect
        assert [c.job_id for c in harness.claim()] == [job_id]

    def test_a_second_retry_finds_nothing(self, harness: Harness) -> None:
        """The first retry is True; then the job is no longer FAILED, and the second is False."""
        job_id = harness.failed()
        assert [harness.store.retry(job_id, now=harness.now) for _ in range(2)] == [True, False]
        assert not harness.store.retry(new_id(), now=harness.now)


class TestPause:
    def test_a_pending_job(self, harness: Harness) -> None:
        """It is not claimed while PAUSED, and resuming restores it exactly: due time, attempts, crashes, error."""
        claim = harness.running()
        harness.end(claim, CountCrash(detail="boom", max_crashes=3))
        harness.end(harness.claim_job(claim.job_id), harness.another_try(harness.after(seconds=5)))
        before = harness.record(claim.job_id)
        harness.advance(hours=1)
        assert harness.store.pause(claim.job_id, now=harness.now)
        paused = harness.record(claim.job_id)
        assert (paused.status, paused.paused_from) == (JobStatus.PAUSED, JobStatus.PENDING)
        assert (paused.attempts, paused.crashes, paused.scheduled_at) == (1, 1, before.scheduled_at)
        assert harness.claim() == []
        assert harness.store.resume(claim.job_id, now=harness.now)
        assert harness.record(claim.job_id) == before
        (again,) = harness.claim()
        assert (again.job_id, again.attempts, again.crashes) == (claim.job_id, 1, 1)

    def test_a_failed_job(self, harness: Harness) -> None:
        """It becomes PAUSED, and resuming makes it FAILED again, with its error."""
        job_id = harness.failed()
        before = harness.record(job_id)
        assert harness.store.pause(job_id, now=harness.now)
        assert (harness.status(job_id), harness.record(job_id).paused_from) == (
            JobStatus.PAUSED,
            JobStatus.FAILED,
        )
        assert harness.store.resume(job_id, now=harness.now)
        assert harness.record(job_id) == before

    def test_again(self, harness: Harness) -> None:
        """Pausing a paused job is True and changes nothing, not even the state it was paused from."""
        job_id = harness.paused()
        before = harness.record(job_id)
        assert harness.store.pause(job_id, now=harness.now)
        assert harness.record(job_id) == before

    def test_any_other_state(self, harness: Harness) -> None:
        """Pausing or resuming a RUNNING, WAITING, SUCCEEDED or CANCELED job is False and changes nothing."""
        for job_id in (harness.running().job_id, harness.waiting(), harness.succeeded(), harness.canceled()):
            before = harness.record(job_id)
            assert not harness.store.pause(job_id, now=harness.now)
            assert not harness.store.resume(job_id, now=harness.now)
            assert harness.record(job_id) == before
        assert not harness.store.pause(new_id(), now=harness.now)
        assert not harness.store.resume(new_id(), now=harness.now)

    def test_resuming_what_is_not_paused(self, harness: Harness) -> None:
        """Resuming a PENDING or FAILED job is False."""
        assert not harness.store.resume(harness.submit(), now=harness.now)
        assert not harness.store.resume(harness.failed(), now=harness.now)

    def test_a_resumed_job_keeps_its_place(self, harness: Harness) -> None:
        """Its waiting time counts from its due time, not from the resume, so it comes before younger jobs."""
        old = harness.paused()
        harness.advance(minutes=1)
        young = harness.submit()
        assert harness.claim(1)
        assert harness.store.resume(old, now=harness.now)
        younger = harness.submit()
        assert [c.job_id for c in harness.claim()] == [old, younger]
        assert harness.status(young) is JobStatus.RUNNING


class TestHandBack:
    def test_claims_that_are_still_held(self, harness: Harness) -> None:
        """Jobs that are still held become PENDING with their old due time, uncounted; the answer is how many they were."""
        harness.submit_many(3, scheduled_at=harness.after(hours=-1))
        claims = harness.claim()
        harness.end(claims[0])
        assert harness.store.hand_back(claims, now=harness.now) == 2
        assert harness.store.hand_back(claims, now=harness.now) == 0
        for claim in claims[1:]:
            record = harness.record(claim.job_id)
            assert (record.status, record.scheduled_at) == (JobStatus.PENDING, harness.after(hours=-1))
            assert (record.attempts, record.crashes, record.node_id, record.claim_id) == (0, 0, None, None)
            assert harness.store.executions(claim.job_id) == []
        assert harness.store.hand_back([], now=harness.now) == 0

    def test_they_come_first_again(self, harness: Harness) -> None:
        """A job that was handed back is older than the jobs behind it, so it comes first."""
        first = harness.submit()
        (claim,) = harness.claim(1)
        harness.submit_many(2, scheduled_at=harness.after(microseconds=1))
        harness.advance(seconds=1)
        assert len(harness.claim(1)) == 1
        harness.store.hand_back([claim], now=harness.now)
        assert [c.job_id for c in harness.claim(1)] == [first]


class TestHandBackUnknown:
    def test_only_tokens_that_the_node_does_not_know(self, harness: Harness) -> None:
        """A job whose claim the node does not know goes back; known ones and those of other nodes stay."""
        known, lost = harness.running(), harness.running()
        foreign = harness.running(node="node-2")
        assert harness.store.hand_back_unknown("node-1", [known.claim_id], now=harness.now) == [lost.job_id]
        assert harness.statuses(c.job_id for c in (known, lost, foreign)) == [
            JobStatus.RUNNING,
            JobStatus.PENDING,
            JobStatus.RUNNING,
        ]
        record = harness.record(lost.job_id)
        assert (record.attempts, record.crashes, record.scheduled_at) == (0, 0, lost.scheduled_at)
        assert harness.store.hand_back_unknown("node-1", [known.claim_id], now=harness.now) == []

    def test_a_node_that_knows_nothing(self, harness: Harness) -> None:
        """Every RUNNING job of the node goes back."""
        ids = sorted(harness.running().job_id for _ in range(3))
        assert sorted(harness.store.hand_back_unknown("node-1", [], now=harness.now)) == ids
        assert harness.store.claims_of("node-1") == {}

    def test_what_still_runs_for_unknown_tokens_is_freed(self, harness: Harness) -> None:
        """
        The job was canceled before the node knew its claim: no code runs, so its key and permit are freed;
        known ones stay.
        """
        harness.store.set_limit("gateway", concurrent=9, now=harness.now)
        lost = harness.running(business_key="lost", resource="gateway")
        known = harness.running(business_key="known", resource="gateway")
        foreign = harness.running(business_key="foreign", resource="gateway", node="node-2")
        for claim in (lost, known, foreign):
            harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        assert harness.store.hand_back_unknown("node-1", [known.claim_id], now=harness.now) == []
        assert [limit.held for limit in harness.store.limits()] == [2]
        harness.submit(business_key="lost")
        for key in ("known", "foreign"):
            with pytest.raises(BusinessKeyBusy):
                harness.submit(business_key=key)

    def test_it_counts_as_nothing(self, harness: Harness) -> None:
        """The job never started: no run is counted, and it may still expire."""
        claim = harness.running(expires_at=harness.after(hours=1))
        harness.store.hand_back_unknown("node-1", [], now=harness.now)
        assert harness.store.executions(claim.job_id) == []
        harness.advance(hours=2)
        assert [c.job_id for c in harness.store.expire(now=harness.now, limit=10)] == [claim.job_id]


class TestPark:
    def test_only_a_node_that_has_the_target_gets_it(self, harness: Harness) -> None:
        """The job is PENDING and uncounted, and only a claim that names its target returns it."""
        claim = harness.running(queue="emails")
        assert harness.store.park(claim, "shop.jobs:new", now=harness.now)
        record = harness.record(claim.job_id)
        assert (record.status, record.attempts, record.crashes) == (JobStatus.PENDING, 0, 0)
        assert (record.stream.parked_target, record.stream.queue) == ("shop.jobs:new", "emails")
        assert record.scheduled_at == claim.scheduled_at
        assert harness.claim() == []
        assert harness.claim(parked_targets=frozenset({"shop.jobs:other"})) == []
        (again,) = harness.claim(parked_targets=frozenset({"shop.jobs:other", "shop.jobs:new"}))
        assert again.job_id == claim.job_id
        harness.end(again)

    def test_such_a_node_still_gets_ordinary_jobs(self, harness: Harness) -> None:
        """A claim that names parked targets returns ordinary jobs too."""
        parked = harness.running()
        assert harness.store.park(parked, "a:b", now=harness.now)
        job_id = harness.submit()
        claims = harness.claim(parked_targets=frozenset({"a:b"}))
        assert {c.job_id for c in claims} == {parked.job_id, job_id}

    def test_it_is_parked_for_the_last_node_s_complaint(self, harness: Harness) -> None:
        """A parked job that was claimed can be parked again."""
        claim = harness.running()
        for _ in range(2):
            assert harness.store.park(claim, "a:b", now=harness.now)
            claim = harness.claim_job(claim.job_id, parked_targets=frozenset({"a:b"}))
        harness.end(claim)
