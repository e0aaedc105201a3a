"""Rows of jobs as `JobRecord`s, wherever the job lives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from ratchet.model.job import JobRecord, JobResultRow, Progress, StreamKey
from ratchet.model.status import BackoffPolicy, JobStatus, JobType, Priority
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

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

ARCHIVED_COLUMNS = f"""{_FIXED},
    j.status, j.stream_id, j.scheduled_at, j.started_at, j.attempts, j.crashes, j.node_id,
    CAST(NULL AS {{uuid}}) AS claim_id
"""
ARCHIVED_JOBS = "scheduler_job_archive j"

#: The position of the stream's id in both.
STREAM_ID = 34

FIND_JOB = f"SELECT {LIVE_COLUMNS} FROM {LIVE_JOBS} WHERE j.job_id = :job_id"

FIND_ARCHIVED_JOB = f"SELECT {ARCHIVED_COLUMNS} FROM {ARCHIVED_JOBS} WHERE j.job_id = :job_id"

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


def record_of(row: Row, stream: StreamKey, tags: tuple[str, ...], *, archived: bool) -> JobRecord:
    """The record of a row of `LIVE_COLUMNS` or `ARCHIVED_COLUMNS`."""
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
        status=JobStatus(status),
        type=JobType(job_type),
        priority=Priority(priority),
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
        backoff=BackoffPolicy(backoff),
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
        root_id=root_id,
        parent_id=parent_id,
        batch_id=batch_id,
        schedule=schedule,
        superseded_by=superseded_by,
        canceled_reason=canceled_reason,
        paused_from=None if paused_from is None else JobStatus(paused_from),
        signal_key=signal_key,
        dead_letter_reason=dead_letter_reason,
        caller=caller,
        archived=archived,
    )


def _result(row: Row) -> JobResultRow:
    job_id, status, result, truncated, error, error_type, canceled_reason = row
    if not JobStatus(status).is_terminal:  # the error of an earlier attempt is not how it ended
        return JobResultRow(job_id=job_id, status=JobStatus(status))
    return JobResultRow(
        job_id=job_id,
        status=JobStatus(status),
        result=result,
        result_truncated=truncated,
        error=error,
        error_type=error_type,
        canceled_reason=canceled_reason,
    )
