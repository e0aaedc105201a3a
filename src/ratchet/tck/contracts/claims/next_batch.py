"""What a claim takes, and what it says about each job."""

from __future__ import annotations

from datetime import timedelta

from ratchet.model.composition import Condition, EdgeKind
from ratchet.model.identifiers import new_id
from ratchet.model.status import BackoffPolicy, JobStatus, JobType, Lane, Priority
from ratchet.tck.harness import Harness


class TestClaimNextBatch:
    def test_a_due_job_is_running_under_the_request_s_token(self, harness: Harness) -> None:
        """The claim names the node, the time and the token, and the stored record agrees."""
        job_id = harness.submit(max_retries=3, timeout=timedelta(seconds=9), priority=Priority.HIGH)
        harness.advance(seconds=1)
        request = harness.request(node_id="node-7")
        (job,) = harness.store.claim_next_batch(request, now=harness.now)
        claim = job.claim
        assert (claim.job_id, claim.claim_id, claim.node_id) == (job_id, request.claim_id, "node-7")
        assert (claim.claimed_at, claim.scheduled_at) == (harness.now, harness.after(seconds=-1))
        assert (claim.attempts, claim.crashes, claim.max_retries, claim.attempt) == (0, 0, 3, 1)
        assert (claim.timeout, claim.priority, claim.type) == (
            timedelta(seconds=9),
            Priority.HIGH,
            JobType.SINGLE,
        )
        record = harness.record(job_id)
        assert (record.status, record.claim_id, record.node_id) == (
            JobStatus.RUNNING,
            request.claim_id,
            "node-7",
        )

    def test_the_body_is_what_was_submitted(self, harness: Harness) -> None:
        """A worker gets everything it needs to run the job and to decide what follows."""
        spec = harness.spec(
            target="shop.jobs:päckchen",
            payload='{"args":["🧾"],"kwargs":{}}',
            params='{"region":"eu"}',
            backoff=BackoffPolicy.FIXED,
            backoff_base=timedelta(seconds=3),
            jitter=0.5,
            no_retry_for=("builtins.ValueError", "shop.errors.Declined"),
            business_key="k",
            parent_id=new_id(),
            schedule="nightly",
            on_success="shop.jobs:record",
            on_failure="shop.jobs:alert",
            resource="gateway",
            breaker="bank",
            queue="emails",
            expires_at=harness.after(hours=1),
            caller="ann",
        )
        harness.insert([spec])
        (job,) = harness.take()
        for name in [
            "job_id",
            "target",
            "payload",
            "params",
            "backoff",
            "backoff_base",
            "jitter",
            "no_retry_for",
            "business_key",
            "parent_id",
            "schedule",
            "on_success",
            "on_failure",
            "expires_at",
            "caller",
            "batch_id",
        ]:
            assert getattr(job.body, name) == getattr(spec, name), name
        assert (job.body.queue, job.body.resource, job.body.breaker) == ("emails", "gateway", "bank")
        assert (job.body.created_at, job.body.root_id) == (harness.now, spec.job_id)
        assert (job.body.state, job.body.signal, job.body.has_conditions) == (None, None, False)

    def test_a_body_tells_of_conditions(self, harness: Harness) -> None:
        """A body says whether edges of its job have conditions, so that the worker loads them only then."""
        parent, plain, branch, step = harness.spec(), harness.spec(), harness.child(), harness.child()
        harness.insert(
            [parent, plain, branch, step],
            [harness.edge(parent, branch, EdgeKind.CONDITION), harness.edge(plain, step)],
        )
        assert {job.body.job_id: job.body.has_conditions for job in harness.take()} == {
            parent.job_id: True,
            plain.job_id: False,
        }

    def test_conditions_added_later(self, harness: Harness) -> None:
        """The worker also sees a branch that was attached to a stored job."""
        parent = harness.submit()
        child = harness.child()
        harness.insert(
            [child], [harness.edge(parent, child, EdgeKind.CONDITION, condition=Condition(kind="result"))]
        )
        assert [job.body.has_conditions for job in harness.take()] == [True]

    def test_nothing_is_due(self, harness: Harness) -> None:
        """A claim returns nothing from an empty store, nor if all jobs are due later."""
        assert harness.claim() == []
        harness.submit(scheduled_at=harness.after(microseconds=1))
        assert harness.claim() == []
        harness.advance(microseconds=1)
        assert len(harness.claim()) == 1

    def test_up_to_the_limit(self, harness: Harness) -> None:
        """A claim never returns more than its limit; the rest stays for the next claim."""
        ids = harness.submit_many(5)
        assert [c.job_id for c in harness.claim(2)] == ids[:2]
        assert [c.job_id for c in harness.claim(2)] == ids[2:4]
        assert [c.job_id for c in harness.claim(2)] == ids[4:]
        assert harness.claim(2) == []

    def test_only_pending_jobs(self, harness: Harness) -> None:
        """Jobs in any other state are not claimed."""
        harness.running()
        harness.succeeded()
        harness.failed()
        harness.canceled()
        harness.paused()
        harness.waiting()
        assert harness.claim() == []

    def test_another_handle_sees_what_was_submitted(self, harness: Harness) -> None:
        """A handle that was opened before the submission can claim the job, and the first handle sees that claim."""
        other = harness.reopen()
        assert harness.claim(store=other) == []
        job_id = harness.submit(queue="made-just-now")
        (claim,) = harness.claim(store=other, node_id="node-2")
        assert claim.job_id == job_id
        assert harness.record(job_id).node_id == "node-2"
        assert harness.claim() == []

    def test_the_fence_differs_between_claims(self, harness: Harness) -> None:
        """A job that was handed back and claimed again has a new token."""
        first = harness.running()
        harness.store.hand_back([first], now=harness.now)
        second = harness.claim_job(first.job_id)
        assert second.claim_id != first.claim_id
        assert harness.record(first.job_id).claim_id == second.claim_id

    def test_attempts_and_crashes_travel_with_the_claim(self, harness: Harness) -> None:
        """The claim of the second attempt says that it is the second."""
        first = harness.running(max_retries=3)
        harness.end(first, harness.another_try())
        second = harness.claim_job(first.job_id)
        assert (second.attempts, second.attempt) == (1, 2)


class TestClaimScope:
    def test_only_the_request_s_lane(self, harness: Harness) -> None:
        """Each lane gets its own jobs."""
        ids = {lane: harness.submit(lane=lane) for lane in Lane}
        for lane in Lane:
            assert [c.job_id for c in harness.claim(lane=lane)] == [ids[lane]]

    def test_only_the_request_s_queues(self, harness: Harness) -> None:
        """
        A request gets jobs of the queues that it names: nothing if the set is empty, and jobs of all queues
        if it is None.
        """
        a, b, c = (harness.submit(queue=queue) for queue in "abc")
        assert [x.job_id for x in harness.claim(queues=frozenset({"b"}))] == [b]
        assert harness.claim(queues=frozenset({"b", "nobody"})) == []
        assert harness.claim(queues=frozenset()) == []
        assert [x.job_id for x in harness.claim()] == [a, c]

    def test_a_paused_queue_gives_nothing(self, harness: Harness) -> None:
        """Its jobs wait; the jobs of other queues do not."""
        emails, other = harness.submit(queue="emails"), harness.submit()
        harness.store.pause_queue("emails", now=harness.now)
        assert [c.job_id for c in harness.claim()] == [other]
        harness.store.resume_queue("emails", now=harness.now)
        assert [c.job_id for c in harness.claim()] == [emails]

    def test_a_closed_stream_does_not_shorten_a_claim(self, harness: Harness) -> None:
        """However many jobs wait behind a closed gate, the claim is filled with jobs of open streams."""
        harness.submit_many(50, queue="closed", priority=Priority.CRITICAL)
        ids = harness.submit_many(10)
        harness.store.pause_queue("closed", now=harness.now)
        assert [c.job_id for c in harness.claim(10)] == ids


class TestClaimNextBatchOptimized:
    def test_the_same_claim_without_bodies(self, harness: Harness) -> None:
        """Same jobs, same order, same fields as the claim with bodies."""
        for priority in Priority:
            harness.submit(priority=priority, max_retries=priority)
        request = harness.request(3)
        slim = harness.store.claim_next_batch_optimized(request, now=harness.now)
        assert [c.priority for c in slim] == [Priority.CRITICAL, Priority.HIGH, Priority.NORMAL]
        assert {c.claim_id for c in slim} == {request.claim_id}
        harness.store.hand_back(slim, now=harness.now)
        full = harness.store.claim_next_batch(request, now=harness.now)
        assert [job.claim for job in full] == slim

    def test_it_can_end_the_run(self, harness: Harness) -> None:
        """A claim without bodies can end its run."""
        harness.submit()
        (claim,) = harness.store.claim_next_batch_optimized(harness.request(), now=harness.now)
        harness.end(claim)
