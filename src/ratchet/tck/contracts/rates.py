"""Rates: how many jobs of a resource start per period, evenly, in the whole cluster."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from ratchet.tck.harness import Harness

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


class TestEvenRate:
    def test_starts_come_evenly_while_jobs_wait(self, harness: Harness) -> None:
        """Whichever node polls, up to 12 ms late: after the first second, 95 % to 100 % of the rate in every window."""
        harness.store.set_limit("gateway", rate=40, period=SECOND, now=harness.now)
        harness.submit_many(150, resource="gateway")
        dice, begin = Random(4), harness.now
        starts: list[datetime] = []
        while harness.now < begin + 2.5 * SECOND:
            starts += [harness.now] * len(harness.claim(50, node_id=f"node-{dice.randrange(3)}"))
            opens = harness.store.next_due_at(harness.request(), now=harness.now)
            assert opens is not None
            harness.now = opens + timedelta(milliseconds=dice.uniform(0, 12))
        counted = [
            sum(at <= start < at + SECOND for start in starts)
            for at in (begin + SECOND + n * SECOND / 100 for n in range(50))
        ]
        assert min(counted) >= 38
        assert max(counted) <= 40

    def test_a_clock_that_is_behind_brings_nothing(self, harness: Harness) -> None:
        """Two nodes whose clocks differ by 20 ms take turns: time that one has counted does not count again."""
        harness.store.set_limit("gateway", rate=100, period=SECOND, now=harness.now)
        harness.submit_many(300, resource="gateway")
        started = 0
        for turn in range(20):
            harness.advance(seconds=0.02)
            behind = timedelta(milliseconds=20 * (turn % 2))
            request = harness.request(100, node_id=f"node-{turn % 2}")
            started += len(harness.store.claim_next_batch_optimized(request, now=harness.now - behind))
        assert 135 <= started <= 140

    def test_half_a_period_brings_half(self, harness: Harness) -> None:
        """The bucket fills evenly, and holds no more than the rate however long nobody takes from it."""
        harness.store.set_limit("gateway", rate=10, period=MINUTE, now=harness.now)
        harness.submit_many(40, resource="gateway")
        assert len(harness.claim(40)) == 10
        harness.advance(seconds=30)
        assert len(harness.claim(40)) == 5
        harness.advance(hours=5)
        assert len(harness.claim(40)) == 10

    def test_one_by_one_they_are_as_many(self, harness: Harness) -> None:
        """A node that claims each job alone gets no fewer, period after period."""
        harness.store.set_limit("gateway", rate=4, period=MINUTE, now=harness.now)
        harness.submit_many(20, resource="gateway")
        for _ in range(3):
            assert [len(harness.claim(1)) for _ in range(5)] == [1] * 4 + [0]
            harness.advance(minutes=1)

    def test_the_next_start_is_known_to_the_microsecond(self, harness: Harness) -> None:
        """At the time that `next_due_at` names a claim gets one job, and just before it none."""
        harness.store.set_limit("gateway", rate=7, period=SECOND, now=harness.now)
        harness.submit_many(20, resource="gateway")
        assert len(harness.claim(20)) == 7
        for _ in range(5):
            opens = harness.store.next_due_at(harness.request(), now=harness.now)
            assert opens is not None
            harness.now = opens - timedelta(microseconds=1)
            assert harness.claim(20) == []
            harness.now = opens
            assert len(harness.claim(20)) == 1


class TestChangedRate:
    def test_set_again_it_lets_no_burst_through(self, harness: Harness) -> None:
        """Every node sets its limits when it starts: the bucket stays as empty as it was."""
        for _ in range(3):
            harness.store.set_limit("gateway", rate=2, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 2
        harness.store.set_limit("gateway", rate=2, period=MINUTE, now=harness.now)
        harness.store.set_limit("gateway", concurrent=9, now=harness.now)
        assert harness.claim() == []

    def test_a_higher_rate_does_not_count_for_the_past(self, harness: Harness) -> None:
        """Half a minute at one per minute is half a start; only from now on it is a hundred per minute."""
        harness.store.set_limit("gateway", rate=1, period=MINUTE, now=harness.now)
        harness.submit_many(20, resource="gateway")
        assert len(harness.claim()) == 1
        harness.advance(seconds=30)
        harness.store.set_limit("gateway", rate=100, period=MINUTE, now=harness.now)
        assert harness.claim() == []
        harness.advance(seconds=6)
        assert len(harness.claim(20)) == 10

    def test_a_lower_rate_holds_at_once(self, harness: Harness) -> None:
        """A full bucket is cut to the new size."""
        harness.store.set_limit("gateway", rate=100, period=MINUTE, now=harness.now)
        harness.store.set_limit("gateway", rate=3, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 3

    def test_a_first_rate_starts_full(self, harness: Harness) -> None:
        """Also where the resource had a limit of another kind before."""
        harness.store.set_limit("gateway", concurrent=50, now=harness.now)
        harness.advance(hours=1)
        harness.store.set_limit("gateway", rate=3, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 3

    def test_a_removed_rate_is_forgotten(self, harness: Harness) -> None:
        """Nothing waits for it any more, and set anew it starts full."""
        harness.store.set_limit("gateway", rate=1, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 1
        assert harness.store.remove_limit("gateway", now=harness.now)
        assert len(harness.claim(4)) == 4
        harness.store.set_limit("gateway", rate=2, period=MINUTE, now=harness.now)
        assert len(harness.claim()) == 2
