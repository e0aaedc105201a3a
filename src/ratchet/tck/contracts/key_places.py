"""Places of keys: jobs that only nodes with certain keys claim (`ratchet.model.places`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ratchet.model.job import JobFilter, SignalWait
from ratchet.model.places import key_place, keys_of, parked_at, target_of
from ratchet.model.status import JobStatus, JobType, Lane
from ratchet.tck.harness import Harness, needs

A, B = key_place(["a"]), key_place(["b"])
HAS_A = frozenset({A})


def place(harness: Harness, job_id: UUID) -> str | None:
    """Where claims find a job."""
    return harness.record(job_id).stream.parked_target


def run(harness: Harness, job_id: UUID, **changes: Any) -> Any:
    """Claim it as a node that has the key."""
    return harness.claim_job(job_id, parked_targets=HAS_A, **changes)


def through_retry(harness: Harness) -> UUID:
    """Failed once, to be tried again."""
    job_id = harness.submit(parked_target=A, max_retries=3)
    harness.end(run(harness, job_id), harness.another_try())
    return job_id


def through_hand_back(harness: Harness) -> UUID:
    """Claimed, and handed back."""
    job_id = harness.submit(parked_target=A)
    assert harness.store.hand_back([run(harness, job_id)], now=harness.now) == 1
    return job_id


def through_unknown(harness: Harness) -> UUID:
    """Claimed, but the answer was lost."""
    job_id = run(harness, harness.submit(parked_target=A)).job_id
    assert harness.store.hand_back_unknown("node-1", [], now=harness.now) == [job_id]
    return UUID(str(job_id))


def through_crash(harness: Harness) -> UUID:
    """Its node died."""
    harness.register()
    job_id = harness.submit(parked_target=A)
    run(harness, job_id)
    harness.rescue()
    return job_id


def through_pause(harness: Harness) -> UUID:
    """Paused and resumed."""
    job_id = harness.submit(parked_target=A)
    assert harness.store.pause(job_id, now=harness.now)
    assert harness.store.resume(job_id, now=harness.now)
    return job_id


def through_signal(harness: Harness) -> UUID:
    """It waited for a signal."""
    job_id = harness.waiting(signal=SignalWait(key="go"), parked_target=A)
    assert harness.store.send_signal(harness.signal("go"), now=harness.now) == [job_id]
    return job_id


def through_parent(harness: Harness) -> UUID:
    """It waited for another job."""
    parent, child = harness.spec(), harness.child(parked_target=A)
    harness.insert([parent, child], [harness.edge(parent, child)])
    harness.end(harness.claim_job(parent.job_id))
    return child.job_id


def through_dead_letter(harness: Harness) -> UUID:
    """Failed for good, and retried by hand."""
    job_id = harness.submit(parked_target=A)
    harness.end(run(harness, job_id), harness.failure())
    assert harness.store.retry(job_id, now=harness.now)
    return job_id


def through_park(harness: Harness) -> UUID:
    """Parked for its target, failed on a node that has it, and retried by hand."""
    job_id = harness.submit(parked_target=A)
    assert harness.store.park(run(harness, job_id), "shop:new", now=harness.now)
    both = place(harness, job_id)
    assert both is not None
    harness.end(harness.claim_job(job_id, parked_targets=frozenset({both})), harness.failure())
    assert harness.store.retry(job_id, now=harness.now)
    return job_id


WAYS = [
    through_retry,
    through_hand_back,
    through_unknown,
    through_crash,
    through_pause,
    through_signal,
    through_parent,
    through_dead_letter,
    through_park,
]


class TestKeyPlaces:
    @pytest.mark.parametrize("lane", list(Lane))
    def test_only_a_claim_that_names_the_place_returns_the_job(self, harness: Harness, lane: Lane) -> None:
        """To all other claims, and to their looks for what is due next, it does not exist; ordinary jobs flow."""
        job_id, ordinary = harness.submit(parked_target=A, lane=lane), harness.submit(lane=lane)
        for places in (frozenset[str](), frozenset({B})):
            (claim,) = harness.claim(lane=lane, parked_targets=places)
            assert claim.job_id == ordinary
            request = harness.request(lane=lane, parked_targets=places)
            assert harness.store.next_due_at(request, now=harness.now) is None
            assert harness.store.hand_back([claim], now=harness.now) == 1
        assert harness.store.executions(job_id, uncounted=True) == []
        claims = harness.claim(lane=lane, parked_targets=HAS_A)
        assert {claim.job_id for claim in claims} == {job_id, ordinary}
        assert harness.store.parked_targets() == [A]

    @pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
    def test_the_job_comes_back_to_its_place(self, harness: Harness, way: Callable[[Harness], UUID]) -> None:
        """Whatever made it PENDING again, only a node with the key claims it."""
        job_id = way(harness)
        assert (harness.status(job_id), place(harness, job_id)) == (JobStatus.PENDING, A)
        assert harness.claimable(parked_targets=frozenset({B, "shop:new"})) == set()
        assert harness.claimable(parked_targets=HAS_A) == {job_id}

    def test_a_suspect_too(self, harness: Harness) -> None:
        """From its second crash on it runs alone, and still on nodes with the key only."""
        job_id = harness.submit(parked_target=A)
        for _ in range(2):
            harness.register()
            run(harness, job_id)
            harness.rescue()
            harness.store.purge_nodes(before=harness.advance(seconds=1))
        assert harness.claim(suspects=True) == []
        (claim,) = harness.claim(suspects=True, parked_targets=HAS_A)
        assert claim.job_id == job_id

    def test_parked_for_its_target_it_needs_both(self, harness: Harness) -> None:
        """A node that has but one of the two does not claim it; else two such nodes would do so in turns for ever."""
        job_id = harness.submit(parked_target=A)
        assert harness.store.park(run(harness, job_id), "shop:new", now=harness.now)
        both = place(harness, job_id)
        assert (keys_of(both), target_of(both)) == (("a",), "shop:new")
        assert harness.claimable(parked_targets=frozenset({A, "shop:new"})) == set()
        assert harness.claimable(parked_targets=frozenset({str(both)})) == {job_id}

    def test_parked_for_another_key_it_needs_both(self, harness: Harness) -> None:
        """A value that was added later may have another key."""
        job_id = harness.submit(parked_target=A)
        assert harness.store.park(run(harness, job_id), B, now=harness.now)
        assert keys_of(place(harness, job_id)) == ("a", "b")
        assert harness.claimable(parked_targets=frozenset({A, B})) == set()

    def test_it_is_not_parked(self, harness: Harness) -> None:
        """Listings call parked what waits for a target; a place of keys is where the job belongs."""
        job_id, plain, parked = (
            harness.submit(parked_target=A),
            harness.submit(),
            harness.submit(parked_target="x:y"),
        )
        both = harness.submit(parked_target=parked_at(A, "x:y"))
        found = {one.job_id for one in harness.store.find(JobFilter(parked=True))}
        assert found == {parked, both}
        assert {one.job_id for one in harness.store.find(JobFilter(parked=False))} == {job_id, plain}
        assert harness.store.count(JobFilter(parked=True)) == 2

    def test_explain_is_for_a_node_that_has_the_key(self, harness: Harness) -> None:
        """Which nodes have it, the store does not know. A gate that others use up is named all the same."""
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        first, second = (harness.submit(parked_target=A, resource="gateway") for _ in range(2))
        assert harness.store.explain(first, now=harness.now) == []
        assert [code for code, _, _ in harness.store.explain(second, now=harness.now)] == ["no_permit"]
        both = harness.submit(parked_target=parked_at(A, "x:y"))
        ((code, text, _),) = harness.store.explain(both, now=harness.now)
        assert code == "parked"
        assert "x:y" in text
        assert "$" not in text

    def test_the_callback_of_a_job_that_no_node_could_end(self, harness: Harness) -> None:
        """The store makes it; it has the params of the job, so it is for nodes with the key, whatever target the job waited for."""
        harness.register()
        job_id = harness.submit(parked_target=A, on_failure="shop:alarm", params='{"a":1}')
        claim = run(harness, job_id)
        assert harness.store.park(claim, "shop:new", now=harness.now)
        harness.claim_job(job_id, parked_targets=frozenset({str(place(harness, job_id))}))
        harness.rescue(max_crashes=1)
        assert harness.status(job_id) is JobStatus.FAILED
        (callback,) = harness.store.find(JobFilter(types=[JobType.CALLBACK]))
        assert callback.stream.parked_target == A
        assert harness.claimable(parked_targets=HAS_A) == {callback.job_id}


@needs("shows_values")
class TestSetKeys:
    def test_jobs_move_to_the_place_of_other_keys(self, harness: Harness) -> None:
        """PENDING, PAUSED, WAITING, FAILED: from now on nodes with these keys claim them; what else a stream says stays."""
        store: Any = harness.store
        pending = harness.submit(parked_target=A, queue="q")
        parked = harness.submit(parked_target=parked_at(A, "x:y"), queue="q")
        plain = harness.submit(queue="q")
        paused = harness.paused(parked_target=A, queue="q")
        waiting = harness.waiting(signal=SignalWait(key="go"), parked_target=A, queue="q")
        failed = harness.submit(parked_target=A, queue="q")
        harness.end(run(harness, failed), harness.failure())
        others = harness.submit(parked_target=A, queue="q")
        moved = [pending, parked, plain, paused, waiting, failed]
        assert store.set_keys({job_id: {"b"} for job_id in moved}) == len(moved)
        assert store.set_keys({job_id: {"b"} for job_id in moved}) == 0
        assert store.resume(paused, now=harness.now)
        assert store.send_signal(harness.signal("go"), now=harness.now) == [waiting]
        assert store.retry(failed, now=harness.now)
        assert harness.claimable(parked_targets=HAS_A) == {others}
        assert harness.claimable(parked_targets=frozenset({B})) == {pending, plain, paused, waiting, failed}
        assert place(harness, parked) == parked_at(B, "x:y")
        assert {harness.record(job_id).stream.queue for job_id in moved} == {"q"}

    def test_a_running_job_stays_until_it_ends(self, harness: Harness) -> None:
        """Its claim still holds it, and its next try is where it was; a retry by hand is at the new place."""
        store: Any = harness.store
        job_id = harness.submit(parked_target=A)
        claim = run(harness, job_id)
        store.set_keys({job_id: {"b"}})
        harness.end(claim, harness.another_try())
        assert place(harness, job_id) == A
        harness.end(run(harness, job_id), harness.failure())
        assert store.retry(job_id, now=harness.now)
        assert harness.claimable(parked_targets=frozenset({B})) == {job_id}

    def test_a_job_that_is_due_is_found_behind_claims_that_have_passed(self, harness: Harness) -> None:
        """Claims that have been at the new place before, and remember how far they were, find what came to it late."""
        store: Any = harness.store
        late = harness.submit(parked_target=A)
        harness.advance(seconds=5)
        for _ in range(3):
            harness.end(harness.claim_job(harness.submit(parked_target=B), parked_targets=frozenset({B})))
            harness.advance(seconds=1)
        assert store.set_keys({late: {"b"}}) == 1
        assert harness.claimable(parked_targets=frozenset({B})) == {late}

    def test_unknown_and_no_jobs(self, harness: Harness) -> None:
        """Nothing happens; a job without keys can be put back where every node claims."""
        store: Any = harness.store
        assert store.set_keys({}) == 0
        assert store.set_keys({UUID(int=1): {"b"}}) == 0
        job_id = harness.submit(parked_target=A)
        assert store.set_keys({job_id: ()}) == 1
        assert harness.claimable() == {job_id}
