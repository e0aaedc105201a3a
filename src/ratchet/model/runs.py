"""How a run stands in the history: what a decision about it says there."""

from __future__ import annotations

from typing import NamedTuple

from ratchet.model.decision import (
    CountCrash,
    Decision,
    ErrorRecord,
    Fail,
    HandBack,
    Reschedule,
    Retry,
    Succeed,
)
from ratchet.model.job import ExecutionStatus


class RunOutcome(NamedTuple):
    """A run's status, whether it counts as an attempt, and its error or the reason for its end."""

    status: str
    counted: bool
    error: ErrorRecord | None = None


def run_outcome(decision: Decision) -> RunOutcome:
    """What the history says of a run that ended with this decision."""
    match decision:
        case Succeed():
            return RunOutcome(ExecutionStatus.SUCCEEDED, True)
        case Retry(error=error, timed_out=timed_out) | Fail(error=error, timed_out=timed_out):
            return RunOutcome(ExecutionStatus.TIMED_OUT if timed_out else ExecutionStatus.FAILED, True, error)
        case Reschedule(reason=reason):
            later = ErrorRecord(message=reason, type="RetryLater") if reason else None
            return RunOutcome(ExecutionStatus.RESCHEDULED, False, later)
        case HandBack():
            return RunOutcome(ExecutionStatus.HANDED_BACK, False)
        case CountCrash(detail=detail):
            return RunOutcome(ExecutionStatus.CRASHED, False, ErrorRecord(message=detail, type="Crashed"))
