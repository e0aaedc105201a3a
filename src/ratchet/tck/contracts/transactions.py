"""Transactions: what is done in the caller's transaction is committed with it, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from uuid import UUID

import pytest

from ratchet.model.cluster import Rescue
from ratchet.model.errors import BusinessKeyBusy, SubmissionBlocked
from ratchet.model.job import Insertion, Progress
from ratchet.model.status import Busy, JobStatus, Priority
from ratchet.spi.store import JobStore
from ratchet.tck.harness import Harness, needs
from ratchet.tck.race import TIMEOUT, race, results


class Rollback(Exception):
    """Raised to leave a transaction without committing it."""


@contextmanager
def rolled_back(store: JobStore) -> Iterator[object]:
    """A transaction that is rolled back at the end of the block."""
    try:
        with store.begin() as connection:
            yield connection
            raise Rollback
    except Rollback:
        return
    pytest.fail("begin() swallowed the error that its block raised")


def insert_within(harness: Harness, connection: object, **changes: object) -> Insertion:
    """Submit one job on the caller's connection."""
    return harness.store.insert([harness.spec(**changes)], now=harness.now, within=connection)[0]


@needs("transactions", "within")
class TestInsertWithin:
    def test_committed_with_the_caller(self, harness: Harness) -> None:
        """The job is stored when the caller commits."""
        other = harness.reopen()
        spec = harness.spec(tags=("t",), queue="brand-new")
        with harness.store.begin() as connection:
            (answer,) = harness.store.insert([spec], now=harness.now, within=connection)
            assert (answer.job_id, answer.created) == (spec.job_id, True)
        assert other.get(spec.job_id) is not None
        assert [c.job_id for c in harness.claim(store=other)] == [spec.job_id]

    @needs("concurrent_writers")
    def test_nobody_claims_it_before_the_commit(self, harness: Harness) -> None:
        """Other handles can neither see nor claim the job before the caller commits."""
        other = harness.reopen()
        with harness.store.begin() as connection:
            job_id = insert_within(harness, connection).job_id
            assert other.get(job_id) is None
            assert harness.claim(store=other) == []
        assert len(harness.claim(store=other)) == 1

    def test_rolled_back_with_the_caller(self, harness: Harness) -> None:
        """No job, edge or key is left, and the keys can be used."""
        parent, child = harness.spec(idempotency_key="i", business_key="b"), harness.child()
        with rolled_back(harness.store) as connection:
            harness.store.insert(
                [parent, child], now=harness.now, edges=[harness.edge(parent, child)], within=connection
            )
        assert harness.store.get(parent.job_id) is None
        assert harness.store.edges_of(child.job_id) == []
        assert sum(harness.store.counts().values()) == 0
        answers = harness.store.insert([harness.spec(idempotency_key="i", business_key="b")], now=harness.now)
        assert [answer.created for answer in answers] == [True]

    def test_a_busy_key_leaves_the_transaction_usable(self, harness: Harness) -> None:
        """After BusinessKeyBusy the caller can go on in the same transaction and commit it."""
        holder = harness.submit(business_key="k")
        with harness.store.begin() as connection:
            first = insert_within(harness, connection)
            with pytest.raises(BusinessKeyBusy) as caught:
                insert_within(harness, connection, business_key="k")
            assert caught.value.holder == holder
            second = insert_within(harness, connection)
        assert harness.statuses([first.job_id, second.job_id]) == [JobStatus.PENDING] * 2
        assert harness.store.counts()[JobStatus.PENDING] == 3

    def test_a_refused_call_leaves_nothing_of_itself(self, harness: Harness) -> None:
        """The other jobs of the refused call are not stored either, although the caller commits."""
        harness.submit(business_key="k")
        mine, busy = harness.spec(idempotency_key="i"), harness.spec(business_key="k")
        with harness.store.begin() as connection:
            with pytest.raises(BusinessKeyBusy):
                harness.store.insert([mine, busy], now=harness.now, within=connection)
        assert harness.store.get(mine.job_id) is None
        assert harness.store.insert([harness.spec(idempotency_key="i")], now=harness.now)[0].created

    def test_duplicates_are_answered_inside(self, harness: Harness) -> None:
        """A known key is answered with the original; so is a key that this very transaction has stored."""
        original = harness.submit(idempotency_key="known")
        with harness.store.begin() as connection:
            known = insert_within(harness, connection, idempotency_key="known")
            first = insert_within(harness, connection, idempotency_key="new", business_key="b")
            again = insert_within(harness, connection, idempotency_key="new")
            held = insert_within(harness, connection, business_key="b", busy=Busy.RETURN)
        assert (known.job_id, known.created) == (original, False)
        assert (again.job_id, again.created) == (first.job_id, False)
        assert (held.job_id, held.created) == (first.job_id, False)
        assert harness.store.counts()[JobStatus.PENDING] == 2

    def test_replace_inside(self, harness: Harness) -> None:
        """The holder is canceled by the caller's commit, and stays PENDING after a rollback."""
        holder = harness.submit(business_key="k")
        with rolled_back(harness.store) as connection:
            assert insert_within(harness, connection, business_key="k", busy=Busy.REPLACE).replaced == holder
        assert harness.status(holder) is JobStatus.PENDING
        with harness.store.begin() as connection:
            answer = insert_within(harness, connection, business_key="k", busy=Busy.REPLACE)
        assert harness.status(holder) is JobStatus.CANCELED
        assert harness.status(answer.job_id) is JobStatus.PENDING

    @needs("concurrent_writers")
    def test_a_key_that_an_open_transaction_holds(self, harness: Harness) -> None:
        """
        The second submission waits for the first, but not forever: it gets SubmissionBlocked, and the first
        is unharmed.
        """
        other = harness.reopen()
        with harness.store.begin() as connection:
            first = insert_within(harness, connection, idempotency_key="i", business_key="b")
            rivals = [harness.spec(idempotency_key="i"), harness.spec(business_key="b")]
            blocked = race([partial(other.insert, [rival], now=harness.now) for rival in rivals])
            assert [type(finish.error) for finish in blocked] == [SubmissionBlocked] * 2
        assert harness.status(first.job_id) is JobStatus.PENDING
        assert other.insert([harness.spec(idempotency_key="i")], now=harness.now)[0].job_id == first.job_id

    @needs("concurrent_writers")
    @pytest.mark.parametrize("commits", [True, False])
    def test_who_waits_learns_how_it_ended(self, harness: Harness, commits: bool) -> None:
        """
        The open transaction commits: the waiting call gets its job. It rolls back: the job of the waiting
        call is stored.
        """
        other = harness.reopen()
        inserted = threading.Event()
        spec = harness.spec(idempotency_key="i")

        def hold() -> None:
            try:
                with harness.store.begin() as connection:
                    harness.store.insert([spec], now=harness.now, within=connection)
                    inserted.set()
                    waiter_started.wait(TIMEOUT)
                    if not commits:
                        raise Rollback
            except Rollback:
                pass

        waiter_started = threading.Event()

        def submit(store: JobStore) -> Insertion:
            inserted.wait(TIMEOUT)
            waiter_started.set()
            return store.insert([harness.spec(idempotency_key="i")], now=harness.now)[0]

        runners: list[Callable[[], object]] = [hold, partial(submit, other)]
        _, answer = results(runners)
        assert isinstance(answer, Insertion)
        assert answer.created == (not commits)
        assert (answer.job_id == spec.job_id) == commits
        assert harness.store.counts()[JobStatus.PENDING] == 1


@needs("transactions", "within")
class TestCompleteWithin:
    def test_committed_with_the_user_s_writes(self, harness: Harness) -> None:
        """The success, and everything that follows from it, is stored by the caller's commit."""
        parent, child = harness.spec(), harness.child()
        harness.insert([parent, child], [harness.edge(parent, child)])
        claim = harness.claim_job(parent.job_id)
        with harness.store.begin() as connection:
            made = insert_within(harness, connection)
            (answer,) = harness.store.complete(
                [harness.completion(claim)], now=harness.now, within=connection
            )
            assert (answer.won, answer.released) == (True, (child.job_id,))
        assert harness.statuses([parent.job_id, child.job_id, made.job_id]) == [
            JobStatus.SUCCEEDED,
            JobStatus.PENDING,
            JobStatus.PENDING,
        ]

    def test_rolled_back_with_them(self, harness: Harness) -> None:
        """The job is still RUNNING and can end in another way."""
        claim = harness.running(business_key="k")
        with rolled_back(harness.store) as connection:
            (answer,) = harness.store.complete(
                [harness.completion(claim)], now=harness.now, within=connection
            )
            assert answer.won
        assert harness.record(claim.job_id).claim_id == claim.claim_id
        assert harness.store.executions(claim.job_id, uncounted=True) == []
        harness.end(claim, harness.another_try())

    def test_a_lost_claim_is_told_before_the_commit(self, harness: Harness) -> None:
        """The caller learns before its commit that the claim was lost, so it can roll its own writes back."""
        claim = harness.running()
        harness.store.cancel(claim.job_id, reason="r", now=harness.now)
        with harness.store.begin() as connection:
            (answer,) = harness.store.complete(
                [harness.completion(claim)], now=harness.now, within=connection
            )
        assert not answer.won
        assert harness.status(claim.job_id) is JobStatus.CANCELED

    def test_progress_joins_it(self, harness: Harness) -> None:
        """Progress is stored by the commit and dropped by the rollback."""
        claim = harness.running()
        with rolled_back(harness.store) as connection:
            assert harness.store.save_progress(
                claim, Progress(fraction=0.5), now=harness.now, within=connection
            )
        assert harness.record(claim.job_id).progress is None
        with harness.store.begin() as connection:
            harness.store.save_progress(claim, Progress(fraction=0.5), now=harness.now, within=connection)
        assert harness.record(claim.job_id).progress == Progress(fraction=0.5)


@needs("transactions")
class TestBegin:
    def test_it_joins_a_transaction_that_is_given(self, harness: Harness) -> None:
        """`begin(within=…)` neither commits nor rolls back a transaction that it did not begin."""
        ids: list[UUID] = []
        with rolled_back(harness.store) as outer:
            with harness.store.begin(within=outer) as inner:
                ids.append(insert_within(harness, inner).job_id)
            ids.append(insert_within(harness, outer).job_id)
        assert [harness.store.get(job_id) for job_id in ids] == [None, None]

    def test_transactions_in_a_row(self, harness: Harness) -> None:
        """A transaction that was rolled back does not affect the next one."""
        for _ in range(3):
            with rolled_back(harness.store) as connection:
                insert_within(harness, connection)
            with harness.store.begin() as connection:
                insert_within(harness, connection)
        assert harness.store.counts()[JobStatus.PENDING] == 3


class TestStoreLifecycle:
    def test_migrating_again_changes_nothing(self, harness: Harness) -> None:
        """A schema that is up to date needs no script and passes the check."""
        job_id = harness.submit()
        assert harness.store.migrate() == []
        assert harness.store.upgrade_plan().migrations == ()
        harness.store.check_schema()
        assert harness.status(job_id) is JobStatus.PENDING

    def test_a_rollback_is_taken_back_by_the_next_upgrade(self, harness: Harness) -> None:
        """What was hidden from older code is there again, and nothing else has changed."""
        job_id = harness.submit()
        hidden = harness.store.roll_back_schema()
        assert harness.store.migrate() == hidden
        harness.store.check_schema()
        assert harness.status(job_id) is JobStatus.PENDING

    def test_closing_is_idempotent_and_not_the_end(self, harness: Harness) -> None:
        """A store that was closed twice opens its connections again when it is used again."""
        job_id = harness.submit()
        harness.store.close()
        harness.store.close()
        assert harness.status(job_id) is JobStatus.PENDING
        harness.end(harness.claim_job(job_id))

    def test_it_has_a_name_and_says_what_it_can(self, harness: Harness) -> None:
        """The store has a name, and its capabilities equal those of the harness."""
        assert harness.store.name
        assert vars(harness.store.capabilities) == vars(harness.capabilities)

    @needs("wakeups")
    def test_another_handle_is_woken(self, harness: Harness) -> None:
        """New work on one handle wakes the listener of another; starting and stopping twice is harmless."""
        mine, theirs = harness.store.coordinator(), harness.reopen().coordinator()
        assert mine is not None
        assert theirs is not None
        woken = threading.Event()
        theirs.register_wakeup_listener(woken.set)
        for coordinator in (mine, theirs, theirs):
            coordinator.start()
        try:
            for _ in range(100):  # listening may begin a moment after start(), and a wakeup is best effort
                harness.submit()
                mine.notify_new_work(Priority.NORMAL)
                if woken.wait(0.1):
                    break
            assert woken.is_set()
        finally:
            for coordinator in (mine, theirs, theirs):
                coordinator.stop()

    @needs("survives_restart")
    def test_what_was_acknowledged_is_there_after_a_restart(self, harness: Harness) -> None:
        """After the store was closed, a new handle finds every job in its state."""
        pending, running, done = harness.submit_many(1)[0], harness.running(), harness.succeeded()
        harness.store.close()
        other = harness.reopen()
        assert [
            (record.status if (record := other.get(job_id)) else None)
            for job_id in (pending, running.job_id, done)
        ] == [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.SUCCEEDED]
        assert harness.complete(running, store=other).won


@needs("transactions", "within", "concurrent_writers")
class TestRescueOfOpenTransactions:
    """A process that is stopped inside a job's transaction keeps the rows that it has locked there."""

    def rescue(self, harness: Harness, store: JobStore) -> Rescue | None:
        """Take back the work of node-1."""
        return store.rescue("node-1", seen_beat=0, by="rescuer", max_crashes=3, now=harness.now)

    def test_only_the_job_in_it_is_held_up(self, harness: Harness) -> None:
        """All other jobs of the dead node are requeued at once; this one follows later, with its crash counted."""
        other = harness.reopen()
        harness.register()
        harness.store.set_limit("api", concurrent=1, now=harness.now)
        held = harness.running(resource="api")
        others = {harness.running().job_id for _ in range(3)}
        harness.advance(seconds=10)
        with rolled_back(harness.store) as connection:
            progress = Progress(fraction=0.5)
            assert harness.store.save_progress(held, progress, now=harness.now, within=connection)
            rescue = self.rescue(harness, other)
            assert rescue is not None
            assert (set(rescue.requeued), rescue.held_up) == (others, (held.job_id,))
            assert {claim.job_id for claim in harness.claim(store=other, node_id="node-2")} == others
            assert [permit.job_id for permit in other.holders("api", limit=5)] == [held.job_id]
            assert self.rescue(harness, other) is None
        rest = self.rescue(harness, other)
        assert rest is not None
        assert (rest.requeued, rest.held_up) == ((held.job_id,), ())
        record = harness.record(held.job_id)
        assert (record.status, record.crashes, record.attempts) == (JobStatus.PENDING, 1, 0)
        assert [claim.job_id for claim in harness.claim(store=other, node_id="node-2")] == [held.job_id]
        assert self.rescue(harness, other) is None

    def test_its_commit_counts_if_it_comes_first(self, harness: Harness) -> None:
        """The stopped process goes on and commits before anybody took the job: the job has succeeded, once."""
        other = harness.reopen()
        harness.register()
        held, free = harness.running(), harness.running()
        harness.advance(seconds=10)
        with harness.store.begin() as connection:
            (answer,) = harness.store.complete([harness.completion(held)], now=harness.now, within=connection)
            assert answer.won
            rescue = self.rescue(harness, other)
            assert rescue is not None
            assert (rescue.requeued, rescue.held_up) == ((free.job_id,), (held.job_id,))
        assert self.rescue(harness, other) is None
        assert harness.statuses([held.job_id, free.job_id]) == [JobStatus.SUCCEEDED, JobStatus.PENDING]
        assert other.absent_nodes() == []
