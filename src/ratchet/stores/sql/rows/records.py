"""Rows of jobs as `JobRecord`s, wherever the job lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from ratchet.model.job import JobRecord, JobResultRow, Progress, StreamKey
from ratchet.model.status import BackoffPolicy, JobStatus, JobType, Priority
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.rows.stream_registry import StreamRegistry
from ratchet.stores.unreadable import NO_TIME, Column, Shape, Time

_FIXED = """
    j.job_id, j.target, j.payload, j.job_type, j.priority, j.params, j.created_at, j.finished_at, j.expires_at,
    j.max_retries, j.backoff, j.backoff_base_us, j.jitter, j.timeout_us, j.error, j.error_type, j.result,
    j.result_truncated, j.progress, j.progress_message, j.state, j.business_key, j.idempotency_key, j.root_id,
    j.parent_id, j.batch_id, j.schedule, j.superseded_by, j.canceled_reason, j.paused_from, j.signal_key,
    j.dead_letter_reason, j.caller
"""

#: The node that runs the job, or ran it to its end; a job that waits for another run has none.
NODE = """CASE WHEN q.status = 'RUNNING' THEN q.picked_by
              WHEN q.status IS NULL AND (j.status IN ('SUCCEEDED', 'FAILED', 'CANCELED') OR j.paused_from = 'FAILED')
              THEN j.node_id END"""

#: While there is a queue row, it has the current values.
LIVE_COLUMNS = f"""{_FIXED},
    coalesce(q.status, j.status) AS status, coalesce(q.stream_id, j.stream_id) AS stream_id,
    coalesce(q.scheduled_time, j.scheduled_at) AS scheduled_at,
    CASE WHEN q.status = 'RUNNING' THEN q.picked_at ELSE j.started_at END AS started_at,
    coalesce(q.attempts, j.attempts) AS attempts, coalesce(q.crashes, j.crashes) AS crashes,
    {NODE} AS node_id, q.claim_id
"""
LIVE_JOBS = "scheduler_job j LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id"
#: PENDING and RUNNING jobs alone: history is not looked at.
HOT_JOBS = "scheduler_job_queue q JOIN scheduler_job j ON j.job_id = q.job_id"

ARCHIVED_COLUMNS = f"""{_FIXED},
    j.status, j.stream_id, j.scheduled_at, j.started_at, j.attempts, j.crashes, j.node_id,
    CAST(NULL AS {{uuid}}) AS claim_id
"""
ARCHIVED_JOBS = "scheduler_job_archive j"

#: The position of the stream's id in both.
STREAM_ID = 34

FIND_JOB = f"SELECT {LIVE_COLUMNS} FROM {LIVE_JOBS} WHERE j.job_id = :job_id"

FIND_ARCHIVED_JOB = f"SELECT {ARCHIVED_COLUMNS} FROM {ARCHIVED_JOBS} WHERE j.job_id = :job_id"

FIND_JOBS = f"SELECT {LIVE_COLUMNS} FROM {LIVE_JOBS} WHERE j.job_id {{in ids uuid}}"

FIND_ARCHIVED_JOBS = f"SELECT {ARCHIVED_COLUMNS} FROM {ARCHIVED_JOBS} WHERE j.job_id {{in ids uuid}}"

FIND_TAGS = "SELECT job_id, tag FROM scheduler_job_tag WHERE job_id {in ids uuid} ORDER BY tag"

FIND_RESULTS = """
    SELECT j.job_id, coalesce(q.status, j.status) AS status, j.result, j.result_truncated, j.error, j.error_type,
           j.canceled_reason
      FROM scheduler_job j LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id
     WHERE j.job_id {in ids uuid}
"""

FIND_ARCHIVED_RESULTS = """
    SELECT job_id, status, result, result_truncated, error, error_type, canceled_reason
      FROM scheduler_job_archive
     WHERE job_id {in ids uuid}
"""


def find_record(session: Session, streams: StreamRegistry, job_id: UUID) -> JobRecord | None:
    """The job, live or archived; None if there is none."""
    row, archived = session.row(FIND_JOB, {"job_id": job_id}), False
    if row is None:
        row, archived = session.row(FIND_ARCHIVED_JOB, {"job_id": job_id}), True
    if row is None:
        return None
    key = streams.recorded_key(row[STREAM_ID], session)
    return record_of(row, key, find_tags(session, [job_id]).get(job_id, ()), archived=archived)


def find_tags(session: Session, job_ids: Sequence[UUID]) -> dict[UUID, tuple[str, ...]]:
    """The tags of each job, sorted; jobs without tags are left out."""
    found: dict[UUID, list[str]] = {}
    if job_ids:
        for job_id, tag in session.rows(FIND_TAGS, {"ids": list(job_ids)}):
            found.setdefault(job_id, []).append(tag)
    return {job_id: tuple(sorted(tags)) for job_id, tags in found.items()}


def find_results(session: Session, job_ids: Iterable[UUID]) -> dict[UUID, JobResultRow]:
    """Status and outcome of many jobs; unknown ids are left out."""
    wanted = set(job_ids)
    if not wanted:
        return {}
    found = {row[0]: _result(row) for row in session.rows(FIND_RESULTS, {"ids": sorted(wanted)})}
    if missing := wanted - found.keys():
        rows = session.rows(FIND_ARCHIVED_RESULTS, {"ids": sorted(missing)})
        found.update((row[0], _result(row)) for row in rows)
    return found


_SHAPE = Shape(
    Column("job_id", UUID),
    Column("target", str, ""),
    Column("payload", str, ""),
    Column("job_type", JobType, JobType.SINGLE),
    Column("priority", Priority, Priority.NORMAL),
    Column("params", str | None),
    Column("created_at", Time, NO_TIME),
    Column("finished_at", Time | None),
    Column("expires_at", Time | None),
    Column("max_retries", int, 0),
    Column("backoff", BackoffPolicy, BackoffPolicy.NONE),
    Column("backoff_base_us", int, 0),
    Column("jitter", float, 0.0),
    Column("timeout_us", int | None),
    Column("error", str | None),
    Column("error_type", str | None),
    Column("result", str | None),
    Column("result_truncated", bool, False),
    Column("progress", float | None),
    Column("progress_message", str | None),
    Column("state", str | None),
    Column("business_key", str | None),
    Column("idempotency_key", str | None),
    Column("root_id", UUID),
    Column("parent_id", UUID | None),
    Column("batch_id", UUID | None),
    Column("schedule", str | None),
    Column("superseded_by", UUID | None),
    Column("canceled_reason", str | None),
    Column("paused_from", JobStatus | None),
    Column("signal_key", str | None),
    Column("dead_letter_reason", str | None),
    Column("caller", str | None),
    Column("status", JobStatus, JobStatus.PENDING),
    Column("stream_id", int, 0),
    Column("scheduled_at", Time, NO_TIME),
    Column("started_at", Time | None),
    Column("attempts", int, 0),
    Column("crashes", int, 0),
    Column("node_id", str | None),
    Column("claim_id", UUID | None),
)


def record_of(row: Row, stream: StreamKey, tags: tuple[str, ...], *, archived: bool) -> JobRecord:
    """The record of a row of `LIVE_COLUMNS` or `ARCHIVED_COLUMNS`, whatever stands in it."""
    try:
        return _record(_SHAPE.one(row), stream, tags, archived, {})
    except (ValueError, TypeError, OverflowError):
        values, bad, _ = _SHAPE.salvage(row)
        return _record(values, stream, tags, archived, bad)


def _record(
    row: Row, stream: StreamKey, tags: tuple[str, ...], archived: bool, unreadable: dict[str, str]
) -> JobRecord:
    (job_id, target, payload, job_type, priority, params, created_at, finished_at, expires_at, *rest) = row
    (
        max_retries,
        backoff,
        backoff_base_us,
        jitter,
        timeout_us,
        error,
        error_type,
        result,
        truncated,
        *rest,
    ) = rest
    (
        progress,
        message,
        state,
        business_key,
        idempotency_key,
        root_id,
        parent_id,
        batch_id,
        schedule,
        *rest,
    ) = rest
    (superseded_by, canceled_reason, paused_from, signal_key, dead_letter_reason, caller, status, *rest) = (
        rest
    )
    (_, scheduled_at, started_at, attempts, crashes, node_id, claim_id) = rest
    return JobRecord(
        job_id=job_id,
        target=target,
        payload=payload,
        status=status,
        type=job_type,
        priority=priority,
        stream=stream,
        tags=tags,
        params=params,
        created_at=created_at,
        scheduled_at=scheduled_at,
        started_at=started_at,
        finished_at=finished_at,
        expires_at=expires_at,
        attempts=attempts,
        max_retries=max_retries,
        crashes=crashes,
        backoff=backoff,
        backoff_base=timedelta(microseconds=backoff_base_us),
        jitter=jitter,
        timeout=None if timeout_us is None else timedelta(microseconds=timeout_us),
        error=error,
        error_type=error_type,
        result=result,
        result_truncated=truncated,
        progress=None if progress is None else Progress(fraction=progress, message=message),
        state=state,
        node_id=node_id,
        claim_id=claim_id,
        business_key=business_key,
        idempotency_key=idempotency_key,
        root_id=root_id or job_id,
        parent_id=parent_id,
        batch_id=batch_id,
        schedule=schedule,
        superseded_by=superseded_by,
        canceled_reason=canceled_reason,
        paused_from=paused_from,
        signal_key=signal_key,
        dead_letter_reason=dead_letter_reason,
        caller=caller,
        archived=archived,
        unreadable=unreadable,
    )


# PENDING where the status cannot be read: whoever waits goes on waiting.
_RESULT = Shape(
    Column("job_id", UUID),
    Column("status", JobStatus, JobStatus.PENDING),
    Column("result", str | None),
    Column("result_truncated", bool, False),
    Column("error", str | None),
    Column("error_type", str | None),
    Column("canceled_reason", str | None),
)


def _result(row: Row) -> JobResultRow:
    (job_id, status, result, truncated, error, error_type, canceled_reason), _, _ = _RESULT.salvage(row)
    if not status.is_terminal:  # the error of an earlier attempt is not how it ended
        return JobResultRow(job_id=job_id, status=status)
    return JobResultRow(
        job_id=job_id,
        status=status,
        result=result,
        result_truncated=truncated,
        error=error,
        error_type=error_type,
        canceled_reason=canceled_reason,
    )
