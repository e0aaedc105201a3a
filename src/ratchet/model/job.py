"""
What a job is: as submitted (`JobSpec`), as users see it (`Job`), and how to ask for it (`JobFilter`).

The values on the hot path are msgspec structs: bulk submissions make a hundred thousand of them a
second, and a frozen dataclass costs ten times as much to make. Those that cannot be part of a reference
cycle are hidden from the garbage collector (``gc=False``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from dataclasses import field as dataclass_field
from datetime import date, datetime, time, timedelta
from enum import IntEnum, StrEnum
from math import isfinite
from typing import Any, Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from ratchet.model.errors import EmptyFilter, InvalidJob
from ratchet.model.masking import hidden_texts, masked_arguments, masked_params, masked_result
from ratchet.model.status import BackoffPolicy, Busy, JobStatus, JobType, Lane, Priority

T = TypeVar("T")

DEFAULT_QUEUE = "default"
KEY_LIMIT = 255


class StreamKey(Struct, frozen=True, kw_only=True):
    """
    What makes jobs share a stream: they pass the same gates in the same order.

    The claim walks streams, not jobs: a closed gate hides all the jobs behind it at no cost.
    """

    queue: str = DEFAULT_QUEUE
    lane: Lane = Lane.THREAD
    resource: str | None = None
    breaker: str | None = None
    limit_key: str | None = None
    fairness_key: str | None = None
    suspect: bool = False  # was running in two crashes: a node runs one of these at a time
    parked_target: str | None = None  # its place: what a node needs to claim it (`ratchet.model.places`)


class SignalWait(Struct, frozen=True, kw_only=True):
    """A job that starts in WAITING until this signal arrives."""

    key: str
    deadline: datetime | None = None


class JobSpec(Struct, frozen=True, kw_only=True, gc=False):
    """One job as it is submitted, complete and validated. Payload and params are JSON text."""

    job_id: UUID
    target: str
    payload: str
    scheduled_at: datetime
    root_id: UUID | None = None  # the first job of its graph; None: a graph of its own
    status: JobStatus = JobStatus.PENDING  # or WAITING: for its edges, or for its signal
    type: JobType = JobType.SINGLE
    priority: Priority = Priority.NORMAL
    stream: StreamKey = StreamKey()
    expires_at: datetime | None = None
    max_retries: int = 0
    backoff: BackoffPolicy = BackoffPolicy.NONE
    backoff_base: timedelta = timedelta()
    jitter: float = 0.0
    timeout: timedelta | None = None
    no_retry_for: tuple[str, ...] = ()
    params: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    business_key: str | None = None
    busy: Busy = Busy.RAISE
    on_success: str | None = None
    on_failure: str | None = None
    parent_id: UUID | None = None
    batch_id: UUID | None = None
    schedule: str | None = None
    caller: str | None = None
    needs: int = 0  # how many of its incoming edges must be satisfied before it is released
    signal: SignalWait | None = None


def refuse_repeated_keys(specs: Iterable[JobSpec]) -> None:
    """`InvalidJob` if two jobs of one graph have the same idempotency key: a graph is stored whole or not at all."""
    seen: dict[tuple[UUID, str], UUID] = {}
    for spec in specs:
        if spec.idempotency_key is not None:
            key = (spec.root_id or spec.job_id, spec.idempotency_key)
            if seen.setdefault(key, spec.job_id) != spec.job_id:
                raise InvalidJob(
                    f"two jobs of one graph have the idempotency key {spec.idempotency_key!r}; give it to one of them"
                )


class Insertion(Struct, frozen=True, kw_only=True, gc=False):
    """What became of one submitted spec: it was stored (``created``), or its key named an older job."""

    job_id: UUID
    created: bool
    replaced: UUID | None = None  # the job that Busy.REPLACE canceled for this one


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is, by its own account."""

    fraction: float
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Job:
    """
    A job as it is now, wherever it lives: queue, history or archive.

    ``updated_at`` is the latest time that is stored of it: created, started (the run that is under way, if there is
    one) or finished. A change that has no time of its own, such as a pause or a new due time, does not show in it.

    Code gets all values. For people, in `to_dict` and in its ``repr``, ``•••`` stands where ``masked`` says.
    """

    id: UUID
    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    status: JobStatus
    type: JobType
    priority: Priority
    queue: str
    tags: tuple[str, ...]
    params: dict[str, Any]
    created_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    attempts: int
    max_retries: int
    crashes: int
    error: str | None
    error_type: str | None
    result: Any
    progress: Progress | None
    node_id: str | None
    business_key: str | None
    idempotency_key: str | None
    parent_id: UUID | None
    batch_id: UUID | None
    schedule: str | None
    superseded_by: UUID | None
    canceled_reason: str | None
    caller: str | None
    lane: Lane = Lane.THREAD
    resource: str | None = None
    root_id: UUID | None = None
    timeout: timedelta | None = None
    result_truncated: bool = False
    archived: bool = False
    updated_at: datetime | None = None
    trace_id: str | None = None
    unreadable: dict[str, str] = dataclass_field(
        default_factory=dict
    )  # what stands in columns that cannot be read
    masked: tuple[str, ...] = ()  # the paths of values that people do not see (`ratchet.model.masking`)

    def for_people(self) -> Job:
        """The job with ``•••`` in the place of what is masked."""
        if not self.masked:
            return self
        # A callback has the params of the job that it is about, but other arguments.
        of_arguments = () if self.type is JobType.CALLBACK else self.masked
        args, kwargs = masked_arguments(self.args, self.kwargs, of_arguments)
        params = masked_params(self.params, self.masked)
        hidden = hidden_texts(self.args, self.kwargs, self.params, of_arguments)
        result = masked_result(self.result, self.masked, hidden)
        return replace(self, args=args, kwargs=kwargs, params=params, result=result)

    def __repr__(self) -> str:
        shown = self.for_people()
        return f"Job({', '.join(f'{one.name}={getattr(shown, one.name)!r}' for one in fields(self))})"

    def to_dict(self) -> dict[str, Any]:
        """
        Every field, as values that `json.dumps` takes: ids, times (ISO 8601) and enums as text, durations in seconds.

        Arguments, params and results that are not plain JSON are written as text; what is masked is ``•••``.
        """
        shown = self.for_people()
        return {field.name: json_safe(getattr(shown, field.name)) for field in fields(self)}


def json_safe(value: Any) -> Any:
    """*value* as plain JSON; what JSON has no word for becomes text."""
    match value:
        case None | bool():
            return value
        case IntEnum():
            return value.name
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return value if isfinite(value) else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): json_safe(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [json_safe(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: json_safe(getattr(value, field.name)) for field in fields(value)}
    return str(value)


class JobRecord(Struct, frozen=True, kw_only=True):
    """A job as a store returns it: everything `Job` has, with payload, params and result still as text."""

    job_id: UUID
    target: str
    payload: str
    status: JobStatus
    type: JobType
    priority: Priority
    stream: StreamKey
    tags: tuple[str, ...]
    params: str | None
    created_at: datetime
    scheduled_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    attempts: int
    max_retries: int
    crashes: int
    backoff: BackoffPolicy
    backoff_base: timedelta
    jitter: float
    timeout: timedelta | None
    error: str | None
    error_type: str | None
    result: str | None
    result_truncated: bool
    progress: Progress | None
    state: str | None
    node_id: str | None
    claim_id: UUID | None
    business_key: str | None
    idempotency_key: str | None
    root_id: UUID
    parent_id: UUID | None
    batch_id: UUID | None
    schedule: str | None
    superseded_by: UUID | None
    canceled_reason: str | None
    paused_from: JobStatus | None
    signal_key: str | None
    dead_letter_reason: str | None
    caller: str | None
    archived: bool
    unreadable: dict[str, str] = {}


class JobResultRow(Struct, frozen=True, kw_only=True):
    """What a waiter needs to know about a job, without what is expensive to read."""

    job_id: UUID
    status: JobStatus
    result: str | None = None
    result_truncated: bool = False
    error: str | None = None
    error_type: str | None = None
    canceled_reason: str | None = None


class ExecutionStatus:
    """How a run ended; only SUCCEEDED, FAILED and TIMED_OUT count as attempts."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"
    CRASHED = "CRASHED"
    RESCHEDULED = "RESCHEDULED"
    HANDED_BACK = "HANDED_BACK"


class Execution(Struct, frozen=True, kw_only=True):
    """One run of a job: who, when, how long, and how it ended."""

    job_id: UUID
    claim_id: UUID
    attempt: int
    node_id: str
    started_at: datetime | None
    finished_at: datetime | None
    duration: timedelta | None
    queue_wait: timedelta | None
    status: str
    error: str | None
    traceback: str | None
    counted: bool
    error_type: str | None = None


class LogLine(Struct, frozen=True, kw_only=True):
    """One line that a job logged while it ran. ``lost``: its run no longer held the job."""

    at: datetime
    level: str
    logger: str
    message: str
    attempt: int
    lost: bool = False


class LogEntry(Struct, frozen=True, kw_only=True):
    """A log line on its way into the store."""

    job_id: UUID
    claim_id: UUID
    sequence: int
    attempt: int
    at: datetime
    level: str
    logger: str
    message: str


class Alert(Struct, frozen=True, kw_only=True):
    """
    One dead-letter alert: a target and a type of error, at most once an hour. Further failures are counted in it.

    ``job_id``, ``error`` and ``reason`` are those of the first failure.
    """

    alert_id: UUID
    job_id: UUID
    target: str
    error_hash: str
    error: str | None
    reason: str
    created_at: datetime
    suppressed: int = 0  # failures after the first

    @property
    def count(self) -> int:
        """The failures that this alert stands for."""
        return 1 + self.suppressed


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A job that failed for good, and why."""

    job_id: UUID
    target: str
    error: str | None
    reason: str
    attempts: int
    failed_at: datetime
    alerts: tuple[Alert, ...] = ()
    crashes: int = 0
    error_type: str | None = None


class DeadLetterGroup(Struct, frozen=True, kw_only=True):
    """
    Dead letters of one target and error type: how many, and between which failures.

    ``message`` is the error of the latest one, ``sample`` its job.
    """

    target: str
    error_type: str | None
    message: str | None
    count: int
    first_at: datetime
    last_at: datetime
    sample: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """
    Which jobs: every criterion that is given must hold; ``tags`` means all of them.

    ``args`` names arguments and their values: ``{"0": 42}`` is the first positional one, ``{"region": "eu"}`` one that
    was given by name. Payloads have no index: each job that meets the other criteria is read for it. ``parked``: waits
    for a node that has its function. ``truncated``: its result was too large to keep. ``trace_id`` is the trace in which it was
    submitted, 32 hexadecimal digits; it has no index either. ``error_type``: the name of the class of its error, as
    ``Job.error_type`` has it; empty text means a job without one.
    """

    statuses: Sequence[JobStatus] | None = None
    tags: Sequence[str] | None = None
    targets: Sequence[str] | None = None
    queue: str | None = None
    types: Sequence[JobType] | None = None
    priorities: Sequence[Priority] | None = None
    business_key: str | None = None
    batch_id: UUID | None = None
    parent_id: UUID | None = None
    schedule: str | None = None
    node_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    scheduled_after: datetime | None = None
    scheduled_before: datetime | None = None
    error_contains: str | None = None
    caller: str | None = None
    superseded_by: UUID | None = None
    args: Mapping[str, Any] | None = None
    parked: bool | None = None
    truncated: bool | None = None
    trace_id: str | None = None
    error_type: str | None = None
    include_archived: bool = False

    @property
    def is_empty(self) -> bool:
        """True if no criterion is given: the filter would match every job."""
        return all(getattr(self, f.name) is None for f in fields(self) if f.name != "include_archived")

    def require_criterion(self, verb: str) -> None:
        """Refuse to go on with a filter that matches every job."""
        if self.is_empty:
            raise EmptyFilter(
                f"{verb} needs at least one criterion: an empty JobFilter would match every job. "
                f"To mean all of one status, say JobFilter(statuses=[...])"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundedFilter(JobFilter):
    """
    A filter as a store gets it for a search by time: also the first and the last id that can match, both included.

    Ids are ordered by the time at which they were made.
    """

    first_id: UUID | None = None
    last_id: UUID | None = None


def id_bounds(where: JobFilter) -> tuple[UUID | None, UUID | None]:
    """The first and the last id that can match; None: any."""
    return (where.first_id, where.last_id) if isinstance(where, BoundedFilter) else (None, None)


class SortBy(StrEnum):
    """By what a listing of jobs is sorted. Jobs that lack it (FINISHED: they have not ended) come last."""

    CREATED = "CREATED"
    SCHEDULED = "SCHEDULED"
    FINISHED = "FINISHED"
    PRIORITY = "PRIORITY"


@dataclass(slots=True)
class Page(Generic[T]):
    """One page of a search, newest first unless it was asked otherwise; ``next_cursor`` is None at the end."""

    items: list[T]
    next_cursor: str | None = None

    def __post_init__(self) -> None:
        self.items = list(self.items)

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"Page({len(self.items)} items, next_cursor={self.next_cursor!r})"
