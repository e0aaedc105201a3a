"""
Metrics for Prometheus: ``instrument(scheduler)`` and serve the registry as your application does.

Needs the extra ``prometheus``. ``ratchet worker --http`` does all of this by itself.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from ratchet.api.observe.gauges import StoreGauges
from ratchet.model.metrics import BUCKETS, Metric, MetricKind
from ratchet.scheduler import Scheduler
from ratchet.spi.meters import Sample

_EDGES = [*(str(edge) for edge in BUCKETS), "+Inf"]


def instrument(
    scheduler: Scheduler, registry: CollectorRegistry | None = None, *, store: bool = False
) -> PrometheusMeters:
    """
    Measure the nodes that *scheduler* starts from now on, for *registry* (None: the default one).

    Call it once, before ``start()``. *store*: also export what the store knows (depths, waits, dead letters, nodes); one process of a
    cluster is enough for that, and it need not be a node.
    """
    meters = PrometheusMeters()
    if store:
        StoreGauges(scheduler.backend).watch(meters)
    (REGISTRY if registry is None else registry).register(meters)
    scheduler.add_meters(meters)
    return meters


class PrometheusMeters(Collector):
    """
    `Meters` that prometheus_client collects.

    Histograms are kept here: adding a group of 200 values takes 0.02 us a value, and 0.55 us with those of
    prometheus_client, which would show in a drain.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[Metric, dict[tuple[str, ...], float]] = {}
        self._histograms: dict[Metric, dict[tuple[str, ...], _Histogram]] = {}
        self._watched: dict[Metric, list[Callable[[], Iterable[Sample]]]] = {}

    # --- Meters

    def add(self, metric: Metric, labels: tuple[str, ...], amount: float) -> None:
        """A counter has grown."""
        with self._lock:
            series = self._counters.setdefault(metric, {})
            series[labels] = series.get(labels, 0.0) + amount

    def record(self, metric: Metric, labels: tuple[str, ...], values: Sequence[float]) -> None:
        """Values of a histogram."""
        with self._lock:
            series = self._histograms.setdefault(metric, {})
            histogram = series.get(labels)
            if histogram is None:
                histogram = series[labels] = _Histogram()
            histogram.add(values)

    def watch(self, metric: Metric, read: Callable[[], Iterable[Sample]]) -> Callable[[], None]:
        """Read this whenever somebody collects."""
        with self._lock:
            self._watched.setdefault(metric, []).append(read)

        def end() -> None:
            with self._lock:
                self._watched[metric].remove(read)

        return end

    # --- Collector

    def describe(self) -> Iterable[Family]:
        """Nothing yet: families are known when they are collected."""
        return ()

    def collect(self) -> Iterator[Family]:
        """Every family with its samples."""
        with self._lock:
            watched = {metric: list(reads) for metric, reads in self._watched.items()}
        # Outside of the lock: reading a node passes on what has ended there, which comes back through `record`.
        read = {metric: _summed(metric, reads) for metric, reads in watched.items()}
        with self._lock:
            counted = {metric: dict(series) for metric, series in self._counters.items()}
            histograms = {
                metric: {labels: kept.copy() for labels, kept in series.items()}
                for metric, series in self._histograms.items()
            }
        for metric, series in (counted | read).items():
            yield _family(metric, series)
        for metric, kept in histograms.items():
            family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            for labels, histogram in kept.items():
                family.add_metric(labels, histogram.buckets(), histogram.total)
            yield family


class _Histogram:
    """How many values fell into each bucket, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(_EDGES)
        self.total = 0.0

    def add(self, values: Sequence[float]) -> None:
        self.total += sum(values)
        # Measured: looking for the edges in 200 sorted values takes 0.02 us a value; looking for each value among the edges, 0.06.
        ordered = sorted(values)
        below = 0
        for number, edge in enumerate(BUCKETS):
            upto = bisect_right(ordered, edge, below)
            self.counts[number] += upto - below
            below = upto
            if below == len(ordered):
                return
        self.counts[-1] += len(ordered) - below

    def copy(self) -> _Histogram:
        other = _Histogram()
        other.counts, other.total = list(self.counts), self.total
        return other

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts, as Prometheus wants them."""
        cumulative: list[tuple[str, float]] = []
        count = 0
        for edge, more in zip(_EDGES, self.counts, strict=True):
            count += more
            cumulative.append((edge, count))
        return cumulative


def _summed(metric: Metric, reads: Sequence[Callable[[], Iterable[Sample]]]) -> dict[tuple[str, ...], float]:
    """What all nodes of this process say together."""
    series: dict[tuple[str, ...], float] = {}
    for read in reads:
        for labels, value in read():
            series[labels] = series.get(labels, 0.0) + value
    return series


def _family(metric: Metric, series: dict[tuple[str, ...], float]) -> Family:
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in series.items():
        family.add_metric(labels, value)
    return family
