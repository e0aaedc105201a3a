"""Claims: which jobs are due, in which order, and whose they are."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from ratchet.model.composition import Condition, EdgeKind
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec
from ratchet.model.status import BackoffPolicy, JobStatus, JobType, Lane, Priority
from ratchet.tck.harness import Harness


def in_claim_order(specs: list[JobSpec], now: datetime, boost: timedelta | None) -> list[UUID]:
    """The ids of due specs as the seeds order them, by brute force."""

    def rank(spec: JobSpec) -> tuple[int, datetime, UUID]:
        raised = (now - spec.scheduled_at) // boost if boost else 0
        return -(spec.priority + raised), spec.scheduled_at, spec.job_id

    return [spec.job_id for spec in sorted(specs, key=rank) if spec.scheduled_at <= now]


class TestClaimNextBatch:
    def test_a_due_job_is_running_under_the_request_s_token(self, harness: Harness) -> None:
        """The claim says who, when, and under which token; so does the store."""
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
        """A job whose edges have conditions says so, so that the worker looks them up; others do not."""
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
        """A branch that is attached to a stored job is seen by the worker too."""
        parent = harness.submit()
        child = harness.child()
        harness.insert(
            [child], [harness.edge(parent, child, EdgeKind.CONDITION, condition=Condition(kind="result"))]
        )
        assert [job.body.has_conditions for job in harness.take()] == [True]

    def test_nothing_is_due(self, harness: Harness) -> None:
        """An empty store, and one whose jobs are all for later, give nothing."""
        assert harness.claim() == []
        harness.submit(scheduled_at=harness.after(microseconds=1))
        assert harness.claim() == []
        harness.advance(microseconds=1)
        assert len(harness.claim()) == 1

    def test_up_to_the_limit(self, harness: Harness) -> None:
        """Never more than asked for; the rest stays for the next claim."""
        ids = harness.submit_many(5)
        assert [c.job_id for c in harness.claim(2)] == ids[:2]
        assert [c.job_id for c in harness.claim(2)] == ids[2:4]
        assert [c.job_id for c in harness.claim(2)] == ids[4:]
        assert harness.claim(2) == []

    def test_only_pending_jobs(self, harness: Harness) -> None:
        """Whatever is not PENDING is not claimed."""
        harness.running()
        harness.succeeded()
        harness.failed()
        harness.canceled()
        harness.paused()
        harness.waiting()
        assert harness.claim() == []

    def test_another_handle_sees_what_was_submitted(self, harness: Harness) -> None:
        """A node that was open before the submission claims it, and its claim is seen by the first."""
        other = harness.reopen()
        assert harness.claim(store=other) == []
        job_id = harness.submit(queue="made-just-now")
        (claim,) = harness.claim(store=other, node_id="node-2")
        assert claim.job_id == job_id
        assert harness.record(job_id).node_id == "node-2"
        assert harness.claim() == []

    def test_the_fence_differs_between_claims(self, harness: Harness) -> None:
        """Claimed again after a hand-back, the job carries the new token."""
        first = harness.running()
        harness.store.hand_back([first], now=harness.now)
        second = harness.claim_job(first.job_id)
        assert second.claim_id != first.claim_id
        assert harness.record(first.job_id).claim_id == second.claim_id

    def test_attempts_and_crashes_travel_with_the_claim(self, harness: Harness) -> None:
        """The second attempt knows that it is the second."""
        first = harness.running(max_retries=3)
        harness.end(first, harness.another_try())
        second = harness.claim_job(first.job_id)
        assert (second.attempts, second.attempt) == (1, 2)


class TestClaimOrder:
    def test_higher_priority_first(self, harness: Harness) -> None:
        """Among jobs that are due at the same time the priority decides."""
        ids = {priority: harness.submit(priority=priority) for priority in Priority}
        assert [c.job_id for c in harness.claim()] == [ids[p] for p in sorted(Priority, reverse=True)]

    def test_then_the_earlier_due_time_then_the_smaller_id(self, harness: Harness) -> None:
        """Within a priority the oldest is first; at the same microsecond the id decides."""
        late = harness.submit()
        early = harness.submit(scheduled_at=harness.after(microseconds=-1))
        twins = harness.submit_many(3)
        assert [c.job_id for c in harness.claim()] == [early, late, *twins]

    def test_waiting_raises_a_job_exactly_at_the_interval(self, harness: Harness) -> None:
        """One microsecond before the interval the low job is behind, at the interval it is level and older."""
        low = harness.submit(priority=Priority.LOW)
        high = harness.submit(priority=Priority.NORMAL, scheduled_at=harness.after(minutes=10))
        harness.advance(minutes=15, microseconds=-1)
        claims = harness.claim(1)
        assert [c.job_id for c in claims] == [high]
        harness.store.hand_back(claims, now=harness.now)
        harness.advance(microseconds=1)
        assert [c.job_id for c in harness.claim(1)] == [low]

    def test_without_a_boost_only_the_priority_counts(self, harness: Harness) -> None:
        """However long the low job has waited."""
        harness.submit(priority=Priority.LOW, scheduled_at=harness.after(days=-300))
        high = harness.submit(priority=Priority.NORMAL)
        assert [c.job_id for c in harness.claim(1, boost_interval=None)] == [high]

    def test_an_old_low_job_overtakes_every_new_one(self, harness: Harness) -> None:
        """A day of waiting outweighs any priority: nobody starves."""
        old = harness.submit(priority=Priority.LOWEST, scheduled_at=harness.after(days=-1))
        harness.submit(priority=Priority.CRITICAL)
        assert [c.job_id for c in harness.claim(1)] == [old]

    @pytest.mark.parametrize("seed", range(6))
    def test_exactly_the_brute_force_order(self, harness: Harness, seed: int) -> None:
        """Random backlogs over several streams, claimed in portions, come in exactly the order of a full sort."""
        random = Random(seed)
        boost = random.choice([None, timedelta(minutes=15), timedelta(seconds=10), timedelta(microseconds=7)])
        span = random.choice([timedelta(0), timedelta(minutes=1), timedelta(hours=5)])
        specs = [
            harness.spec(
                priority=random.choice(list(Priority)),
                scheduled_at=harness.now - span * random.choice([0.0, 0.5, 1.0, random.random(), -0.1]),
                queue=random.choice(["a", "b", "c"]),
                resource=random.choice([None, None, "gateway"]),
                limit_key=random.choice([None, "ann"]),
            )
            for _ in range(120)
        ]
        harness.insert(specs)
        expected = in_claim_order(specs, harness.now, boost)
        got: list[UUID] = []
        while batch := harness.claim(random.choice([1, 3, 7, 20]), boost_interval=boost):
            got += [claim.job_id for claim in batch]
        assert got == expected

    @pytest.mark.parametrize("seed", range(3))
    def test_the_order_survives_what_puts_jobs_back(self, harness: Harness, seed: int) -> None:
        """Between claims jobs arrive late, are handed back, retried, moved and reopened; the order stays exact."""
        random = Random(seed)
        live: dict[UUID, JobSpec] = {}

        def arrive(count: int) -> None:
            specs = [
                harness.spec(
                    priority=random.choice(list(Priority)),
                    scheduled_at=harness.now - timedelta(seconds=random.randrange(3600)),
                    queue=random.choice(["a", "b"]),
                )
                for _ in range(count)
            ]
            harness.insert(specs)
            live.update({spec.job_id: spec for spec in specs})

        def moved(job_id: UUID, at: datetime) -> None:
            spec = live[job_id]
            live[job_id] = harness.spec(
                job_id=job_id, priority=spec.priority, scheduled_at=at, stream=spec.stream
            )

        arrive(40)
        for _ in range(12):
            limit = random.choice([1, 4, 9])
            claims = harness.claim(limit)
            assert [c.job_id for c in claims] == in_claim_order(
                list(live.values()), harness.now, timedelta(minutes=15)
            )[:limit]
            for claim in claims:
                fate = random.randrange(4)
                if fate == 0:
                    harness.store.hand_back([claim], now=harness.now)
                elif fate == 1:
                    at = harness.now - timedelta(seconds=random.randrange(600))
                    harness.end(claim, harness.another_try(at))
                    moved(claim.job_id, at)
                else:
                    harness.end(claim)
                    del live[claim.job_id]
            if live and random.random() < 0.5:
                job_id = random.choice(list(live))
                at = harness.now - timedelta(days=random.random())
                assert harness.store.reschedule(job_id, at, now=harness.now)
                moved(job_id, at)
            arrive(random.randrange(6))
            harness.advance(seconds=random.randrange(400))


class TestClaimScope:
    def test_only_the_request_s_lane(self, harness: Harness) -> None:
        """Each lane gets its own jobs."""
        ids = {lane: harness.submit(lane=lane) for lane in Lane}
        for lane in Lane:
            assert [c.job_id for c in harness.claim(lane=lane)] == [ids[lane]]

    def test_only_the_request_s_queues(self, harness: Harness) -> None:
        """A node that names its queues gets theirs; one that names none gets all."""
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
        """However many jobs wait behind a closed gate, a claim is filled with those that are open."""
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
        """A slim claim is a claim."""
        harness.submit()
        (claim,) = harness.store.claim_next_batch_optimized(harness.request(), now=harness.now)
        harness.end(claim)


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


class TestNextDueAt:
    def test_nothing_pending(self, harness: Harness) -> None:
        """None: only a new submission can bring work."""
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None
        harness.succeeded()
        harness.running()
        harness.paused()
        harness.waiting()
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None

    def test_the_earliest_of_all_priorities(self, harness: Harness) -> None:
        """Whatever its priority and stream."""
        harness.submit(scheduled_at=harness.after(hours=2), priority=Priority.CRITICAL)
        harness.submit(scheduled_at=harness.after(hours=1), priority=Priority.LOWEST, queue="other")
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(hours=1)

    def test_a_job_that_is_overdue(self, harness: Harness) -> None:
        """When it was due."""
        harness.submit(scheduled_at=harness.after(hours=-1))
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(hours=-1)

    def test_only_open_streams_count(self, harness: Harness) -> None:
        """Other lanes and queues, paused queues: nothing to wake up for."""
        harness.submit(queue="emails")
        harness.submit(lane=Lane.PROCESS)
        assert harness.store.next_due_at(harness.request(queues=frozenset({"x"})), now=harness.now) is None
        assert harness.store.next_due_at(harness.request(lane=Lane.ASYNC), now=harness.now) is None
        harness.store.pause_queue("emails", now=harness.now)
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None
        harness.store.resume_queue("emails", now=harness.now)
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.now

    def test_it_is_a_pure_read(self, harness: Harness) -> None:
        """Asking takes nothing."""
        job_id = harness.submit()
        before = harness.record(job_id)
        harness.store.next_due_at(harness.request(), now=harness.now)
        assert harness.record(job_id) == before
        assert len(harness.claim()) == 1


class TestClaimsOf:
    def test_what_a_node_runs(self, harness: Harness) -> None:
        """Job to token of everything RUNNING under this node, and of nobody else."""
        mine = [harness.running(node="node-1") for _ in range(3)]
        harness.running(node="node-2")
        harness.end(mine.pop())
        assert harness.store.claims_of("node-1") == {c.job_id: c.claim_id for c in mine}
        assert harness.store.claims_of("nobody") == {}
