"""
Jobs as spans of OpenTelemetry, by its conventions for messaging: a producer at submit, a consumer for each attempt.

What is stored with a job are the fields of W3C Trace Context (``traceparent``, and ``tracestate`` where there is one), whichever
propagators the application has set. Baggage is not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ratchet.spi.tracer import Attempt, AttemptEnd, Carrier, RemoteScope, Submitted

_propagator = TraceContextTextMapPropagator()


class OpenTelemetryTracer:
    """A `ratchet.Tracer` over one tracer of OpenTelemetry; *sanitized* removes secrets from text."""

    def __init__(self, tracer: Tracer, sanitized: Callable[[str], str]) -> None:
        self._tracer = tracer
        self._sanitized = sanitized

    @contextmanager
    def submitting(self, submitted: Submitted) -> Iterator[Carrier]:
        """The producer span; the span around the caller is its parent."""
        with self._tracer.start_as_current_span(
            f"send {submitted.target}",
            kind=SpanKind.PRODUCER,
            attributes=_sent(submitted),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            carrier: dict[str, str] = {}
            _propagator.inject(carrier)
            try:
                yield carrier
            except BaseException as error:
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, self._sanitized(f"{type(error).__name__}: {error}")))
                raise

    def attempt(self, attempt: Attempt) -> SpanOfAttempt:
        """The consumer span of one attempt."""
        origin = _propagator.extract(attempt.carrier, context=Context())
        linked_to = trace.get_current_span(origin).get_span_context()
        span = self._tracer.start_span(
            f"process {attempt.target}",
            context=Context() if attempt.linked else origin,
            kind=SpanKind.CONSUMER,
            attributes=_processed(attempt),
            links=[Link(linked_to)] if attempt.linked and linked_to.is_valid else (),
        )
        return SpanOfAttempt(span)


class SpanOfAttempt:
    """One attempt as a span, which is the current one for the code of the job."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def entered(self) -> AbstractContextManager[object]:
        """Make it the current span. It ends when its outcome is known."""
        return trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )

    def remote(self) -> Sequence[RemoteScope]:
        """Make it the current span in another process."""
        carrier: dict[str, str] = {}
        _propagator.inject(carrier, context=trace.set_span_in_context(self._span, Context()))
        return [RemoteScope(module=__name__, name=continued.__name__, facts=carrier)]

    def ended(self, end: AttemptEnd) -> None:
        """End the span. All text in it was sanitized."""
        span, at = self._span, round(end.at * 1e9)
        span.set_attribute("ratchet.job.outcome", end.outcome)
        if end.error is not None:
            span.set_attribute("error.type", end.error.type)
            span.add_event(
                "exception",
                {
                    "exception.type": end.error.type,
                    "exception.message": end.error.message,
                    "exception.stacktrace": end.error.traceback or "",
                    "exception.escaped": "True",
                },
                timestamp=at,
            )
            span.set_status(Status(StatusCode.ERROR, end.error.message))
        span.end(at)


@contextmanager
def continued(carrier: Mapping[str, str]) -> Iterator[None]:
    """Surrounds the code of a job in a process of the process lane: its span is the current one there."""
    token = contexts.attach(_propagator.extract(carrier, context=Context()))
    try:
        yield
    finally:
        contexts.detach(token)


def _sent(submitted: Submitted) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue | None] = {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        **_common(submitted),
        "messaging.message.id": None if submitted.job_id is None else str(submitted.job_id),
        "messaging.batch.message_count": submitted.count if submitted.bulk else None,
    }
    return _given(found)


def _processed(attempt: Attempt) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue | None] = {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        **_common(attempt),
        "messaging.message.id": str(attempt.job_id),
        "messaging.message.conversation_id": str(attempt.root_id),
        "messaging.client.id": attempt.node_id,
        "ratchet.job.attempt": attempt.attempt,
        "ratchet.job.max_retries": attempt.max_retries,
        "ratchet.job.type": attempt.type.value,
    }
    return _given(found)


def _common(facts: Submitted | Attempt) -> dict[str, AttributeValue | None]:
    return {
        "messaging.system": "ratchet",
        "messaging.destination.name": facts.queue,
        "ratchet.job.target": facts.target,
        "ratchet.batch.id": None if facts.batch_id is None else str(facts.batch_id),
        "ratchet.schedule": facts.schedule,
    }


def _given(found: Mapping[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {name: value for name, value in found.items() if value is not None}
