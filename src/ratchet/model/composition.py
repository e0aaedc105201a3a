"""How jobs depend on each other: edges, batches, schedules, signals."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct

from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus, JobType


class EdgeKind(StrEnum):
    """When an edge lets its child go."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    CONDITION = "CONDITION"
    END = "END"  # however the parent ends, also CANCELED


class EdgeState(StrEnum):
    """What became of an edge."""

    OPEN = "OPEN"
    SATISFIED = "SATISFIED"
    BROKEN = "BROKEN"


class Condition(Struct, frozen=True, kw_only=True):
    """What a worker evaluates before a parent's completion to decide about one branch."""

    kind: str  # "result", "job_result", "batch_success", "success_rate", ... read by the engine only
    predicate: str | None = None  # an importable function
    argument: str | None = None  # JSON
    order: int = 0  # lower first
    description: str | None = None


class Edge(Struct, frozen=True, kw_only=True):
    """Child waits for parent."""

    parent_id: UUID
    child_id: UUID
    kind: EdgeKind = EdgeKind.SUCCESS
    position: int = 0  # definition order
    condition: Condition | None = None
    state: EdgeState = EdgeState.OPEN


class GraphNode(Struct, frozen=True, kw_only=True):
    """One job of a graph, as `handle.graph()` shows it."""

    job_id: UUID
    target: str
    status: JobStatus
    type: JobType
    canceled_reason: str | None = None


class Graph(Struct, frozen=True, kw_only=True):
    """The jobs that share a root, and the edges between them."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[Edge, ...]


class BatchSpec(Struct, frozen=True, kw_only=True):
    """
    A batch: its children are counted, and its parent job is released when all have ended.

    ``sealed`` says that ``total`` is final; a streaming batch is sealed when its source is read.
    """

    batch_id: UUID
    name: str
    parent: JobSpec  # type BATCH_PARENT, WAITING; released by the last child
    total: int = 0
    sealed: bool = True
    progress_target: str | None = None


class BatchRecord(Struct, frozen=True, kw_only=True):
    """A batch's counters as they are now."""

    batch_id: UUID
    name: str
    parent_id: UUID
    total: int
    completed: int
    failed: int
    canceled: int
    sealed: bool
    created_at: datetime
    finished_at: datetime | None = None
    progress_target: str | None = None


class BatchMetrics(Struct, frozen=True, kw_only=True):
    """What a finished batch cost."""

    batch_id: UUID
    started_at: datetime | None
    finished_at: datetime | None
    run_time: timedelta
    runs: int


class FireOutcome(StrEnum):
    """What became of one fire time of a schedule."""

    RUN = "RUN"
    SKIPPED = "SKIPPED"


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """A recurring job. ``template`` is the run's JobSpec as JSON; expressions are read by the engine."""

    name: str
    expression: str  # cron, or "every <seconds>"
    zone: str
    target: str
    template: str
    misfire: str = "fire_once"  # "skip", "fire_once", "catch_up:11"
    overlap: str = "SKIP"  # ALLOW, SKIP, QUEUE
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter: timedelta = timedelta()
    declared: bool = False
    next_fire_at: datetime | None = None


class ScheduleRecord(Struct, frozen=True, kw_only=True):
    """A schedule as it is stored."""

    spec: ScheduleSpec
    paused: bool
    next_fire_at: datetime | None
    last_fire_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Fire(Struct, frozen=True, kw_only=True):
    """One fire time to record: with its run, or skipped with a reason."""

    fire_at: datetime
    spec: JobSpec | None = None
    reason: str | None = None


class FireRecord(Struct, frozen=True, kw_only=True):
    """A recorded fire time."""

    schedule: str
    fire_at: datetime
    outcome: FireOutcome
    job_id: UUID | None = None
    reason: str | None = None


class SignalSpec(Struct, frozen=True, kw_only=True):
    """A signal as it is sent. ``job_id`` restricts it to one waiter; ``rejected`` says no, with a reason."""

    signal_id: UUID
    key: str
    payload: str | None = None
    job_id: UUID | None = None
    rejected: str | None = None
    keep_until: datetime | None = None


class Signal(Struct, frozen=True, kw_only=True):
    """A signal as the job that waited for it sees it."""

    key: str
    payload: Any
    approved: bool
    reason: str | None
    delivered_at: datetime
