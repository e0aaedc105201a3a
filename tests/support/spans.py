"""Spans of OpenTelemetry in memory, and the tree that they make."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer


class Spans:
    """Everything that is exported through its provider."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def tracer(self) -> Tracer:
        """For spans of the application."""
        return self.provider.get_tracer("application")

    def all(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> list[ReadableSpan]:
        """Those whose name ends so."""
        return [span for span in self.all() if span.name.endswith(name)]

    def one(self, name: str) -> ReadableSpan:
        """The only one whose name ends so."""
        (span,) = self.named(name)
        return span


def trace_id(span: ReadableSpan) -> str:
    """As it is written in a ``traceparent``."""
    assert span.context is not None
    return f"{span.context.trace_id:032x}"


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """True if *span* is below *parent*, in the same trace, and linked to nothing."""
    assert span.context is not None
    assert parent.context is not None
    below = span.parent is not None and span.parent.span_id == parent.context.span_id
    return below and span.context.trace_id == parent.context.trace_id and not span.links


def is_linked(span: ReadableSpan, origin: ReadableSpan) -> bool:
    """True if *span* begins a trace of its own, with one link to *origin*."""
    assert span.context is not None
    assert origin.context is not None
    linked = [link.context.span_id for link in span.links] == [origin.context.span_id]
    return linked and span.parent is None and span.context.trace_id != origin.context.trace_id
