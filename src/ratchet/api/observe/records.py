"""What a store returns, turned into what users see."""

from __future__ import annotations

from typing import Any

from ratchet.api.backend import Backend
from ratchet.model.callbacks import given_params
from ratchet.model.composition import BatchRecord
from ratchet.model.errors import RatchetError
from ratchet.model.job import Job, JobRecord, JobSpec
from ratchet.model.masking import stored_masks
from ratchet.model.payload import decode, decode_result, decode_value, read_json
from ratchet.model.results import BatchContext
from ratchet.model.traces import trace_id_of

#: Characters that are shown of stored text that cannot be read.
SHOWN = 1000


class TruncatedResult(str):
    """
    The beginning of a result that was too large to keep; ``Options.result_limit`` says how large.

    It is text for people, whatever the job returned: ``handle.result()`` raises `ResultTruncated` instead.
    """

    __slots__ = ()
    truncated = True


def job_of(record: JobRecord, backend: Backend) -> Job:
    """*record* with payload, params and result decoded as far as this process can."""
    args, kwargs = _arguments(record.payload, backend)
    return Job(
        id=record.job_id,
        target=record.target,
        args=args,
        kwargs=kwargs,
        status=record.status,
        type=record.type,
        priority=record.priority,
        queue=record.stream.queue,
        tags=record.tags,
        params=_params(record.params, backend),
        created_at=record.created_at,
        scheduled_at=record.scheduled_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        expires_at=record.expires_at,
        attempts=record.attempts,
        max_retries=record.max_retries,
        crashes=record.crashes,
        error=record.error,
        error_type=record.error_type,
        result=_result(record, backend),
        progress=record.progress,
        node_id=record.node_id,
        business_key=record.business_key,
        idempotency_key=record.idempotency_key,
        parent_id=record.parent_id,
        batch_id=record.batch_id,
        schedule=record.schedule,
        superseded_by=record.superseded_by,
        canceled_reason=record.canceled_reason,
        caller=record.caller,
        lane=record.stream.lane,
        resource=record.stream.resource,
        root_id=record.root_id,
        timeout=record.timeout,
        result_truncated=record.result_truncated,
        archived=record.archived,
        updated_at=max(filter(None, (record.created_at, record.started_at, record.finished_at))),
        trace_id=trace_id_of(record.params),
        unreadable=record.unreadable,
        masked=_masked(record, backend),
    )


def job_of_spec(spec: JobSpec, backend: Backend) -> Job:
    """The job that *spec* will be, once it is stored."""
    args, kwargs = _arguments(spec.payload, backend)
    return Job(
        id=spec.job_id,
        target=spec.target,
        args=args,
        kwargs=kwargs,
        status=spec.status,
        type=spec.type,
        priority=spec.priority,
        queue=spec.stream.queue,
        tags=spec.tags,
        params=_params(spec.params, backend),
        created_at=backend.now(),
        scheduled_at=spec.scheduled_at,
        started_at=None,
        finished_at=None,
        expires_at=spec.expires_at,
        attempts=0,
        max_retries=spec.max_retries,
        crashes=0,
        error=None,
        error_type=None,
        result=None,
        progress=None,
        node_id=None,
        business_key=spec.business_key,
        idempotency_key=spec.idempotency_key,
        parent_id=spec.parent_id,
        batch_id=spec.batch_id,
        schedule=spec.schedule,
        superseded_by=None,
        canceled_reason=None,
        caller=spec.caller,
        lane=spec.stream.lane,
        resource=spec.stream.resource,
        root_id=spec.root_id,
        timeout=spec.timeout,
    )


def _arguments(text: str, backend: Backend) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        return decode(text, allow_type=backend.allow_type, strict=False)
    except Exception:
        raw = _raw(text)
    if isinstance(raw, dict) and isinstance(raw.get("args"), list) and isinstance(raw.get("kwargs"), dict):
        return tuple(raw["args"]), raw["kwargs"]
    return (raw,), {}


def _value(text: str | None, backend: Backend) -> Any:
    if text is None:
        return None
    try:
        return decode_value(text, allow_type=backend.allow_type, strict=False)
    except Exception:
        return _raw(text)


def _masked(record: JobRecord, backend: Backend) -> tuple[str, ...]:
    """What people do not see of it: as it was submitted, and as the policy of this process says."""
    paths = stored_masks(record.params)
    if backend.masking is not None:
        paths = tuple(dict.fromkeys((*paths, *backend.masking.paths(record.target))))
    return paths


def _params(text: str | None, backend: Backend) -> dict[str, Any]:
    params = _value(text, backend) or {}
    return given_params(params) if isinstance(params, dict) else params


def _result(record: JobRecord, backend: Backend) -> Any:
    try:
        value = decode_result(record.result, allow_type=backend.allow_type, strict=False)
    except Exception:
        value = _raw(record.result or "null")
    return TruncatedResult(value) if record.result_truncated else value


# Whatever is wrong with one job's values, and whatever the code of a class says to its fields: the other jobs of the
# page are shown, and this one too, with what is stored.


def _raw(text: str) -> Any:
    """Stored JSON as it stands, or the text itself: a damaged job must still be readable by people."""
    try:
        return read_json(text)
    except RatchetError:
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text):,} characters)"


def batch_context(record: BatchRecord) -> BatchContext:
    """A batch's counters as conditions and handles see them."""
    return BatchContext(
        batch_id=record.batch_id,
        total_items=record.total,
        completed_items=record.completed,
        failed_items=record.failed,
        canceled_items=record.canceled,
        is_complete=record.finished_at is not None,
    )
