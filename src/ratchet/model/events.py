"""
What happened to jobs and breakers, as told to listeners in the process that made the change.

Events are at most once and in commit order. What must not be missed belongs in a callback job.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from ratchet.model.status import JobStatus, Priority


class Event(Struct, frozen=True, kw_only=True):
    """Something happened."""


class BreakerOpened(Event, frozen=True, kw_only=True):
    """A service's circuit breaker has opened; ``until``: when probes may start, None: not before a reset."""

    service: str
    at: datetime
    until: datetime | None = None


class BreakerClosed(Event, frozen=True, kw_only=True):
    """A service's circuit breaker has closed: its probes succeeded, or a person reset it."""

    service: str
    at: datetime


class JobEvent(Event, frozen=True, kw_only=True):
    """Something happened to a job; listen for this class to hear everything about jobs."""

    job_id: UUID
    target: str
    status: JobStatus
    attempt: int
    priority: Priority
    business_key: str | None
    node_id: str | None
    at: datetime


class JobSubmitted(JobEvent, frozen=True, kw_only=True):
    """A job was stored."""


class JobStarted(JobEvent, frozen=True, kw_only=True):
    """A run began on this node."""


class JobCompleted(JobEvent, frozen=True, kw_only=True):
    """A job succeeded."""

    duration: timedelta | None = None


class JobFailed(JobEvent, frozen=True, kw_only=True):
    """A run failed; ``will_retry`` says whether the job goes on."""

    error: str
    will_retry: bool
    error_type: str | None = None


class JobRetrying(JobEvent, frozen=True, kw_only=True):
    """A failed job will run again at ``scheduled_at``."""

    error: str
    scheduled_at: datetime


class JobDeadLettered(JobEvent, frozen=True, kw_only=True):
    """A job failed for good."""

    error: str
    reason: str
    attempts: int
    alerted: bool = True  # False: the same alert was raised within the hour


class JobCanceled(JobEvent, frozen=True, kw_only=True):
    """A job was canceled, by a person, by its parent's end, by expiry or by a replacement."""

    previous: JobStatus
    reason: str


class JobPaused(JobEvent, frozen=True, kw_only=True):
    """A job was taken out of the queue."""


class JobResumed(JobEvent, frozen=True, kw_only=True):
    """A paused job went back to where it was."""


class JobTimedOut(JobEvent, frozen=True, kw_only=True):
    """A run exceeded its timeout; a `JobFailed` follows."""

    timeout: timedelta


class JobRescheduled(JobEvent, frozen=True, kw_only=True):
    """A run ended without a verdict and the job will run again (RetryLater, a closed gate)."""

    scheduled_at: datetime
    reason: str | None = None


class JobRescued(JobEvent, frozen=True, kw_only=True):
    """A job of a dead node went back to the queue."""

    from_node: str


class JobCallbackFailed(JobEvent, frozen=True, kw_only=True):
    """A callback job failed for good; ``job_id`` is the callback's, ``parent_id`` the job it was for."""

    error: str
    parent_id: UUID | None = None


class BatchCompleted(JobEvent, frozen=True, kw_only=True):
    """The last child of a batch has ended; ``job_id`` is the batch's parent job."""

    batch_id: UUID
    total_items: int
    completed_items: int
    failed_items: int
    canceled_items: int
