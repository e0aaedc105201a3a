"""Rates: how many jobs of a resource start per period, evenly spaced, in the whole cluster."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

from ratchet.tck.harness import Harness

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


AHEAD = timedelta(milliseconds=200)


def counted(starts: list[datetime], begin: datetime) -> list[int]:
    """How many starts fall into each of 50 windows of one second, which begin 20 ms apart, the first at *begin*."""
    windows = (begin + n * SECOND / 50 for n in range(50))
    return [sum(at <= start < at + SECOND for start in starts) for at in windows]


class TestEvenRate:
    def test_starts_come_evenly_while_jobs_wait(self, harness: Harness) -> None:
        """
        Any node claims ahead, up to 80 ms late: every window of a second has 95 % to 100 % of the rate.

        The first second is different: a rate that was not used before lets all its starts happen at once.
        """
        harness.store.set_limit("gateway", rate=40, period=SECOND, now=harness.now)
        harness.submit_many(150, resource="gateway")
        dice, begin = Random(4), harness.now
        starts: list[datetime] = []
        while harness.now < begin + 3 * SECOND:
            claims = harness.claim(50, node_id=f"node-{dice.randrange(3)}", ahead=AHEAD)
            starts += [claim.start_at or harness.now for claim in claims]
            opens = harness.store.next_due_at(harness.request(ahead=AHEAD), now=harness.now)
            assert opens is not None
            harness.now = max(opens, harness.now) + timedelta(milliseconds=dice.uniform(0, 80))
        assert starts[:40] == [begin] * 40
        assert max(counted(starts, begin)) <= 40
        assert min(counted(starts, begin + 1.05 * SECOND)) >= 38

    def test_each_claim_goes_on_where_the_last_one_ended(self, harness: Harness) -> None:
        """Planned starts are given out once, in claim order, and none is further ahead than asked."""
        harness.store.set_limit("gateway", rate=20, period=SECOND, now=harness.now)
        ids = harness.submit_many(60, resource="gateway")
        assert [claim.start_at for claim in harness.claim(20, ahead=AHEAD)] == [None] * 20
        harness.advance(seconds=0.95)
        first = harness.claim(2, ahead=AHEAD)
        second = harness.claim(9, ahead=AHEAD)
        assert [claim.job_id for claim in first + second] == ids[20 : 20 + len(first + second)]
        starts = [claim.start_at for claim in first + second if claim.start_at is not None]
        assert len(first) == 2
        assert len(starts) == len(first + second)
        assert starts == sorted(set(starts))
        assert harness.now < starts[0]
        assert starts[-1] <= harness.now + AHEAD
        assert harness.claim(9, ahead=AHEAD) == []

    def test_bodies_come_with_their_start(self, harness: Harness) -> None:
        """
        Both kinds of claim say when the job may start; without planning ahead a claim returns only jobs
        that may start now.
        """
        harness.store.set_limit("gateway", rate=20, period=SECOND, now=harness.now)
        harness.submit_many(60, resource="gateway")
        assert [job.claim.start_at for job in harness.take(20)] == [None] * 20
        harness.advance(seconds=0.99)
        assert harness.take(20) == []
        (job,) = harness.take(1, ahead=AHEAD)
        assert job.body.resource == "gateway"
        assert job.claim.start_at is not None
        (claim,) = harness.store.claim_next_batch_optimized(harness.request(1, ahead=AHEAD), now=harness.now)
        assert claim.start_at is not None
        assert job.claim.start_at < claim.start_at

    def test_two_rates_are_both_kept(self, harness: Harness) -> None:
        """A job under two rates starts when both allow it, and counts for both then."""
        harness.store.set_limit("gateway", rate=20, period=SECOND, now=harness.now)
        harness.store.set_limit("ann", rate=10, period=SECOND, now=harness.now)
        harness.submit_many(60, resource="gateway", limit_key="ann")
        begin, starts = harness.now, list[datetime]()
        while harness.now < begin + 3 * SECOND:
            starts += [claim.start_at or harness.now for claim in harness.claim(9, ahead=AHEAD)]
            harness.advance(seconds=0.05)
        assert max(counted(starts, begin) + counted(starts, begin + SECOND)) <= 10
        assert min(counted(starts, begin + 1.1 * SECOND)) >= 9

    def test_a_clock_that_is_behind_brings_nothing(self, harness: Harness) -> None:
        """Two nodes whose clocks differ by 20 ms alternate: time that one of them has counted does not count again."""
        harness.store.set_limit("gateway", rate=100, period=SECOND, now=harness.now)
        harness.submit_many(300, resource="gateway")
        begin, starts = harness.now, list[datetime]()
        for number in range(80):
            harness.advance(seconds=0.02)
            behind = timedelta(milliseconds=20 * (number % 2))
            request = harness.request(100, node_id=f"node-{number % 2}", ahead=AHEAD)
            found = harness.store.claim_next_batch_optimized(request, now=harness.now - behind)
            starts += [claim.start_at or harness.now - behind for claim in found]
        assert max(counted(starts, begin)) <= 100
        assert len(starts) >= 150

    def test_what_nobody_used_may_start_at_once(self, harness: Harness) -> None:
        """A rate that was not used lets one period's jobs start at once, and no more, however long it was not used."""
        harness.store.set_limit("gateway", rate=10, period=MINUTE, now=harness.now)
        harness.submit_many(60, resource="gateway")
        assert len(harness.claim(40)) == 10
        harness.advance(seconds=59)
        assert harness.claim(40) == []
        harness.advance(seconds=1)
        assert len(harness.claim(1)) == 1
        harness.advance(seconds=30)
        assert 1 <= len(harness.claim(40)) <= 9
        harness.advance(hours=5)
        assert len(harness.claim(40)) == 10

    def test_one_by_one_they_are_as_many(self, harness: Harness) -> None:
        """A node that claims one job at a time gets as many per period."""
        harness.store.set_limit("gateway", rate=4, period=MINUTE, now=harness.now)
        harness.submit_many(20, resource="gateway")
        for _ in range(3):
            assert [len(harness.claim(1)) for _ in range(5)] == [1] * 4 + [0]
            harness.advance(minutes=1)

    def test_the_next_start_is_known_to_the_microsecond(self, harness: Harness) -> None:
        """At the time that `next_due_at` names, a claim gets a job; one microsecond earlier it gets none."""
        harness.store.set_limit("gateway", rate=7, period=SECOND, now=harness.now)
        harness.submit_many(60, resource="gateway")
        assert len(harness.claim(20)) == 7
        for _ in range(5):
            opens = harness.store.next_due_at(harness.request(), now=harness.now)
            assert opens is not None
            harness.now = opens - timedelta(microseconds=1)
            assert harness.claim(20) == []
            harness.now = opens
            assert len(harness.claim(1)) == 1
            assert len(harness.claim(20)) <= 6


class TestChangedRate:
    def test_set_again_it_lets_no_burst_through(self, harness: Harness) -> None:
        """Every node sets its limits when it starts: setting the same rate again allows no extra starts."""
        for _ in range(3):
            harness.store.set_limit("gateway", rate=2, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 2
        harness.store.set_limit("gateway", rate=2, period=MINUTE, now=harness.now)
        harness.store.set_limit("gateway", concurrent=9, now=harness.now)
        assert harness.claim() == []

    def test_a_higher_rate_does_not_count_for_the_past(self, harness: Harness) -> None:
        """Half a minute at one per minute is half a start; the higher rate counts only from now on."""
        harness.store.set_limit("gateway", rate=1, period=MINUTE, now=harness.now)
        harness.submit_many(20, resource="gateway")
        assert len(harness.claim()) == 1
        harness.advance(seconds=30)
        harness.store.set_limit("gateway", rate=100, period=MINUTE, now=harness.now)
        assert harness.claim() == []
        harness.advance(seconds=6)
        assert len(harness.claim(20)) == 10

    def test_a_lower_rate_holds_at_once(self, harness: Harness) -> None:
        """Starts that were saved up under the old rate are cut to the new one."""
        harness.store.set_limit("gateway", rate=100, period=MINUTE, now=harness.now)
        harness.store.set_limit("gateway", rate=3, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 3

    def test_a_first_rate_starts_full(self, harness: Harness) -> None:
        """A first rate allows its full number at once, even if the resource had another kind of limit before."""
        harness.store.set_limit("gateway", concurrent=50, now=harness.now)
        harness.advance(hours=1)
        harness.store.set_limit("gateway", rate=3, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 3

    def test_a_removed_rate_is_forgotten(self, harness: Harness) -> None:
        """Jobs no longer wait for it, and a rate that is set again allows its full number at once."""
        harness.store.set_limit("gateway", rate=1, period=MINUTE, now=harness.now)
        harness.submit_many(9, resource="gateway")
        assert len(harness.claim()) == 1
        assert harness.store.remove_limit("gateway", now=harness.now)
        assert len(harness.claim(4)) == 4
        harness.store.set_limit("gateway", rate=2, period=MINUTE, now=harness.now)
        assert len(harness.claim()) == 2
