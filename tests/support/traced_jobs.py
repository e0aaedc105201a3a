"""Jobs of the process lane that look at the current span; a child process finds them by this module's name."""

from __future__ import annotations

from opentelemetry import trace


def current_ids() -> tuple[str, str]:
    """Trace and span of the caller."""
    span = trace.get_current_span().get_span_context()
    return f"{span.trace_id:032x}", f"{span.span_id:016x}"


def look_in_process() -> tuple[str, str]:
    """What the code of a job sees as the current span."""
    return current_ids()


def fail_in_process() -> None:
    """Fail, with a secret."""
    raise ValueError("token=abcdef0123456789")
