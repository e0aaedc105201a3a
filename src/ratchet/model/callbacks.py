"""Callback jobs: ``on_success`` and ``on_failure`` as jobs of their own, inserted with the end they are about."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model.claim import ClaimedJob
from ratchet.model.decision import Fail, Succeed
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.payload import encode
from ratchet.model.status import BackoffPolicy, JobType, Priority

#: A callback runs at least once and has retries of its own; the outcome of its job does not depend on it.
RETRIES = 3
BACKOFF = timedelta(seconds=5)

NO_FACTS = encode((), {})


def failure_facts(message: str | None, error_type: str | None, reason: str | None, attempts: int) -> str:
    """What a failure callback is told, as its payload."""
    facts = {"message": message or "", "type": error_type or "", "reason": reason or "", "attempts": attempts}
    return encode((facts,), {})


def callback_spec(
    *,
    callback_id: UUID,
    target: str,
    payload: str,
    job_id: UUID,
    queue: str,
    priority: Priority,
    params: str | None,
    caller: str | None,
    now: datetime,
) -> JobSpec:
    """The callback job about *job_id*: in its queue, with its priority and params."""
    return JobSpec(
        job_id=callback_id,
        target=target,
        payload=payload,
        scheduled_at=now,
        type=JobType.CALLBACK,
        priority=priority,
        stream=StreamKey(queue=queue),
        max_retries=RETRIES,
        backoff=BackoffPolicy.EXPONENTIAL,
        backoff_base=BACKOFF,
        params=params,
        parent_id=job_id,
        caller=caller,
    )


def callback_for(
    job: ClaimedJob, decision: Succeed | Fail, callback_id: UUID, now: datetime
) -> JobSpec | None:
    """The callback that a worker's decision calls for; None if the job has none for it."""
    body = job.body
    if isinstance(decision, Succeed):
        target, payload = body.on_success, NO_FACTS
    else:
        error = decision.error
        target = body.on_failure
        payload = failure_facts(error.message, error.type, decision.reason, job.claim.attempt)
    if target is None:
        return None
    return callback_spec(
        callback_id=callback_id,
        target=target,
        payload=payload,
        job_id=job.claim.job_id,
        queue=body.queue,
        priority=job.claim.priority,
        params=body.params,
        caller=body.caller,
        now=now,
    )
