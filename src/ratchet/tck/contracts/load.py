"""The load: what waits and runs in each stream, whatever closes it; counted only so far."""

from __future__ import annotations

from datetime import timedelta

from ratchet.model.cluster import BreakerRecord
from ratchet.model.job import StreamKey
from ratchet.model.load import Load, StreamLoad
from ratchet.model.status import Lane, Priority
from ratchet.tck.harness import Harness


def of(load: Load, **key: object) -> StreamLoad:
    """The stream with this key."""
    (found,) = (stream for stream in load.streams if stream.key == StreamKey(**key))  # type: ignore[arg-type]  # names and values of the key
    return found


class TestLoad:
    def test_an_empty_store(self, harness: Harness) -> None:
        """Nothing waits, runs or has failed, though jobs have ended."""
        harness.succeeded()
        harness.canceled()
        assert harness.store.load(now=harness.now) == Load()

    def test_what_waits_and_since_when(self, harness: Harness) -> None:
        """The jobs that are due are counted in each stream, over all priorities; the first due time is named, due or not."""
        old, later = harness.now - timedelta(minutes=5), harness.after(hours=1)
        harness.submit(queue="a", priority=Priority.LOW, scheduled_at=old)
        harness.submit(queue="a", priority=Priority.CRITICAL)
        harness.submit(queue="a", priority=Priority.CRITICAL, scheduled_at=later)
        harness.submit(queue="b", lane=Lane.ASYNC, scheduled_at=later)
        load = harness.store.load(now=harness.now)
        a, b = of(load, queue="a"), of(load, queue="b", lane=Lane.ASYNC)
        assert (a.due, a.first_at, a.running, a.claimed_at) == (2, old, 0, None)
        assert (b.due, b.first_at) == (0, later)
        assert (load.pending, load.due, load.running) == (4, 2, 0)
        assert [stream.stream_id for stream in load.streams] == sorted(s.stream_id for s in load.streams)

    def test_closed_streams_are_in_it(self, harness: Harness) -> None:
        """A paused queue, an open breaker, an empty pool of permits, a parked target: their jobs wait all the same."""
        harness.store.pause_queue("closed", now=harness.now)
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        record = BreakerRecord(service="bank", state="OPEN", until=harness.after(minutes=1))
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        assert harness.store.park(harness.running(), "shop:new", now=harness.now)
        harness.running(resource="gateway")
        harness.submit(queue="closed")
        harness.submit(breaker="bank")
        harness.submit(resource="gateway")
        load = harness.store.load(now=harness.now)
        assert of(load, parked_target="shop:new").due == 1
        assert of(load, queue="closed").due == 1
        assert of(load, breaker="bank").due == 1
        assert (of(load, resource="gateway").due, of(load, resource="gateway").running) == (1, 1)

    def test_what_runs_and_since_when(self, harness: Harness) -> None:
        """Running jobs are counted, also where none waits; the last claim is named."""
        harness.running(queue="a")
        harness.advance(seconds=30)
        last = harness.running(queue="a")
        load = harness.store.load(now=harness.now)
        stream = of(load, queue="a")
        assert (stream.due, stream.first_at, stream.running) == (0, None, 2)
        assert stream.claimed_at == last.claimed_at
        assert (load.pending, load.running) == (0, 2)

    def test_dead_letters(self, harness: Harness) -> None:
        """They are counted, and the time of the oldest is named; what was retried or deleted is none any more."""
        first = harness.failed()
        since = harness.store.load(now=harness.now).dead_letters_since
        harness.advance(seconds=30)
        second = harness.failed()
        load = harness.store.load(now=harness.now)
        assert (load.dead_letters, load.dead_letters_since) == (2, since)
        assert since is not None
        assert harness.store.delete(first)
        load = harness.store.load(now=harness.now)
        assert load.dead_letters == 1
        assert load.dead_letters_since is not None
        assert load.dead_letters_since > since
        assert harness.store.retry(second, now=harness.now)
        load = harness.store.load(now=harness.now)
        assert (load.dead_letters, load.dead_letters_since) == (0, None)

    def test_counts_end_at_a_limit(self, harness: Harness) -> None:
        """No more than so many jobs are counted in all; but each stream with due jobs counts at least one."""
        for queue in "abc":
            harness.submit_many(4, queue=queue)
        for _ in range(4):
            harness.failed()
        load = harness.store.load(now=harness.now, most=3)
        assert (load.pending, load.dead_letters) == (3, 3)
        assert [of(load, queue=queue).due for queue in "abc"] == [3, 1, 1]


class TestUnreadable:
    def test_a_healthy_store_names_no_row(self, harness: Harness) -> None:
        """Jobs of every priority in several streams, due or not, schedules, limits, breakers, nodes: all of it can be read."""
        harness.register()
        harness.store.set_limit("gateway", concurrent=1, now=harness.now)
        record = BreakerRecord(service="bank", state="OPEN", until=harness.after(minutes=1))
        assert harness.store.save_breaker(record, expected_version=0, now=harness.now)
        harness.store.upsert_schedule(harness.schedule_spec(), now=harness.now)
        for priority in Priority:
            harness.submit(priority=priority)
            harness.submit(priority=priority, queue="later", scheduled_at=harness.after(days=400))
            harness.submit(priority=priority, resource="gateway")
        harness.running(queue="busy")
        harness.paused()
        harness.failed()
        assert harness.store.unreadable() == []
