"""Signals through the public API, the same on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import RESULT, JobStatus, ManualClock
from ratchet.testing import ManualScheduler
from tests.integration.composition_samples import forget, ran, signaled, statuses, step


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget()


class TestSignals:
    def test_a_waiting_job_is_released(self, scheduler: ManualScheduler) -> None:
        """With the payload; the steps behind it follow."""
        handle = scheduler.enqueue(signaled, "ship").await_signal("order:1").then(step, "b", RESULT).submit()
        scheduler.drain()
        assert (statuses(handle), ran) == (["WAITING", "WAITING"], [])
        assert scheduler.signal("order:1", {"by": "ann"}) == 1
        scheduler.drain()
        assert ran == [("ship", "order:1", {"by": "ann"}, True, None), ("b", {"by": "ann"})]

    def test_before_its_job(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Kept for an hour, and consumed by the first that waits; the next one waits in vain."""
        assert scheduler.signal("k", 1) == 0
        clock.advance(timedelta(minutes=59))
        first = scheduler.enqueue(signaled, "first").await_signal("k").submit()
        second = scheduler.enqueue(signaled, "second").await_signal("k").submit()
        scheduler.drain()
        assert (first.status(), second.status()) == (JobStatus.SUCCEEDED, JobStatus.WAITING)

    def test_too_long_before(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """After an hour it is forgotten."""
        scheduler.signal("k")
        clock.advance(timedelta(hours=1, seconds=1))
        handle = scheduler.enqueue(signaled, "late").await_signal("k").submit()
        scheduler.drain()
        assert handle.status() is JobStatus.WAITING

    def test_two_for_one_waiter(self, scheduler: ManualScheduler) -> None:
        """The first is its signal; the second changes nothing for it and is kept for the next waiter."""
        handle = scheduler.enqueue(signaled, "one").await_signal("k").submit()
        assert (scheduler.signal("k", 1), scheduler.signal("k", 2)) == (1, 0)
        scheduler.drain()
        assert handle.result() == 1
        later = scheduler.enqueue(signaled, "two").await_signal("k").submit()
        scheduler.drain()
        assert later.result() == 2

    def test_one_for_two_waiters(self, scheduler: ManualScheduler) -> None:
        """All who wait are released; with ``job_id`` only that one."""
        jobs = [scheduler.enqueue(signaled, name).await_signal("k").submit() for name in "abc"]
        assert scheduler.signal("k", "for b", job_id=jobs[1].id) == 1
        assert scheduler.signal("k", "for all") == 2
        scheduler.drain()
        assert [job.result() for job in jobs] == ["for all", "for b", "for all"]

    def test_a_rejection_runs_the_job(self, scheduler: ManualScheduler) -> None:
        """It sees the no, and the reason."""
        scheduler.enqueue(signaled, "ship").await_signal("k").submit()
        scheduler.signal("k", rejected="too expensive")
        scheduler.drain()
        assert ran == [("ship", "k", None, False, "too expensive")]

    def test_a_timeout_is_a_failure_that_is_not_retried(
        self, scheduler: ManualScheduler, clock: ManualClock
    ) -> None:
        """A dead letter, whatever its retries; failure branches fire, and a late signal is kept."""
        handle = (
            scheduler.enqueue(signaled, "ship")
            .with_max_retries(5)
            .await_signal("k", timeout=timedelta(hours=24))
            .then_on_failure(step, "alarm")
            .submit()
        )
        clock.advance(timedelta(hours=23, minutes=59))
        scheduler.drain()
        assert handle.status() is JobStatus.WAITING
        clock.advance(timedelta(minutes=2))
        scheduler.drain()
        job = handle.job()
        assert (job.status, job.error_type, job.attempts) == (JobStatus.FAILED, "SignalTimeout", 0)
        assert [letter.reason for letter in scheduler.dead_letters.find()] == ["signal timeout"]
        assert ran == ["alarm"]
        assert scheduler.signal("k") == 0
