"""The rows of the in-memory tables that have no value of their own in ``ratchet.model``."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from ratchet.model.composition import FireRecord, SignalSpec
from ratchet.model.job import JobFilter, JobRecord, JobSpec, Progress, StreamKey, id_bounds
from ratchet.model.places import target_of
from ratchet.model.status import JobStatus


class Row(Struct, frozen=True, kw_only=True):
    """
    One job: as it was submitted (``spec``), and what has become of it.

    ``stream`` differs from the spec's while the job is a suspect or parked. ``claim_id``,
    ``claimed_at`` are set exactly while it is RUNNING. ``held_claim_id``: the job waits for the
    code of that earlier run to end, but not beyond ``held_until``, which is then its due time, also while it runs.
    """

    spec: JobSpec
    serial: int  # order of insertion
    root_id: UUID
    stream_id: int
    stream: StreamKey
    status: JobStatus
    created_at: datetime
    scheduled_at: datetime
    needs: int = 0
    attempts: int = 0
    crashes: int = 0
    claim_id: UUID | None = None
    claimed_at: datetime | None = None
    node_id: str | None = None
    held_claim_id: UUID | None = None
    held_until: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    error_type: str | None = None
    result: str | None = None
    result_truncated: bool = False
    progress: Progress | None = None
    state: str | None = None
    signal: str | None = None
    signal_due_at: datetime | None = None  # set while it waits for a signal that has a deadline
    expiry_due_at: datetime | None = None  # set while it may still expire
    paused_from: JobStatus | None = None
    superseded_by: UUID | None = None
    canceled_reason: str | None = None
    canceled_by: UUID | None = None
    dead_letter_reason: str | None = None
    dead_lettered_at: datetime | None = None
    archived_at: datetime | None = None

    @property
    def job_id(self) -> UUID:
        return self.spec.job_id

    @property
    def due_at(self) -> datetime:
        """When a claim may take it."""
        if self.held_until is not None:
            return max(self.scheduled_at, self.held_until)
        return self.scheduled_at

    @property
    def queue_entry(self) -> tuple[int, int, tuple[datetime, int, UUID]] | None:
        """(stream, priority, entry within that level) while it is PENDING."""
        if self.status is not JobStatus.PENDING:
            return None
        job_id = self.spec.job_id
        return self.stream_id, int(self.spec.priority), (self.due_at, job_id.int, job_id)

    @property
    def ended_as(self) -> JobStatus | None:
        """How it ended; None while it has not. A job that was paused after it failed has still failed."""
        if self.status.is_terminal:
            return self.status
        if self.status is JobStatus.PAUSED and self.paused_from is JobStatus.FAILED:
            return JobStatus.FAILED
        return None

    @property
    def awaits_signal(self) -> bool:
        """True while it is WAITING for a signal that has not come."""
        return self.status is JobStatus.WAITING and self.spec.signal is not None and self.signal is None

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.spec.tags)))

    @property
    def is_parked(self) -> bool:
        """True while it waits for a node that has its target."""
        return self.status is JobStatus.PENDING and target_of(self.stream.parked_target) is not None

    def matches(self, where: JobFilter) -> bool:
        """True where every criterion that is given holds. Times are compared as *after* <= t < *before*."""
        spec, (first_id, last_id) = self.spec, id_bounds(where)
        return (
            (self.archived_at is None or where.include_archived)
            and (where.statuses is None or self.status in where.statuses)
            and (where.tags is None or set(where.tags) <= set(spec.tags))
            and (where.targets is None or spec.target in where.targets)
            and (where.queue is None or self.stream.queue == where.queue)
            and (where.types is None or spec.type in where.types)
            and (where.priorities is None or spec.priority in where.priorities)
            and (where.business_key is None or spec.business_key == where.business_key)
            and (where.batch_id is None or spec.batch_id == where.batch_id)
            and (where.parent_id is None or spec.parent_id == where.parent_id)
            and (where.schedule is None or spec.schedule == where.schedule)
            and (where.node_id is None or self.node_id == where.node_id)
            and (where.created_after is None or self.created_at >= where.created_after)
            and (where.created_before is None or self.created_at < where.created_before)
            and (where.scheduled_after is None or self.due_at >= where.scheduled_after)
            and (where.scheduled_before is None or self.due_at < where.scheduled_before)
            and (where.error_contains is None or where.error_contains in (self.error or ""))
            and (where.caller is None or spec.caller == where.caller)
            and (where.error_type is None or where.error_type == (self.error_type or ""))
            and (where.superseded_by is None or self.superseded_by == where.superseded_by)
            and (where.parked is None or self.is_parked is where.parked)
            and (where.truncated is None or self.result_truncated is where.truncated)
            and (first_id is None or spec.job_id.int >= first_id.int)
            and (last_id is None or spec.job_id.int <= last_id.int)
        )

    def record(self) -> JobRecord:
        """The job as the contract shows it."""
        spec = self.spec
        return JobRecord(
            job_id=spec.job_id,
            target=spec.target,
            payload=spec.payload,
            status=self.status,
            type=spec.type,
            priority=spec.priority,
            stream=self.stream,
            tags=self.tags,
            params=spec.params,
            created_at=self.created_at,
            scheduled_at=self.due_at,
            started_at=self.claimed_at or self.started_at,
            finished_at=self.finished_at,
            expires_at=spec.expires_at,
            attempts=self.attempts,
            max_retries=spec.max_retries,
            crashes=self.crashes,
            backoff=spec.backoff,
            backoff_base=spec.backoff_base,
            jitter=spec.jitter,
            timeout=spec.timeout,
            error=self.error,
            error_type=self.error_type,
            result=self.result,
            result_truncated=self.result_truncated,
            progress=self.progress,
            state=self.state,
            node_id=self.node_id,
            claim_id=self.claim_id,
            business_key=spec.business_key,
            idempotency_key=spec.idempotency_key,
            root_id=self.root_id,
            parent_id=spec.parent_id,
            batch_id=spec.batch_id,
            schedule=spec.schedule,
            superseded_by=self.superseded_by,
            canceled_reason=self.canceled_reason,
            paused_from=self.paused_from,
            signal_key=spec.signal.key if spec.signal is not None else None,
            dead_letter_reason=self.dead_letter_reason,
            caller=spec.caller,
            archived=self.archived_at is not None,
        )


# --- what jobs are looked up by -----------------------------------------------------------------


def indexed_status(row: Row) -> JobStatus | None:
    """Its status, unless it is in the archive."""
    return row.status if row.archived_at is None else None


def running_on(row: Row) -> str | None:
    """The node that runs it."""
    return row.node_id if row.status is JobStatus.RUNNING else None


def unended_run_of(row: Row) -> str | None:
    """The schedule of a run that has not ended."""
    return row.spec.schedule if row.ended_as is None else None


def awaited_signal(row: Row) -> str | None:
    """The key of the signal that it waits for."""
    return row.spec.signal.key if row.spec.signal is not None and row.awaits_signal else None


def may_expire(row: Row) -> bool | None:
    """True where it has a deadline."""
    return True if row.expiry_due_at is not None or row.signal_due_at is not None else None


# --- rows of other tables -----------------------------------------------------------------------


class Reservation(Struct, frozen=True, kw_only=True):
    """Who has a business key. ``claim_id``: the job has ended, the code of this run has not."""

    job_id: UUID
    reserved_at: datetime
    claim_id: UUID | None = None
    node_id: str | None = None


class Limit(Struct, frozen=True, kw_only=True):
    """
    A resource's limit and what counts the starts of its rate.

    ``level`` and ``refilled_at`` are what `ratchet.stores.meters.kept` says. ``asked_at``: it was made for a key, and a
    submission asked for it then; None: a person has set it.
    """

    name: str
    concurrent: int | None = None
    rate: int | None = None
    period: timedelta | None = None
    level: int = 0
    refilled_at: datetime
    asked_at: datetime | None = None


class SignalRow(Struct, frozen=True, kw_only=True):
    """A signal that was sent. ``taken_by``: who it released, or who consumed it later."""

    spec: SignalSpec
    sent_at: datetime
    taken_by: tuple[UUID, ...] = ()


class FireRow(Struct, frozen=True, kw_only=True):
    """A recorded fire time."""

    record: FireRecord
    recorded_at: datetime


class Cost(Struct, frozen=True, kw_only=True):
    """What the runs of a batch's children have cost so far."""

    runs: int = 0
    run_time: timedelta = timedelta()
    started_at: datetime | None = None
