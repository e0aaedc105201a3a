"""What a submission must look like; checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import astuple

from ratchet.model.clock import require_aware
from ratchet.model.composition import BatchRecord, BatchSpec, Edge, EdgeKind
from ratchet.model.errors import InvalidJob
from ratchet.model.job import (
    KEY_LIMIT,
    Insertion,
    JobSpec,
    StreamKey,
    refuse_repeated_keys,
)
from ratchet.model.status import JobStatus, JobType

#: Characters of the longest target.
TARGET_LIMIT = 512


def validate(
    specs: Sequence[JobSpec],
    edges: Sequence[Edge] = (),
    batch: BatchSpec | None = None,
    *,
    now: datetime,
) -> set[StreamKey]:
    """`InvalidJob` where a submission contradicts itself or cannot be stored; the streams that it needs."""
    require_aware(now, "now")
    everything = [*specs, batch.parent] if batch is not None else specs
    incoming = _count_incoming(edges)
    for spec in everything:
        _check_values(spec)
        _check_waiting(spec, incoming.pop(spec.job_id, 0) if incoming else 0)
    if incoming:
        raise InvalidJob(f"an edge leads to job {next(iter(incoming))}, which is not part of this submission")
    refuse_repeated_keys(everything)
    return streams_of(everything)


def streams_of(specs: Sequence[JobSpec]) -> set[StreamKey]:
    """The streams of *specs*; `InvalidJob` where one cannot be stored."""
    # by identity first: the specs of a bulk share their key, and comparing it a thousand times takes time
    streams = set({id(spec.stream): spec.stream for spec in specs}.values())
    for key in streams:
        _check_stream(key)
    return streams


def _count_incoming(edges: Sequence[Edge]) -> dict[UUID, int]:
    incoming: dict[UUID, int] = {}
    for edge in edges:
        incoming[edge.child_id] = incoming.get(edge.child_id, 0) + 1
        if edge.parent_id == edge.child_id:
            raise InvalidJob(f"job {edge.child_id} cannot wait for itself")
        if edge.kind is EdgeKind.CONDITION and edge.condition is None:
            raise InvalidJob(
                f"the edge {edge.parent_id} -> {edge.child_id} is a CONDITION edge without a condition"
            )
    return incoming


def _check_values(spec: JobSpec) -> None:
    if spec.scheduled_at.tzinfo is None:
        require_aware(spec.scheduled_at, "scheduled_at")
    if spec.expires_at is not None:
        require_aware(spec.expires_at, "expires_at")
    if spec.signal is not None and spec.signal.deadline is not None:
        require_aware(spec.signal.deadline, "the signal's deadline")
    if spec.idempotency_key is not None:
        _check_length(spec, "idempotency_key", spec.idempotency_key)
    if spec.business_key is not None:
        _check_length(spec, "business_key", spec.business_key)
    if spec.signal is not None:
        _check_length(spec, "the signal's key", spec.signal.key)
    for tag in spec.tags:
        _check_length(spec, "a tag", tag)
    if len(spec.target) > TARGET_LIMIT:
        raise InvalidJob(
            f"the target of job {spec.job_id} has {len(spec.target)} characters; {TARGET_LIMIT} are allowed"
        )


def _check_length(spec: JobSpec, name: str, text: str) -> None:
    if not 0 < len(text) <= KEY_LIMIT:
        raise InvalidJob(
            f"{name} of job {spec.job_id} ({spec.target}) has {len(text)} characters; 1 to {KEY_LIMIT} are allowed"
        )


def _check_waiting(spec: JobSpec, edges: int) -> None:
    if spec.status is JobStatus.PENDING:
        if edges or spec.needs or spec.signal is not None:
            raise _refused(spec, "is PENDING but has edges or a signal to wait for; submit it as WAITING")
    elif spec.status is not JobStatus.WAITING:
        raise _refused(spec, f"cannot be submitted as {spec.status}; submit it as PENDING or WAITING")
    elif not (edges or spec.signal is not None or spec.type is JobType.BATCH_PARENT):
        raise _refused(
            spec, "is WAITING, but nothing will ever release it: it has neither edges nor a signal"
        )
    elif not (1 <= spec.needs <= edges or spec.needs == edges == 0):
        raise _refused(spec, f"needs {spec.needs} of its {edges} edges; 1 to {edges} make sense")


def _refused(spec: JobSpec, what: str) -> InvalidJob:
    return InvalidJob(f"job {spec.job_id} ({spec.target}) {what}")


def _check_stream(key: StreamKey) -> None:
    for name, value in zip(key.__struct_fields__, astuple(key), strict=True):
        if not isinstance(value, str):
            continue
        limit = TARGET_LIMIT if name == "parked_target" else KEY_LIMIT
        if len(value) > limit:
            raise InvalidJob(f"{name} has {len(value)} characters; {limit} are allowed")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidJob(f"{name} is {value!r}, which is not valid Unicode text") from None


def require_new(job_id: UUID, spec: JobSpec, answer: Insertion) -> None:
    """Refuse to replace a job by one whose keys stand for another."""
    if not answer.created:
        raise InvalidJob(
            f"job {job_id} cannot be replaced by {spec.job_id}: one of its keys stands for job "
            f"{answer.job_id}, so that nothing new would be stored"
        )


def require_sealed(batch: BatchRecord) -> None:
    """`InvalidJob` for a batch that others may still add children to while the caller's transaction is open."""
    if not batch.sealed:
        raise InvalidJob(
            f"batch {batch.batch_id} still gets items, so it cannot be canceled in your transaction (within=): items that are "
            f"added before your commit would go on; cancel it without within="
        )
