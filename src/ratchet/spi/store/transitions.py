"""
Transitions: every change of a job's state.

Every change on behalf of a run compares (job_id, claim_id) in the statement itself. A compare-and-swap
returns True if *this call* made the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from ratchet.model.claim import JobClaim
from ratchet.model.decision import CanceledJob, Completion, CompletionAnswer
from ratchet.model.job import Progress


class JobTerminalStore(Protocol):
    """Ends runs: success, failure, cancellation."""

    def complete(
        self,
        completions: Sequence[Completion],
        *,
        now: datetime,
        alert_window: timedelta = timedelta(hours=1),
        within: object | None = None,
    ) -> list[CompletionAnswer]:
        """
        Apply many completions in one transaction; one answer per completion, in order.

        For each one whose claim still holds its job:

        - The queue row is deleted or, for decisions that lead to PENDING, changed and its claim cleared.
        - The cold row gets status, attempts, error, result and times.
        - The execution row is written under (job_id, claim_id).
        - Outgoing edges are settled (see `WorkflowConditionStore`), and dependants are released or canceled.
        - Batch counters move, and a batch that reaches its total releases its parent, once.
        - ``callback`` is inserted.
        - The business key and the permit are freed (not when ``still_running``).
        - For Fail, the dead-letter alert is recorded. If there is an alert with the same error hash that is younger than
          *alert_window*, of whatever job, that alert counts one more suppressed instead. Of several nodes that fail
          jobs with one hash at the same time, one records it.

        A completion whose claim does not hold the job writes nothing and answers ``won=False``,
        unless its own execution row exists: then an earlier try committed and its answer was lost
        (``won=True, replayed=True``).

        `UnstorableData`: the database refused a value, and nothing of the call was written; the caller
        splits the batch. *within*: the call uses the caller's transaction, and commits nothing.
        """
        ...

    def cancel(
        self, job_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """
        Cancel a PENDING, PAUSED, WAITING or RUNNING job and all its dependants.

        The first entry is the job itself; the cascade follows, depth-first. The list is empty if the job is in
        another state. The key and permit of a RUNNING job stay taken until `settle`, or until its node is dead.

        *within*, here and with the other changes that people make by hand: the caller's transaction, as in
        `JobCrudStore.insert`. Rolled back, nothing has happened, and nobody is woken before the commit.
        """
        ...

    def settle(self, claims: Sequence[JobClaim], *, now: datetime) -> None:
        """
        Free the keys and permits that these ended runs still held, because their code has really ended now.

        A retry that was held back for that code becomes due. Fenced by (job_id, claim_id); harmless when
        there is nothing to free.
        """
        ...

    def expire(self, *, now: datetime, limit: int) -> list[CanceledJob]:
        """
        Cancel PENDING, PAUSED and WAITING jobs that never started and whose expiry has passed
        (reason ``expired``), and fail those whose signal deadline has passed (`SignalTimeout`, dead letter).
        """
        ...


class JobRetryStore(Protocol):
    """Puts jobs back after a failure."""

    def retry(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """
        FAILED (also paused from FAILED) to PENDING: attempts and crashes 0, error cleared, due now.

        Dependants that this failure canceled return to WAITING; a batch counts the child as open
        again. Raises `BusinessKeyBusy` if another live job has taken its key since. A dependant whose key
        was taken stays CANCELED.
        """
        ...


class JobPauseStore(Protocol):
    """Takes jobs out of the queue and puts them back."""

    def pause(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """PENDING or FAILED becomes PAUSED: True. Already PAUSED: True. Any other state: False."""
        ...

    def resume(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        """PAUSED becomes the state it was paused from, with its old due time and attempts; False in any other state."""
        ...


class JobBatchStatusStore(Protocol):
    """Changes RUNNING jobs without ending them."""

    def hand_back(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        """Return claimed jobs that have not started to PENDING with their old due time; how many were still held."""
        ...

    def hand_back_unknown(self, node_id: str, known: Sequence[UUID], *, now: datetime) -> list[UUID]:
        """
        Return RUNNING jobs of *node_id* whose claim id is not among *known*: the answer to their claim was lost.

        The jobs never started, so nothing is counted. Keys and permits that ended runs of this node hold under
        other tokens are freed, as by `settle`: such a run was canceled before the node knew that it had it. The
        caller passes every token that it has sent and not yet given up, and those of runs whose code is still running.
        """
        ...

    def park(self, claim: JobClaim, target: str, *, now: datetime) -> bool:
        """
        Return a claimed job that this node lacks something for to a stream at the place of that: its target, or keys.

        The keys that the job's stream names already are named there too (`ratchet.model.places.parked_at`).
        """
        ...

    def save_progress(
        self, claim: JobClaim, progress: Progress, *, now: datetime, within: object | None = None
    ) -> bool:
        """Store a run's progress, if *claim* still holds the job."""
        ...

    def save_state(self, claim: JobClaim, state: str, *, now: datetime) -> bool:
        """Store a run's checkpoint (JSON), if *claim* still holds the job. Later attempts get it."""
        ...


class JobStatusStore(JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, Protocol):
    """The four status interfaces in one."""
