"""Batches: children are counted exactly, and the parent is released once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet.model.composition import BatchRecord, BatchSpec
from ratchet.model.decision import CountCrash, HandBack
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, JobType
from ratchet.tck.harness import Harness


def stored(harness: Harness, batch: BatchSpec) -> BatchRecord:
    """The batch as it is now."""
    record = harness.store.batch(batch.batch_id)
    assert record is not None
    return record


def counters(harness: Harness, batch: BatchSpec) -> tuple[int, int, int, int]:
    """Total, completed, failed, canceled."""
    record = stored(harness, batch)
    return record.total, record.completed, record.failed, record.canceled


class TestBatch:
    def test_stored_with_its_parent_and_children(self, harness: Harness) -> None:
        """One call stores everything: the children are PENDING, the parent is WAITING, and the counters are zero."""
        batch, children = harness.batch_of(3)
        record = stored(harness, batch)
        assert (record.name, record.parent_id, record.sealed) == ("import", batch.parent.job_id, True)
        assert (record.created_at, record.finished_at) == (harness.now, None)
        assert counters(harness, batch) == (3, 0, 0, 0)
        parent = harness.record(batch.parent.job_id)
        assert (parent.status, parent.type) == (JobStatus.WAITING, JobType.BATCH_PARENT)
        assert harness.store.count(JobFilter(batch_id=batch.batch_id, types=[JobType.BATCH_CHILD])) == 3
        assert {c.job_id for c in harness.claim()} == {spec.job_id for spec in children}

    def test_the_last_child_releases_the_parent(self, harness: Harness) -> None:
        """However children end, they are counted; the end of the last one, and only that, finishes the batch."""
        batch, _ = harness.batch_of(3)
        first, second, third = harness.claim()
        assert harness.end(first).finished_batches == ()
        assert harness.end(second, harness.failure()).finished_batches == ()
        assert counters(harness, batch) == (3, 1, 1, 0)
        assert harness.status(batch.parent.job_id) is JobStatus.WAITING
        harness.advance(seconds=5)
        answer = harness.end(third)
        assert answer.finished_batches == (batch.batch_id,)
        assert batch.parent.job_id in answer.released
        assert counters(harness, batch) == (3, 2, 1, 0)
        assert stored(harness, batch).finished_at == harness.now
        (claim,) = harness.claim()
        assert (claim.job_id, claim.scheduled_at) == (batch.parent.job_id, harness.now)

    def test_all_children_in_one_flush(self, harness: Harness) -> None:
        """The children of two batches end in one call: the counters are right, and each batch finishes once."""
        batch, _ = harness.batch_of(40)
        other, _ = harness.batch_of(2)
        claims = harness.claim()
        answers = harness.end_all(claims)
        finished = [batch_id for answer in answers for batch_id in answer.finished_batches]
        assert sorted(finished) == sorted([batch.batch_id, other.batch_id])
        assert counters(harness, batch) == (40, 40, 0, 0)
        assert counters(harness, other) == (2, 2, 0, 0)

    def test_only_ends_are_counted(self, harness: Harness) -> None:
        """Retries, hand-backs and crashes of a child leave the counters alone."""
        batch, (child,) = harness.batch_of(1)
        harness.end(harness.claim_job(child.job_id), harness.another_try())
        harness.end(harness.claim_job(child.job_id), HandBack())
        harness.end(harness.claim_job(child.job_id), CountCrash(detail="boom", max_crashes=3))
        assert counters(harness, batch) == (1, 0, 0, 0)

    def test_a_lost_claim_is_not_counted(self, harness: Harness) -> None:
        """A stale worker cannot finish a batch; a repeated completion counts once."""
        batch, (child, _) = harness.batch_of(2)
        stale = harness.claim_job(child.job_id)
        harness.store.hand_back([stale], now=harness.now)
        assert not harness.complete(stale).won
        assert counters(harness, batch) == (2, 0, 0, 0)
        fresh = harness.claim_job(child.job_id)
        harness.end(fresh)
        assert harness.complete(fresh).replayed
        assert counters(harness, batch) == (2, 1, 0, 0)

    def test_a_canceled_child_is_counted(self, harness: Harness) -> None:
        """
        Children that are canceled while PENDING or RUNNING, or that expire, count as canceled; the last one
        finishes the batch.
        """
        batch, (pending, running, expiring) = harness.batch_of(3, expires_at=harness.after(hours=1))
        harness.claim_job(running.job_id)
        harness.store.cancel(running.job_id, reason="r", now=harness.now)
        harness.store.cancel(pending.job_id, reason="r", now=harness.now)
        assert counters(harness, batch) == (3, 0, 0, 2)
        harness.advance(hours=2)
        assert [c.job_id for c in harness.store.expire(now=harness.now, limit=9)] == [expiring.job_id]
        assert counters(harness, batch) == (3, 0, 0, 3)
        assert harness.status(batch.parent.job_id) is JobStatus.PENDING

    def test_a_child_that_its_key_keeps_out_is_not_counted(self, harness: Harness) -> None:
        """One of two children was submitted before: the batch finishes when the other one has ended."""
        harness.submit(idempotency_key="seen", scheduled_at=harness.after(days=1))
        batch_id = new_id()
        parent = harness.spec(status=JobStatus.WAITING, type=JobType.BATCH_PARENT)
        child = {"type": JobType.BATCH_CHILD, "batch_id": batch_id}
        new, old = harness.spec(**child), harness.spec(idempotency_key="seen", **child)
        batch = BatchSpec(batch_id=batch_id, name="import", parent=parent, total=2)
        answers = harness.store.insert([new, old], now=harness.now, batch=batch)
        assert [answer.created for answer in answers] == [True, False]
        harness.end(harness.claim_job(new.job_id))
        assert counters(harness, batch) == (1, 1, 0, 0)
        assert harness.status(parent.job_id) is JobStatus.PENDING

    def test_an_empty_batch_finishes_at_once(self, harness: Harness) -> None:
        """There is nothing to wait for: the insert stores the parent as PENDING."""
        batch, _ = harness.batch_of(0)
        assert harness.status(batch.parent.job_id) is JobStatus.PENDING
        assert stored(harness, batch).finished_at == harness.now

    def test_a_crashed_child_at_its_budget_is_counted_as_failed(self, harness: Harness) -> None:
        """A rescue makes a dead letter of the last child, and that finishes the batch."""
        harness.register()
        batch, (child,) = harness.batch_of(1)
        harness.claim_job(child.job_id)
        rescue = harness.rescue(max_crashes=1)
        assert rescue.dead_lettered == (child.job_id,)
        assert counters(harness, batch) == (1, 0, 1, 0)
        assert harness.status(batch.parent.job_id) is JobStatus.PENDING

    def test_a_refused_batch_leaves_nothing(self, harness: Harness) -> None:
        """The business key of a child is busy: neither the batch nor its parent nor any child is stored."""
        harness.submit(business_key="k")
        batch_id = new_id()
        parent = harness.spec(status=JobStatus.WAITING, type=JobType.BATCH_PARENT)
        children = [
            harness.spec(type=JobType.BATCH_CHILD, batch_id=batch_id),
            harness.spec(type=JobType.BATCH_CHILD, batch_id=batch_id, business_key="k"),
        ]
        batch = BatchSpec(batch_id=batch_id, name="import", parent=parent, total=2)
        with pytest.raises(BusinessKeyBusy):
            harness.store.insert(children, now=harness.now, batch=batch)
        assert harness.store.batch(batch_id) is None
        assert harness.store.batch_metrics(batch_id) is None
        assert [harness.store.get(s.job_id) for s in (parent, *children)] == [None] * 3

    def test_the_newest_first(self, harness: Harness) -> None:
        """Batches are listed newest first, up to the limit."""
        specs = [harness.batch_of(1)[0] for _ in range(3)]
        assert [b.batch_id for b in harness.store.batches(limit=2)] == [s.batch_id for s in specs[:0:-1]]


class TestStreamingBatch:
    def test_children_may_come_until_it_is_sealed(self, harness: Harness) -> None:
        """An unsealed batch does not finish when its children have ended; sealing finishes it."""
        batch, _ = harness.batch_of(1, sealed=False)
        harness.end_all(harness.claim())
        assert harness.status(batch.parent.job_id) is JobStatus.WAITING
        more = harness.specs(2, type=JobType.BATCH_CHILD, batch_id=batch.batch_id)
        assert harness.store.append_children(batch.batch_id, more, now=harness.now)
        assert counters(harness, batch) == (3, 1, 0, 0)
        harness.end_all(harness.claim())
        assert harness.status(batch.parent.job_id) is JobStatus.WAITING
        assert harness.store.seal(batch.batch_id, now=harness.now)
        assert harness.status(batch.parent.job_id) is JobStatus.PENDING
        assert stored(harness, batch).finished_at == harness.now

    def test_sealed_before_the_last_child_ends(self, harness: Harness) -> None:
        """The end of the last child finishes the batch."""
        batch, _ = harness.batch_of(2, sealed=False)
        first, second = harness.claim()
        harness.end(first)
        assert harness.store.seal(batch.batch_id, now=harness.now)
        assert harness.status(batch.parent.job_id) is JobStatus.WAITING
        assert harness.end(second).finished_batches == (batch.batch_id,)

    def test_sealing_twice(self, harness: Harness) -> None:
        """Sealing is True only the first time; an unknown batch cannot be sealed."""
        batch, _ = harness.batch_of(1, sealed=False)
        assert [harness.store.seal(batch.batch_id, now=harness.now) for _ in range(2)] == [True, False]
        assert not harness.store.seal(new_id(), now=harness.now)

    def test_a_sealed_batch_takes_no_more(self, harness: Harness) -> None:
        """Appending is False, and the children are not stored."""
        batch, _ = harness.batch_of(1)
        late = harness.spec(type=JobType.BATCH_CHILD, batch_id=batch.batch_id)
        assert not harness.store.append_children(batch.batch_id, [late], now=harness.now)
        assert not harness.store.append_children(new_id(), [late], now=harness.now)
        assert harness.store.get(late.job_id) is None
        assert counters(harness, batch) == (1, 0, 0, 0)

    def test_those_to_which_more_may_come(self, harness: Harness) -> None:
        """Unsealed batches are listed oldest first, up to the limit; sealed and canceled ones are left out."""
        first, second, third, sealed = (harness.batch_of(1, sealed=False)[0] for _ in range(4))
        harness.batch_of(1)
        harness.store.seal(sealed.batch_id, now=harness.now)
        assert [b.batch_id for b in harness.store.unsealed()] == [b.batch_id for b in (first, second, third)]
        assert [b.batch_id for b in harness.store.unsealed(limit=1)] == [first.batch_id]
        harness.store.cancel_batch(first.batch_id, reason="r", now=harness.now)
        assert [b.batch_id for b in harness.store.unsealed()] == [second.batch_id, third.batch_id]

    def test_the_same_children_again(self, harness: Harness) -> None:
        """Children that are appended again after a lost answer are stored and counted once."""
        batch, _ = harness.batch_of(0, sealed=False)
        children = harness.specs(2, type=JobType.BATCH_CHILD, batch_id=batch.batch_id)
        for _ in range(2):
            assert harness.store.append_children(batch.batch_id, children, now=harness.now)
        assert counters(harness, batch) == (2, 0, 0, 0)
        assert len(harness.claim()) == 2


class TestCancelBatch:
    def test_everything_that_has_not_ended(self, harness: Harness) -> None:
        """Live children and the parent are CANCELED, ended children stay, and the batch is sealed."""
        batch, children = harness.batch_of(4, sealed=False)
        ended, running, pending, paused = (spec.job_id for spec in children)
        harness.end(harness.claim_job(ended))
        claim = harness.claim_job(running)
        harness.store.pause(paused, now=harness.now)
        canceled = harness.store.cancel_batch(batch.batch_id, reason="stop", now=harness.now)
        assert {c.job_id for c in canceled} == {running, pending, paused, batch.parent.job_id}
        assert {c.job_id: c.claim_id for c in canceled}[running] == claim.claim_id
        assert harness.statuses([ended, running, pending, paused, batch.parent.job_id]) == [
            JobStatus.SUCCEEDED,
            *[JobStatus.CANCELED] * 4,
        ]
        assert harness.record(pending).canceled_reason == "stop"
        record = stored(harness, batch)
        assert (record.completed, record.canceled, record.sealed) == (1, 3, True)
        assert harness.claim() == []
        assert not harness.complete(claim).won

    def test_dependants_of_the_parent(self, harness: Harness) -> None:
        """Jobs that wait for the batch's parent are canceled with it."""
        batch, _ = harness.batch_of(1)
        after = harness.child()
        harness.insert([after], [harness.edge(batch.parent, after)])
        harness.store.cancel_batch(batch.batch_id, reason="stop", now=harness.now)
        assert harness.status(after.job_id) is JobStatus.CANCELED

    def test_an_unknown_batch(self, harness: Harness) -> None:
        """There is nothing to cancel."""
        assert harness.store.cancel_batch(new_id(), reason="stop", now=harness.now) == []


class TestRetryFailed:
    def test_a_finished_batch_opens_again(self, harness: Harness) -> None:
        """Failed children run again, the parent waits again, and the batch finishes again."""
        batch, _ = harness.batch_of(3)
        first, second, third = harness.claim()
        harness.end(first)
        harness.end(second, harness.failure())
        harness.end(third, harness.failure())
        assert harness.status(batch.parent.job_id) is JobStatus.PENDING
        assert harness.store.retry_failed(batch.batch_id, now=harness.now) == 2
        assert counters(harness, batch) == (3, 1, 0, 0)
        assert stored(harness, batch).finished_at is None
        assert harness.status(batch.parent.job_id) is JobStatus.WAITING
        answers = harness.end_all(harness.claim())
        assert [b for a in answers for b in a.finished_batches] == [batch.batch_id]
        assert counters(harness, batch) == (3, 3, 0, 0)
        assert harness.status(batch.parent.job_id) is JobStatus.PENDING

    def test_an_open_batch(self, harness: Harness) -> None:
        """Its failed children run again, and the counters stay exact."""
        batch, _ = harness.batch_of(2)
        first, second = harness.claim()
        harness.end(first, harness.failure())
        assert harness.store.retry_failed(batch.batch_id, now=harness.now) == 1
        assert counters(harness, batch) == (2, 0, 0, 0)
        harness.end(second)
        assert harness.status(batch.parent.job_id) is JobStatus.WAITING
        harness.end_all(harness.claim())
        assert counters(harness, batch) == (2, 2, 0, 0)

    def test_one_child_retried_by_itself(self, harness: Harness) -> None:
        """`retry` of a child counts it as open again."""
        batch, _ = harness.batch_of(2)
        first, second = harness.claim()
        harness.end(first, harness.failure())
        assert harness.store.retry(first.job_id, now=harness.now)
        assert counters(harness, batch) == (2, 0, 0, 0)
        harness.end(second)
        assert stored(harness, batch).finished_at is None

    def test_nothing_failed(self, harness: Harness) -> None:
        """The answer is 0, and a finished batch stays finished."""
        batch, _ = harness.batch_of(1)
        harness.end_all(harness.claim())
        assert harness.store.retry_failed(batch.batch_id, now=harness.now) == 0
        assert harness.store.retry_failed(new_id(), now=harness.now) == 0
        assert stored(harness, batch).finished_at is not None


class TestBatchRecovery:
    def test_a_healthy_store_has_nothing_to_recover(self, harness: Harness) -> None:
        """Neither an open nor a finished batch is listed as unfinished, and `finish` refuses both."""
        open_, _ = harness.batch_of(1, scheduled_at=harness.after(hours=1))
        done, _ = harness.batch_of(1)
        harness.end_all(harness.claim())
        assert harness.store.unfinished() == []
        assert not harness.store.finish(open_.batch_id, now=harness.now)
        assert not harness.store.finish(done.batch_id, now=harness.now)
        assert not harness.store.finish(new_id(), now=harness.now)
        assert harness.status(open_.parent.job_id) is JobStatus.WAITING


class TestBatchMetrics:
    def test_what_the_children_cost(self, harness: Harness) -> None:
        """Every counted run of a child adds its run time, whether it succeeded or failed."""
        batch, _ = harness.batch_of(2)
        first, second = harness.claim()
        start = harness.now
        harness.advance(seconds=2)
        harness.end(first, harness.another_try())
        harness.end(second)
        again = harness.claim_job(first.job_id)
        harness.advance(seconds=3)
        harness.end(again)
        metrics = harness.store.batch_metrics(batch.batch_id)
        assert metrics is not None
        assert (metrics.runs, metrics.run_time) == (3, timedelta(seconds=7))
        assert (metrics.started_at, metrics.finished_at) == (start, harness.now)

    def test_before_the_first_run(self, harness: Harness) -> None:
        """The batch is known, and no run time has been counted yet."""
        batch, _ = harness.batch_of(1)
        metrics = harness.store.batch_metrics(batch.batch_id)
        assert metrics is not None
        assert (metrics.runs, metrics.run_time, metrics.started_at) == (0, timedelta(0), None)
