"""Fairness between tenants: a small one's job does not wait for a large one's backlog."""

from __future__ import annotations

from ratchet import Scheduler
from tests.lifecycle import jobs
from tests.support.waiting import until

BACKLOG = 5_000
#: More than a node ever claims ahead, and far less than the backlog.
NEXT_ONES = 1_000


class TestSmallTenant:
    def test_its_job_is_among_the_next_ones(self, scheduler: Scheduler) -> None:
        """One tenant has 5,000 jobs waiting; another's, submitted later, starts as soon as what was claimed before."""
        jobs.calls.clear()
        scheduler.submit_all(
            scheduler.enqueue(jobs.serve, "large").with_fairness_key("large") for _ in range(BACKLOG)
        )
        with scheduler:
            until(lambda: len(jobs.calls) >= 50, 60)
            small = scheduler.enqueue(jobs.serve, "small").with_fairness_key("small").submit()
            before = len(jobs.calls)
            assert small.result(timeout=60) == "small"
            place = jobs.calls.index("small")
        assert place <= before + NEXT_ONES
