"""
Transitions: every change of a job's state.

Whatever is done for a run compares (job_id, claim_id) in the statement itself. A compare-and-swap
answers True where *this call* made the change.
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

        For each whose claim still holds its job: the queue row is deleted (or, for decisions that
        lead to PENDING, changed and its claim cleared), the cold row gets status, attempts, error,
        result, times; the execution row is written under (job_id, claim_id); outgoing edges are
        settled (see `WorkflowConditionStore`) and dependants released or canceled; batch
        counters move, and a batch that reaches its total releases its parent, once; ``callback`` is
        inserted; the business key and permit are freed (not when ``lingers``); for Fail the
        dead-letter alert is recorded unless one of the same job and error hash is younger than
        *alert_window*, which then counts one suppressed.

        A completion whose claim does not hold the job writes nothing and answers ``won=False``,
        unless its own execution row exists: an earlier try committed and its answer was lost
        (``won=True, replayed=True``).

        `UnstorableData`: the database refused a value, nothing of the call was written; the caller
        splits the batch. *within*: on the caller's transaction, nothing is committed.
        """
        ...

    def cancel(self, job_id: UUID, *, reason: str, now: datetime) -> list[CanceledJob]:
        """
        Cancel a PENDING, PAUSED, WAITING or RUNNING job and all its dependants.

        The first entry is the job itself, the cascade follows, depth-first. Empty: it is in another state. A
        RUNNING job's key and permit stay taken until `settle`, or until its node is dead.
        """
        ...

    def settle(self, claims: Sequence[JobClaim], *, now: datetime) -> None:
        """
        The code of these ended runs has really ended: free keys and permits that still wait for it.

        A retry that was held back for it becomes due. Fenced by (job_id, claim_id); harmless when
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

    def retry(self, job_id: UUID, *, now: datetime) -> bool:
        """
        FAILED (also paused from FAILED) to PENDING: attempts and crashes 0, error cleared, due now.

        Dependants that this failure canceled return to WAITING; a batch counts the child as open
        again. Raises `BusinessKeyBusy` when another live job has taken its key since; a dependant whose key
        was taken stays CANCELED.
        """
        ...


class JobPauseStore(Protocol):
    """Takes jobs out of the queue and puts them back."""

    def pause(self, job_id: UUID, *, now: datetime) -> bool:
        """PENDING or FAILED to PAUSED, True; already PAUSED: True; any other state: False."""
        ...

    def resume(self, job_id: UUID, *, now: datetime) -> bool:
        """PAUSED to the state it was paused from, with the due time and attempts it had; else False."""
        ...


class JobBatchStatusStore(Protocol):
    """What happens to RUNNING jobs without ending them."""

    def hand_back(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        """Return unstarted claims to PENDING with their old due time; how many were still held."""
        ...

    def hand_back_unknown(self, node_id: str, known: Sequence[UUID], *, now: datetime) -> list[UUID]:
        """
        Return RUNNING jobs of *node_id* whose claim id is not among *known*: their answer was lost.

        They never started, so this counts as nothing. Keys and permits that are held for runs of this
        node under other tokens are freed as by `settle`: such a run was canceled before the node
        knew that it had it. The caller passes every token it has sent and not yet given up, and
        those of runs whose code is still running.
        """
        ...

    def park(self, claim: JobClaim, target: str, *, now: datetime) -> bool:
        """Return a claimed job whose target this node cannot import to a stream parked for that target."""
        ...

    def save_progress(
        self, claim: JobClaim, progress: Progress, *, now: datetime, within: object | None = None
    ) -> bool:
        """Store a run's progress, if *claim* still holds the job."""
        ...

    def save_state(self, claim: JobClaim, state: str, *, now: datetime) -> bool:
        """Store a run's checkpoint (JSON), if *claim* still holds the job. It survives attempts."""
        ...


class JobStatusStore(JobTerminalStore, JobRetryStore, JobPauseStore, JobBatchStatusStore, Protocol):
    """The four status interfaces in one, for code that was written against the original's marker."""
