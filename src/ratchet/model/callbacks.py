"""Callback jobs: ``on_success`` and ``on_failure`` as jobs of their own, inserted with the end they are about."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ratchet.model.claim import ClaimedJob
from ratchet.model.decision import Fail, Succeed
from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.payload import encode, read_json
from ratchet.model.places import without_target
from ratchet.model.status import BackoffPolicy, JobType, Priority

#: A callback runs at least once and has retries of its own; the outcome of its job does not depend on it.
#: A node that runs it goes by its ``Options.callback_retries``.
RETRIES = 3
BACKOFF = timedelta(seconds=5)

NO_FACTS = encode((), {})

#: Ends the stored target of a callback that has arguments of its own. They are kept among the params of its job, and
#: of the job that it is about: a node of 0.1.0 hands both on as they are, and then does not know the target.
WITH_ARGUMENTS = "(*)"
#: Params whose names begin like this are not the user's.
RESERVED = "ratchet:"


def plain_target(target: str) -> str:
    """The name under which a callback's function is known."""
    return target.removesuffix(WITH_ARGUMENTS)


def given_params(params: dict[str, Any]) -> dict[str, Any]:
    """*params* as the user gave them, without what is kept among them."""
    if any(isinstance(name, str) and name.startswith(RESERVED) for name in params):
        return {name: value for name, value in params.items() if not str(name).startswith(RESERVED)}
    return params


def kept_arguments(params: str | None, name: str) -> str:
    """The arguments that were given to the callback *name*, as `encode` wrote them."""
    kept = None if params is None else read_json(params, "params")
    if isinstance(kept, dict) and "$" in kept:  # params of which one is named like a tag
        kept = dict(pair for pair in kept.get("v", ()) if isinstance(pair[0], str))
    found = kept.get(RESERVED + name) if isinstance(kept, dict) else None
    if not isinstance(found, str):
        raise InvalidJob(f"the arguments of this {name} callback are missing: its params were changed")
    return found


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
    stream: StreamKey,
    priority: Priority,
    params: str | None,
    caller: str | None,
    now: datetime,
    retries: int = RETRIES,
) -> JobSpec:
    """The callback job about *job_id*: in its queue, with its priority and params, and so for nodes that have the keys of these."""
    return JobSpec(
        job_id=callback_id,
        target=target,
        payload=payload,
        scheduled_at=now,
        type=JobType.CALLBACK,
        priority=priority,
        stream=StreamKey(queue=stream.queue, parked_target=without_target(stream.parked_target)),
        max_retries=retries,
        backoff=BackoffPolicy.EXPONENTIAL,
        backoff_base=BACKOFF,
        params=params,
        parent_id=job_id,
        caller=caller,
    )


def callback_for(
    job: ClaimedJob, decision: Succeed | Fail, callback_id: UUID, now: datetime, retries: int = RETRIES
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
        stream=StreamKey(queue=body.queue),  # a codec puts it at the place of its key
        priority=job.claim.priority,
        params=body.params,
        caller=body.caller,
        now=now,
        retries=retries,
    )
