"""
Metrics and traces for OpenTelemetry: ``instrument(scheduler)`` once, before anything is submitted and before ``start()``.

Needs the extra ``opentelemetry``. Which exporter gets the data is up to the providers of your application.
"""

from __future__ import annotations

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from ratchet.api.observe.gauges import StoreGauges
from ratchet.contrib.opentelemetry.meters import OpenTelemetryMeters
from ratchet.contrib.opentelemetry.tracing import OpenTelemetryTracer
from ratchet.scheduler import Scheduler

__all__ = ["OpenTelemetryMeters", "OpenTelemetryTracer", "instrument"]


def instrument(
    scheduler: Scheduler,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    store: bool = False,
) -> OpenTelemetryMeters:
    """
    Follow what *scheduler* submits, and follow and measure the nodes that it starts, from now on; None: the global providers.

    Every process does it: those that submit, and the workers. *store*: also export what the store knows; one process of a
    cluster is enough for that.
    """
    tracer = trace.get_tracer("ratchet", tracer_provider=tracer_provider)
    scheduler.add_tracer(OpenTelemetryTracer(tracer, scheduler.backend.sanitized))
    meters = OpenTelemetryMeters(metrics.get_meter("ratchet", meter_provider=meter_provider))
    if store:
        StoreGauges(scheduler.backend).watch(meters)
    scheduler.add_meters(meters)
    return meters
