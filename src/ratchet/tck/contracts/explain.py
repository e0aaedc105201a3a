"""Explain: why a claim does not return a job; the answer is empty exactly when a claim would return it."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from uuid import UUID

import pytest

from ratchet.model.cluster import BreakerRecord
from ratchet.model.identifiers import new_id
from ratchet.model.job import SignalWait
from ratchet.model.status import Lane, Priority
from ratchet.tck.harness import Harness


class TestExplain:
    def codes(self, harness: Harness, job_id: UUID) -> set[str]:
        return {code for code, _, _ in harness.store.explain(job_id, now=harness.now)}

    def test_a_claimable_job_needs_no_explanation(self, harness: Harness) -> None:
        """The answer is empty, in every lane and queue."""
        for lane in Lane:
            assert harness.store.explain(harness.submit(lane=lane, queue="q"), now=harness.now) == []

    def test_each_state_has_its_code(self, harness: Harness) -> None:
        """If its state keeps the job from being claimed, the state is the reason."""
        parent, child = harness.spec(scheduled_at=harness.after(hours=1)), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        signal = harness.waiting(signal=SignalWait(key="k"))
        cases = {
            "not_found": new_id(),
            "succeeded": harness.succeeded(),
            "failed": harness.failed(),
            "canceled": harness.canceled(),
            "running": harness.running().job_id,
            "paused": harness.paused(),
            "waiting_parent": child.job_id,
            "waiting_signal": signal,
        }
        for code, job_id in cases.items():
            assert self.codes(harness, job_id) == {code}

    def test_the_parents_are_named(self, harness: Harness) -> None:
        """Those that have not ended, the first by id; three of them are enough. The words are the same on every store."""
        parents = [harness.spec(scheduled_at=harness.after(hours=1)) for _ in range(4)]
        child = harness.child()
        harness.insert([*parents, child], [harness.edge(parent, child) for parent in parents])
        ids = sorted(str(parent.job_id) for parent in parents)
        ((_, text, _),) = harness.store.explain(child.job_id, now=harness.now)
        assert text == f"it waits for {ids[0]}, {ids[1]}, {ids[2]}"

    def test_not_due_says_until_when(self, harness: Harness) -> None:
        """The reason of a job that is due later carries its due time."""
        job_id = harness.submit(scheduled_at=harness.after(hours=1))
        ((code, text, until),) = harness.store.explain(job_id, now=harness.now)
        assert (code, until) == ("not_due", harness.after(hours=1))
        assert text

    def test_a_paused_queue(self, harness: Harness) -> None:
        """The paused queue is the reason."""
        job_id = harness.submit(queue="emails")
        harness.store.pause_queue("emails", now=harness.now)
        assert self.codes(harness, job_id) == {"queue_paused"}

    def test_a_suspect_and_a_parked_job(self, harness: Harness) -> None:
        """An ordinary claim returns neither a suspect nor a parked job."""
        harness.register()
        parked = harness.running()
        assert harness.store.park(parked, "shop.jobs:new", now=harness.now)
        suspect = harness.submit()
        for _ in range(2):
            harness.claim_job(suspect)
            harness.rescue()
            harness.store.purge_nodes(before=harness.advance(seconds=1))
            harness.register()
        assert self.codes(harness, parked.job_id) == {"parked"}
        assert self.codes(harness, suspect) == {"suspect"}

    def test_several_reasons_at_once(self, harness: Harness) -> None:
        """Every reason is listed, so that a person does not have to fix one after the other."""
        job_id = harness.submit(queue="emails", scheduled_at=harness.after(hours=1))
        harness.store.pause_queue("emails", now=harness.now)
        assert self.codes(harness, job_id) == {"not_due", "queue_paused"}

    @pytest.mark.parametrize("seed", range(8))
    def test_empty_exactly_when_a_claim_returns_the_job(self, harness: Harness, seed: int) -> None:
        """Random states behind random gates: explain is empty for the claimable jobs and for no other."""
        random = Random(seed)
        full = random.random() < 0.5
        harness.store.set_limit("gateway", concurrent=1 if full else 100, now=harness.now)
        if full:
            harness.running(resource="gateway")
        ids = [_random_job(harness, random) for _ in range(25)]
        if random.random() < 0.5:
            harness.store.pause_queue(random.choice("ab"), now=harness.now)
        if random.random() < 0.5:
            record = BreakerRecord(service="bank", state="OPEN", until=harness.after(minutes=1))
            assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        harness.claim(random.randrange(1, 4))
        harness.advance(seconds=random.choice([0, 0, 30, 3600]))
        explained = {job_id: harness.store.explain(job_id, now=harness.now) for job_id in ids}
        claimable = harness.claimable()
        for job_id in ids:
            assert (job_id in claimable) == (explained[job_id] == []), (
                harness.record(job_id),
                explained[job_id],
            )

    def test_a_closed_gate_besides_other_reasons(self, harness: Harness) -> None:
        """A job that is not due yet is also told that no permit is free."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        harness.running(resource="gateway")
        job_id = harness.submit(resource="gateway", scheduled_at=harness.after(hours=1))
        assert self.codes(harness, job_id) == {"not_due", "no_permit"}

    def test_every_closed_gate(self, harness: Harness) -> None:
        """
        Two limits let nothing through, one of them for two reasons: all three reasons are listed, with
        their end where it is known.
        """
        minute = timedelta(minutes=1)
        harness.store.set_limit("gateway", concurrent=1, rate=1, period=minute, now=harness.now)
        harness.store.set_limit("tenant", rate=1, period=minute, now=harness.now)
        harness.running(resource="gateway", limit_key="tenant")
        job_id = harness.submit(resource="gateway", limit_key="tenant")
        found = [(code, until) for code, _, until in harness.store.explain(job_id, now=harness.now)]
        until = harness.after(minutes=1)
        assert found == [("no_permit", None), ("rate_limited", until), ("rate_limited", until)]

    def test_the_gates_that_others_use_up(self, harness: Harness) -> None:
        """The gates are open, but earlier jobs use them up: only the gate that is used up is named, and until when."""
        minute = timedelta(minutes=1)
        harness.store.set_limit("gateway", concurrent=9, now=harness.now)
        harness.store.set_limit("tenant", rate=2, period=minute, now=harness.now)
        ids = harness.submit_many(4, resource="gateway", limit_key="tenant")
        assert [self.codes(harness, job_id) for job_id in ids[:2]] == [set(), set()]
        for job_id in ids[2:]:
            ((code, _, until),) = harness.store.explain(job_id, now=harness.now)
            assert code == "rate_limited"
            assert until is not None
            assert until > harness.now

    def test_more_jobs_than_permits(self, harness: Harness) -> None:
        """Two permits are free and five jobs wait: the two that a large claim returns have no reason."""
        harness.store.set_limit("gateway", concurrent=2, now=harness.now)
        ids = [harness.submit(resource="gateway", priority=p) for p in Priority]
        explained = {job_id: self.codes(harness, job_id) for job_id in ids}
        claimable = harness.claimable()
        assert len(claimable) == 2
        for job_id in ids:
            assert explained[job_id] == (set() if job_id in claimable else {"no_permit"})


def _random_job(harness: Harness, random: Random) -> UUID:
    """A job in a random state, behind random gates."""
    make = random.choice(
        [harness.submit] * 6
        + [harness.paused, harness.canceled, harness.waiting, harness.succeeded, harness.failed]
    )
    gates: dict[str, object] = {"queue": random.choice("ab")}
    at = harness.now
    if make not in (harness.succeeded, harness.failed):
        gates["breaker"] = random.choice([None, None, "bank"])
        gates["lane"] = random.choice(list(Lane))
        gates["resource"] = random.choice([None, None, "gateway"])
        at += timedelta(seconds=random.choice([-60, 0, 20, 600]))
    return make(scheduled_at=at, priority=random.choice(list(Priority)), **gates)
