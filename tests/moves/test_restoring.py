"""A store that was restored from a backup: what was running then is marked, and a person decides."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import JobFilter, JobStatus, ManualClock, Options
from ratchet.model.moves import MoveRefused
from ratchet.moving import Restored, after_restore
from ratchet.moving.restoring import RESTORED
from ratchet.spi.store import JobStore
from ratchet.stores import open_store
from ratchet.tck.steps import Steps
from tests.moves import samples
from tests.moves.conftest import MakeUrl
from tests.support.store_urls import KINDS


class _Steps(Steps):
    def __init__(self, store: JobStore, clock: ManualClock) -> None:
        self.store = store
        self.now = clock.now()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_running(kind: str, make_url: MakeUrl, clock: ManualClock) -> None:
    """
    Two jobs were running when the backup was made: a dry run names them; then they are paused, with an entry in their
    history that does not count, without their node, key and permit; resumed, they run.
    """
    url = make_url(kind)
    store = open_store(url, Options())
    store.migrate()
    steps = _Steps(store, clock)
    scheduler = samples.scheduler_on(store, clock)
    scheduler.limits.set("mail", concurrent=1)
    first = scheduler.enqueue(samples.fine, 1).with_resource("mail").with_business_key("k").submit()
    second = scheduler.enqueue(samples.fine, 2).submit()
    steps.register("gone")
    assert len(steps.claim(2, node_id="gone")) == 2
    waiting = scheduler.enqueue(samples.fine, 3).submit()
    expected = tuple(sorted((first.id, second.id)))
    looked = after_restore(url, dry_run=True)
    assert (looked.running, looked.overdue, looked.nodes) == (expected, 1, ())
    assert first.status() is JobStatus.RUNNING
    report = after_restore(url)
    assert (report.running, report.nodes) == (expected, ("gone",))
    assert [one.status() for one in (first, second, waiting)] == [
        JobStatus.PAUSED,
        JobStatus.PAUSED,
        JobStatus.PENDING,
    ]
    [run] = store.executions(first.id, uncounted=True)
    assert (run.status, run.error_type, run.counted, run.node_id) == ("HANDED_BACK", RESTORED, False, "gone")
    assert after_restore(url).running == (), "a second time there is nothing"
    samples.ran.clear()
    scheduler.drain()
    assert samples.ran == [str(waiting.id)]
    first.resume()
    second.resume()
    scheduler.drain()
    assert sorted(samples.ran) == sorted(str(one.id) for one in (first, second, waiting))
    assert first.job().attempts == 1
    scheduler.close()
    store.close()


def test_to_run_again_behind_closed_queues(make_url: MakeUrl, clock: ManualClock) -> None:
    """Handed back, they wait as before; with every queue paused nothing runs before a person resumes it."""
    url = make_url("sqlite")
    store = open_store(url, Options())
    steps = _Steps(store, clock)
    scheduler = samples.scheduler_on(store, clock)
    job = scheduler.enqueue_now(samples.fine, 1)
    steps.register("gone")
    steps.claim(1, node_id="gone")
    report = after_restore(url, Restored.HAND_BACK, pause_queues=True)
    assert (report.running, report.queues) == ((job.id,), ("default",))
    scheduler.drain()
    assert job.status() is JobStatus.PENDING
    scheduler.queues.resume("default")
    scheduler.drain()
    assert job.status() is JobStatus.SUCCEEDED
    scheduler.close()
    store.close()


def test_not_while_a_node_is_alive(make_url: MakeUrl) -> None:
    """A node that beats would lose its jobs; it is named, and nothing is changed."""
    url = make_url("sqlite")
    store = open_store(url, Options())
    clock = ManualClock(store.database_time())
    steps = _Steps(store, clock)
    steps.register("alive")
    with pytest.raises(MoveRefused, match="alive may be alive"):
        after_restore(url)
    assert store.count(JobFilter()) == 0
    store.close()


def test_it_goes_on_after_a_crash(
    make_url: MakeUrl, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off between handing back and pausing, the next call still knows what was running, and meanwhile nothing is claimed."""
    url = make_url("sqlite")
    store = open_store(url, Options())
    steps = _Steps(store, clock)
    scheduler = samples.scheduler_on(store, clock)
    jobs = [scheduler.enqueue_now(samples.fine, number) for number in range(3)]
    steps.register("gone")
    steps.claim(3, node_id="gone")
    plain, left = type(store).pause, 1

    def breaks(self: JobStore, *args: object, **given: object) -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return plain(self, *args, **given)  # type: ignore[arg-type]

    monkeypatch.setattr(type(store), "pause", breaks)
    with pytest.raises(KeyboardInterrupt):
        after_restore(url)
    monkeypatch.setattr(type(store), "pause", plain)
    assert [job.status() for job in jobs].count(JobStatus.PAUSED) == 1
    with pytest.raises(Exception, match="after-restore"):
        steps.claim(1, node_id="other")
    assert len(after_restore(url).running) == 3
    assert [job.status() for job in jobs] == [JobStatus.PAUSED] * 3
    clock.advance(timedelta(hours=1))
    scheduler.close()
    store.close()
