"""Failure callbacks of jobs that no worker could end: stored by the transaction that fails them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.callbacks import callback_spec, failure_facts
from ratchet.model.identifiers import new_id
from ratchet.model.job import JobSpec
from ratchet.model.status import Priority
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.rows.specs import store_specs
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

FIND_FAILED_WITH_CALLBACK = """
    SELECT job_id, on_failure, error, error_type, dead_letter_reason, attempts, priority, stream_id, params, caller
      FROM scheduler_job
     WHERE job_id {in ids uuid} AND status = 'FAILED' AND on_failure IS NOT NULL
     ORDER BY job_id
"""


def insert_failure_callbacks(
    session: Session, streams: StreamRegistry, job_ids: Sequence[UUID], *, now: datetime
) -> list[UUID]:
    """Store the ``on_failure`` callbacks of jobs that this transaction has failed; the ids of the callback jobs."""
    failed = session.rows(FIND_FAILED_WITH_CALLBACK, {"ids": list(job_ids)}) if job_ids else []
    if not failed:
        return []
    specs = [_callback(session, streams, row, now) for row in failed]
    store_specs(session, specs, streams.ids_of(session, {spec.stream for spec in specs}), now=now)
    return [spec.job_id for spec in specs]


def _callback(session: Session, streams: StreamRegistry, row: Row, now: datetime) -> JobSpec:
    job_id, target, error, error_type, reason, attempts, priority, stream_id, params, caller = row
    return callback_spec(
        callback_id=new_id(),
        target=target,
        payload=failure_facts(error, error_type, reason, attempts),
        job_id=job_id,
        stream=streams.recorded_key(stream_id, session),
        priority=Priority(priority),
        params=params,
        caller=caller,
        now=now,
    )
