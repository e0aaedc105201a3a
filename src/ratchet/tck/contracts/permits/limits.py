"""How many jobs of a resource run at once, or start per period."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from ratchet.model.decision import CountCrash, HandBack, Reschedule
from ratchet.model.status import Priority
from ratchet.tck.harness import Harness


def held(harness: Harness, name: str = "gateway") -> int:
    """How many permits of a resource are taken."""
    return next(limit.held for limit in harness.store.limits() if limit.name == name)


def codes(harness: Harness, job_id: UUID) -> set[str]:
    """Why a job is not claimed."""
    return {code for code, _, _ in harness.store.explain(job_id, now=harness.now)}


class TestLimits:
    def test_set_change_remove(self, harness: Harness) -> None:
        """None leaves a value as it was; a removed limit is gone."""
        harness.store.set_limit("gateway", concurrent=5, now=harness.now)
        harness.store.set_limit("gateway", rate=100, period=timedelta(minutes=1), now=harness.now)
        (limit,) = harness.store.limits()
        assert (limit.name, limit.concurrent, limit.rate, limit.period, limit.held) == (
            "gateway",
            5,
            100,
            timedelta(minutes=1),
            0,
        )
        harness.store.set_limit("gateway", concurrent=7, now=harness.now)
        (limit,) = harness.store.limits()
        assert (limit.concurrent, limit.rate) == (7, 100)
        assert harness.store.remove_limit("gateway", now=harness.now)
        assert not harness.store.remove_limit("gateway", now=harness.now)
        assert harness.store.limits() == []


class TestConcurrencyLimit:
    def test_no_more_than_the_limit_run_at_once(self, harness: Harness) -> None:
        """The limit holds within one claim and over the claims of several nodes, in claim order."""
        harness.store.set_limit("gateway", concurrent=2, now=harness.now)
        ids = harness.submit_many(5, resource="gateway")
        other = harness.reopen()
        first = harness.claim(1)
        second = harness.claim(store=other, node_id="node-2")
        assert [c.job_id for c in (*first, *second)] == ids[:2]
        assert harness.claim() == []
        assert held(harness) == 2
        harness.end(first[0])
        assert held(harness) == 1
        assert [c.job_id for c in harness.claim()] == [ids[2]]

    def test_other_jobs_pass_by(self, harness: Harness) -> None:
        """A full resource neither holds back other jobs nor shortens their claim."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        limited = harness.submit_many(10, resource="gateway", priority=Priority.CRITICAL)
        free = harness.submit_many(5)
        assert [c.job_id for c in harness.claim(6)] == [limited[0], *free]

    def test_permits_follow_the_claim_order_over_streams(self, harness: Harness) -> None:
        """The most urgent jobs get the permits, whatever queue they are in."""
        harness.store.set_limit("gateway", concurrent=2, now=harness.now)
        harness.submit(resource="gateway", queue="a", priority=Priority.LOW)
        urgent = harness.submit(resource="gateway", queue="b", priority=Priority.CRITICAL)
        harness.submit(resource="gateway", queue="a", priority=Priority.LOW)
        high = harness.submit(resource="gateway", queue="a", priority=Priority.HIGH)
        assert [c.job_id for c in harness.claim()] == [urgent, high]

    def test_zero_stops_the_resource(self, harness: Harness) -> None:
        """A limit of zero lets no job through."""
        harness.store.set_limit("gateway", concurrent=0, now=harness.now)
        job_id = harness.submit(resource="gateway")
        assert harness.claim() == []
        assert codes(harness, job_id) == {"no_permit"}
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None

    def test_without_a_limit_nothing_is_held_back(self, harness: Harness) -> None:
        """No job waits for a resource that has no limit, or whose limit was removed."""
        harness.submit_many(3, resource="gateway")
        assert len(harness.claim()) == 3
        harness.store.set_limit("gateway", concurrent=0, now=harness.now)
        harness.submit(resource="gateway")
        assert harness.claim() == []
        harness.store.remove_limit("gateway", now=harness.now)
        assert len(harness.claim()) == 1

    def test_every_way_out_of_running_gives_the_permit_back(self, harness: Harness) -> None:
        """Success, retry, failure, postponement, hand-back, crash, parking, deregistering and rescue free the permit."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        later = harness.after(days=1)
        for decision in (
            harness.success(),
            harness.another_try(later),
            harness.failure(),
            Reschedule(at=later),
            CountCrash(detail="boom", max_crashes=1),
        ):
            harness.end(harness.running(resource="gateway"), decision)
            assert held(harness) == 0, decision
        harness.end(harness.running(resource="gateway"), HandBack())
        assert held(harness) == 0
        (claim,) = harness.claim()
        assert harness.store.hand_back([claim], now=harness.now) == 1
        (claim,) = harness.claim()
        assert harness.store.hand_back_unknown("node-1", [], now=harness.now) == [claim.job_id]
        assert held(harness) == 0
        (claim,) = harness.claim()
        assert harness.store.park(claim, "a:b", now=harness.now)
        assert held(harness) == 0
        harness.register("node-3")
        harness.running(resource="gateway", node="node-3")
        assert harness.store.deregister("node-3", now=harness.now) == 1
        assert held(harness) == 0
        harness.register("node-4")
        assert len(harness.claim(node_id="node-4")) == 1
        harness.rescue("node-4")
        assert held(harness) == 0

    def test_a_canceled_run_keeps_its_permit_until_its_code_has_ended(self, harness: Harness) -> None:
        """The resource is in use until `settle` frees the permit."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        claim = harness.running(resource="gateway")
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        next_one = harness.submit(resource="gateway")
        assert (held(harness), harness.claim()) == (1, [])
        harness.store.settle([claim], now=harness.now)
        assert held(harness) == 0
        assert [c.job_id for c in harness.claim()] == [next_one]

    def test_a_run_whose_code_goes_on_keeps_its_permit(self, harness: Harness) -> None:
        """The permit stays taken until the run is settled or its node is dead."""
        harness.register()
        harness.store.set_limit("gateway", concurrent=2, now=harness.now)
        settled, orphaned = harness.running(resource="gateway"), harness.running(resource="gateway")
        for claim in (settled, orphaned):
            harness.end(claim, harness.failure(), still_running=True)
        assert held(harness) == 2
        harness.store.settle([settled], now=harness.now)
        assert held(harness) == 1
        harness.rescue()
        assert held(harness) == 0

    def test_released_by_hand(self, harness: Harness) -> None:
        """Job and claim must both match: the holder's claim frees its permit, another token frees nothing."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        claim = harness.running(resource="gateway")
        assert harness.store.release_permits([harness.forged_claim(claim.job_id)]) == 0
        assert held(harness) == 1
        assert harness.store.release_permits([claim]) == 1
        assert harness.store.release_permits([claim]) == 0
        assert held(harness) == 0
        assert harness.store.release_permits([]) == 0

    def test_a_smaller_limit_stops_nobody(self, harness: Harness) -> None:
        """Running jobs go on; new ones wait until there is room under the new limit."""
        harness.store.set_limit("gateway", concurrent=3, now=harness.now)
        harness.submit_many(5, resource="gateway")
        claims = harness.claim()
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        harness.end(claims[0])
        harness.end(claims[1])
        assert harness.claim() == []
        harness.end(claims[2])
        assert len(harness.claim()) == 1

    def test_a_full_resource_is_explained(self, harness: Harness) -> None:
        """The reason is the missing permit; once it is free, there is no reason."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        claim = harness.running(resource="gateway")
        waiting = harness.submit(resource="gateway")
        assert codes(harness, waiting) == {"no_permit"}
        harness.end(claim)
        assert codes(harness, waiting) == set()

    def test_a_claim_that_finds_nothing_takes_no_permit(self, harness: Harness) -> None:
        """Only jobs that run take permits."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        harness.submit(resource="gateway", scheduled_at=harness.after(hours=1))
        assert harness.claim() == []
        assert held(harness) == 0


class TestRate:
    def test_no_more_than_the_rate_start_per_period(self, harness: Harness) -> None:
        """Three per minute: three start, and the next three a minute later."""
        harness.store.set_limit("gateway", rate=3, period=timedelta(minutes=1), now=harness.now)
        ids = harness.submit_many(8, resource="gateway")
        claims = harness.claim()
        assert [c.job_id for c in claims] == ids[:3]
        harness.end_all(claims)
        assert harness.claim() == []
        harness.advance(minutes=1)
        assert [c.job_id for c in harness.claim()] == ids[3:6]

    def test_it_is_explained(self, harness: Harness) -> None:
        """The reason is the rate, and the answer says until when."""
        harness.store.set_limit("gateway", rate=1, period=timedelta(minutes=1), now=harness.now)
        harness.end(harness.running(resource="gateway"))
        waiting = harness.submit(resource="gateway")
        ((code, _, until),) = harness.store.explain(waiting, now=harness.now)
        assert code == "rate_limited"
        assert until is not None
        assert harness.now < until <= harness.after(minutes=1)
        harness.now = until
        assert codes(harness, waiting) == set()
        assert len(harness.claim()) == 1

    def test_other_jobs_pass_by(self, harness: Harness) -> None:
        """Only jobs of the resource wait."""
        harness.store.set_limit("gateway", rate=1, period=timedelta(minutes=1), now=harness.now)
        limited = harness.submit_many(3, resource="gateway")
        free = harness.submit_many(3)
        assert {c.job_id for c in harness.claim(4)} == {limited[0], *free}

    def test_rate_and_concurrency_together(self, harness: Harness) -> None:
        """The tighter limit counts."""
        harness.store.set_limit("gateway", concurrent=1, rate=2, period=timedelta(minutes=1), now=harness.now)
        harness.submit_many(5, resource="gateway")
        (first,) = harness.claim()
        assert harness.claim() == []
        harness.end(first)
        (second,) = harness.claim()
        harness.end(second)
        assert harness.claim() == []
