"""What nodes measure, as metrics of OpenTelemetry."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation

from ratchet.model.metrics import BUCKETS, Metric, MetricKind
from ratchet.spi.meters import Sample


class OpenTelemetryMeters:
    """`Meters` over the instruments of one OpenTelemetry meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._instruments: dict[Metric, Any] = {}
        self._watched: dict[Metric, list[Callable[[], Iterable[Sample]]]] = {}

    def add(self, metric: Metric, labels: tuple[str, ...], amount: float) -> None:
        """A counter has grown."""
        counter = self._instrument(metric, self._meter.create_counter)
        counter.add(amount, dict(zip(metric.labels, labels, strict=True)))

    def record(self, metric: Metric, labels: tuple[str, ...], values: Sequence[float]) -> None:
        """Values of a histogram."""
        histogram: Histogram = self._instrument(metric, self._histogram)
        attributes = dict(zip(metric.labels, labels, strict=True))
        for value in values:
            histogram.record(value, attributes)

    def watch(self, metric: Metric, read: Callable[[], Iterable[Sample]]) -> Callable[[], None]:
        """Read this whenever somebody collects."""
        with self._lock:
            self._watched.setdefault(metric, []).append(read)
        create = (
            self._meter.create_observable_counter
            if metric.kind is MetricKind.COUNTER
            else self._meter.create_observable_gauge
        )
        self._instrument(metric, lambda name, **more: create(name, callbacks=[self._reader(metric)], **more))

        def end() -> None:
            with self._lock:
                self._watched[metric].remove(read)

        return end

    def _instrument(self, metric: Metric, create: Callable[..., Any]) -> Any:
        with self._lock:
            made = self._instruments.get(metric)
            if made is None:
                made = self._instruments[metric] = create(
                    metric.name, unit="s" if metric.unit else "1", description=metric.help
                )
            return made

    def _histogram(self, name: str, **more: Any) -> Histogram:
        return self._meter.create_histogram(name, explicit_bucket_boundaries_advisory=list(BUCKETS), **more)

    def _reader(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(options: CallbackOptions) -> Iterable[Observation]:
            with self._lock:
                reads = list(self._watched.get(metric, ()))
            series: dict[tuple[str, ...], float] = {}
            for one in reads:
                for labels, value in one():
                    series[labels] = series.get(labels, 0.0) + value
            return [
                Observation(value, dict(zip(metric.labels, labels, strict=True)))
                for labels, value in series.items()
            ]

        return read
