"""One job that is due at once, about which nothing more is said: stored without a builder."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ratchet.api.backend import Backend
from ratchet.api.capture import LAMBDA
from ratchet.api.handles import JobHandle
from ratchet.api.steps import Step, plain_spec
from ratchet.api.submission import Submission, send


def submit_now(
    backend: Backend, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> JobHandle[Any]:
    """Store the job and return its handle, as ``enqueue(target, …).submit()`` does."""
    now = backend.now()
    if type(target) is FunctionType and target.__name__ != LAMBDA:
        spec = plain_spec(backend, target, args, kwargs, now)
    else:
        prepared = Step(target, args, kwargs).prepare(backend)
        prepared.require_no_placeholders()
        spec = prepared.spec(backend.ids(), now, caller=backend.caller())
    send(backend, Submission([spec]), now)
    job_id = spec.job_id
    return JobHandle(backend, job_id, target=spec.target, steps=[job_id], last=job_id)
