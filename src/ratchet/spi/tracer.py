"""Who follows jobs from where they are submitted to their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Protocol, TypeAlias
from uuid import UUID

from msgspec import Struct

from ratchet.model.decision import ErrorRecord
from ratchet.model.status import JobType

#: Names and values that travel with a job, as in HTTP headers: ``{"traceparent": "00-…-…-01"}``.
Carrier: TypeAlias = Mapping[str, str]


class Submitted(Struct, frozen=True, kw_only=True):
    """What one call submits: a job, a graph that begins with it, or many jobs (``bulk``)."""

    target: str
    queue: str
    job_id: UUID | None = None  # of the first job; None: of many
    count: int | None = None  # how many jobs; None: not known yet
    bulk: bool = False
    batch_id: UUID | None = None
    schedule: str | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    """
    One attempt of a job, about to begin.

    ``carrier`` is what the tracers gave when it was submitted. ``linked``: it should be a trace of its own with a link to that
    one, because it is not the first attempt, was delayed, belongs to a bulk, or recurs.
    """

    job_id: UUID
    target: str
    queue: str
    type: JobType
    attempt: int
    max_retries: int
    node_id: str
    created_at: datetime
    scheduled_at: datetime
    root_id: UUID
    carrier: Carrier
    linked: bool
    parent_id: UUID | None = None
    batch_id: UUID | None = None
    schedule: str | None = None


class AttemptEnd(Struct, frozen=True, kw_only=True):
    """
    How an attempt ended.

    ``outcome`` is the word that the metrics have for it (succeeded, retried, failed, rescheduled, …). ``error`` is sanitized; it
    is None for an attempt that did not fail, as after ``RetryLater``. ``exception`` is the exception itself, where there was one.
    ``at``: seconds since 1970. ``took``: seconds that its code ran.
    """

    outcome: str
    will_retry: bool
    at: float
    took: float
    error: ErrorRecord | None = None
    exception: BaseException | None = None


class RemoteScope(Struct, frozen=True, kw_only=True):
    """A function that makes the context manager around a job's code in another process, and what it is called with."""

    module: str
    name: str
    facts: dict[str, str]


class TracedAttempt(Protocol):
    """One attempt, from its begin to its end."""

    def entered(self) -> AbstractContextManager[object]:
        """Surrounds the code of the job, in its thread or task; in the process lane what this node does for it."""
        return nullcontext()

    def remote(self) -> Sequence[RemoteScope]:
        """What surrounds the code of the job in a process of the process lane, outermost first."""
        return ()

    def ended(self, end: AttemptEnd) -> None:
        """Called once, perhaps in another thread, when it is decided what follows. Code that did not stop in time may still run."""


class Tracer(Protocol):
    """
    Follows jobs: ``ratchet.contrib.opentelemetry`` and ``ratchet.contrib.sentry`` are two.

    A scheduler without a tracer follows nothing, which costs nothing. Whatever a method raises is logged and changes nothing for a
    job.
    """

    def submitting(self, submitted: Submitted) -> AbstractContextManager[Carrier]:
        """
        Surrounds a submission. What it gives is stored with each job, at most 1,024 characters of printable ASCII per value.

        A value with 32 hexadecimal digits names a trace by which ``JobFilter(trace_id=…)`` finds the job. The name ``linked`` is
        taken.
        """
        return nullcontext({})

    def attempt(self, attempt: Attempt) -> TracedAttempt | None:
        """An attempt is about to begin; None: this one is not followed."""
        return None
