"""
What happened in a run (`Outcome`), what follows from it (`RunDecision`), and what the store is asked to commit
(`Completion`).

Everything that must commit with a job's new state is in its `Completion`: the store applies it
whole, under the claim's fence, or not at all.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias
from uuid import UUID

from msgspec import Struct

from ratchet.model.claim import JobClaim
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus

# --- outcomes: what happened --------------------------------------------------------------------


class Returned(Struct, frozen=True, gc=False):
    """The target returned; its result is already encoded."""

    result: str | None = None
    truncated: bool = False


class Raised(Struct, frozen=True):
    """The target raised. The exception itself is kept, because its class decides about retries."""

    error: BaseException


class TimedOut(Struct, frozen=True):
    """The run exceeded its timeout. ``stopped``: its code has ended."""

    timeout: timedelta
    stopped: bool = True


class Postponed(Struct, frozen=True):
    """The target raised RetryLater, or a gate was closed."""

    delay: timedelta
    counted: bool = False
    reason: str | None = None


class Interrupted(Struct, frozen=True):
    """The run was told to stop. If its job was canceled or lost, `Run.ended_with` makes this a `ClaimLost`."""

    reason: str
    stopped: bool = True


class NotStarted(Struct, frozen=True):
    """The claim was never started on this node."""


class Crashed(Struct, frozen=True):
    """The process that ran the job died without an outcome (process lane)."""

    detail: str


class TargetMissing(Struct, frozen=True):
    """The node does not know the target, or may not run it, or lacks the keys of its values; another node may do better."""

    reason: str
    keys: tuple[str, ...] = ()


class Unreadable(Struct, frozen=True):
    """What the job is called with cannot be read: it is damaged, or larger or deeper than anything that is read."""

    error: BaseException


class Expired(Struct, frozen=True):
    """The job's expiry passed before its first run began."""


class ClaimLost(Struct, frozen=True):
    """The job was canceled, or another node has it: this run no longer holds it. ``stopped``: its code has ended."""

    stopped: bool = True


class StoppedLate(Struct, frozen=True):
    """Code that was given up because it did not stop has ended after all."""


class Committed(Struct, frozen=True):
    """The job committed its own success in ``ctx.transaction()``; what it did after that changes nothing."""

    completion: Completion
    answer: CompletionAnswer


class BadCheckpoint(Struct, frozen=True):
    """The target returned, but the checkpoint it left in ``ctx.state`` cannot be stored."""

    error: BaseException


class Unstorable(Struct, frozen=True):
    """Not even the failure of this run can be stored: the store refused the data in it, or deciding what follows failed."""

    error: BaseException


Outcome: TypeAlias = (
    Returned
    | Raised
    | TimedOut
    | Postponed
    | Interrupted
    | NotStarted
    | Crashed
    | TargetMissing
    | Unreadable
    | Expired
    | ClaimLost
    | StoppedLate
    | Committed
    | BadCheckpoint
    | Unstorable
)


# --- decisions: what follows --------------------------------------------------------------------


class ErrorRecord(Struct, frozen=True, kw_only=True):
    """A sanitized error, ready to be stored and published."""

    message: str
    type: str
    traceback: str | None = None

    @property
    def summary(self) -> str:
        """The message as it is stored."""
        return self.message


class Succeed(Struct, frozen=True, kw_only=True, gc=False):
    """RUNNING to SUCCEEDED; counted."""

    result: str | None = None
    truncated: bool = False


class Retry(Struct, frozen=True, kw_only=True):
    """RUNNING to PENDING at a later time after a failure; counted."""

    at: datetime
    error: ErrorRecord
    timed_out: bool = False


class Fail(Struct, frozen=True, kw_only=True):
    """RUNNING to FAILED, a dead letter; counted."""

    error: ErrorRecord
    reason: str
    error_hash: str  # of target and type of error: see `model.alerts`
    timed_out: bool = False


class Reschedule(Struct, frozen=True, kw_only=True):
    """RUNNING to PENDING at a later time without a failure (RetryLater, a closed gate); not counted."""

    at: datetime
    reason: str | None = None


class HandBack(Struct, frozen=True, kw_only=True):
    """RUNNING to PENDING with its old due time; neither an attempt nor a crash."""


class CountCrash(Struct, frozen=True, kw_only=True):
    """RUNNING to PENDING after a certain crash of this one job; FAILED where the budget is used up."""

    detail: str
    max_crashes: int


class Park(Struct, frozen=True, kw_only=True):
    """RUNNING to PENDING, to wait for a node that knows the target and may run it, and has the keys; not counted."""

    reason: str
    keys: tuple[str, ...] = ()  # it waits for a node with these, whatever its target


class Expire(Struct, frozen=True, kw_only=True):
    """RUNNING to CANCELED, as expired."""


class Settle(Struct, frozen=True, kw_only=True):
    """No change of the job: it is no longer this run's. Only the run's key and permit are freed."""


class KeepHeld(Struct, frozen=True, kw_only=True):
    """No change at all yet: the job is no longer this run's, but the run's code still uses its key and permit."""


class Confirm(Struct, frozen=True, kw_only=True):
    """Nothing to write: the job has committed this completion itself."""

    completion: Completion
    answer: CompletionAnswer


#: What a `Completion` carries: the decisions that a store commits in batches.
Decision: TypeAlias = Succeed | Retry | Fail | Reschedule | HandBack | CountCrash
#: What can follow from the end of a run.
RunDecision: TypeAlias = Decision | Park | Expire | Settle | KeepHeld | Confirm


class VerdictKind(StrEnum):
    """What a condition said of its branch."""

    TAKEN = "TAKEN"
    NOT_TAKEN = "NOT_TAKEN"
    ERROR = "ERROR"


class Verdict(Struct, frozen=True, kw_only=True):
    """The answer of one edge's condition, evaluated on the worker before the completion."""

    child_id: UUID
    kind: VerdictKind
    error: ErrorRecord | None = None


class Completion(Struct, frozen=True, kw_only=True, gc=False):
    """
    One run's end, with everything that commits with it.

    ``callback`` is inserted as a job of its own. ``still_running``: the code of this run is still running,
    so its business key and permit stay taken until `settle` is called for the claim or its node dies,
    even if the job runs again or ends in the meantime.
    """

    claim: JobClaim
    decision: Decision
    started_at: datetime | None = None
    finished_at: datetime | None = None
    verdicts: tuple[Verdict, ...] = ()
    callback: JobSpec | None = None
    state: str | None = None  # checkpoint to keep; None leaves what is stored
    still_running: bool = False


#: `CanceledJob.reason` of a job that failed because its signal did not come.
SIGNAL_TIMEOUT: Final = "signal_timeout"


class CanceledJob(Struct, frozen=True, kw_only=True):
    """A job that a cascade canceled (or failed, where its own condition raised)."""

    job_id: UUID
    target: str
    previous: JobStatus
    reason: str
    status: JobStatus = JobStatus.CANCELED
    claim_id: UUID | None = None  # set where it was RUNNING: the run to interrupt
    node_id: str | None = None
    alerted: bool = False  # it failed, and that raised an alert


class CompletionAnswer(Struct, frozen=True, kw_only=True, gc=False):
    """
    What became of one completion.

    ``won``: the claim still held the job and the change is made, by this call or by an earlier one
    whose answer was lost (``replayed``). Otherwise nothing of it was written.
    """

    job_id: UUID
    won: bool
    replayed: bool = False
    alerted: bool = False  # it raised a dead-letter alert, and was not just counted by one
    dead_lettered: bool = False
    released: tuple[UUID, ...] = ()
    canceled: tuple[CanceledJob, ...] = ()
    finished_batches: tuple[UUID, ...] = ()
