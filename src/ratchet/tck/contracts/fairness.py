"""Fairness: keys that have work take turns, no capacity is left idle, and within a key the usual order holds."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial
from random import Random
from uuid import UUID

import pytest

from ratchet.model.claim import JobClaim, party_of
from ratchet.model.cluster import BreakerRecord
from ratchet.model.job import JobSpec
from ratchet.model.status import Priority
from ratchet.spi.store import JobStore
from ratchet.tck.contracts.claims.order import in_claim_order
from ratchet.tck.harness import Harness
from ratchet.tck.race import results


def in_rounds(lines: dict[str, list[UUID]], after: str | None = None) -> list[UUID]:
    """The jobs of several parties, one round after the other, by brute force."""
    order = sorted(lines, key=lambda party: (after is not None and party <= after, party))
    longest = max((len(line) for line in lines.values()), default=0)
    return [
        lines[party][number] for number in range(longest) for party in order if number < len(lines[party])
    ]


def submit_each(harness: Harness, **counts: int) -> dict[str, list[UUID]]:
    """Submit so many jobs under each key; their ids, in claim order. ``_`` stands for no key."""
    return {
        "" if key == "_" else key: harness.submit_many(count, fairness_key=None if key == "_" else key)
        for key, count in counts.items()
    }


def ids(claims: list[JobClaim]) -> list[UUID]:
    return [claim.job_id for claim in claims]


class TestTurns:
    def test_keys_take_turns(self, harness: Harness) -> None:
        """Whoever submitted first or most, each round takes one job of each key; jobs without a key count as one key."""
        lines = submit_each(harness, bob=2, ann=4, _=1)
        (none,), ann, bob = lines[""], lines["ann"], lines["bob"]
        assert ids(harness.claim()) == [none, ann[0], bob[0], ann[1], bob[1], ann[2], ann[3]]

    def test_without_keys_nothing_changes(self, harness: Harness) -> None:
        """Jobs without keys come in claim order, whichever key was served last."""
        jobs = harness.submit_many(6)
        assert ids(harness.claim(3, after="bob")) + ids(harness.claim(3, after="")) == jobs

    def test_the_turn_goes_on_after_the_one_served_last(self, harness: Harness) -> None:
        """A node that claims one job at a time serves the keys in turn too, if it says which key was served last."""
        lines = submit_each(harness, _=3, ann=3, bob=3)
        served: str | None = None
        got: list[UUID] = []
        while jobs := harness.take(1, after=served):
            got.append(jobs[0].claim.job_id)
            served = party_of(jobs[0].body.fairness_key)
        assert got == in_rounds(lines)

    @pytest.mark.parametrize("after", [None, "", "a", "ann", "b", "bob", "z", "Z"])
    def test_it_begins_after_any_key(self, harness: Harness, after: str | None) -> None:
        """
        The claim begins with the key after the given one, even if that one has no jobs; after the last key
        comes the first.
        """
        lines = submit_each(harness, _=2, ann=2, bob=2)
        assert ids(harness.claim(after=after)) == in_rounds(lines, after)

    def test_keys_are_ordered_by_code_points(self, harness: Harness) -> None:
        """The order is the same on every store, whatever its collation does with case, accents and blanks."""
        keys = ["Z", "a", "A", "é", "e", "e ", "ß", "ss", "日本", "10", "9"]
        lines = {key: harness.submit_many(2, fairness_key=key) for key in keys}
        assert ids(harness.claim(after="a")) == in_rounds(lines, "a")

    def test_a_claim_is_filled(self, harness: Harness) -> None:
        """A key with few jobs leaves the rest of the claim to the others, so that the claim is full."""
        lines = submit_each(harness, ann=50, bob=1, carl=3)
        claims = ids(harness.claim(40))
        assert claims == in_rounds(lines)[:40]
        assert len(set(claims) & set(lines["ann"])) == 36

    def test_shares_are_even(self, harness: Harness) -> None:
        """What does not divide evenly goes to the keys whose turn is next."""
        lines = submit_each(harness, ann=100, bob=100, carl=100)
        claims = ids(harness.claim(20, after="ann"))
        assert claims == in_rounds(lines, "ann")[:20]
        assert [len(set(claims) & set(line)) for line in lines.values()] == [6, 7, 7]

    def test_fewer_jobs_than_keys(self, harness: Harness) -> None:
        """The claims are smaller than a round: after three of them every key has had its turn."""
        lines = {key: harness.submit_many(3, fairness_key=key) for key in (f"k{n:02}" for n in range(30))}
        first = harness.take(10)
        second = harness.take(10, after=first[-1].body.fairness_key)
        third = harness.take(10, after=second[-1].body.fairness_key)
        assert [job.claim.job_id for job in (*first, *second, *third)] == in_rounds(lines)[:30]

    def test_a_late_small_key_does_not_wait(self, harness: Harness) -> None:
        """One key has a thousand older and more urgent jobs: the next claim still takes the other key's job."""
        harness.submit_many(1000, fairness_key="big", priority=Priority.CRITICAL)
        harness.claim(100)
        harness.advance(minutes=5)
        small = harness.submit(fairness_key="small", priority=Priority.LOWEST)
        assert small in ids(harness.claim(2, after="big"))

    def test_the_body_names_the_key(self, harness: Harness) -> None:
        """The body names the key, so that the node knows which key was served last."""
        submit_each(harness, ann=1, _=1)
        jobs = harness.take()
        assert [job.body.fairness_key for job in jobs] == [None, "ann"]
        bodies = harness.store.bodies([job.claim for job in jobs])
        assert [bodies[job.claim.job_id].fairness_key for job in jobs] == [None, "ann"]

    def test_the_same_without_bodies(self, harness: Harness) -> None:
        """Both kinds of claim take the same jobs in the same order."""
        lines = submit_each(harness, ann=5, bob=3, _=4)
        slim = harness.store.claim_next_batch_optimized(harness.request(7, after="ann"), now=harness.now)
        assert ids(slim) == in_rounds(lines, "ann")[:7]


class TestOrderInsideAKey:
    @pytest.mark.parametrize("seed", range(5))
    def test_exactly_that_of_a_full_sort(self, harness: Harness, seed: int) -> None:
        """Random backlogs over keys, queues and priorities, claimed in portions: each claim has the brute-force order."""
        random = Random(seed)
        boost = random.choice([None, timedelta(minutes=15), timedelta(seconds=10)])
        span = random.choice([timedelta(0), timedelta(minutes=1), timedelta(hours=5)])
        some: list[list[str | None]] = [[None, "ann"], ["ann", "bob"], [None, "ann", "ann", "bob", "carl"]]
        keys = random.choice(some)
        specs: list[JobSpec] = [
            harness.spec(
                priority=random.choice(list(Priority)),
                scheduled_at=harness.now - span * random.choice([0.0, 0.5, 1.0, random.random(), -0.1]),
                queue=random.choice(["a", "b"]),
                fairness_key=random.choice(keys),
            )
            for _ in range(120)
        ]
        harness.insert(specs)
        left = {spec.job_id: spec for spec in specs}
        served: str | None = None
        while True:
            limit = random.choice([1, 3, 7, 20, 60])
            lines: dict[str, list[UUID]] = {}
            for job_id in in_claim_order(list(left.values()), harness.now, boost):
                lines.setdefault(party_of(left[job_id].stream.fairness_key), []).append(job_id)
            jobs = harness.take(limit, boost_interval=boost, after=served)
            assert [job.claim.job_id for job in jobs] == in_rounds(lines, served)[:limit]
            if not jobs:
                break
            served = party_of(jobs[-1].body.fairness_key)
            for job in jobs:
                del left[job.claim.job_id]

    def test_priorities_count_inside_a_key_only(self, harness: Harness) -> None:
        """The most urgent job of a key is the first of that key, but does not take another key's turn."""
        ann = {p: harness.submit(fairness_key="ann", priority=p) for p in (Priority.LOW, Priority.CRITICAL)}
        bob = harness.submit(fairness_key="bob", priority=Priority.LOWEST)
        assert ids(harness.claim()) == [ann[Priority.CRITICAL], bob, ann[Priority.LOW]]


class TestTurnsAndGates:
    def test_a_key_behind_a_closed_gate_has_no_turn(self, harness: Harness) -> None:
        """
        A paused queue, an open breaker, no permits, a later due time: such keys are skipped, and the others
        fill the claim.
        """
        harness.submit_many(5, fairness_key="ann", queue="paused")
        harness.submit_many(5, fairness_key="bob", breaker="bank")
        harness.submit_many(5, fairness_key="carl", resource="printer")
        harness.submit_many(5, fairness_key="dora", scheduled_at=harness.after(minutes=1))
        harness.store.pause_queue("paused", now=harness.now)
        harness.store.set_limit("printer", concurrent=0, now=harness.now)
        record = BreakerRecord(service="bank", state="OPEN")
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        lines = submit_each(harness, eve=6, fred=6)
        assert ids(harness.claim(10)) == in_rounds(lines)[:10]

    def test_permits_go_round(self, harness: Harness) -> None:
        """Two keys compete for three permits: they take turns, and neither gets them all."""
        harness.store.set_limit("printer", concurrent=3, now=harness.now)
        ann = harness.submit_many(5, fairness_key="ann", resource="printer")
        bob = harness.submit_many(5, fairness_key="bob", resource="printer")
        claims = harness.claim(after="ann")
        assert ids(claims) == [bob[0], ann[0], bob[1]]
        assert harness.claim() == []
        harness.end(claims[0])
        assert ids(harness.claim(after="bob")) == [ann[1]]

    def test_a_key_that_runs_out_of_permits_leaves_its_turns(self, harness: Harness) -> None:
        """Its jobs without a limit still take its turns, in its own order; then the others get the rest of the claim."""
        harness.store.set_limit("printer", concurrent=2, now=harness.now)
        ann = harness.submit_many(4, fairness_key="ann", resource="printer")
        late = harness.submit(fairness_key="ann", scheduled_at=harness.after(microseconds=1))
        bob = harness.submit_many(8, fairness_key="bob")
        harness.advance(microseconds=1)
        assert ids(harness.claim(9)) == [ann[0], bob[0], ann[1], bob[1], late, *bob[2:6]]

    def test_a_rate_goes_round(self, harness: Harness) -> None:
        """The starts of a rate are shared by the keys that have work."""
        harness.store.set_limit("mail", rate=4, period=timedelta(minutes=1), now=harness.now)
        lines = {key: harness.submit_many(5, fairness_key=key, limit_key="mail") for key in ("ann", "bob")}
        assert ids(harness.claim()) == in_rounds(lines)[:4]
        harness.advance(minutes=1)
        assert ids(harness.claim(after="bob")) == in_rounds(lines)[4:8]


class TestTurnsRace:
    def test_racing_nodes_share_the_keys_without_overlap(self, harness: Harness) -> None:
        """Six nodes empty five keys of very different sizes; every job is claimed, and by one node only."""
        lines = submit_each(harness, _=20, ann=200, bob=3, carl=40, dora=1)

        def empty_queue(store: JobStore, node: str) -> list[JobClaim]:
            taken: list[JobClaim] = []
            served: str | None = None
            short = 0
            while short < 3:  # a claim may come back short while others claim; three in a row mean empty
                batch = harness.take(7, store=store, node_id=node, after=served)
                taken += [job.claim for job in batch]
                served = party_of(batch[-1].body.fairness_key) if batch else served
                short = 0 if batch else short + 1
            return taken

        stores = harness.reopen_many(6)
        taken = results([partial(empty_queue, store, f"node-{i}") for i, store in enumerate(stores)])
        counted = Counter(claim.job_id for claims in taken for claim in claims)
        assert set(counted.values()) == {1}
        assert set(counted) == {job_id for line in lines.values() for job_id in line}
        for i, claims in enumerate(taken):
            assert harness.store.claims_of(f"node-{i}") == {c.job_id: c.claim_id for c in claims}
