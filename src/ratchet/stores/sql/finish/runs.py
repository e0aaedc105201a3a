"""What one run's end means for the job's rows: the decision, told in columns."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from ratchet.model.decision import (
    Completion,
    CountCrash,
    Decision,
    Fail,
    HandBack,
    Reschedule,
    Retry,
    Succeed,
)
from ratchet.model.job import ExecutionStatus
from ratchet.model.runs import run_outcome
from ratchet.model.status import JobStatus
from ratchet.stores.sql.finish.requeues import held_back
from ratchet.stores.sql.rows.locked import QueueRow

#: The columns of a successful run; the others are empty.
SUCCESS_RUN_COLUMNS = (
    "job_id",
    "claim_id",
    "attempt",
    "node_id",
    "scheduled_at",
    "started_at",
    "finished_at",
    "status",
    "counted",
)

#: How the runs of each decision stand in the history. CANCELED is none of them: a canceled run has not won.
WRITTEN_AS = {
    Succeed: {ExecutionStatus.SUCCEEDED},
    Retry: {ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT},
    Fail: {ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT},
    Reschedule: {ExecutionStatus.RESCHEDULED},
    HandBack: {ExecutionStatus.HANDED_BACK},
    CountCrash: {ExecutionStatus.CRASHED},
}


def status_after(decision: Decision) -> JobStatus:
    """The state that a decision leads to (for a crash that uses up the budget: see `count_crashes`)."""
    if isinstance(decision, Succeed):
        return JobStatus.SUCCEEDED
    return JobStatus.FAILED if isinstance(decision, Fail) else JobStatus.PENDING


def success_row(one: Completion, now: datetime) -> tuple[object, ...]:
    """
    What a success writes: job, claim, attempt, crashes, due time, start, end, node, result, truncated.

    All from the claim: while it holds the job, nobody changes the queue row.
    """
    claim, decision = one.claim, one.decision
    assert isinstance(decision, Succeed)
    return (
        claim.job_id,
        claim.claim_id,
        claim.attempts + 1,
        claim.crashes,
        claim.scheduled_at,
        one.started_at,
        one.finished_at or now,
        claim.node_id,
        decision.result,
        decision.truncated,
    )


def success_run(row: tuple[object, ...]) -> tuple[object, ...]:
    """The run's own row from a `success_row`; columns as in `SUCCESS_RUN_COLUMNS`."""
    job_id, claim_id, attempt, _, scheduled_at, started_at, finished_at, node_id, _, _ = row
    status = (ExecutionStatus.SUCCEEDED, True)
    return (job_id, claim_id, attempt, node_id, scheduled_at, started_at, finished_at, *status)


def ended_row(one: Completion, row: QueueRow, now: datetime) -> tuple[object, ...]:
    """What the cold row gets of a success or a final failure; columns as in `completions.END_RUNS`."""
    decision = one.decision
    assert isinstance(decision, Succeed | Fail)
    status = status_after(decision).value
    times = (row.scheduled_at, one.started_at, one.finished_at or now)
    known = (row.job_id, status, row.attempts + 1, row.crashes, *times, one.claim.node_id)
    if isinstance(decision, Succeed):
        return (*known, decision.result, decision.truncated, None, None, None, None)
    return (*known, None, False, decision.error.summary, decision.error.type, decision.reason, now)


def requeued(one: Completion, row: QueueRow, due_at: datetime, now: datetime) -> QueueRow:
    """The queue row of a job that goes back: due at *due_at*, or held back while the code of this run lingers."""
    attempts = row.attempts + isinstance(one.decision, Retry)
    back = replace(row, attempts=attempts, scheduled_at=due_at, held_claim_id=None)
    return held_back(back, now) if one.lingers else back


def resting_row(one: Completion, row: QueueRow, due_at: datetime) -> tuple[object, ...]:
    """What the cold row of a job that goes back remembers: its own due time, and for a retry the error."""
    known = (row.job_id, JobStatus.PENDING.value, row.attempts, row.crashes, due_at, one.started_at, None)
    if isinstance(one.decision, Retry):
        error = one.decision.error
        return (*known, one.claim.node_id, None, False, error.summary, error.type, None, None)
    return (*known, None, None, False, None, None, None, None)


def execution_row(one: Completion, row: QueueRow, now: datetime) -> tuple[object, ...]:
    """The run's own row; columns as in `endings.EXECUTION_COLUMNS`."""
    status, counted, error = run_outcome(one.decision)
    failure = (None, None, None) if error is None else (error.summary, error.type, error.traceback)
    run = (row.job_id, one.claim.claim_id, row.attempts + 1, one.claim.node_id)
    times = (row.scheduled_at, one.started_at, one.finished_at or now)
    return (*run, *times, status, counted, *failure)
