"""Callback jobs: ``on_success`` and ``on_failure`` as jobs of their own, inserted by the completion."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model.claim import ClaimedJob
from ratchet.model.decision import Fail, Succeed
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.payload import encode
from ratchet.model.status import BackoffPolicy, JobType

#: A callback is at least once and has retries of its own; the job's outcome no longer depends on it.
RETRIES = 3
BACKOFF = timedelta(seconds=5)


def callback_for(
    job: ClaimedJob, decision: Succeed | Fail, callback_id: UUID, now: datetime
) -> JobSpec | None:
    """The callback that *decision* calls for; None if the job has none for it."""
    body = job.body
    if isinstance(decision, Succeed):
        target, payload = body.on_success, encode((), {})
    else:
        error = decision.error
        facts = {
            "message": error.message,
            "type": error.type,
            "reason": decision.reason,
            "attempts": job.claim.attempt,
        }
        target, payload = body.on_failure, encode((facts,), {})
    if target is None:
        return None
    return JobSpec(
        job_id=callback_id,
        target=target,
        payload=payload,
        scheduled_at=now,
        type=JobType.CALLBACK,
        priority=job.claim.priority,
        stream=StreamKey(queue=body.queue),
        max_retries=RETRIES,
        backoff=BackoffPolicy.EXPONENTIAL,
        backoff_base=BACKOFF,
        params=body.params,
        parent_id=job.claim.job_id,
        caller=body.caller,
    )
