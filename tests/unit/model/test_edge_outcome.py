"""What the end of a parent means for an edge, on every store."""

from __future__ import annotations

from uuid import UUID

import pytest

from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.decision import ErrorRecord, Verdict, VerdictKind
from ratchet.model.edge_outcome import NOT_TAKEN, PARENT_CANCELED, PARENT_FAILED, edge_outcome
from ratchet.model.status import JobStatus

CHILD = UUID(int=7)


def verdict(kind: VerdictKind, error: ErrorRecord | None = None) -> Verdict:
    return Verdict(child_id=CHILD, kind=kind, error=error)


@pytest.mark.parametrize(
    ("kind", "ended_as", "broken_for"),
    [
        (EdgeKind.SUCCESS, JobStatus.SUCCEEDED, None),
        (EdgeKind.SUCCESS, JobStatus.FAILED, PARENT_FAILED),
        (EdgeKind.SUCCESS, JobStatus.CANCELED, PARENT_CANCELED),
        (EdgeKind.FAILURE, JobStatus.SUCCEEDED, NOT_TAKEN),
        (EdgeKind.FAILURE, JobStatus.FAILED, None),
        (EdgeKind.FAILURE, JobStatus.CANCELED, PARENT_CANCELED),
        (EdgeKind.END, JobStatus.SUCCEEDED, None),
        (EdgeKind.END, JobStatus.FAILED, None),
        (EdgeKind.END, JobStatus.CANCELED, None),
        (EdgeKind.CONDITION, JobStatus.SUCCEEDED, NOT_TAKEN),
        (EdgeKind.CONDITION, JobStatus.CANCELED, PARENT_CANCELED),
    ],
)
def test_an_edge_without_a_verdict(kind: EdgeKind, ended_as: JobStatus, broken_for: str | None) -> None:
    """Its kind and the parent's state decide; None: it is satisfied."""
    outcome = edge_outcome(kind, ended_as, None)
    assert outcome.state is (EdgeState.SATISFIED if broken_for is None else EdgeState.BROKEN)
    assert outcome.reason == (broken_for or "")
    assert outcome.error is None


@pytest.mark.parametrize("ended_as", [JobStatus.SUCCEEDED, JobStatus.FAILED])
def test_a_condition_is_what_the_worker_said(ended_as: JobStatus) -> None:
    """Taken or not, whether the parent succeeded or failed."""
    taken = edge_outcome(EdgeKind.CONDITION, ended_as, verdict(VerdictKind.TAKEN))
    refused = edge_outcome(EdgeKind.CONDITION, ended_as, verdict(VerdictKind.NOT_TAKEN))
    assert taken.state is EdgeState.SATISFIED
    assert (refused.state, refused.reason, refused.error) == (EdgeState.BROKEN, NOT_TAKEN, None)


def test_a_condition_that_raised_fails_the_child() -> None:
    """With the message and the traceback of what it raised, under a type of its own."""
    raised = ErrorRecord(message="no such column", type="KeyError", traceback="Traceback ...")
    outcome = edge_outcome(EdgeKind.CONDITION, JobStatus.SUCCEEDED, verdict(VerdictKind.ERROR, raised))
    assert outcome.state is EdgeState.BROKEN
    assert outcome.error == ErrorRecord(
        message="no such column", type="ConditionFailed", traceback="Traceback ..."
    )
