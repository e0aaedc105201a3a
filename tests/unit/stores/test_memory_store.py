"""The in-memory store beyond the conformance kit: atomicity, transactions, determinism, invariants."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.model.claim import ClaimRequest, JobClaim
from ratchet.model.cluster import NodeSpec
from ratchet.model.composition import BatchSpec, Edge, EdgeKind, Fire, ScheduleSpec, SignalSpec
from ratchet.model.decision import (
    Completion,
    CompletionAnswer,
    CountCrash,
    Decision,
    ErrorRecord,
    Fail,
    HandBack,
    Retry,
    Succeed,
    Verdict,
    VerdictKind,
)
from ratchet.model.errors import (
    BusinessKeyBusy,
    ConfigurationError,
    Conflict,
    StoreError,
    SubmissionBlocked,
    UnstorableData,
)
from ratchet.model.job import JobFilter, JobSpec, Progress, SignalWait, StreamKey
from ratchet.model.status import Busy, JobStatus, JobType, Lane, Priority
from ratchet.spi.store import JobStore
from ratchet.stores.memory import MemoryStore
from ratchet.stores.memory.rows import Reservation
from ratchet.stores.memory.tables import Table

NOW = datetime(2031, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NODE = "node-1"


class Shop:
    """A store and the words to use it; ids count from 1, so that two shops do exactly the same."""

    def __init__(self, *, lock_wait: timedelta = timedelta()) -> None:
        self.store = MemoryStore(lambda: NOW, lock_wait=lock_wait)
        self.numbers = count(1)

    def id(self) -> UUID:
        return UUID(int=next(self.numbers) << 80 | 0x7 << 76 | 0b10 << 62)

    def spec(self, **changes: object) -> JobSpec:
        values: dict[str, object] = {
            "job_id": self.id(),
            "target": "a:b",
            "payload": "{}",
            "scheduled_at": NOW,
        }
        return JobSpec(**(values | changes))  # type: ignore[arg-type]

    def step(self, **changes: object) -> JobSpec:
        return self.spec(status=JobStatus.WAITING, needs=1, **changes)

    def submit(self, *specs: JobSpec, edges: tuple[Edge, ...] = (), within: object | None = None) -> None:
        self.store.insert(specs, now=NOW, edges=edges, within=within)

    def claim(self, limit: int = 1000, *, node: str = NODE, now: datetime = NOW) -> list[JobClaim]:
        request = ClaimRequest(node_id=node, claim_id=self.id(), limit=limit)
        return self.store.claim_next_batch_optimized(request, now=now)

    def run(self, spec: JobSpec) -> JobClaim:
        """Submit a job and claim it."""
        self.submit(spec)
        return next(claim for claim in self.claim() if claim.job_id == spec.job_id)

    def end(
        self,
        claim: JobClaim,
        decision: Decision | None = None,
        *,
        within: object | None = None,
        lingers: bool = False,
    ) -> CompletionAnswer:
        completion = Completion(
            claim=claim,
            decision=decision or Succeed(result="1"),
            started_at=NOW,
            finished_at=NOW,
            lingers=lingers,
        )
        return self.store.complete([completion], now=NOW, within=within)[0]

    def status(self, job: JobSpec | JobClaim) -> JobStatus:
        record = self.store.get(job.job_id)
        assert record is not None
        return record.status

    def register(self, node: str = NODE) -> None:
        self.store.register(
            NodeSpec(
                node_id=node,
                name=node,
                host="h",
                pid=1,
                version="1",
                beat_interval=timedelta(seconds=2),
                silence=timedelta(seconds=5),
            ),
            now=NOW,
        )


class Broken(Exception):
    """The machine stopped here."""


FAILURE = Fail(error=ErrorRecord(message="no", type="E"), reason="r", error_hash="h")


def edge(parent: JobSpec, child: JobSpec, kind: EdgeKind = EdgeKind.SUCCESS) -> Edge:
    return Edge(parent_id=parent.job_id, child_id=child.job_id, kind=kind)


def content(store: MemoryStore) -> dict[str, dict[object, object]]:
    """Every row of every table."""
    tables = [value for value in vars(store._state).values() if isinstance(value, Table)]
    assert len(tables) > 15
    return {table.name: dict(table.items()) for table in tables}


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


class TestLingering:
    def test_a_canceled_retry_leaves_the_key_to_the_run_that_goes_on(self, shop: Shop) -> None:
        """Timed out, not stopped, retried, the retry canceled: the key stays taken until the code has ended."""
        claim = shop.run(shop.spec(business_key="k"))
        shop.end(claim, Retry(at=NOW, error=FAILURE.error), lingers=True)
        assert shop.store.cancel(claim.job_id, reason="r", now=NOW)
        with pytest.raises(BusinessKeyBusy):
            shop.submit(shop.spec(business_key="k"))
        shop.store.check_invariants()
        shop.store.settle([claim], now=NOW)
        shop.submit(shop.spec(business_key="k"))

    def test_a_retry_by_hand_does_not_wait_for_the_run_that_goes_on(self, shop: Shop) -> None:
        """Who retries a dead letter wants it to run now; its key stays its own, also when the old code ends."""
        claim = shop.run(shop.spec(business_key="k"))
        shop.end(claim, FAILURE, lingers=True)
        assert shop.store.retry(claim.job_id, now=NOW)
        assert [c.job_id for c in shop.claim()] == [claim.job_id]
        shop.store.settle([claim], now=NOW)
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
        shop.end(claim, Retry(at=NOW, error=FAILURE.error), lingers=True)
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


class TestTransactions:
    def test_nobody_sees_it_before_the_commit(self, shop: Shop) -> None:
        """Inserted and completed inside: both are there after the block, and not a moment before."""
        running, new = shop.run(shop.spec()), shop.spec()
        with shop.store.begin() as transaction:
            shop.submit(new, within=transaction)
            assert shop.end(running, within=transaction).won
            transaction.write("effects", "charged")
            assert shop.store.get(new.job_id) is None
            assert shop.status(running) is JobStatus.RUNNING
            assert shop.claim() == []
            assert shop.store.ledger("effects") == []
        assert (shop.status(new), shop.status(running)) == (JobStatus.PENDING, JobStatus.SUCCEEDED)
        assert shop.store.ledger("effects") == ["charged"]

    def test_an_error_discards_everything(self, shop: Shop) -> None:
        """Jobs, keys, completions and the ledger of a rolled-back block never were."""
        running = shop.run(shop.spec())
        before = content(shop.store)

        def charge_and_stumble() -> None:
            with shop.store.begin() as transaction:
                shop.submit(shop.spec(business_key="k", idempotency_key="i"), within=transaction)
                shop.end(running, within=transaction)
                transaction.write("effects", "charged")
                raise Broken

        with pytest.raises(Broken):
            charge_and_stumble()
        assert content(shop.store) == before
        assert shop.store.ledger("effects") == []
        shop.submit(shop.spec(business_key="k", idempotency_key="i"))

    def test_it_sees_its_own_writes(self, shop: Shop) -> None:
        """The second submission of a key inside one block is answered by the first."""
        first, second = shop.spec(idempotency_key="i"), shop.spec(idempotency_key="i")
        with shop.store.begin() as transaction:
            shop.submit(first, within=transaction)
            (answer,) = shop.store.insert([second], now=NOW, within=transaction)
            assert (answer.job_id, answer.created) == (first.job_id, False)
        assert shop.store.counts()[JobStatus.PENDING] == 1

    def test_it_stays_usable_after_a_busy_key(self, shop: Shop) -> None:
        """BusinessKeyBusy inside the block: what was done before and after it commits."""
        shop.submit(shop.spec(business_key="k"))
        before, after = shop.spec(), shop.spec()
        with shop.store.begin() as transaction:
            shop.submit(before, within=transaction)
            with pytest.raises(BusinessKeyBusy):
                shop.submit(shop.spec(business_key="k"), within=transaction)
            shop.submit(after, within=transaction)
        assert {shop.status(before), shop.status(after)} == {JobStatus.PENDING}
        assert shop.store.counts()[JobStatus.PENDING] == 3

    def test_a_key_of_an_open_transaction_blocks_others(self, shop: Shop) -> None:
        """With no time to wait the other submission is blocked, and is answered after the commit."""
        first, second = shop.spec(idempotency_key="i"), shop.spec(idempotency_key="i")
        with shop.store.begin() as transaction:
            shop.submit(first, within=transaction)
            with pytest.raises(SubmissionBlocked):
                shop.submit(second)
        (answer,) = shop.store.insert([second], now=NOW)
        assert (answer.job_id, answer.created) == (first.job_id, False)
        assert shop.store.counts()[JobStatus.PENDING] == 1

    def test_the_loser_waits_and_gets_the_winner(self) -> None:
        """Two threads, one key: the second is answered when the first has committed, with the first's job."""
        shop = Shop(lock_wait=timedelta(seconds=30))
        winner, loser = shop.spec(idempotency_key="i"), shop.spec(idempotency_key="i")
        answers: list[UUID] = []
        with shop.store.begin() as transaction:
            shop.submit(winner, within=transaction)
            thread = threading.Thread(
                target=lambda: answers.extend(a.job_id for a in shop.store.insert([loser], now=NOW))
            )
            thread.start()
            thread.join(0.05)
            assert answers == []
        thread.join()
        assert answers == [winner.job_id]

    def test_a_locked_job_cannot_be_canceled_but_claims_pass_it_by(self, shop: Shop) -> None:
        """What an open transaction has written is locked: cancel waits (and gives up), a claim takes the next."""
        running, held, free = shop.run(shop.spec()), shop.spec(business_key="k"), shop.spec()
        shop.submit(held, free)
        with shop.store.begin() as transaction:
            shop.end(running, within=transaction)
            shop.submit(shop.spec(business_key="k", busy=Busy.REPLACE), within=transaction)
            with pytest.raises(Conflict):
                shop.store.cancel(running.job_id, reason="r", now=NOW)
            assert [claim.job_id for claim in shop.claim()] == [free.job_id]
        assert (shop.status(running), shop.status(held)) == (JobStatus.SUCCEEDED, JobStatus.CANCELED)

    def test_a_block_that_was_overtaken_is_refused_whole(self, shop: Shop) -> None:
        """Its answer rested on a job that another call has ended since: Conflict, and nothing is written."""
        parent, child = shop.spec(), shop.step()
        shop.submit(parent)

        def follow_a_parent_that_goes() -> None:
            with shop.store.begin() as transaction:
                shop.submit(child, edges=(edge(parent, child),), within=transaction)
                assert shop.store.delete(parent.job_id)

        with pytest.raises(Conflict):
            follow_a_parent_that_goes()
        assert shop.store.get(child.job_id) is None

    def test_joining_another_block_commits_with_that(self, shop: Shop) -> None:
        """begin(within=...) is the same transaction: the inner end commits nothing."""
        spec = shop.spec()
        with shop.store.begin() as outer:
            with shop.store.begin(within=outer) as inner:
                shop.submit(spec, within=inner)
            assert shop.store.get(spec.job_id) is None
        assert shop.status(spec) is JobStatus.PENDING

    def test_only_its_own_open_transactions_are_accepted(self, shop: Shop) -> None:
        """A connection, another store's transaction and one that has ended are refused, and nothing is stored."""
        with shop.store.begin() as ended:
            pass
        with pytest.raises(StoreError, match="ended"):
            shop.submit(shop.spec(), within=ended)
        with pytest.raises(StoreError, match="ended"):
            ended.write("effects", 1)
        with Shop().store.begin() as foreign, pytest.raises(StoreError):
            shop.submit(shop.spec(), within=foreign)
        with pytest.raises(ConfigurationError, match="begin"):
            shop.submit(shop.spec(), within=object())
        assert shop.store.counts()[JobStatus.PENDING] == 0


# --- a call that fails leaves nothing behind ------------------------------------------------------


def furnished() -> tuple[Shop, dict[str, JobSpec], dict[str, JobClaim]]:
    """A shop with something of everything; the same every time."""
    shop = Shop()
    shop.register()
    shop.store.set_limit("gateway", concurrent=9, rate=100, period=MINUTE, now=NOW)
    batch_id = shop.id()
    jobs = {
        "running": shop.spec(business_key="running", stream=StreamKey(resource="gateway")),
        "child": shop.step(business_key="child"),
        "grandchild": shop.step(),
        "failure branch": shop.step(),
        "batch child": shop.spec(batch_id=batch_id),
        "dead": shop.spec(business_key="dead", batch_id=batch_id),
        "victim": shop.step(business_key="victim"),
        "canceled": shop.spec(business_key="canceled", stream=StreamKey(resource="gateway")),
        "third crash": shop.spec(),
        "later": shop.spec(
            scheduled_at=NOW + MINUTE,
            business_key="later",
            expires_at=NOW + 2 * MINUTE,
            stream=StreamKey(resource="gateway"),
        ),
        "signal": shop.spec(status=JobStatus.WAITING, signal=SignalWait(key="go", deadline=NOW + MINUTE)),
    }
    parent = shop.spec(status=JobStatus.WAITING, type=JobType.BATCH_PARENT)
    edges = [
        edge(jobs["running"], jobs["child"]),
        edge(jobs["child"], jobs["grandchild"]),
        edge(jobs["running"], jobs["failure branch"], EdgeKind.FAILURE),
        edge(jobs["dead"], jobs["victim"]),
    ]
    batch = BatchSpec(batch_id=batch_id, name="b", parent=parent, total=2)
    shop.store.insert(list(jobs.values()), now=NOW, edges=edges, batch=batch)
    claims = {
        name: claim for claim in shop.claim() for name, spec in jobs.items() if spec.job_id == claim.job_id
    }
    shop.end(claims["dead"], FAILURE)
    shop.store.cancel(claims["canceled"].job_id, reason="r", now=NOW)
    jobs["parent"] = parent
    shop.store.upsert_schedule(
        ScheduleSpec(
            name="n", expression="* * * * *", zone="UTC", target="a:b", template="", next_fire_at=NOW
        ),
        now=NOW,
    )
    shop.store.check_invariants()
    return shop, jobs, claims


Call = Callable[[Shop, dict[str, JobSpec], dict[str, JobClaim]], object]

CALLS: dict[str, Call] = {
    "success": lambda shop, jobs, claims: shop.end(claims["running"]),
    "failure": lambda shop, jobs, claims: shop.end(claims["running"], FAILURE),
    "lingering failure": lambda shop, jobs, claims: shop.end(claims["running"], FAILURE, lingers=True),
    "last child": lambda shop, jobs, claims: shop.end(claims["batch child"]),
    "last crash": lambda shop, jobs, claims: shop.end(
        claims["running"], CountCrash(detail="x", max_crashes=1)
    ),
    "cancel": lambda shop, jobs, claims: shop.store.cancel(jobs["running"].job_id, reason="r", now=NOW),
    "settle": lambda shop, jobs, claims: shop.store.settle([claims["canceled"]], now=NOW),
    "retry": lambda shop, jobs, claims: shop.store.retry(jobs["dead"].job_id, now=NOW),
    "expire": lambda shop, jobs, claims: shop.store.expire(now=NOW + 3 * MINUTE, limit=9),
    "rescue": lambda shop, jobs, claims: shop.store.rescue(NODE, seen_beat=0, by="x", max_crashes=1, now=NOW),
    "deregister": lambda shop, jobs, claims: shop.store.deregister(NODE, now=NOW),
    "delete": lambda shop, jobs, claims: shop.store.delete(jobs["dead"].job_id),
    "signal": lambda shop, jobs, claims: shop.store.send_signal(
        SignalSpec(signal_id=shop.id(), key="go"), now=NOW
    ),
    "cancel batch": lambda shop, jobs, claims: shop.store.cancel_batch(
        jobs["batch child"].batch_id or shop.id(), reason="r", now=NOW
    ),
    "replace": lambda shop, jobs, claims: shop.store.replace(
        jobs["later"].job_id, shop.spec(business_key="later"), now=NOW
    ),
    "insert": lambda shop, jobs, claims: shop.submit(
        shop.spec(idempotency_key="i"), shop.spec(business_key="later", busy=Busy.REPLACE)
    ),
    "claim": lambda shop, jobs, claims: shop.claim(now=NOW + MINUTE),
    "advance": lambda shop, jobs, claims: shop.store.advance(
        "n", expected=NOW, fires=[Fire(fire_at=NOW, spec=shop.spec())], next_fire_at=NOW + MINUTE, now=NOW
    ),
    "cancel many": lambda shop, jobs, claims: shop.store.cancel_matching(
        JobFilter(targets=["a:b"]), limit=99, reason="r", now=NOW
    ),
    "retry many": lambda shop, jobs, claims: shop.store.retry_matching(
        JobFilter(targets=["a:b"]), limit=99, now=NOW
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_raises_halfway_has_changed_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its writes fails, every table and index is as before, and the same call then works."""
    for survived in count():  # how many writes go through before one fails
        shop, jobs, claims = furnished()
        before = content(shop.store)
        with monkeypatch.context() as patch:
            patch.setattr(shop.store._state._journal, "note", _failing_after(survived, shop.store))
            try:
                CALLS[name](shop, jobs, claims)
                break  # it needs no more writes than that
            except Broken:
                pass
        assert content(shop.store) == before
        shop.store.check_invariants()
        CALLS[name](shop, jobs, claims)
        assert content(shop.store) != before
        shop.store.check_invariants()
    assert survived >= 2


def _failing_after(writes: int, store: MemoryStore) -> Callable[..., None]:
    """The journal's `note`, which every write calls first; it fails after so many."""
    note, made = store._state._journal.note, count()

    def counted(table: Table[object, object], key: object, old: object) -> None:
        if next(made) == writes:
            raise Broken
        note(table, key, old)

    return counted


def test_unstorable_data_is_refused_whole(shop: Shop) -> None:
    """One bad text among good completions: UnstorableData, nothing of the call is written."""
    shop.submit(*(shop.spec() for _ in range(3)))
    claims = shop.claim()
    before = content(shop.store)
    for result in ('"\x00"', '"\ud800"'):
        decisions = [Succeed(result="1"), Succeed(result=result), Succeed(result="3")]
        completions = [
            Completion(claim=claim, decision=decision)
            for claim, decision in zip(claims, decisions, strict=True)
        ]
        with pytest.raises(UnstorableData):
            shop.store.complete(completions, now=NOW)
        assert content(shop.store) == before


# --- random histories -----------------------------------------------------------------------------


def random_history(choices: list[tuple[int, int]]) -> MemoryStore:
    """Whatever the numbers say, in order: each names a call and a job."""
    shop, _, claims = furnished()
    store, now = shop.store, NOW
    for what, which in choices:
        now += timedelta(seconds=which % 50)
        ids = sorted(store._state.jobs.keys())
        job_id = ids[which % len(ids)]
        held = [c for c in claims.values() if store.claims_of(c.node_id).get(c.job_id) == c.claim_id]
        claim = held[which % len(held)] if held else None
        if what < len(ENDS) and claim is not None:
            completion = Completion(
                claim=claim, decision=ENDS[what], started_at=now, finished_at=now, lingers=which % 3 == 0
            )
            store.complete([completion], now=now)
        elif what == 5:
            claims |= {str(shop.id()): claim for claim in shop.claim(1 + which % 4, now=now)}
        elif what == 6:
            store.cancel(job_id, reason="r", now=now)
        elif what == 7:
            store.pause(job_id, now=now)
        elif what == 8:
            store.resume(job_id, now=now)
        elif what == 9:
            try:
                store.retry(job_id, now=now)
            except BusinessKeyBusy:
                pass
        elif what == 10:
            store.settle(list(claims.values())[: which % 9], now=now)
        elif what == 11:
            parent = store._state.jobs[job_id].spec
            child = shop.step(business_key=f"k{which % 4}", busy=Busy.RETURN)
            store.insert([child], now=now, edges=[edge(parent, child, list(EdgeKind)[which % 4])])
        elif what == 12:
            store.rescue(NODE, seen_beat=0, by="x", max_crashes=2, now=now)
            shop.register()
        elif what == 13:
            store.delete(job_id)
        elif what == 14:
            store.expire(now=now, limit=2)
        elif what == 15:
            store.archive(before=now, limit=3, now=now)
            store.purge_archive(before=now - MINUTE, limit=1)
        elif what == 16:
            store.reschedule(job_id, now + timedelta(seconds=which - 10), now=now)
        elif what == 17:
            store.send_signal(SignalSpec(signal_id=shop.id(), key="go"), now=now)
        elif what == 18:
            try:
                store.insert([shop.spec(business_key=f"k{which % 4}", busy=Busy.REPLACE)], now=now)
            except BusinessKeyBusy:
                pass
        store.check_invariants()
    return store


ENDS: list[Decision] = [
    Succeed(result="1"),
    Retry(at=NOW, error=FAILURE.error),
    FAILURE,
    CountCrash(detail="x", max_crashes=2),
    HandBack(),
]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 18), st.integers(0, 60)), min_size=5, max_size=40))
def test_no_history_breaks_an_invariant_and_each_repeats_exactly(choices: list[tuple[int, int]]) -> None:
    """After every call of a random history all rules hold; the same history again gives the same rows."""
    assert content(random_history(choices)) == content(random_history(choices))


class TestInvariants:
    def test_a_leaked_key_is_found(self) -> None:
        """A reservation without a holder is named."""
        shop = Shop()
        state = shop.store._state
        state.run(lambda: state.reservations.put("k", Reservation(job_id=shop.id(), reserved_at=NOW)))
        with pytest.raises(AssertionError, match="business key 'k'"):
            shop.store.check_invariants()

    @pytest.mark.parametrize(
        ("table", "rule"),
        [
            ("lingering", "ended"),
            ("batches", "waits for nothing"),
            ("reservations", "does not hold its business key"),
            ("edges", "waits for nothing"),
        ],
    )
    def test_whatever_is_lost_is_missed(self, table: str, rule: str) -> None:
        """A table that lost its rows breaks a rule."""
        shop, _, _ = furnished()
        rows: Table[object, object] = getattr(shop.store._state, table)
        shop.store._state.run(lambda: [rows.remove(key) for key in rows.keys()])  # noqa: SIM118 - not a dict
        with pytest.raises(AssertionError, match=rule):
            shop.store.check_invariants()


def test_every_lane_is_its_own(shop: Shop) -> None:
    """A process job is not given to threads, and `explain` does not blame the lane."""
    spec = shop.spec(stream=StreamKey(lane=Lane.PROCESS))
    shop.submit(spec)
    assert shop.claim() == []
    assert shop.store.explain(spec.job_id, now=NOW) == []
