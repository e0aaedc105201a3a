"""Samples for statistics: runs that have ended, and jobs that wait or run."""

from __future__ import annotations

from datetime import timedelta

from ratchet.model.job import ExecutionStatus
from ratchet.tck.harness import Harness


class TestRunSamples:
    def test_what_a_run_was(self, harness: Harness) -> None:
        """Target, queue, how it ended, how long it waited and took; the newest job comes first."""
        due = harness.now - timedelta(seconds=5)
        first = harness.running(queue="a", target="shop:one", scheduled_at=due)
        harness.advance(seconds=3)
        harness.end(first)
        harness.failed(queue="b", target="shop:two")
        failed, succeeded = harness.store.run_samples(limit=10)
        assert (failed.target, failed.queue, failed.status) == ("shop:two", "b", ExecutionStatus.FAILED)
        assert (succeeded.target, succeeded.queue, succeeded.attempt) == ("shop:one", "a", 1)
        assert succeeded.status == ExecutionStatus.SUCCEEDED
        assert (succeeded.wait, succeeded.duration) == (timedelta(seconds=5), timedelta(seconds=3))
        assert succeeded.finished_at is not None
        assert succeeded.finished_at - timedelta(seconds=3) == succeeded.started_at

    def test_archived_jobs_count(self, harness: Harness) -> None:
        """A run is in the sample wherever its job is; with a deleted job its runs go."""
        harness.succeeded(queue="a")
        gone = harness.succeeded(queue="b")
        later = harness.advance(days=1)
        assert harness.store.delete(gone)
        assert harness.store.archive(before=later, limit=10, now=later) == 1
        assert [run.queue for run in harness.store.run_samples(limit=10)] == ["a"]

    def test_no_more_than_the_limit(self, harness: Harness) -> None:
        """The newest remain."""
        for queue in "abc":
            harness.succeeded(queue=queue)
        assert [run.queue for run in harness.store.run_samples(limit=2)] == ["c", "b"]


class TestQueuedSamples:
    def test_what_waits_and_runs(self, harness: Harness) -> None:
        """Whatever closes its stream; what runs says since when, and what has ended is not in it."""
        harness.succeeded()
        harness.store.pause_queue("closed", now=harness.now)
        running = harness.running(queue="a", target="shop:one")
        due = harness.after(hours=1)
        harness.submit(queue="closed", target="shop:two", scheduled_at=due)
        found = sorted(harness.store.queued_samples(limit=10), key=lambda job: job.queue)
        assert [(job.target, job.queue) for job in found] == [("shop:one", "a"), ("shop:two", "closed")]
        assert [job.claimed_at for job in found] == [running.claimed_at, None]
        assert found[1].due_at == due

    def test_no_more_than_the_limit(self, harness: Harness) -> None:
        """However many wait and run."""
        harness.submit_many(3)
        harness.running()
        assert len(harness.store.queued_samples(limit=2)) == 2
        assert len(harness.store.queued_samples(limit=10)) == 4
