"""The in-memory store: order, fences, and what an end means for others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.model.claim import ClaimRequest
from ratchet.model.composition import BatchSpec, EdgeKind, SignalSpec
from ratchet.model.decision import Completion, CountCrash, Retry, Succeed, Verdict, VerdictKind
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import JobFilter, JobSpec, Progress, SignalWait, StreamKey
from ratchet.model.status import Busy, JobStatus, JobType, Lane, Priority
from ratchet.spi.store import JobStore
from ratchet.stores.memory import MemoryStore
from tests.unit.stores.memory_shop import FAILURE, MINUTE, NODE, NOW, Shop, content, edge


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.store.check_invariants()


def test_it_is_a_job_store() -> None:
    """The type checker accepts it as a JobStore, and it says what it cannot do."""
    store: JobStore = MemoryStore()
    assert (store.capabilities.survives_restart, store.capabilities.several_processes) == (False, False)
    assert (store.capabilities.transactions, store.capabilities.within) == (True, True)
    assert store.migrate() == []
    store.check_schema()
    store.close()
    assert store.counts() == dict.fromkeys(JobStatus, 0)


class TestClaimOrder:
    @settings(max_examples=60, deadline=None)
    @given(
        jobs=st.lists(
            st.tuples(
                st.sampled_from(list(Priority)), st.integers(-90, 10), st.sampled_from(["a", "b", "c"])
            ),
            max_size=40,
        ),
        boost=st.sampled_from([None, timedelta(seconds=7), timedelta(minutes=15)]),
        limit=st.integers(1, 9),
    )
    def test_exactly_the_order_of_a_full_sort(
        self, jobs: list[tuple[Priority, int, str]], boost: timedelta | None, limit: int
    ) -> None:
        """Claimed in portions over several streams, jobs come as if the whole backlog had been sorted."""
        shop = Shop()
        specs = [
            shop.spec(
                priority=priority,
                scheduled_at=NOW + timedelta(seconds=seconds),
                stream=StreamKey(queue=queue),
            )
            for priority, seconds, queue in jobs
        ]
        shop.submit(*specs)

        def rank(spec: JobSpec) -> tuple[int, datetime, UUID]:
            raised = (NOW - spec.scheduled_at) // boost if boost else 0
            return -(spec.priority + raised), spec.scheduled_at, spec.job_id

        expected = [spec.job_id for spec in sorted(specs, key=rank) if spec.scheduled_at <= NOW]
        got: list[UUID] = []
        while True:
            request = ClaimRequest(node_id=NODE, claim_id=shop.id(), limit=limit, boost_interval=boost)
            claims = shop.store.claim_next_batch(request, now=NOW)
            if not claims:
                break
            got += [job.claim.job_id for job in claims]
        assert got == expected
        shop.store.check_invariants()

    def test_permits_go_to_the_first_in_claim_order(self, shop: Shop) -> None:
        """Two streams share one resource: its permits go to the best jobs of both, other jobs pass by."""
        shop.store.set_limit("gateway", concurrent=2, now=NOW)
        gated = [
            shop.spec(stream=StreamKey(queue=queue, resource="gateway"), priority=priority)
            for queue, priority in (("a", Priority.LOW), ("b", Priority.HIGH), ("a", Priority.NORMAL))
        ]
        free = shop.spec(priority=Priority.LOWEST)
        shop.submit(*gated, free)
        claims = shop.claim()
        assert [claim.job_id for claim in claims] == [gated[1].job_id, gated[2].job_id, free.job_id]
        assert shop.store.limits()[0].held == 2
        shop.end(claims[0])
        assert [claim.job_id for claim in shop.claim()] == [gated[0].job_id]

    def test_a_rate_lets_no_more_through_than_it_says(self, shop: Shop) -> None:
        """Three per minute: three at once, and again exactly when `explain` said."""
        shop.store.set_limit("gateway", rate=3, period=MINUTE, now=NOW)
        shop.submit(*(shop.spec(stream=StreamKey(limit_key="gateway")) for _ in range(6)))
        assert len(shop.claim()) == 3
        waiting = shop.store.find(JobFilter(statuses=[JobStatus.PENDING])).items[-1].job_id
        ((code, _, until),) = shop.store.explain(waiting, now=NOW)
        assert (code, until) == ("rate_limited", NOW + MINUTE)
        assert shop.claim(now=NOW + MINUTE - timedelta(microseconds=1)) == []
        assert len(shop.claim(now=NOW + MINUTE)) == 3

    def test_threads_share_the_queue_without_overlap(self) -> None:
        """Eight threads empty a queue of 2,000 jobs; every job is claimed and ended once."""
        shop = Shop()
        shop.submit(*(shop.spec() for _ in range(2000)))
        got: list[UUID] = []

        def work(node: str) -> None:
            while claims := shop.claim(7, node=node):
                assert all(shop.end(claim).won for claim in claims)
                got.extend(claim.job_id for claim in claims)

        threads = [threading.Thread(target=work, args=(f"node-{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(got) == len(set(got)) == 2000
        assert shop.store.counts()[JobStatus.SUCCEEDED] == 2000
        shop.store.check_invariants()


class TestFence:
    def test_an_old_claim_of_the_same_node_changes_nothing(self, shop: Shop) -> None:
        """Completed, retried and claimed again: the old claim ends, parks, saves and hands back nothing."""
        old = shop.run(shop.spec())
        shop.end(old, FAILURE)
        assert shop.store.retry(old.job_id, now=NOW)
        (new,) = shop.claim()
        before = content(shop.store)
        assert not shop.end(old).won
        assert not shop.store.park(old, "t", now=NOW)
        assert not shop.store.save_state(old, "{}", now=NOW)
        assert not shop.store.save_progress(old, Progress(fraction=0.5), now=NOW)
        assert shop.store.hand_back([old], now=NOW) == 0
        shop.store.settle([old], now=NOW)
        assert content(shop.store) == before
        assert shop.end(new).won

    def test_rows_that_others_wrote_are_no_replay(self, shop: Shop) -> None:
        """A cancel, a rescue and a goodbye leave a row for the run; a late completion has lost all the same."""
        shop.register()
        canceled, rescued = shop.run(shop.spec()), shop.run(shop.spec())
        shop.store.cancel(canceled.job_id, reason="r", now=NOW)
        assert shop.store.rescue(NODE, seen_beat=0, by="x", max_crashes=3, now=NOW) is not None
        (left,) = shop.claim(node="node-2")
        shop.store.deregister("node-2", now=NOW)
        for claim in (canceled, rescued, left):
            assert len(shop.store.executions(claim.job_id, uncounted=True)) >= 1
            for decision in (Succeed(), FAILURE, CountCrash(detail="boom", max_crashes=3)):
                answer = shop.end(claim, decision)
                assert (answer.won, answer.replayed) == (False, False)


class TestCodeThatStillRuns:
    def test_a_canceled_retry_leaves_the_key_to_the_run_that_goes_on(self, shop: Shop) -> None:
        """Timed out, not stopped, retried, the retry canceled: the key stays taken until the code has ended."""
        claim = shop.run(shop.spec(business_key="k"))
        shop.end(claim, Retry(at=NOW, error=FAILURE.error), still_running=True)
        assert shop.store.cancel(claim.job_id, reason="r", now=NOW)
        with pytest.raises(BusinessKeyBusy):
            shop.submit(shop.spec(business_key="k"))
        shop.store.check_invariants()
        shop.store.settle([claim], now=NOW)
        shop.submit(shop.spec(business_key="k"))

    def test_a_retry_by_hand_waits_for_the_run_that_goes_on(self, shop: Shop) -> None:
        """Two runs of one job never overlap by a retry; its key stays its own, also when the old code ends."""
        claim = shop.run(shop.spec(business_key="k"))
        shop.end(claim, FAILURE, still_running=True)
        assert shop.store.retry(claim.job_id, now=NOW)
        assert shop.claim() == []
        shop.store.check_invariants()
        shop.store.settle([claim], now=NOW)
        assert [c.job_id for c in shop.claim()] == [claim.job_id]
        with pytest.raises(BusinessKeyBusy):
            shop.submit(shop.spec(business_key="k"))

    def test_a_deleted_job_s_code_still_holds_key_and_permit(self, shop: Shop) -> None:
        """Canceled while RUNNING, then deleted: the code goes on, so key and permit stay taken until it ends."""
        shop.store.set_limit("gateway", concurrent=1, now=NOW)
        claim = shop.run(shop.spec(business_key="k", stream=StreamKey(resource="gateway")))
        shop.store.cancel(claim.job_id, reason="r", now=NOW)
        assert shop.store.delete(claim.job_id)
        shop.store.check_invariants()
        assert shop.store.limits()[0].held == 1
        with pytest.raises(BusinessKeyBusy):
            shop.submit(shop.spec(business_key="k"))
        shop.store.settle([claim], now=NOW)
        assert shop.store.limits()[0].held == 0
        shop.submit(shop.spec(business_key="k"))

    def test_replacing_a_job_whose_earlier_run_goes_on_cancels_it_and_waits(self, shop: Shop) -> None:
        """Busy.REPLACE of a held-back retry: canceled like a RUNNING holder, the key comes free with the code."""
        claim = shop.run(shop.spec(business_key="k"))
        shop.end(claim, Retry(at=NOW, error=FAILURE.error), still_running=True)
        new = shop.spec(business_key="k", busy=Busy.REPLACE)
        with pytest.raises(BusinessKeyBusy):
            shop.submit(new)
        assert shop.status(claim) is JobStatus.CANCELED
        shop.store.settle([claim], now=NOW)
        shop.submit(new)
        assert shop.status(new) is JobStatus.PENDING


class TestFailureCallbacks:
    def test_whoever_gives_up_on_a_job_calls_back(self, shop: Shop) -> None:
        """No worker ends a crashed, a signal-less or a condition-less job, so the store makes its callback."""
        shop.register()
        signal = SignalWait(key="go", deadline=NOW)
        crashed, dead = (shop.run(shop.spec(on_failure="a:alert")) for _ in range(2))
        unsignaled = shop.spec(status=JobStatus.WAITING, signal=signal, on_failure="a:alert")
        parent, branch = shop.spec(), shop.step(on_failure="a:alert")
        shop.submit(unsignaled, parent, branch, edges=(edge(parent, branch, EdgeKind.CONDITION),))
        shop.end(crashed, CountCrash(detail="exit code -9", max_crashes=1))
        shop.store.expire(now=NOW, limit=9)
        claim = next(claim for claim in shop.claim(node="node-2") if claim.job_id == parent.job_id)
        verdict = Verdict(child_id=branch.job_id, kind=VerdictKind.ERROR)
        shop.store.complete([Completion(claim=claim, decision=Succeed(), verdicts=(verdict,))], now=NOW)
        shop.store.rescue(NODE, seen_beat=0, by="x", max_crashes=1, now=NOW)
        callbacks = shop.store.find(JobFilter(types=[JobType.CALLBACK])).items
        assert {callback.target for callback in callbacks} == {"a:alert"}
        assert sorted(str(callback.parent_id) for callback in callbacks) == sorted(
            str(job.job_id) for job in (crashed, dead, unsignaled, branch)
        )

    def test_a_crash_that_is_not_the_last_calls_nobody(self, shop: Shop) -> None:
        """The job goes on; so does a job without a callback when it dies."""
        shop.end(shop.run(shop.spec(on_failure="a:alert")), CountCrash(detail="x", max_crashes=3))
        shop.end(shop.run(shop.spec()), CountCrash(detail="x", max_crashes=1))
        assert shop.store.count(JobFilter(types=[JobType.CALLBACK])) == 0


class TestComposition:
    def test_a_failure_cancels_and_its_retry_revives_the_whole_tree(self, shop: Shop) -> None:
        """Two branches meet in a join: all three are canceled by the failure and wait again after the retry."""
        root, left, right = shop.spec(), shop.step(), shop.step()
        join = shop.spec(status=JobStatus.WAITING, needs=2, business_key="k")
        shop.submit(
            *(root, left, right, join),
            edges=(edge(root, left), edge(root, right), edge(left, join), edge(right, join)),
        )
        answer = shop.end(shop.claim()[0], FAILURE)
        assert [(c.job_id, c.reason) for c in answer.canceled] == [
            (left.job_id, "parent_failed"),
            (join.job_id, "parent_canceled"),
            (right.job_id, "parent_failed"),
        ]
        shop.store.check_invariants()
        assert shop.store.retry(root.job_id, now=NOW)
        assert {shop.status(spec) for spec in (left, right, join)} == {JobStatus.WAITING}
        shop.store.check_invariants()
        for _ in range(3):
            for claim in shop.claim():
                assert shop.end(claim).won
        assert {shop.status(spec) for spec in (root, left, right, join)} == {JobStatus.SUCCEEDED}

    def test_a_dependant_that_another_parent_forbids_stays_canceled(self, shop: Shop) -> None:
        """One parent of a join failed, the other was canceled by a person: retrying the first revives nobody."""
        one, other, join = shop.spec(), shop.spec(), shop.spec(status=JobStatus.WAITING, needs=2)
        shop.submit(one, other, join, edges=(edge(one, join), edge(other, join)))
        shop.store.cancel(other.job_id, reason="r", now=NOW)
        shop.end(shop.claim()[0], FAILURE)
        assert shop.store.retry(one.job_id, now=NOW)
        assert shop.status(join) is JobStatus.CANCELED

    def test_a_finished_batch_whose_child_is_retried_opens_again(self, shop: Shop) -> None:
        """The parent waits again, what its end had canceled waits with it, and it is released once more."""
        batch_id, parent = shop.id(), shop.spec(status=JobStatus.WAITING, type=JobType.BATCH_PARENT)
        child, done = shop.spec(batch_id=batch_id), shop.step()
        batch = BatchSpec(batch_id=batch_id, name="b", parent=parent, total=1)
        shop.store.insert([child, done], now=NOW, edges=[edge(parent, done)], batch=batch)
        answer = shop.end(shop.claim()[0], FAILURE)
        assert (answer.released, answer.finished_batches) == ((parent.job_id,), (batch_id,))
        shop.end(shop.claim()[0], FAILURE)
        assert [shop.status(spec) for spec in (parent, done)] == [JobStatus.FAILED, JobStatus.CANCELED]
        assert shop.store.retry_failed(batch_id, now=NOW) == 1
        assert [shop.status(spec) for spec in (parent, done)] == [JobStatus.WAITING, JobStatus.WAITING]
        shop.store.check_invariants()
        assert shop.end(shop.claim()[0]).finished_batches == (batch_id,)
        shop.end(shop.claim()[0])
        assert [shop.status(spec) for spec in (parent, done)] == [JobStatus.SUCCEEDED, JobStatus.PENDING]

    def test_ten_thousand_steps_are_canceled_without_running_out_of_stack(self, shop: Shop) -> None:
        """Depth-first does not mean recursive; the same for their revival."""
        specs = [shop.spec(), *(shop.step() for _ in range(10_000))]
        shop.submit(*specs, edges=tuple(edge(a, b) for a, b in pairwise(specs)))
        assert len(shop.end(shop.claim()[0], FAILURE).canceled) == 10_000
        assert shop.store.retry(specs[0].job_id, now=NOW)
        assert shop.store.counts()[JobStatus.WAITING] == 10_000

    def test_a_kept_signal_goes_to_the_first_waiter_only(self, shop: Shop) -> None:
        """Kept for an hour, consumed by the first job that waits for it; the second waits."""
        until = NOW + timedelta(hours=1)
        assert (
            shop.store.send_signal(SignalSpec(signal_id=shop.id(), key="go", keep_until=until), now=NOW) == []
        )
        first, second = (shop.spec(status=JobStatus.WAITING, signal=SignalWait(key="go")) for _ in range(2))
        shop.submit(first)
        shop.submit(second)
        assert [shop.status(spec) for spec in (first, second)] == [JobStatus.PENDING, JobStatus.WAITING]
        assert shop.store.waiting_for("go") == [second.job_id]


def test_every_lane_is_its_own(shop: Shop) -> None:
    """A process job is not given to threads, and `explain` does not blame the lane."""
    spec = shop.spec(stream=StreamKey(lane=Lane.PROCESS))
    shop.submit(spec)
    assert shop.claim() == []
    assert shop.store.explain(spec.job_id, now=NOW) == []
