"""What a node measures, as Prometheus and OpenTelemetry see it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ratchet import JobContext, JobStatus, Options, RetryLater, Scheduler
from ratchet.contrib import opentelemetry, prometheus
from ratchet.contrib.prometheus import PrometheusMeters
from ratchet.engine.meters import MOST_COMMITS, NodeMeters
from ratchet.model import metrics
from ratchet.model.clock import SystemClock
from ratchet.model.decision import Succeed
from ratchet.model.identifiers import new_id
from ratchet.model.metrics import BUCKETS, METRICS, OTHER, Labels, MetricKind
from ratchet.stores.memory import MemoryStore
from tests.support.waiting import until

HERE = __name__
GATE = threading.Event()


def succeed() -> None:
    """Nothing."""


async def succeed_async() -> None:
    """Nothing."""


def fail() -> None:
    raise ValueError("no")


def fail_once() -> None:
    if JobContext.current().attempt == 1:
        raise ValueError("not yet")


def come_later() -> None:
    if JobContext.current().state.setdefault("seen", 0) == 0:
        JobContext.current().state["seen"] = 1
        raise RetryLater(0.01, count=False)


def hold() -> None:
    GATE.wait(20)


@pytest.fixture
def registry() -> CollectorRegistry:
    """Where this test collects."""
    return CollectorRegistry()


@pytest.fixture
def scheduler(registry: CollectorRegistry) -> Iterator[Scheduler]:
    """A node in memory, measured for Prometheus."""
    GATE.clear()
    made = Scheduler(store=MemoryStore(), allow=[HERE])
    prometheus.instrument(made, registry)
    yield made
    GATE.set()
    made.close()


def scraped(registry: CollectorRegistry) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample, as a server would read it from the page."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def runs(registry: CollectorRegistry, target: Callable[..., Any], outcome: str) -> float:
    """How many runs of *target* were counted with this outcome."""
    labels = (("outcome", outcome), ("queue", "default"), ("target", f"{HERE}:{target.__name__}"))
    return scraped(registry).get(("ratchet_jobs_total", labels), 0.0)


class TestPrometheus:
    @pytest.mark.parametrize(
        ("target", "outcome", "settings"),
        [
            (succeed, "succeeded", {}),
            (succeed_async, "succeeded", {}),
            (fail, "failed", {}),
            (fail_once, "retried", {"retries": 1}),
            (fail_once, "succeeded", {"retries": 1}),
            (come_later, "rescheduled", {}),
        ],
    )
    def test_each_outcome_is_counted_once(
        self,
        scheduler: Scheduler,
        registry: CollectorRegistry,
        target: Any,
        outcome: str,
        settings: dict[str, int],
    ) -> None:
        """A run that ends adds one to its target, queue and outcome, and to nothing else."""
        with scheduler:
            scheduler.enqueue(target).with_max_retries(settings.get("retries", 0)).submit().wait(timeout=20)
            until(lambda: runs(registry, target, outcome) == 1, what=str(scraped(registry)))

    def test_durations_and_waits(self, scheduler: Scheduler, registry: CollectorRegistry) -> None:
        """A run adds its time to the histogram of its target, and its wait to the one of its queue."""
        with scheduler:
            scheduler.enqueue_now(succeed).wait(timeout=20)
            until(lambda: runs(registry, succeed, "succeeded") == 1)
        page = scraped(registry)
        target = (("queue", "default"), ("target", f"{HERE}:succeed"))
        assert page["ratchet_job_duration_seconds_count", target] == 1
        assert page["ratchet_job_wait_seconds_count", (("queue", "default"),)] == 1
        assert page["ratchet_job_duration_seconds_bucket", (("le", "3600.0"), *target)] == 1
        assert page["ratchet_claim_duration_seconds_count", ()] >= 1
        assert page["ratchet_completion_duration_seconds_count", ()] == 1
        assert page["ratchet_jobs_claimed_total", (("lane", "thread"),)] == 1

    def test_what_runs_now(self, scheduler: Scheduler, registry: CollectorRegistry) -> None:
        """A job that runs takes a slot and is shown in its queue until it ends."""
        running = ("ratchet_jobs_running", (("queue", "default"),))
        busy = ("ratchet_slots_busy", (("lane", "thread"),))
        with scheduler:
            scheduler.enqueue_now(succeed).wait(timeout=20)  # the queue is known from now on
            handle = scheduler.enqueue_now(hold)
            until(lambda: scraped(registry).get(running) == 1, what=str(scraped(registry)))
            assert scraped(registry)[busy] == 1
            assert scraped(registry)["ratchet_slots", (("lane", "thread"),)] == 20
            GATE.set()
            handle.wait(timeout=20)
            until(lambda: scraped(registry)[running] == 0)

    def test_nothing_is_read_of_a_node_that_stopped(
        self, scheduler: Scheduler, registry: CollectorRegistry
    ) -> None:
        """After `stop()` its counters stay and its gauges are gone; a second start counts on."""
        for times in (1, 2):
            with scheduler:
                scheduler.enqueue_now(succeed).wait(timeout=20)
            assert runs(registry, succeed, "succeeded") == times
            assert ("ratchet_slots", (("lane", "thread"),)) not in scraped(registry)

    def test_a_wakeup_is_counted(self, scheduler: Scheduler, registry: CollectorRegistry) -> None:
        """A submission in this process wakes its poller."""
        with scheduler:
            scheduler.enqueue_now(succeed).wait(timeout=20)
            assert scraped(registry)["ratchet_wakeups_total", ()] >= 1
            assert scraped(registry)["ratchet_rescues_total", ()] == 0


def test_opentelemetry_sees_the_same() -> None:
    """The instruments of a meter provider get counters, histograms with our buckets, and gauges."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    scheduler = Scheduler(store=MemoryStore(), allow=[HERE])
    opentelemetry.instrument(scheduler, meter_provider=provider)
    with scheduler:
        scheduler.enqueue_now(succeed).wait(timeout=20)

        def found() -> dict[str, Any]:
            data = reader.get_metrics_data()
            return {
                metric.name: list(metric.data.data_points)
                for resource in (data.resource_metrics if data else ())
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }

        until(lambda: "ratchet_jobs_total" in found())
        (run,) = found()["ratchet_jobs_total"]
        assert (run.value, run.attributes["outcome"]) == (1, "succeeded")
        (duration,) = found()["ratchet_job_duration_seconds"]
        assert duration.count == 1
        assert duration.explicit_bounds[0] == 0.001
        assert {point.attributes["lane"] for point in found()["ratchet_slots"]} == {
            "thread",
            "async",
            "process",
        }
    scheduler.close()
    provider.shutdown()


def test_a_group_of_values_falls_into_the_buckets_that_prometheus_client_chooses() -> None:
    """Values on, just above and between all edges, in any order and in two groups: the same buckets, count and sum."""
    values = [0.0, 7200.0, 0.0007, *BUCKETS, *(edge * 1.0001 for edge in BUCKETS), *reversed(BUCKETS)]
    theirs, ours = CollectorRegistry(), CollectorRegistry()
    histogram = Histogram("ratchet_job_wait_seconds", "x", ["queue"], registry=theirs, buckets=BUCKETS)
    meters = PrometheusMeters()
    ours.register(meters)
    for group in (values[:20], values[20:]):
        meters.record(metrics.JOB_WAIT, ("q",), group)
    for value in values:
        histogram.labels("q").observe(value)
    for edge in [*map(str, BUCKETS), "+Inf"]:
        asked = ("ratchet_job_wait_seconds_bucket", {"queue": "q", "le": edge})
        assert ours.get_sample_value(*asked) == theirs.get_sample_value(*asked), edge
    for name in ("ratchet_job_wait_seconds_count", "ratchet_job_wait_seconds_sum"):
        expected = theirs.get_sample_value(name, {"queue": "q"})
        assert ours.get_sample_value(name, {"queue": "q"}) == pytest.approx(expected)


def test_meters_are_called_for_groups_and_not_for_runs() -> None:
    """300 jobs of one target cost a handful of calls about runs, and each run is in them once."""
    told = Told()
    made = Scheduler(store=MemoryStore(), allow=[HERE], meters=told)
    made.enqueue_many(succeed, [()] * 300)
    made.start()
    until(
        lambda: (
            not made.jobs.counts().get(JobStatus.PENDING) and not made.jobs.counts().get(JobStatus.RUNNING)
        )
    )
    made.close()
    about_runs = {metrics.JOBS, metrics.JOB_DURATION, metrics.JOB_WAIT}
    calls = [(metric, amount) for metric, amount in told.calls if metric in about_runs]
    assert len(calls) <= 9
    for metric in about_runs:
        assert sum(amount for other, amount in calls if other is metric) == 300


def test_runs_are_passed_on_once_whoever_takes_them() -> None:
    """Four readers at once, while commits come in: no run is told twice, none is forgotten, and no commit waits for a meter."""
    told = Told()
    meters = NodeMeters([told], SystemClock(), 10)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    commit = (at, [("shop:pay", "default", Succeed, at, at, at, None, new_id())] * 3)
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            meters.pass_on()

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for _ in range(2000):
        meters.ended(commit)
    over.set()
    for reader in readers:
        reader.join()
    meters.pass_on()
    assert sum(amount for metric, amount in told.calls if metric is metrics.JOBS) == 6000

    told.calls.clear()
    for _ in range(MOST_COMMITS):
        meters.ended(commit)
    assert told.calls == []
    meters.ended(commit)
    assert sum(amount for metric, amount in told.calls if metric is metrics.JOBS) == 3 * MOST_COMMITS + 3


class Told:
    """Meters that keep how much each call brought."""

    def __init__(self) -> None:
        self.calls: list[tuple[metrics.Metric, float]] = []

    def add(self, metric: metrics.Metric, labels: tuple[str, ...], amount: float) -> None:
        self.calls.append((metric, amount))

    def record(self, metric: metrics.Metric, labels: tuple[str, ...], values: Sequence[float]) -> None:
        self.calls.append((metric, len(values)))


def test_labels_have_an_end() -> None:
    """Beyond the limit values are counted together: a target name made by a program must not fill a server."""
    labels = Labels(2)
    assert [labels.of(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]


def test_the_limit_on_labels_is_an_option(registry: CollectorRegistry) -> None:
    """`Options(metric_labels=1)`: the second target is `other`."""
    scheduler = Scheduler(store=MemoryStore(), allow=[HERE], options=Options(metric_labels=1))
    prometheus.instrument(scheduler, registry)
    with scheduler:
        scheduler.enqueue_now(succeed).wait(timeout=20)
        scheduler.enqueue_now(succeed_async).wait(timeout=20)
    targets = {dict(labels)["target"] for (name, labels) in scraped(registry) if name == "ratchet_jobs_total"}
    assert targets == {f"{HERE}:succeed", OTHER}
    scheduler.close()


def test_two_meters_at_once(registry: CollectorRegistry) -> None:
    """Each of several meters is told everything."""
    other = CollectorRegistry()
    scheduler = Scheduler(store=MemoryStore(), allow=[HERE])
    prometheus.instrument(scheduler, registry)
    prometheus.instrument(scheduler, other)
    with scheduler:
        scheduler.enqueue_now(succeed).wait(timeout=20)
    assert runs(registry, succeed, "succeeded") == runs(other, succeed, "succeeded") == 1
    scheduler.close()


def test_a_meter_that_raises_is_logged_and_costs_no_job(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever a meter raises, jobs end and the node stops; one line says which method it was."""

    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise SystemExit(name)

    scheduler = Scheduler(store=MemoryStore(), allow=[HERE], meters=Broken())
    with caplog.at_level(logging.ERROR), scheduler:
        assert scheduler.enqueue_now(succeed).result(timeout=20) is None
    assert any("Meters.record() raised" in record.message for record in caplog.records)
    scheduler.close()


def test_the_catalog_is_well_formed() -> None:
    """Names, units and labels follow the conventions of Prometheus, and no label can be an id or a key."""
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("ratchet_")
        assert metric.help.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert metric.name.endswith("_seconds") == (metric.unit == "seconds")
        assert not {"job_id", "id", "key", "node"} & set(metric.labels)
