"""Failure callbacks of jobs that no worker could end: made by the call that gave up on them."""

from __future__ import annotations

from datetime import datetime

from ratchet.model.callbacks import callback_spec, failure_facts
from ratchet.model.decision import ErrorRecord
from ratchet.stores.memory.changes import add_job
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import State


def insert_failure_callback(
    state: State, row: Row, error: ErrorRecord, *, reason: str, now: datetime
) -> None:
    """Store the ``on_failure`` callback of a job that this call has failed, if it has one."""
    spec = row.spec
    if spec.on_failure is None:
        return
    callback = callback_spec(
        callback_id=state.new_id(now),
        target=spec.on_failure,
        payload=failure_facts(error.message, error.type, reason, row.attempts),
        job_id=row.job_id,
        queue=row.stream.queue,
        priority=spec.priority,
        params=spec.params,
        caller=spec.caller,
        now=now,
    )
    add_job(state, callback, now=now)
