"""``scheduler.storage``: sizes, what is old enough to go, and letting it go now."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import InvalidJob, ManualClock, RatchetError, new_id
from ratchet.api.storage import LOCK, PORTION
from ratchet.model.storage import Kept
from ratchet.testing import ManualScheduler


def fine() -> None:
    """Succeeds."""


def broken() -> None:
    """Fails."""
    raise ValueError("no")


def ran(scheduler: ManualScheduler, good: int = 3) -> None:
    """So many jobs that succeed, and one that fails."""
    scheduler.job(fine)
    scheduler.job(broken)
    scheduler.enqueue_many(fine, [()] * good)
    scheduler.enqueue_now(broken)
    scheduler.drain()


def test_stats_say_what_a_purge_would_take(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """Nothing while all is young; then each kind by its own retention."""
    ran(scheduler)
    young = scheduler.storage.stats()
    assert {kind: old.count for kind, old in young.old.items()} == dict.fromkeys(Kept, 0)
    assert young.retention[Kept.JOBS] == timedelta(days=7)
    assert "scheduler_job" in {table.name for table in young.size.tables}
    clock.advance(timedelta(days=8))
    assert scheduler.storage.stats().old[Kept.JOBS].count == 3
    assert scheduler.storage.stats().old[Kept.DEAD_LETTERS].count == 0
    clock.advance(timedelta(days=30))
    old = scheduler.storage.stats().old
    counts = [old[kind].count for kind in (Kept.JOBS, Kept.DEAD_LETTERS, Kept.EXECUTIONS, Kept.ARCHIVE)]
    assert counts == [3, 1, 4, 0]
    assert not any(one.more for one in old.values())


def test_a_purge_does_what_stats_announced(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """A dry run changes nothing; a purge archives in portions and tells of each; a second one finds nothing."""
    ran(scheduler, PORTION + 10)
    clock.advance(timedelta(days=8))
    assert scheduler.storage.purge(dry_run=True)[Kept.JOBS] == PORTION + 10
    heard: list[tuple[Kept, int]] = []
    done = scheduler.storage.purge(on_progress=lambda kind, count: heard.append((kind, count)))
    assert (done[Kept.JOBS], done[Kept.DEAD_LETTERS], done[Kept.ARCHIVE]) == (PORTION + 10, 0, 0)
    assert heard == [(Kept.JOBS, PORTION), (Kept.JOBS, PORTION + 10)]
    assert scheduler.jobs.count() == 1
    assert set(scheduler.storage.purge().values()) == {0}
    assert scheduler.store.lock(LOCK) is None, "the lock is given back"


def test_older_than_takes_the_place_of_every_retention(
    scheduler: ManualScheduler, clock: ManualClock
) -> None:
    """Everything that is older goes, and what is younger stays."""
    ran(scheduler)
    clock.advance(timedelta(hours=2))
    assert set(scheduler.storage.purge(timedelta(hours=3)).values()) == {0}
    done = scheduler.storage.purge(timedelta(hours=1))
    assert (done[Kept.JOBS], done[Kept.DEAD_LETTERS], done[Kept.EXECUTIONS]) == (3, 1, 4)
    assert scheduler.jobs.count() == 0


def test_one_at_a_time(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """While a node or another purge is at it, a purge is refused and says who it is; nothing is changed."""
    ran(scheduler)
    clock.advance(timedelta(days=40))
    lease = timedelta(minutes=5)
    assert scheduler.store.acquire_lock(LOCK, holder="node-1", token=new_id(), ttl=lease, now=clock.now())
    with pytest.raises(RatchetError, match="node-1 is archiving and purging right now"):
        scheduler.storage.purge()
    assert scheduler.jobs.count() == 4


def test_nonsense_is_refused(scheduler: ManualScheduler) -> None:
    """No time at all, or a negative one, would take everything."""
    for nonsense in (0, -5, timedelta(0)):
        with pytest.raises((InvalidJob, ValueError)):
            scheduler.storage.purge(nonsense)
