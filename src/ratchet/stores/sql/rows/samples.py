"""Samples of runs and of queued jobs, for statistics: so many rows are read, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta

from ratchet.model.flow import QueuedSample, RunSample
from ratchet.model.job import StreamKey
from ratchet.stores.sql.database import Session

# By the primary key, so that no other index is needed: ids are made in the order of time.
NEWEST_RUNS = """
    SELECT COALESCE(j.target, a.target) AS target, COALESCE(j.stream_id, a.stream_id) AS stream_id,
           e.attempt, e.status, e.scheduled_at, e.started_at, e.finished_at
      FROM (SELECT job_id, claim_id, attempt, status, scheduled_at, started_at, finished_at
              FROM scheduler_job_execution ORDER BY job_id DESC, claim_id DESC LIMIT :limit) e
      LEFT JOIN scheduler_job j ON j.job_id = e.job_id
      LEFT JOIN scheduler_job_archive a ON a.job_id = e.job_id
     ORDER BY e.job_id DESC, e.claim_id DESC
"""
OLDEST_QUEUED = """
    SELECT j.target, q.stream_id, q.scheduled_time, q.picked_at, q.status
      FROM (SELECT job_id, stream_id, scheduled_time, picked_at, status
              FROM scheduler_job_queue ORDER BY job_id LIMIT :limit) q
      JOIN scheduler_job j ON j.job_id = q.job_id
     ORDER BY q.job_id
"""

KeysOf = Callable[[Iterable[int]], Mapping[int, StreamKey]]


def run_samples(session: Session, keys_of: KeysOf, limit: int) -> list[RunSample]:
    """`ExecutionStore.run_samples`."""
    rows = [row for row in session.rows(NEWEST_RUNS, {"limit": limit}) if row[0] is not None]
    keys = keys_of(row[1] for row in rows)
    return [
        RunSample(
            target=target,
            queue=keys[stream_id].queue,
            attempt=attempt,
            status=status,
            started_at=started_at,
            finished_at=finished_at,
            wait=between(scheduled_at, started_at),
            duration=between(started_at, finished_at),
        )
        for target, stream_id, attempt, status, scheduled_at, started_at, finished_at in rows
    ]


def queued_samples(session: Session, keys_of: KeysOf, limit: int) -> list[QueuedSample]:
    """`ExecutionStore.queued_samples`."""
    rows = session.rows(OLDEST_QUEUED, {"limit": limit})
    keys = keys_of(row[1] for row in rows)
    return [
        QueuedSample(
            target=target,
            queue=keys[stream_id].queue,
            due_at=due_at,
            claimed_at=picked_at if status == "RUNNING" else None,
        )
        for target, stream_id, due_at, picked_at, status in rows
    ]


def between(start: datetime | None, end: datetime | None) -> timedelta | None:
    """How long it was. The times may come from two clocks; a duration is never negative."""
    return None if start is None or end is None else max(end - start, timedelta())
