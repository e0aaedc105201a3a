"""`blocked`: what is known about a submission that waited for another transaction in vain."""

from __future__ import annotations

from collections.abc import Sequence

from ratchet.model.composition import Edge
from ratchet.model.errors import SubmissionBlocked
from ratchet.model.job import JobSpec

_END = (
    "submit again after it has ended. It may be an earlier try of this submission whose commit the database has not "
    "answered yet, as when a synchronous standby is away"
)


def blocked(specs: Sequence[JobSpec], edges: Sequence[Edge]) -> SubmissionBlocked:
    """The error that names the keys and parents that others may hold; none where the submission has none."""
    held = _keys("idempotency key", [spec.idempotency_key for spec in specs])
    held += _keys("business key", [spec.business_key for spec in specs])
    own = {spec.job_id for spec in specs}
    if any(edge.parent_id not in own for edge in edges):
        held.append("a parent")
    if held:
        return SubmissionBlocked(
            f"{' or '.join(held)} of this submission is held by another transaction that is still open; {_END}"
        )
    return SubmissionBlocked(
        f"this submission has waited for too long for another transaction that is still open; {_END}"
    )


def _keys(kind: str, found: Sequence[str | None]) -> list[str]:
    keys = sorted({key for key in found if key is not None})
    if len(keys) > 1:
        return [f"one of the {len(keys)} {kind}s"]
    return [f"the {kind} {key!r}" for key in keys]
