"""Jobs that are canceled, and jobs that expire."""

from __future__ import annotations

import pytest

from ratchet.model.composition import Edge
from ratchet.model.decision import HandBack, Reschedule
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec, SignalWait
from ratchet.model.status import JobStatus
from ratchet.tck.harness import Harness


class TestCancel:
    @pytest.mark.parametrize("state", ["PENDING", "PAUSED", "WAITING"])
    def test_a_job_that_does_not_run(self, harness: Harness, state: str) -> None:
        """It is CANCELED at once with the reason, and the answer names its previous state."""
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
        """The answer names the run to interrupt; the result of that run is discarded."""
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
        """The answer is empty, and the job is unchanged."""
        for job_id in (harness.succeeded(), harness.failed(), harness.canceled()):
            before = harness.record(job_id)
            assert harness.store.cancel(job_id, reason="again", now=harness.now) == []
            assert harness.record(job_id) == before
        assert harness.store.cancel(new_id(), reason="r", now=harness.now) == []

    def test_all_dependants_depth_first(self, harness: Harness) -> None:
        """The whole tree is canceled, each branch to its end before the next, and each record says why."""
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
        """A chain of three hundred steps is canceled with its first job."""
        specs: list[JobSpec] = [harness.spec(), *(harness.child() for _ in range(300))]
        edges: list[Edge] = [harness.edge(specs[i], specs[i + 1]) for i in range(300)]
        harness.insert(specs, edges)
        canceled = harness.store.cancel(specs[0].job_id, reason="r", now=harness.now)
        assert [c.job_id for c in canceled] == [s.job_id for s in specs]
        assert harness.store.counts()[JobStatus.CANCELED] == 301


class TestExpire:
    def test_jobs_that_never_started(self, harness: Harness) -> None:
        """PENDING, PAUSED and WAITING jobs are CANCELED as expired at the microsecond of their expiry."""
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
        """Jobs that waited for an expired job are canceled with it."""
        parent, child = harness.spec(expires_at=harness.after(hours=1)), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        harness.advance(hours=2)
        expired = harness.store.expire(now=harness.now, limit=10)
        assert [(c.job_id, c.reason) for c in expired] == [
            (parent.job_id, "expired"),
            (child.job_id, "parent_canceled"),
        ]

    def test_a_job_with_two_reasons_to_end_ends_once(self, harness: Harness) -> None:
        """Its parent expires in the same sweep in which its own signal is overdue: it ends once and is reported once."""
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
        """RUNNING jobs, jobs between two attempts and ended jobs no longer expire."""
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
        """A job that was claimed and handed back never started, so it still expires."""
        claim = harness.running(expires_at=harness.after(hours=1))
        harness.store.hand_back([claim], now=harness.now)
        harness.advance(hours=2)
        assert [c.job_id for c in harness.store.expire(now=harness.now, limit=10)] == [claim.job_id]

    @pytest.mark.parametrize("first", ["retry", "reschedule", "hand back", "rescue", "retry by hand"])
    def test_a_claim_says_nothing_of_expiry_after_the_first_start(self, harness: Harness, first: str) -> None:
        """Expiry belongs to the first start: a worker that gets the job again after that is not told of any."""
        harness.register()
        claim = harness.running(expires_at=harness.after(hours=1), max_retries=9)
        match first:
            case "retry":
                harness.end(claim, harness.another_try())
            case "reschedule":
                harness.end(claim, Reschedule(at=harness.now))
            case "hand back":
                harness.end(claim, HandBack())
            case "rescue":
                harness.rescue()
            case "retry by hand":
                harness.end(claim, harness.failure())
                assert harness.store.retry(claim.job_id, now=harness.now)
        harness.advance(hours=2)
        assert harness.store.expire(now=harness.now, limit=10) == []
        (again,) = harness.take(node_id="node-2")
        assert (again.body.job_id, again.body.expires_at) == (claim.job_id, None)
        assert harness.record(claim.job_id).expires_at is not None

    def test_a_claim_says_when_a_job_expires_that_never_started(self, harness: Harness) -> None:
        """Handed back, put off or failed before its first start, a job keeps its expiry."""
        at = harness.after(hours=1)
        for end in (Reschedule(at=harness.now), HandBack(), harness.another_try()):
            harness.end(harness.running(expires_at=at), end, started_at=None)
        harness.store.hand_back([harness.running(expires_at=at)], now=harness.now)
        assert {job.body.expires_at for job in harness.take()} == {at}

    def test_paused_from_failed_does_not_expire(self, harness: Harness) -> None:
        """A job that failed has started; pausing it does not change that."""
        job_id = harness.failed(expires_at=harness.after(hours=1))
        assert harness.store.pause(job_id, now=harness.now)
        harness.advance(hours=2)
        assert harness.store.expire(now=harness.now, limit=10) == []

    def test_at_most_the_limit(self, harness: Harness) -> None:
        """Each sweep ends at most as many jobs as the limit."""
        harness.submit_many(5, expires_at=harness.after(hours=1))
        harness.advance(hours=2)
        assert [len(harness.store.expire(now=harness.now, limit=2)) for _ in range(4)] == [2, 2, 1, 0]

    def test_the_business_key_is_free_again(self, harness: Harness) -> None:
        """An expired job is CANCELED, so its key is free."""
        harness.submit(expires_at=harness.after(hours=1), business_key="k")
        harness.advance(hours=2)
        harness.store.expire(now=harness.now, limit=10)
        harness.submit(business_key="k")

    def test_a_signal_that_did_not_come(self, harness: Harness) -> None:
        """At its deadline the job is FAILED with SignalTimeout and a dead letter, and its dependant is canceled."""
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
