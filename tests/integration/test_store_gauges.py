"""The gauges of a store: each moves with what it is about, on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import ManualClock, StoreUnavailable
from ratchet.api.observe.gauges import MAX_AGE, StoreGauges
from ratchet.model import metrics
from ratchet.model.cluster import BreakerRecord
from ratchet.model.metrics import STORE_METRICS, Metric
from ratchet.model.options import Options
from ratchet.model.problems import CODES
from ratchet.spi.meters import Sample
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler, manual_scheduler

Gauges = dict[Metric, dict[tuple[str, ...], float]]


def work() -> None:
    """Nothing."""


def fail() -> None:
    raise ValueError("no")


def read(scheduler: ManualScheduler) -> Gauges:
    """Every gauge, read anew."""
    return of(StoreGauges(scheduler.backend))


def of(gauges: StoreGauges) -> Gauges:
    return {metric: dict(samples) for metric, samples in gauges.read().items()}


def test_each_gauge_moves(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """What waits (also in a paused queue), how long, what failed, breakers, late schedules, parked jobs, nodes."""
    before = read(scheduler)
    assert set(before) == set(STORE_METRICS)
    assert before[metrics.DEAD_LETTERS][()] == 0
    assert before[metrics.SCHEDULE_LATENESS][()] == 0

    scheduler.enqueue_now(fail)
    scheduler.schedule_recurring("every 1h", work, name="hourly")
    scheduler.drain()
    scheduler.queues.pause("side")
    scheduler.enqueue(work).with_queue("side").submit()
    scheduler.enqueue(work).with_queue("side").submit()
    scheduler.enqueue_now(work)
    store, now = scheduler.store, clock.now()
    store.save_breaker(
        BreakerRecord(service="bank", state="OPEN", until=now + timedelta(days=1)),
        expected_version=0,
        now=now,
    )
    clock.advance(timedelta(hours=1, minutes=10))

    after = read(scheduler)
    assert after[metrics.QUEUE_DEPTH][("side", "due")] == 2
    assert after[metrics.QUEUE_DEPTH][("default", "due")] == 1
    assert after[metrics.QUEUE_DEPTH][("default", "running")] == 0
    assert after[metrics.OLDEST_AGE][("side",)] == pytest.approx(4200, abs=1)
    assert after[metrics.DEAD_LETTERS][()] == 1
    assert after[metrics.BREAKER_OPEN][("bank",)] == 1
    assert after[metrics.SCHEDULE_LATENESS][()] == pytest.approx(600, abs=1)
    assert after[metrics.PARKED_JOBS][()] == 0
    assert after[metrics.HEALTHY][()] == 0  # the paused queue has jobs that are due
    problems = {code for (code,), value in after[metrics.PROBLEMS].items() if value}
    assert problems == {"paused_queue", "late_schedule", "overdue"}
    assert {code for (code,) in after[metrics.PROBLEMS]} == set(CODES)


def test_a_queue_that_was_emptied_stays(scheduler: ManualScheduler) -> None:
    """Its depth is 0, not missing: an alert on a missing series is for an exporter that died."""
    gauges = StoreGauges(scheduler.backend, max_age=0)
    scheduler.enqueue(work).with_queue("mail").submit()
    assert of(gauges)[metrics.QUEUE_DEPTH][("mail", "due")] == 1
    scheduler.drain()
    assert of(gauges)[metrics.QUEUE_DEPTH][("mail", "due")] == 0
    assert of(gauges)[metrics.OLDEST_AGE][("mail",)] == 0


class TestReading:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    def test_many_who_look_cost_one_read(self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """An answer is given again for a few seconds, and then read anew."""
        scheduler = manual_scheduler(clock=clock)
        reads: list[int] = []
        load = MemoryStore.load
        monkeypatch.setattr(
            MemoryStore, "load", lambda self, **more: (reads.append(1), load(self, **more))[1]
        )
        gauges = StoreGauges(scheduler.backend)
        once = gauges.read() and len(reads)
        gauges.read()
        assert len(reads) == once
        clock.advance(MAX_AGE + 1)
        gauges.read()
        assert len(reads) == 2 * once

    def test_a_store_that_does_not_answer(self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is raised: `ratchet_healthy` is 0, the problem is named, and what is not known is missing."""
        scheduler = manual_scheduler(clock=clock)

        def away(self: MemoryStore, **more: object) -> None:
            raise StoreUnavailable("gone")

        monkeypatch.setattr(MemoryStore, "load", away)
        found = read(scheduler)
        assert {metrics.HEALTHY, metrics.PROBLEMS} == found.keys()
        assert found[metrics.HEALTHY] == {(): 0.0}
        assert [code for (code,), value in found[metrics.PROBLEMS].items() if value] == ["unreachable"]

    def test_queues_beyond_the_limit_are_one(self, clock: ManualClock) -> None:
        """A thousand queues are no thousand series."""
        scheduler = manual_scheduler(clock=clock, options=Options(metric_labels=3))
        for number in range(10):
            scheduler.enqueue(work).with_queue(f"tenant-{number}").submit()
        depths: list[Sample] = StoreGauges(scheduler.backend).read()[metrics.QUEUE_DEPTH]
        due = {labels[0]: count for labels, count in depths if labels[1] == "due"}
        assert len(due) == 4
        assert due["other"] == 7
