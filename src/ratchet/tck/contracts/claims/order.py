"""In which order due jobs are claimed, and when the next one is due."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from ratchet.model.job import JobSpec
from ratchet.model.status import Lane, Priority
from ratchet.tck.harness import Harness


def in_claim_order(specs: list[JobSpec], now: datetime, boost: timedelta | None) -> list[UUID]:
    """The ids of due jobs in the order that `JobClaimStore` defines, by brute force."""

    def rank(spec: JobSpec) -> tuple[int, datetime, UUID]:
        raised = (now - spec.scheduled_at) // boost if boost else 0
        return -(spec.priority + raised), spec.scheduled_at, spec.job_id

    return [spec.job_id for spec in sorted(specs, key=rank) if spec.scheduled_at <= now]


class TestClaimOrder:
    def test_higher_priority_first(self, harness: Harness) -> None:
        """Among jobs that are due at the same time, the priority decides."""
        ids = {priority: harness.submit(priority=priority) for priority in Priority}
        assert [c.job_id for c in harness.claim()] == [ids[p] for p in sorted(Priority, reverse=True)]

    def test_then_the_earlier_due_time_then_the_smaller_id(self, harness: Harness) -> None:
        """Within a priority the oldest job is first; at the same microsecond the id decides."""
        late = harness.submit()
        early = harness.submit(scheduled_at=harness.after(microseconds=-1))
        twins = harness.submit_many(3)
        assert [c.job_id for c in harness.claim()] == [early, late, *twins]

    def test_waiting_raises_a_job_exactly_at_the_interval(self, harness: Harness) -> None:
        """
        One microsecond before the interval the low job comes second; at the interval it has the same rank
        and is older.
        """
        low = harness.submit(priority=Priority.LOW)
        high = harness.submit(priority=Priority.NORMAL, scheduled_at=harness.after(minutes=10))
        harness.advance(minutes=15, microseconds=-1)
        claims = harness.claim(1)
        assert [c.job_id for c in claims] == [high]
        harness.store.hand_back(claims, now=harness.now)
        harness.advance(microseconds=1)
        assert [c.job_id for c in harness.claim(1)] == [low]

    def test_without_a_boost_only_the_priority_counts(self, harness: Harness) -> None:
        """It does not matter how long the low job has waited."""
        harness.submit(priority=Priority.LOW, scheduled_at=harness.after(days=-300))
        high = harness.submit(priority=Priority.NORMAL)
        assert [c.job_id for c in harness.claim(1, boost_interval=None)] == [high]

    def test_an_old_low_job_overtakes_every_new_one(self, harness: Harness) -> None:
        """A day of waiting outweighs any priority, so no job starves."""
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
        """Between claims jobs arrive late, are handed back, retried and rescheduled; the order stays exact."""
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


class TestNextDueAt:
    def test_nothing_pending(self, harness: Harness) -> None:
        """The answer is None: only a new submission can bring work."""
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None
        harness.succeeded()
        harness.running()
        harness.paused()
        harness.waiting()
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None

    def test_the_earliest_of_all_priorities(self, harness: Harness) -> None:
        """The earliest due time counts, whatever the priority and stream."""
        harness.submit(scheduled_at=harness.after(hours=2), priority=Priority.CRITICAL)
        harness.submit(scheduled_at=harness.after(hours=1), priority=Priority.LOWEST, queue="other")
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(hours=1)

    def test_a_job_that_is_overdue(self, harness: Harness) -> None:
        """The answer is the time when the job was due."""
        harness.submit(scheduled_at=harness.after(hours=-1))
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(hours=-1)

    def test_only_open_streams_count(self, harness: Harness) -> None:
        """Jobs in other lanes, other queues and paused queues do not count."""
        harness.submit(queue="emails")
        harness.submit(lane=Lane.PROCESS)
        assert harness.store.next_due_at(harness.request(queues=frozenset({"x"})), now=harness.now) is None
        assert harness.store.next_due_at(harness.request(lane=Lane.ASYNC), now=harness.now) is None
        harness.store.pause_queue("emails", now=harness.now)
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None
        harness.store.resume_queue("emails", now=harness.now)
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.now

    def test_it_is_a_pure_read(self, harness: Harness) -> None:
        """Asking changes nothing."""
        job_id = harness.submit()
        before = harness.record(job_id)
        harness.store.next_due_at(harness.request(), now=harness.now)
        assert harness.record(job_id) == before
        assert len(harness.claim()) == 1
