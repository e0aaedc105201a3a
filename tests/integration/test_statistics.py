"""Statistics on every store: what has flowed through queues and targets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import InvalidJob, ManualClock
from ratchet.testing import ManualScheduler


def greet(name: str) -> str:
    return f"hello {name}"


def fail() -> None:
    raise ValueError("no")


def test_queues_and_targets(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """Runs of the last hour count by queue and target; what waits is told, due or not; older runs are left out."""
    scheduler.enqueue(greet, "old").with_queue("emails").submit()
    scheduler.drain()
    clock.advance(timedelta(hours=2))
    for name in ("ann", "bob"):
        scheduler.enqueue(greet, name).with_queue("emails").submit()
    scheduler.enqueue(fail).with_max_retries(1).submit()
    clock.advance(5)
    scheduler.drain()
    clock.advance(timedelta(minutes=5))
    scheduler.drain()
    scheduler.enqueue_now(greet, "eve")
    clock.advance(7)
    found = scheduler.jobs.statistics(window=timedelta(hours=1))
    default, emails = found.queues
    assert (emails.name, emails.started, emails.succeeded, emails.failed) == ("emails", 2, 2, 0)
    assert emails.wait.p50 == timedelta(seconds=5)
    assert emails.run.p99 is not None
    assert (default.name, default.failed, default.retried) == ("default", 2, 1)
    assert (default.pending, default.due, default.oldest_wait) == (1, 1, timedelta(seconds=7))
    targets = {flow.name.rpartition(":")[2]: flow for flow in found.targets}
    assert (targets["greet"].succeeded, targets["greet"].pending, targets["fail"].failed) == (2, 1, 2)
    assert not found.sampled
    assert scheduler.jobs.statistics(window=timedelta(hours=3)).queues[1].succeeded == 3


def test_a_window_that_is_none(scheduler: ManualScheduler) -> None:
    """It is refused with what was given."""
    with pytest.raises(InvalidJob, match="window"):
        scheduler.jobs.statistics(window=0)
