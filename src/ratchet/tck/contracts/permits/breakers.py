"""Circuit breakers, and the probes that are let through once an open breaker's time has come."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from ratchet.model.claim import JobClaim
from ratchet.model.cluster import BreakerRecord, Probes
from ratchet.model.identifiers import new_id
from ratchet.spi.store import JobStore
from ratchet.tck.contracts.permits.limits import codes
from ratchet.tck.harness import Harness
from ratchet.tck.race import results


class TestBreakers:
    def test_compare_and_swap(self, harness: Harness) -> None:
        """A breaker is created once; after that only a caller that has seen its last version can change it."""
        assert harness.store.breaker("bank") is None
        record = BreakerRecord(
            service="bank", state="OPEN", until=harness.after(minutes=1), document='{"f":3}'
        )
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        assert not harness.store.save_breaker(record, expected_version=0, now=harness.now)
        stored = harness.store.breaker("bank")
        assert stored is not None
        assert (stored.service, stored.state, stored.until, stored.document) == (
            "bank",
            "OPEN",
            harness.after(minutes=1),
            '{"f":3}',
        )
        assert stored.version > 0
        closed = BreakerRecord(service="bank", state="CLOSED", document="{}")
        assert harness.store.save_breaker(closed, expected_version=stored.version, now=harness.now)
        assert not harness.store.save_breaker(record, expected_version=stored.version, now=harness.now)
        again = harness.store.breaker("bank")
        assert again is not None
        assert (again.state, again.until) == ("CLOSED", None)
        assert again.version > stored.version

    def test_listed_by_service(self, harness: Harness) -> None:
        """Every breaker that was ever used is listed, by service."""
        for service in ("b", "a"):
            record = BreakerRecord(service=service, state="CLOSED")
            assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        assert [b.service for b in harness.store.breakers()] == ["a", "b"]

    def test_an_open_breaker_holds_its_jobs_back(self, harness: Harness) -> None:
        """No job behind the breaker is claimed until its time has come; other jobs are."""
        behind, other = harness.submit(breaker="bank"), harness.submit()
        record = BreakerRecord(service="bank", state="OPEN", until=harness.after(minutes=1))
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        assert [c.job_id for c in harness.claim()] == [other]
        ((code, _, until),) = harness.store.explain(behind, now=harness.now)
        assert (code, until) == ("breaker_open", harness.after(minutes=1))
        assert harness.store.next_due_at(harness.request(), now=harness.now) == harness.after(minutes=1)
        harness.advance(minutes=1)
        assert codes(harness, behind) == set()
        assert [c.job_id for c in harness.claim()] == [behind]

    def test_open_for_good(self, harness: Harness) -> None:
        """A breaker without a time stays open, and `next_due_at` has no answer."""
        behind = harness.submit(breaker="bank")
        record = BreakerRecord(service="bank", state="OPEN")
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        harness.advance(days=999)
        assert harness.claim() == []
        assert codes(harness, behind) == {"breaker_open"}
        assert harness.store.next_due_at(harness.request(), now=harness.now) is None

    def test_a_closed_breaker_lets_jobs_through(self, harness: Harness) -> None:
        """A closed breaker and one that was never used let jobs through."""
        record = BreakerRecord(service="bank", state="CLOSED")
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        harness.submit(breaker="bank")
        harness.submit(breaker="unused")
        assert len(harness.claim()) == 2
        assert harness.store.breaker(str(new_id())) is None


class TestProbes:
    """An open breaker whose time has come lets a counted number of jobs through, in the whole cluster, until a verdict."""

    MINUTE = timedelta(minutes=1)

    def open(self, harness: Harness, count: int = 2, version: int = 0) -> None:
        """Open the breaker of "bank" for a minute; *count* probes follow."""
        record = BreakerRecord(service="bank", state="OPEN", until=harness.now + self.MINUTE)
        probes = Probes(count=count, every=self.MINUTE)
        assert harness.store.save_breaker(record, expected_version=version, now=harness.now, probes=probes)

    def move(self, harness: Harness, state: str) -> None:
        """Change the state of the breaker, as a strategy does after a verdict."""
        held = harness.store.breaker("bank")
        assert held is not None
        moved = BreakerRecord(service="bank", state=state, until=held.until)
        assert harness.store.save_breaker(moved, expected_version=held.version, now=harness.now)

    def test_exactly_so_many_pass(self, harness: Harness) -> None:
        """
        No job passes before the time; then two pass over all nodes and claims, in claim order. Other jobs
        are not affected.
        """
        ids = harness.submit_many(6, breaker="bank")
        self.open(harness)
        assert harness.claim() == []
        harness.advance(minutes=1)
        first = harness.claim(1)
        second = harness.claim(store=harness.reopen(), node_id="node-2")
        assert [c.job_id for c in (*first, *second)] == ids[:2]
        other = harness.submit()
        assert [c.job_id for c in harness.claim()] == [other]

    def test_over_streams(self, harness: Harness) -> None:
        """The probes belong to the service, not to a queue."""
        self.open(harness)
        harness.submit_many(3, breaker="bank", queue="a")
        harness.submit_many(3, breaker="bank", queue="b")
        harness.advance(minutes=1)
        assert len(harness.claim()) == 2
        assert harness.claim() == []

    def test_an_ended_probe_makes_no_room(self, harness: Harness) -> None:
        """Probes count starts, not running jobs; the move to HALF_OPEN does not add any."""
        self.open(harness)
        harness.submit_many(6, breaker="bank")
        harness.advance(minutes=1)
        harness.end_all(harness.claim())
        self.move(harness, "HALF_OPEN")
        assert harness.claim() == []

    def test_closed_lets_all_through(self, harness: Harness) -> None:
        """Once the record says CLOSED, all jobs pass."""
        self.open(harness)
        harness.submit_many(6, breaker="bank")
        harness.advance(minutes=1)
        assert len(harness.claim()) == 2
        self.move(harness, "CLOSED")
        assert len(harness.claim()) == 4

    def test_opened_again_it_has_new_probes(self, harness: Harness) -> None:
        """After a failed probe no job passes for another minute; then the new number of probes passes."""
        self.open(harness)
        harness.submit_many(6, breaker="bank")
        harness.advance(minutes=1)
        assert len(harness.claim()) == 2
        held = harness.store.breaker("bank")
        assert held is not None
        self.open(harness, 3, held.version)
        assert harness.claim() == []
        harness.advance(minutes=1)
        assert len(harness.claim()) == 3
        assert harness.claim() == []

    def test_a_refused_record_brings_no_probes(self, harness: Harness) -> None:
        """A caller that saw an old version can neither open the breaker nor add probes."""
        self.open(harness)
        harness.submit_many(6, breaker="bank")
        harness.advance(minutes=1)
        assert len(harness.claim()) == 2
        stale = BreakerRecord(service="bank", state="OPEN", until=harness.now)
        probes = Probes(count=4, every=self.MINUTE)
        assert not harness.store.save_breaker(stale, expected_version=0, now=harness.now, probes=probes)
        assert harness.claim() == []

    def test_a_probe_that_never_answers_is_not_waited_for(self, harness: Harness) -> None:
        """After a minute without a verdict another probe may start."""
        self.open(harness)
        harness.submit_many(6, breaker="bank")
        harness.advance(minutes=1)
        assert len(harness.claim()) == 2
        harness.advance(seconds=59)
        assert harness.claim() == []
        harness.advance(seconds=1)
        assert len(harness.claim()) == 1

    def test_it_is_explained(self, harness: Harness) -> None:
        """The first jobs in order have no reason; the others wait for the breaker, and the answer says until when."""
        ids = harness.submit_many(4, breaker="bank")
        self.open(harness)
        harness.advance(minutes=1)
        assert [codes(harness, job_id) for job_id in ids[:3]] == [set(), set(), {"breaker_open"}]
        assert len(harness.claim()) == 2
        ((code, _, until),) = harness.store.explain(ids[2], now=harness.now)
        assert (code, until) == ("breaker_open", harness.after(minutes=1))

    def test_they_are_no_limit_of_a_user(self, harness: Harness) -> None:
        """The probes are not listed among the limits."""
        self.open(harness)
        assert harness.store.limits() == []

    def test_with_a_limit_the_tighter_one_counts(self, harness: Harness) -> None:
        """A job needs both a permit and a probe."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        self.open(harness)
        harness.submit_many(6, breaker="bank", resource="gateway")
        harness.advance(minutes=1)
        (first,) = harness.claim()
        harness.end(first)
        (second,) = harness.claim()
        harness.end(second)
        assert harness.claim() == []

    def test_claims_at_once_share_them(self, harness: Harness) -> None:
        """Four nodes claim repeatedly at the same moment: exactly two jobs are claimed."""
        stores = harness.reopen_many(4)
        harness.submit_many(20, breaker="bank")
        for version in range(5):
            self.open(harness, 2, version)
            harness.advance(minutes=1)
            rounds = [partial(_claim_often, harness, store, f"node-{n}") for n, store in enumerate(stores)]
            claims = [claim for taken in results(rounds) for claim in taken]
            assert len(claims) == 2
            assert harness.store.hand_back(claims, now=harness.now) == 2

    def test_opened_again_while_a_node_claims(self, harness: Harness) -> None:
        """A claim comes before or after the breaker is opened again: at their time the new probes are complete."""
        claiming, saying = harness.reopen_many(2)
        harness.submit_many(20, breaker="bank")
        self.open(harness)
        for version in range(1, 8):
            harness.advance(minutes=1)
            record = BreakerRecord(service="bank", state="OPEN", until=harness.after(minutes=1))
            probes = Probes(count=2, every=self.MINUTE)
            say = partial(
                saying.save_breaker, record, expected_version=version, now=harness.now, probes=probes
            )
            claims: list[JobClaim] = []

            def claim(kept: list[JobClaim] = claims) -> bool:
                kept += _claim_often(harness, claiming, "node-2")
                return True

            runners: list[Callable[[], bool]] = [claim, say]
            assert results(runners) == [True, True]
            assert len(claims) <= 2
            assert harness.claim() == []
            harness.advance(minutes=1)
            late = harness.claim()
            assert len(late) == 2
            harness.store.hand_back([*claims, *late], now=harness.now)


def _claim_often(harness: Harness, store: JobStore, node_id: str) -> list[JobClaim]:
    """Claim several times, because a claim skips a gate that another claim is counting."""
    return [claim for _ in range(5) for claim in harness.claim(store=store, node_id=node_id)]
