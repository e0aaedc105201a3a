"""Races: what must hold when several nodes act at the same moment. Runners start together at a barrier; nothing sleeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from ratchet.model.claim import JobClaim
from ratchet.model.cluster import NodeState
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.identifiers import new_id
from ratchet.model.job import Insertion
from ratchet.model.status import Busy, JobStatus
from ratchet.spi.store import JobStore
from ratchet.tck.harness import Harness
from ratchet.tck.race import ROUNDS, race, results


class TestClaimRace:
    def test_racing_nodes_share_the_queue_without_overlap(self, harness: Harness) -> None:
        """Eight nodes empty a queue of 400 jobs; every job is claimed, and by one node only."""
        ids = set(harness.submit_many(400))

        def empty_queue(store: JobStore, node: str) -> list[JobClaim]:
            taken: list[JobClaim] = []
            short = 0
            while short < 3:  # a claim may come back short while others claim; three in a row mean empty
                batch = harness.claim(7, store=store, node_id=node)
                taken += batch
                short = 0 if batch else short + 1
            return taken

        stores = harness.reopen_many(8)
        taken = results([partial(empty_queue, store, f"node-{i}") for i, store in enumerate(stores)])
        counted = Counter(claim.job_id for claims in taken for claim in claims)
        assert set(counted.values()) == {1}
        assert set(counted) == ids
        for i, claims in enumerate(taken):
            assert harness.store.claims_of(f"node-{i}") == {c.job_id: c.claim_id for c in claims}

    def test_threads_on_one_handle(self, harness: Harness) -> None:
        """One store object serves eight threads that claim and complete; every job succeeds once."""
        ids = harness.submit_many(120)

        def work(node: str) -> int:
            done, empty = 0, 0
            while empty < 3:
                claims = harness.claim(5, node_id=node)
                empty = 0 if claims else empty + 1
                done += sum(answer.won for answer in harness.end_all(claims))
            return done

        assert sum(results([partial(work, f"node-{i}") for i in range(8)])) == len(ids)
        assert harness.store.counts()[JobStatus.SUCCEEDED] == len(ids)

    def test_one_job_many_nodes(self, harness: Harness) -> None:
        """In every round, exactly one of four nodes claims the single job."""
        stores = harness.reopen_many(4)
        for _ in range(ROUNDS):
            job_id = harness.submit()
            claims = results(
                [partial(harness.claim, 1, store=s, node_id=f"node-{i}") for i, s in enumerate(stores)]
            )
            (winner,) = [claim for batch in claims for claim in batch]
            assert winner.job_id == job_id
            harness.end(winner)

    def test_a_limit_is_never_exceeded(self, harness: Harness) -> None:
        """Six nodes compete for three permits: no more than three jobs run."""
        harness.store.set_limit("gateway", concurrent=3, now=harness.now)
        stores = harness.reopen_many(6)
        for _ in range(4):
            harness.submit_many(8, resource="gateway")
            claims = [
                claim
                for batch in results(
                    [partial(harness.claim, 2, store=s, node_id=f"node-{i}") for i, s in enumerate(stores)]
                )
                for claim in batch
            ]
            assert len(claims) <= 3
            assert [limit.held for limit in harness.store.limits()] == [len(claims)]
            more = harness.claim()
            assert len(claims) + len(more) == 3
            harness.end_all([*claims, *more])

    def test_pausing_against_claiming(self, harness: Harness) -> None:
        """The job is either claimed or paused, never both, and the loser is told."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            job_id = harness.submit()
            runners: list[Callable[[], object]] = [
                partial(harness.claim, 1, store=one),
                partial(two.pause, job_id, now=harness.now),
            ]
            claims, paused = results(runners)
            assert isinstance(claims, list)
            if claims:
                assert not paused
                assert harness.status(job_id) is JobStatus.RUNNING
                harness.end(claims[0])
            else:
                assert paused
                assert harness.status(job_id) is JobStatus.PAUSED
                assert harness.store.cancel(job_id, reason="r", now=harness.now)

    def test_canceling_against_claiming(self, harness: Harness) -> None:
        """The job is CANCELED in the end, and the answer says whether there is a run to interrupt."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            job_id = harness.submit()
            runners: list[Callable[[], object]] = [
                partial(harness.claim, 1, store=one),
                partial(two.cancel, job_id, reason="r", now=harness.now),
            ]
            claims, canceled = results(runners)
            assert isinstance(claims, list)
            assert isinstance(canceled, list)
            assert [job.job_id for job in canceled] == [job_id]
            assert canceled[0].claim_id == (claims[0].claim_id if claims else None)
            assert harness.status(job_id) is JobStatus.CANCELED
            assert not any(harness.complete(claim).won for claim in claims)

    def test_pausing_a_queue_against_claiming(self, harness: Harness) -> None:
        """Once the pause has returned, no later claim takes a job of the queue."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            harness.submit_many(2, queue="emails")
            runners: list[Callable[[], object]] = [
                partial(harness.claim, 1, store=one),
                partial(two.pause_queue, "emails", now=harness.now),
            ]
            results(runners)
            assert harness.claim(store=one) == []
            harness.store.resume_queue("emails", now=harness.now)
            harness.claim()


class TestSubmissionRace:
    def test_one_idempotency_key(self, harness: Harness) -> None:
        """One job is stored; every caller gets its id, one of them created it, and none gets an exception."""
        stores = harness.reopen_many(6)
        for number in range(ROUNDS):
            key = f"request-{number}"

            def submit(store: JobStore, key: str = key) -> Insertion:
                return store.insert([harness.spec(idempotency_key=key)], now=harness.now)[0]

            answers = results([partial(submit, store) for store in stores])
            assert len({answer.job_id for answer in answers}) == 1
            assert sum(answer.created for answer in answers) == 1
        assert harness.store.counts()[JobStatus.PENDING] == ROUNDS

    def test_several_keys_in_different_order(self, harness: Harness) -> None:
        """Bulk submissions name the same keys in opposite order: there is no deadlock, and one job per key."""
        stores = harness.reopen_many(4)
        for number in range(ROUNDS):
            keys = [f"{number}-{i}" for i in range(5)]

            def submit(store: JobStore, order: list[str]) -> list[Insertion]:
                specs = [
                    harness.spec(idempotency_key=key, business_key=key, busy=Busy.RETURN) for key in order
                ]
                return store.insert(specs, now=harness.now)

            orders = [keys, keys[::-1], keys, keys[::-1]]
            answers = results([partial(submit, s, o) for s, o in zip(stores, orders, strict=True)])
            assert len({answer.job_id for batch in answers for answer in batch}) == len(keys)
        assert harness.store.counts()[JobStatus.PENDING] == ROUNDS * 5

    def test_one_business_key(self, harness: Harness) -> None:
        """One winner; every other caller gets BusinessKeyBusy with the winner's id."""
        stores = harness.reopen_many(6)
        for number in range(ROUNDS):

            def submit(store: JobStore, number: int = number) -> Insertion:
                return store.insert([harness.spec(business_key=f"k{number}")], now=harness.now)[0]

            finishes = race([partial(submit, store) for store in stores])
            (winner,) = [f.value for f in finishes if f.value is not None]
            assert winner.created
            for error in (f.error for f in finishes if f.error is not None):
                assert isinstance(error, BusinessKeyBusy)
                assert error.holder == winner.job_id
        assert harness.store.counts()[JobStatus.PENDING] == ROUNDS

    @pytest.mark.parametrize("busy", [Busy.RETURN, Busy.REPLACE])
    def test_one_live_holder(self, harness: Harness, busy: Busy) -> None:
        """However the calls interleave, one live job holds the key in the end."""
        stores = harness.reopen_many(4)
        for number in range(ROUNDS):

            def submit(store: JobStore, number: int = number) -> Insertion:
                spec = harness.spec(business_key=f"k{number}", busy=busy)
                return store.insert([spec], now=harness.now)[0]

            answers = results([partial(submit, store) for store in stores])
            created = [answer.job_id for answer in answers if answer.created]
            live = [job_id for job_id in created if harness.status(job_id) is JobStatus.PENDING]
            assert len(live) == 1
            assert len(created) == (1 if busy is Busy.RETURN else len(stores))
        assert harness.store.counts()[JobStatus.PENDING] == ROUNDS

    def test_the_same_id(self, harness: Harness) -> None:
        """A submission is sent several times at once: it is stored once, and every caller is told so."""
        stores = harness.reopen_many(3)
        for number in range(ROUNDS):
            spec = harness.spec(tags=("t",), business_key=f"b{number}", idempotency_key=f"i{number}")
            answers = results([partial(s.insert, [spec], now=harness.now) for s in stores])
            assert {(a.job_id, a.created) for batch in answers for a in batch} == {(spec.job_id, True)}
        assert harness.store.counts()[JobStatus.PENDING] == ROUNDS

    def test_new_streams(self, harness: Harness) -> None:
        """Six nodes use a queue for the first time at once: there is one stream, and every job is in it."""
        stores = harness.reopen_many(6)

        def submit(store: JobStore) -> list[Insertion]:
            return store.insert(harness.specs(3, queue="brand-new"), now=harness.now)

        results([partial(submit, store) for store in stores])
        assert [s.key.queue for s in harness.store.streams()].count("brand-new") == 1
        assert len(harness.claim()) == 18


class TestEndRace:
    def run_race(
        self, harness: Harness, first: Callable[[], object], second: Callable[[], object]
    ) -> tuple[object, object]:
        one, two = results([first, second])
        return one, two

    def test_canceling_against_completing(self, harness: Harness) -> None:
        """The job is SUCCEEDED or CANCELED: exactly one of the two calls made the change, and the status says which."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            claim = harness.running(business_key=str(new_id()))
            answer, canceled = self.run_race(
                harness,
                partial(harness.complete, claim, store=one),
                partial(two.cancel, claim.job_id, reason="r", now=harness.now),
            )
            won = answer.won  # type: ignore[attr-defined]
            assert won != bool(canceled)
            assert harness.status(claim.job_id) is (JobStatus.SUCCEEDED if won else JobStatus.CANCELED)

    def test_rescuing_against_completing(self, harness: Harness) -> None:
        """The job has succeeded or was requeued: never both, never neither."""
        one, two = harness.reopen_many(2)
        for number in range(ROUNDS):
            node = harness.register(f"node-{number}")
            claim = harness.running(node=node)
            answer, rescue = self.run_race(
                harness,
                partial(harness.complete, claim, store=one),
                partial(two.rescue, node, seen_beat=0, by="r", max_crashes=3, now=harness.now),
            )
            won = answer.won  # type: ignore[attr-defined]
            assert rescue is not None
            assert rescue.requeued == (() if won else (claim.job_id,))  # type: ignore[attr-defined]
            assert harness.status(claim.job_id) is (JobStatus.SUCCEEDED if won else JobStatus.PENDING)
            if not won:
                harness.end(harness.claim_job(claim.job_id))
            assert len(harness.store.executions(claim.job_id)) == 1

    def test_rescuing_against_beating(self, harness: Harness) -> None:
        """Either the beat came first and the node is not rescued, or the node is dead and its beat says so."""
        one, two = harness.reopen_many(2)
        for number in range(ROUNDS):
            node = harness.register(f"node-{number}")
            claim = harness.running(node=node)
            answer, rescue = self.run_race(
                harness,
                partial(one.beat, node, now=harness.now),
                partial(two.rescue, node, seen_beat=0, by="r", max_crashes=3, now=harness.now),
            )
            alive = answer.alive  # type: ignore[attr-defined]
            assert alive == (rescue is None)
            assert harness.complete(claim).won == alive
            (state,) = [n.state for n in harness.store.nodes() if n.node_id == node]
            assert state is (NodeState.ACTIVE if alive else NodeState.DEAD)
            harness.end_all(harness.claim())

    def test_two_rescuers(self, harness: Harness) -> None:
        """One of three nodes rescues; the job has crashed once."""
        stores = harness.reopen_many(3)
        for number in range(ROUNDS):
            node = harness.register(f"node-{number}")
            claim = harness.running(node=node)
            rescues = results(
                [partial(s.rescue, node, seen_beat=0, by="r", max_crashes=3, now=harness.now) for s in stores]
            )
            (winner,) = [rescue for rescue in rescues if rescue is not None]
            assert winner.requeued == (claim.job_id,)
            assert harness.record(claim.job_id).crashes == 1
            harness.end_all(harness.claim())

    def test_one_completion_sent_twice_at_once(self, harness: Harness) -> None:
        """Every call is told that it won, all but one as a repetition; the run counts once."""
        stores = harness.reopen_many(3)
        for _ in range(ROUNDS):
            claim = harness.running()
            answers = results([partial(harness.complete, claim, store=store) for store in stores])
            assert all(answer.won for answer in answers)
            assert sum(not answer.replayed for answer in answers) == 1
            assert harness.record(claim.job_id).attempts == 1

    def test_old_and_new_claim_at_once(self, harness: Harness) -> None:
        """The stale run and the live one end at the same moment: the live one always wins."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            old = harness.running()
            harness.store.hand_back([old], now=harness.now)
            new = harness.claim_job(old.job_id)
            stale, live = results(
                [
                    partial(harness.complete, old, harness.failure(), store=one),
                    partial(harness.complete, new, store=two),
                ]
            )
            assert (stale.won, live.won) == (False, True)
            assert harness.status(old.job_id) is JobStatus.SUCCEEDED

    def test_retrying_twice_at_once(self, harness: Harness) -> None:
        """One caller retries the job; the others find it PENDING."""
        stores = harness.reopen_many(3)
        for _ in range(ROUNDS):
            job_id = harness.failed()
            assert sum(results([partial(s.retry, job_id, now=harness.now) for s in stores])) == 1
            harness.end(harness.claim_job(job_id))

    def test_handing_back_against_completing(self, harness: Harness) -> None:
        """The job has succeeded or was handed back, never both."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            claim = harness.running()
            answer, back = self.run_race(
                harness,
                partial(harness.complete, claim, store=one),
                partial(two.hand_back, [claim], now=harness.now),
            )
            won = answer.won  # type: ignore[attr-defined]
            assert won == (back == 0)
            assert harness.status(claim.job_id) is (JobStatus.SUCCEEDED if won else JobStatus.PENDING)
            harness.end_all(harness.claim())

    def test_resuming_against_canceling(self, harness: Harness) -> None:
        """The job is CANCELED in the end, and is not claimed."""
        one, two = harness.reopen_many(2)
        for _ in range(ROUNDS):
            job_id = harness.paused()
            self.run_race(
                harness,
                partial(one.resume, job_id, now=harness.now),
                partial(two.cancel, job_id, reason="r", now=harness.now),
            )
            assert harness.status(job_id) is JobStatus.CANCELED
            assert harness.claim() == []


class TestRetryRace:
    @pytest.mark.parametrize("key", [None, "k"])
    def test_a_retry_by_hand_against_the_end_of_old_code(self, harness: Harness, key: str | None) -> None:
        """Whichever is first, the job is due when both are over, and its key is its own."""
        other = harness.reopen()
        for _ in range(ROUNDS):
            claim = harness.running(business_key=key)
            harness.end(claim, harness.failure(), still_running=True)
            retry = partial(harness.store.retry, claim.job_id, now=harness.now)
            settle = partial(other.settle, [claim], now=harness.now)
            runners: list[Callable[[], object]] = [retry, settle]
            assert results(runners)[0]
            assert harness.store.explain(claim.job_id, now=harness.now) == []
            if key is not None:
                with pytest.raises(BusinessKeyBusy):
                    harness.submit(business_key=key)
            harness.end(harness.claim_job(claim.job_id))

    def test_a_retry_by_hand_against_the_death_of_a_node(self, harness: Harness) -> None:
        """Whichever is first, the job is due when both are over."""
        other = harness.reopen()
        for number in range(ROUNDS):
            node = harness.register(f"node-{number}")
            claim = harness.running(node=node)
            harness.end(claim, harness.failure(), still_running=True)
            retry = partial(harness.store.retry, claim.job_id, now=harness.now)
            beat = harness.beat_of(node)
            rescue = partial(other.rescue, node, seen_beat=beat, by="rescuer", max_crashes=3, now=harness.now)
            runners: list[Callable[[], object]] = [retry, rescue]
            assert results(runners)[0]
            assert harness.store.explain(claim.job_id, now=harness.now) == []
            harness.end(harness.claim_job(claim.job_id, node_id="node-alive"))
