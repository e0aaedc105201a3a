"""
What happened to jobs and breakers, as told to listeners in the process that made the change.

Events are at most once and in commit order. What must not be missed belongs in a callback job.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from ratchet.model.job import JobFilter, JobRecord
from ratchet.model.status import JobStatus, JobType, Priority


class Event(Struct, frozen=True, kw_only=True):
    """Something happened."""


class NodeJoined(Event, frozen=True, kw_only=True):
    """A node has joined the cluster: this process, or another one that this node has seen for the first time."""

    node_id: str
    name: str
    host: str
    pid: int
    version: str
    at: datetime
    replaces: str | None = None  # this process went on as a new node: it had been declared dead under this id


class NodeLost(Event, frozen=True, kw_only=True):
    """A node fell silent and this one has taken back its work; how many of its jobs wait again, and how many are dead letters."""

    node_id: str
    by: str
    at: datetime
    requeued: int = 0
    suspects: int = 0
    dead_lettered: int = 0


class JobsRetried(Event, frozen=True, kw_only=True):
    """FAILED jobs were put back to the queue by a filter. Their `JobRetrying` are not published one by one."""

    filter: JobFilter
    count: int
    at: datetime


class JobsCanceled(Event, frozen=True, kw_only=True):
    """Jobs were canceled by a filter, with what waited for them; the `JobCanceled` of each comes first."""

    filter: JobFilter
    count: int
    at: datetime


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
    type: JobType = JobType.SINGLE
    schedule: str | None = None  # the recurring schedule that made the job


def facts_of(record: JobRecord, status: JobStatus, at: datetime) -> dict[str, Any]:
    """The fields of a `JobEvent`, of a job that was looked up."""
    return {
        "job_id": record.job_id,
        "target": record.target,
        "status": status,
        "attempt": record.attempts,
        "priority": record.priority,
        "business_key": record.business_key,
        "node_id": record.node_id,
        "at": at,
        "type": record.type,
        "schedule": record.schedule,
    }


class JobSubmitted(JobEvent, frozen=True, kw_only=True):
    """A job was stored."""


class JobStarted(JobEvent, frozen=True, kw_only=True):
    """A run began on this node."""


class JobCompleted(JobEvent, frozen=True, kw_only=True):
    """A job succeeded."""

    duration: timedelta | None = None


class JobFailed(JobEvent, frozen=True, kw_only=True):
    """
    A run failed, or a job failed without one (its signal did not come, its condition raised, its node died).

    ``will_retry`` says whether the job goes on.
    """

    error: str
    will_retry: bool
    error_type: str | None = None


class JobRetrying(JobEvent, frozen=True, kw_only=True):
    """A failed job will run again at ``scheduled_at``: by its own retries, or because a person said so."""

    error: str
    scheduled_at: datetime


class JobDeadLettered(JobEvent, frozen=True, kw_only=True):
    """A job failed for good."""

    error: str
    reason: str
    attempts: int
    alerted: bool = True  # False: there was an alert about this target and type of error within the hour
    error_type: str | None = None


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


class JobSignaled(JobEvent, frozen=True, kw_only=True):
    """
    A job that waited for a signal has got it; ``rejected`` is the reason if the signal says no.

    A job whose signal had been kept for it has not waited, and there is no such event.
    """

    key: str
    rejected: str | None = None


class JobSignalTimedOut(JobEvent, frozen=True, kw_only=True):
    """The signal that a job waited for did not come in time; `JobFailed` and `JobDeadLettered` follow."""

    key: str | None


class BranchTaken(JobEvent, frozen=True, kw_only=True):
    """A condition held after the end of ``job_id``, so that the branch ``branch_id`` goes on."""

    branch_id: UUID


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


class BatchProgressed(JobEvent, frozen=True, kw_only=True):
    """Children of a batch have ended: told at most once a second by each node. ``job_id`` is the batch's parent job."""

    batch_id: UUID
    total_items: int
    completed_items: int
    failed_items: int
    canceled_items: int
