"""Failure callbacks of jobs that no worker could end: made by the call that gave up on them."""

from __future__ import annotations

from datetime import datetime, timedelta

from ratchet.model.decision import ErrorRecord
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.payload import encode
from ratchet.model.status import BackoffPolicy, JobType
from ratchet.stores.memory.changes import add_job
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import State

#: The same as a worker gives to the callbacks that it makes itself.
RETRIES = 3
BACKOFF = timedelta(seconds=5)


def insert_failure_callback(
    state: State, row: Row, error: ErrorRecord, *, reason: str, now: datetime
) -> None:
    """Store the ``on_failure`` callback of a job that this call has failed, if it has one."""
    spec = row.spec
    if spec.on_failure is None:
        return
    facts = {"message": error.message, "type": error.type, "reason": reason, "attempts": row.attempts}
    callback = JobSpec(
        job_id=state.new_id(now),
        target=spec.on_failure,
        payload=encode((facts,), {}),
        scheduled_at=now,
        type=JobType.CALLBACK,
        priority=spec.priority,
        stream=StreamKey(queue=row.stream.queue),
        max_retries=RETRIES,
        backoff=BackoffPolicy.EXPONENTIAL,
        backoff_base=BACKOFF,
        params=spec.params,
        parent_id=row.job_id,
        caller=spec.caller,
    )
    add_job(state, callback, now=now)
