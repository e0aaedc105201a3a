"""Old jobs leave the table in batches, one node at a time; search finds them in the archive, until that is over too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from ratchet import JobFilter, Options, Scheduler
from ratchet.engine import maintenance
from ratchet.engine.identity import NodeIdentity
from ratchet.engine.maintenance import LEASE, LOCK, Housekeeping
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import NodeSpec
from ratchet.model.identifiers import new_id
from ratchet.model.status import JobStatus
from tests.cluster import errands

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ALL = JobFilter(include_archived=True)


@pytest.fixture
def scheduler(url: str) -> Iterator[Scheduler]:
    """A store with three jobs that succeeded, one of which logged, a dead letter, and one that waits for next year."""
    made = Scheduler(url, allow=["tests.cluster"], options=Options(concurrency=2))
    with made:
        handles = [made.enqueue_now(errands.greet, name) for name in ("ann", "bob")]
        handles.append(made.enqueue_now(errands.say, "cid"))
        failed = made.enqueue(errands.fail).with_max_retries(0).submit()
        assert [handle.wait(timeout=60) for handle in handles] == [JobStatus.SUCCEEDED] * 3
        assert failed.wait(timeout=60) is JobStatus.FAILED
    made.schedule(timedelta(days=600), errands.greet, "dot").submit()
    yield made
    made.close()


class Keeper:
    """Housekeeping on a clock of its own."""

    def __init__(self, scheduler: Scheduler, name: str = "keeper", **options: Any) -> None:
        self.begun = scheduler.store.database_time()
        self.clock = ManualClock(self.begun)
        self.work = Housekeeping(
            store=scheduler.store,
            options=Options(**options),
            identity=NodeIdentity(new_id, name),
            ids=new_id,
            clock=self.clock,
        )

    def run(self, **after: float) -> int:
        """One round, so long after the beginning."""
        self.clock.set(self.begun + timedelta(**after))
        return self.work.run_once(self.clock.now())


def statuses(scheduler: Scheduler, where: JobFilter | None = None) -> list[JobStatus]:
    return sorted(job.status for job in scheduler.jobs.find(where or JobFilter(), limit=100))


def test_the_way_of_old_jobs(scheduler: Scheduler) -> None:
    """Succeeded ones are archived after a week, dead letters after a month, both deleted after another year; what waits, stays."""
    keeper = Keeper(scheduler)
    (said,) = [job for job in scheduler.jobs.find(JobFilter()) if job.target.endswith(":say")]
    assert keeper.run(days=6) == 0
    assert len(scheduler.jobs.logs(said.id)) == 1
    assert keeper.run(days=8) > 0
    assert statuses(scheduler) == [JobStatus.FAILED, JobStatus.PENDING]
    everything = [JobStatus.FAILED, JobStatus.PENDING, *[JobStatus.SUCCEEDED] * 3]
    assert statuses(scheduler, ALL) == everything
    assert scheduler.jobs.logs(said.id) == []
    assert len(scheduler.dead_letters.find()) == 1
    assert keeper.run(days=32) > 0
    assert statuses(scheduler) == [JobStatus.PENDING]
    assert statuses(scheduler, ALL) == everything
    assert scheduler.jobs.executions(said.id) == []
    assert list(scheduler.dead_letters.find()) == []
    assert keeper.run(days=500) > 0
    assert statuses(scheduler, ALL) == [JobStatus.PENDING]
    assert scheduler.store.lock(LOCK) is None


def test_logs_go_where_jobs_stay(scheduler: Scheduler) -> None:
    """Without a retention for jobs, their log lines have their own time all the same."""
    (said,) = [job for job in scheduler.jobs.find(JobFilter()) if job.target.endswith(":say")]
    keeper = Keeper(scheduler, retention=None, dead_letter_retention=None, log_retention=86_400)
    assert keeper.run(hours=23) == 0
    assert keeper.run(hours=25) == 1
    assert scheduler.jobs.logs(said.id) == []
    assert len(statuses(scheduler)) == 5


def test_dead_nodes_are_forgotten_after_a_day(scheduler: Scheduler) -> None:
    """Although nothing else is old."""
    store, now = scheduler.store, scheduler.store.database_time()
    second = timedelta(seconds=1)
    spec = NodeSpec(
        node_id="gone", name="gone", host="h", pid=1, version="0", beat_interval=second, silence=2 * second
    )
    store.register(spec, now=now)
    assert store.rescue("gone", seen_beat=0, by="keeper", max_crashes=3, now=now)
    keeper = Keeper(scheduler)
    assert (keeper.run(hours=23), keeper.run(hours=25)) == (0, 1)
    assert scheduler.nodes.list() == []


def test_one_node_at_a_time(scheduler: Scheduler) -> None:
    """While another holds the lease nothing is done; a lease that is over is taken."""
    keeper = Keeper(scheduler)
    late = keeper.begun + timedelta(days=8)
    assert scheduler.store.acquire_lock(LOCK, holder="other", token=new_id(), ttl=LEASE, now=late)
    assert keeper.run(days=8) == 0
    assert keeper.run(days=8, seconds=LEASE.total_seconds() + 1) > 0


def test_a_node_that_has_lost_its_lease_stops(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was frozen after its first batch; another node has the lease by then, and goes on alone."""
    monkeypatch.setattr(maintenance, "BATCH", 1)
    keeper, store = Keeper(scheduler), scheduler.store
    archive, other = store.archive, new_id()

    def archive_and_freeze(*, before: datetime, limit: int, now: datetime) -> int:
        done = archive(before=before, limit=limit, now=now)
        keeper.clock.advance(LEASE.total_seconds() + 1)
        assert store.acquire_lock(LOCK, holder="other", token=other, ttl=LEASE, now=keeper.clock.now())
        return done

    monkeypatch.setattr(store, "archive", archive_and_freeze)
    assert keeper.run(days=32) == 1
    assert statuses(scheduler).count(JobStatus.SUCCEEDED) == 2
    held = store.lock(LOCK)
    assert held is not None
    assert held.token == other, "another's lease is not given back"


def test_what_may_not_go_yet_is_not_asked_for_every_minute(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round that could do nothing is repeated after an hour, so that old things cost an idle cluster no writes."""
    keeper = Keeper(scheduler, retention=None, dead_letter_retention=None, log_retention=86_400)
    assert keeper.run(days=2) == 1
    taken: list[datetime] = []
    acquire = scheduler.store.acquire_lock

    def noted(name: str, **values: Any) -> bool:
        taken.append(values["now"])
        return acquire(name, **values)

    monkeypatch.setattr(scheduler.store, "acquire_lock", noted)
    for minute in range(150):
        assert keeper.run(days=2, minutes=minute + 1) == 0
    assert len(taken) == 3


def test_streams_of_keys_that_are_gone(scheduler: Scheduler) -> None:
    """Kept while a job has them, also one in the archive, and then deleted; the others are as they were."""
    for number in range(3):
        handle = scheduler.enqueue(errands.greet, "eve").with_concurrency_key(f"order-{number}", limit=1)
        assert handle.submit().cancel()
    scheduler.schedule(timedelta(days=600), errands.greet, "fay").with_queue("last").submit()
    keeper = Keeper(scheduler)

    def orders() -> int:
        return sum(stream.key.limit_key is not None for stream in scheduler.store.streams())

    assert keeper.run(days=8) > 0
    assert keeper.run(days=12) >= 0
    assert orders() == 3
    assert keeper.run(days=500) > 0
    assert orders() == 0
    assert {"default", "last"} <= {stream.key.queue for stream in scheduler.store.streams()}


def test_streams_are_looked_at_once_an_hour(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy cluster something is old enough every minute; to look for streams that are missing reads all that waits."""
    keeper, looked = Keeper(scheduler), []
    monkeypatch.setattr(scheduler.store, "purge_logs", lambda *, before, limit: 1)
    monkeypatch.setattr(
        scheduler.store, "purge_streams", lambda *, before, limit, now: looked.append(now) or 0
    )
    for minute in range(130):
        assert keeper.run(days=8, minutes=minute) > 0
    assert [at - looked[0] for at in looked] == [timedelta(hours=hour) for hour in range(3)]


def test_limits_of_keys_that_are_gone(scheduler: Scheduler) -> None:
    """They go some days after their last job was archived; a job that waits keeps its limit, and so does whoever has set one."""
    for number in range(3):
        handle = scheduler.enqueue(errands.greet, "eve").with_concurrency_key(f"order-{number}", limit=1)
        assert handle.submit().cancel()
    scheduler.enqueue(errands.greet, "eve").with_rate_key("host", 5).submit().cancel()
    waiting = scheduler.schedule(timedelta(days=600), errands.greet, "fay").with_queue("last")
    waiting.with_concurrency_key("fay", limit=1).submit()
    scheduler.limits.set("gateway", concurrent=1)
    keeper = Keeper(scheduler)
    assert {limit.name for limit in scheduler.limits.list()} == {
        "order-0", "order-1", "order-2", "rate:host", "fay", "gateway",
    }  # fmt: skip
    for days in (8, 12, 16):
        keeper.run(days=days)
    assert {limit.name for limit in scheduler.limits.list()} == {"fay", "gateway"}
