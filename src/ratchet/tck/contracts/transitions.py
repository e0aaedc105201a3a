"""Transitions: cancel, expire, retry, pause, hand back, park, and what a run saves while it goes on."""

from __future__ import annotations

import pytest

from ratchet.model.composition import Edge
from ratchet.model.decision import CountCrash
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, Progress, SignalWait
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


class TestCancel:
    @pytest.mark.parametrize("state", ["PENDING", "PAUSED", "WAITING"])
    def test_a_job_that_does_not_run(self, harness: Harness, state: str) -> None:
        """CANCELED at once, with the reason; the answer says what it was."""
        make = {"PENDING": harness.submit, "PAUSED": harness.paused, "WAITING": harness.waiting}[state]
        job_id = make()
        (canceled,) = harness.store.cancel(job_id, reason="not needed", now=harness.now)
        assert (canceled.job_id, canceled.target, canceled.reason) == (
            job_id,
            harness.spec().target,
            "not needed",
        )
        assert (canceled.previous, canceled.status) == (JobStatus(state), JobStatus.CANCELED)
        assert (canceled.claim_id, canceled.node_id) == (None, None)
        record = harness.record(job_id)
        assert (record.status, record.canceled_reason) == (JobStatus.CANCELED, "not needed")
        assert record.finished_at == harness.now
        assert harness.claim() == []

    def test_a_running_job(self, harness: Harness) -> None:
        """The answer names the run to interrupt; its result is discarded."""
        claim = harness.running(node="node-7")
        (canceled,) = harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        assert (canceled.previous, canceled.claim_id, canceled.node_id) == (
            JobStatus.RUNNING,
            claim.claim_id,
            "node-7",
        )
        assert harness.store.claims_of("node-7") == {}
        answer = harness.complete(claim)
        assert (answer.won, answer.replayed) == (False, False)
        record = harness.record(claim.job_id)
        assert (record.status, record.result, record.attempts) == (JobStatus.CANCELED, None, 0)

    def test_an_ended_job(self, harness: Harness) -> None:
        """Nothing to cancel: empty, unchanged."""
        for job_id in (harness.succeeded(), harness.failed(), harness.canceled()):
            before = harness.record(job_id)
            assert harness.store.cancel(job_id, reason="again", now=harness.now) == []
            assert harness.record(job_id) == before
        assert harness.store.cancel(new_id(), reason="r", now=harness.now) == []

    def test_all_dependants_depth_first(self, harness: Harness) -> None:
        """The whole tree goes, each branch to its end before the next, and each job says why."""
        root, a, a1, b = harness.spec(), harness.child(), harness.child(), harness.child()
        edges = [harness.edge(root, a, position=0), harness.edge(a, a1), harness.edge(root, b, position=1)]
        harness.insert([root, a, a1, b], edges)
        order = [c.job_id for c in harness.store.cancel(root.job_id, reason="r", now=harness.now)]
        assert order[0] == root.job_id
        assert sorted(order) == sorted(s.job_id for s in (root, a, a1, b))
        assert order.index(a1.job_id) == order.index(a.job_id) + 1
        assert harness.record(root.job_id).canceled_reason == "r"
        for spec in (a, a1, b):
            assert harness.record(spec.job_id).canceled_reason == "parent_canceled"

    def test_a_long_chain(self, harness: Harness) -> None:
        """Depth is no obstacle: three hundred steps are canceled with the first."""
        specs: list[JobSpec] = [harness.spec(), *(harness.child() for _ in range(300))]
        edges: list[Edge] = [harness.edge(specs[i], specs[i + 1]) for i in range(300)]
        harness.insert(specs, edges)
        canceled = harness.store.cancel(specs[0].job_id, reason="r", now=harness.now)
        assert [c.job_id for c in canceled] == [s.job_id for s in specs]
        assert harness.store.counts()[JobStatus.CANCELED] == 301


class TestExpire:
    def test_jobs_that_never_started(self, harness: Harness) -> None:
        """PENDING, PAUSED and WAITING jobs past their expiry are CANCELED as expired; at the very moment, too."""
        at = harness.after(hours=1)
        ids = {harness.submit(expires_at=at), harness.paused(expires_at=at), harness.waiting(expires_at=at)}
        keep = harness.submit(expires_at=harness.after(hours=1, microseconds=1))
        assert harness.store.expire(now=harness.after(hours=1, microseconds=-1), limit=10) == []
        harness.now = at
        expired = harness.store.expire(now=harness.now, limit=10)
        assert {c.job_id for c in expired} == ids
        assert {(c.reason, c.status) for c in expired} == {("expired", JobStatus.CANCELED)}
        for job_id in ids:
            assert (harness.status(job_id), harness.record(job_id).canceled_reason) == (
                JobStatus.CANCELED,
                "expired",
            )
        assert harness.status(keep) is JobStatus.PENDING

    def test_dependants_follow(self, harness: Harness) -> None:
        """What waited for an expired job is canceled with it."""
        parent, child = harness.spec(expires_at=harness.after(hours=1)), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        harness.advance(hours=2)
        expired = harness.store.expire(now=harness.now, limit=10)
        assert [(c.job_id, c.reason) for c in expired] == [
            (parent.job_id, "expired"),
            (child.job_id, "parent_canceled"),
        ]

    def test_a_job_with_two_reasons_to_end_ends_once(self, harness: Harness) -> None:
        """Its parent expires in the sweep in which its own signal is overdue: it ends by one of them, and is told once."""
        soon = harness.after(seconds=10)
        parent = harness.spec(expires_at=soon)
        child = harness.child(signal=SignalWait(key="never", deadline=soon))
        harness.insert([parent, child], [harness.edge(parent, child)])
        harness.advance(seconds=11)
        ended = harness.store.expire(now=harness.now, limit=100)
        assert sorted(one.job_id for one in ended) == sorted([parent.job_id, child.job_id])
        record = harness.record(child.job_id)
        assert record.status.is_terminal
        assert (record.canceled_reason is None) == (record.status is JobStatus.FAILED)

    def test_a_job_that_has_started_does_not_expire(self, harness: Harness) -> None:
        """RUNNING jobs and those between two attempts are past their expiry for good."""
        at = harness.after(hours=1)
        running, retried = harness.running(expires_at=at), harness.running(expires_at=at)
        harness.end(retried, harness.another_try(harness.after(hours=3)))
        ended = [harness.succeeded(expires_at=at), harness.failed(expires_at=at)]
        harness.advance(hours=2)
        assert harness.store.expire(now=harness.now, limit=10) == []
        assert harness.status(retried.job_id) is JobStatus.PENDING
        assert harness.statuses(ended) == [JobStatus.SUCCEEDED, JobStatus.FAILED]
        harness.end(running)

    def test_a_claim_that_was_handed_back_still_expires(self, harness: Harness) -> None:
        """It never started."""
        claim = harness.running(expires_at=harness.after(hours=1))
        harness.store.hand_back([claim], now=harness.now)
        harness.advance(hours=2)
        assert [c.job_id for c in harness.store.expire(now=harness.now, limit=10)] == [claim.job_id]

    def test_paused_from_failed_does_not_expire(self, harness: Harness) -> None:
        """It has started, and failed; pausing does not change that."""
        job_id = harness.failed(expires_at=harness.after(hours=1))
        assert harness.store.pause(job_id, now=harness.now)
        harness.advance(hours=2)
        assert harness.store.expire(now=harness.now, limit=10) == []

    def test_at_most_the_limit(self, harness: Harness) -> None:
        """A sweep works in portions."""
        harness.submit_many(5, expires_at=harness.after(hours=1))
        harness.advance(hours=2)
        assert [len(harness.store.expire(now=harness.now, limit=2)) for _ in range(4)] == [2, 2, 1, 0]

    def test_the_business_key_is_free_again(self, harness: Harness) -> None:
        """Expired is CANCELED."""
        harness.submit(expires_at=harness.after(hours=1), business_key="k")
        harness.advance(hours=2)
        harness.store.expire(now=harness.now, limit=10)
        harness.submit(business_key="k")

    def test_a_signal_that_did_not_come(self, harness: Harness) -> None:
        """Past its deadline the job is FAILED with SignalTimeout, a dead letter, and its branches follow."""
        job_id = harness.waiting(signal=SignalWait(key="k", deadline=harness.after(hours=1)))
        patient = harness.waiting(signal=SignalWait(key="k"))
        child = harness.child()
        harness.insert([child], [harness.edge(job_id, child)])
        assert harness.store.expire(now=harness.now, limit=10) == []
        harness.advance(hours=1)
        ended = harness.store.expire(now=harness.now, limit=10)
        assert [(c.job_id, c.status) for c in ended] == [
            (job_id, JobStatus.FAILED),
            (child.job_id, JobStatus.CANCELED),
        ]
        record = harness.record(job_id)
        assert record.status is JobStatus.FAILED
        assert (record.error_type or "").endswith("SignalTimeout")
        assert [letter.job_id for letter in harness.store.dead_letters()] == [job_id]
        assert harness.status(patient) is JobStatus.WAITING
        assert harness.store.expire(now=harness.now, limit=10) == []


class TestRetry:
    def test_a_failed_job_starts_over(self, harness: Harness) -> None:
        """Attempts and crashes 0, no error, due now; history stays."""
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
        """Crashes are 0 again, so any node may claim it beside other work."""
        job_id = harness.submit()
        for suspects in (False, False, True):
            harness.end(
                harness.claim_job(job_id, suspects=suspects), CountCrash(detail="boom", max_crashes=3)
            )
        assert harness.store.retry(job_id, now=harness.now)
        assert not harness.record(job_id).stream.suspect
        assert [c.job_id for c in harness.claim()] == [job_id]

    def test_a_second_retry_finds_nothing(self, harness: Harness) -> None:
        """True once; then the job is no longer FAILED."""
        job_id = harness.failed()
        assert [harness.store.retry(job_id, now=harness.now) for _ in range(2)] == [True, False]
        assert not harness.store.retry(new_id(), now=harness.now)


class TestPause:
    def test_a_pending_job(self, harness: Harness) -> None:
        """PAUSED, not claimed, and resumed exactly as it was: due time, attempts, crashes, error."""
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
        """PAUSED and back to FAILED, with its error."""
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
        """Pausing what is paused is True and changes nothing; so it remembers where it came from."""
        job_id = harness.paused()
        before = harness.record(job_id)
        assert harness.store.pause(job_id, now=harness.now)
        assert harness.record(job_id) == before

    def test_any_other_state(self, harness: Harness) -> None:
        """RUNNING, WAITING and ended jobs: False, unchanged."""
        for job_id in (harness.running().job_id, harness.waiting(), harness.succeeded(), harness.canceled()):
            before = harness.record(job_id)
            assert not harness.store.pause(job_id, now=harness.now)
            assert not harness.store.resume(job_id, now=harness.now)
            assert harness.record(job_id) == before
        assert not harness.store.pause(new_id(), now=harness.now)
        assert not harness.store.resume(new_id(), now=harness.now)

    def test_resuming_what_is_not_paused(self, harness: Harness) -> None:
        """PENDING and FAILED: False."""
        assert not harness.store.resume(harness.submit(), now=harness.now)
        assert not harness.store.resume(harness.failed(), now=harness.now)

    def test_a_resumed_job_keeps_its_place(self, harness: Harness) -> None:
        """Its waiting time counts from its due time, not from the resume: it comes before younger jobs."""
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
        """PENDING with the old due time, uncounted; the answer is how many were held."""
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
        """A job that was handed back is older than those behind it."""
        first = harness.submit()
        (claim,) = harness.claim(1)
        harness.submit_many(2, scheduled_at=harness.after(microseconds=1))
        harness.advance(seconds=1)
        assert len(harness.claim(1)) == 1
        harness.store.hand_back([claim], now=harness.now)
        assert [c.job_id for c in harness.claim(1)] == [first]


class TestHandBackUnknown:
    def test_only_tokens_that_the_node_does_not_know(self, harness: Harness) -> None:
        """A claim whose answer was lost goes back; known ones and those of other nodes stay."""
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
        """Everything under its name goes back."""
        ids = sorted(harness.running().job_id for _ in range(3))
        assert sorted(harness.store.hand_back_unknown("node-1", [], now=harness.now)) == ids
        assert harness.store.claims_of("node-1") == {}

    def test_what_lingers_for_unknown_tokens_is_freed(self, harness: Harness) -> None:
        """Canceled before the node knew that it had it: nothing runs, so key and permit are free; known ones stay."""
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
        """They never started: no attempt, no crash, and the job may still expire."""
        claim = harness.running(expires_at=harness.after(hours=1))
        harness.store.hand_back_unknown("node-1", [], now=harness.now)
        assert harness.store.executions(claim.job_id) == []
        harness.advance(hours=2)
        assert [c.job_id for c in harness.store.expire(now=harness.now, limit=10)] == [claim.job_id]


class TestPark:
    def test_only_a_node_that_has_the_target_gets_it(self, harness: Harness) -> None:
        """Back to PENDING, uncounted, behind a gate that opens for nodes that name the target."""
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
        """Naming parked targets adds to what is claimed."""
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


class TestProgress:
    def test_what_a_run_says_is_seen(self, harness: Harness) -> None:
        """The last word counts."""
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
        """No claim, no progress."""
        job_id = harness.submit()
        forged = harness.forged_claim(job_id)
        assert not harness.store.save_progress(forged, Progress(fraction=0.5), now=harness.now)
        assert not harness.store.save_state(forged, "{}", now=harness.now)
        assert harness.record(job_id).progress is None
        assert harness.record(job_id).state is None
