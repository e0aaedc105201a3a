"""Dead letters through the public API, the same on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import EmptyFilter, InvalidJob, JobFilter, JobStatus, ManualClock
from ratchet.testing import ManualScheduler
from tests.integration.composition_samples import broken, forget, step
from tests.integration.event_samples import breaks


@pytest.fixture(autouse=True)
def fresh() -> None:
    forget()


class TestSummary:
    def test_causes_of_many_failures(self, scheduler: ManualScheduler, clock: ManualClock) -> None:
        """Two targets that fail are two groups, with the latest failure of each as the sample."""
        broken.add("x")
        scheduler.enqueue(step, "x").submit()
        handles = []
        for _ in range(3):
            handles.append(scheduler.enqueue(breaks).submit())
            scheduler.drain()
            clock.advance(timedelta(minutes=1))
        many, one = scheduler.dead_letters.summary()
        assert (many.count, one.count) == (3, 1)
        assert (many.error_type, many.message) == ("ValueError", "ValueError: it is broken")
        assert (many.sample, many.last_at - many.first_at) == (handles[-1].id, timedelta(minutes=2))
        assert scheduler.dead_letters.summary(JobFilter(targets=[one.target])) == [one]


class TestPurge:
    def test_by_filter(self, scheduler: ManualScheduler) -> None:
        """Counted first, deleted then, more than one transaction takes; jobs that have not failed stay."""
        good = scheduler.enqueue(step, "good").with_tags("a").submit()
        for _ in range(103):
            scheduler.enqueue(breaks).with_tags("a").submit()
        other = scheduler.enqueue(breaks).submit()
        scheduler.drain()
        where = JobFilter(tags=["a"])
        assert scheduler.dead_letters.purge(where, dry_run=True) == 103
        assert scheduler.jobs.count(JobFilter(statuses=[JobStatus.FAILED])) == 104
        assert scheduler.dead_letters.purge(where) == 103
        assert scheduler.dead_letters.purge(where) == 0
        assert (good.status(), other.status()) == (JobStatus.SUCCEEDED, JobStatus.FAILED)

    def test_what_is_refused(self, scheduler: ManualScheduler) -> None:
        """No criterion, or no filter."""
        with pytest.raises(EmptyFilter):
            scheduler.dead_letters.purge(JobFilter())
        with pytest.raises(InvalidJob, match="JobFilter"):
            scheduler.dead_letters.purge("all")  # type: ignore[arg-type]
