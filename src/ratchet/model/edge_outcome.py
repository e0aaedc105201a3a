"""What the end of a job means for an edge to a job that waits for it: satisfied or broken, and why."""

from __future__ import annotations

from typing import Final, NamedTuple

from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.decision import ErrorRecord, Verdict, VerdictKind
from ratchet.model.status import JobStatus

#: Why a job was canceled or failed because of its parent, as `CanceledJob.reason` says it.
PARENT_FAILED: Final = "parent_failed"
PARENT_CANCELED: Final = "parent_canceled"
NOT_TAKEN: Final = "not_taken"
CONDITION_FAILED: Final = "condition_failed"

#: The dead letter reason of a job whose condition raised.
CONDITION_FAILED_REASON: Final = "condition failed"


class EdgeOutcome(NamedTuple):
    """What became of an edge. ``reason``: why its child would be canceled; ``error``: its condition raised this."""

    state: EdgeState
    reason: str = ""
    error: ErrorRecord | None = None


_SATISFIED: Final = EdgeOutcome(EdgeState.SATISFIED)
_PARENT_FAILED: Final = EdgeOutcome(EdgeState.BROKEN, PARENT_FAILED)
_PARENT_CANCELED: Final = EdgeOutcome(EdgeState.BROKEN, PARENT_CANCELED)
_NOT_TAKEN: Final = EdgeOutcome(EdgeState.BROKEN, NOT_TAKEN)


def edge_outcome(kind: EdgeKind, ended_as: JobStatus, verdict: Verdict | None) -> EdgeOutcome:
    """
    What becomes of an edge of this *kind* when its parent has *ended_as* SUCCEEDED, FAILED or CANCELED.

    *verdict* is what the worker decided about this edge's condition, if it has one.
    """
    if kind is EdgeKind.END:
        return _SATISFIED
    if ended_as is JobStatus.CANCELED:
        return _PARENT_CANCELED
    if kind is EdgeKind.CONDITION:
        return _by_condition(verdict)
    if (kind is EdgeKind.SUCCESS) is (ended_as is JobStatus.SUCCEEDED):
        return _SATISFIED
    return _PARENT_FAILED if kind is EdgeKind.SUCCESS else _NOT_TAKEN


def _by_condition(verdict: Verdict | None) -> EdgeOutcome:
    if verdict is None or verdict.kind is VerdictKind.NOT_TAKEN:
        return _NOT_TAKEN
    if verdict.kind is VerdictKind.TAKEN:
        return _SATISFIED
    raised = verdict.error
    error = ErrorRecord(
        message="the condition of this branch failed" if raised is None else raised.message,
        type="ConditionFailed",
        traceback=None if raised is None else raised.traceback,
    )
    return EdgeOutcome(EdgeState.BROKEN, NOT_TAKEN, error)
