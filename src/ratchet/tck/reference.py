"""A simple store without concurrency, in two hundred lines: the real stores are compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model.claim import SUSPECT_AFTER, JobClaim, party_of
from ratchet.model.composition import EdgeKind
from ratchet.model.status import JobStatus

BOOST = timedelta(minutes=15)
MAX_CRASHES = 3

_HELD = frozenset({JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING})


@dataclass
class ReferenceJob:
    """A job as the reference knows it."""

    job_id: UUID
    priority: int
    due: datetime
    status: JobStatus = JobStatus.PENDING
    expires_at: datetime | None = None
    key: str | None = None
    fairness_key: str | None = None
    parent: UUID | None = None
    kind: EdgeKind = EdgeKind.SUCCESS
    attempts: int = 0
    crashes: int = 0
    started: bool = False
    claim: JobClaim | None = None
    paused_from: JobStatus | None = None
    canceled_by: UUID | None = None  # the job whose failure canceled it

    @property
    def suspect(self) -> bool:
        """True after so many crashes that the job must run alone."""
        return self.crashes >= SUSPECT_AFTER

    @property
    def holds_key(self) -> bool:
        """True while the job is live; a job paused from FAILED is not."""
        return not self.status.is_terminal and self.paused_from is not JobStatus.FAILED


@dataclass
class Reference:
    """All jobs and what can happen to them; every question is answered by looking at all jobs."""

    now: datetime
    jobs: dict[UUID, ReferenceJob] = field(default_factory=dict)
    still_running: dict[str, JobClaim] = field(default_factory=dict)  # canceled runs that still hold a key

    # --- questions ------------------------------------------------------------------------------

    def holder(self, key: str) -> UUID | None:
        """The job that holds a business key."""
        for job in self.jobs.values():
            if job.key == key and job.holds_key:
                return job.job_id
        return self.still_running[key].job_id if key in self.still_running else None

    def in_claim_order(self, *, suspects: bool, after: str | None) -> list[UUID]:
        """What a claim without a limit returns now: one round after the other, the next job of each party that has one."""
        due = [
            job
            for job in self.jobs.values()
            if job.status is JobStatus.PENDING and job.due <= self.now and job.suspect == suspects
        ]
        due.sort(key=lambda job: (-(job.priority + (self.now - job.due) // BOOST), job.due, job.job_id))
        lines: dict[str, list[UUID]] = {}
        for job in due:
            lines.setdefault(party_of(job.fairness_key), []).append(job.job_id)
        order = sorted(lines, key=lambda party: (after is not None and party <= after, party))
        rounds = max(map(len, lines.values()), default=0)
        return [
            lines[party][number] for number in range(rounds) for party in order if number < len(lines[party])
        ]

    def running_on(self, node_id: str) -> list[ReferenceJob]:
        """The jobs that a node runs."""
        return [job for job in self.jobs.values() if job.claim is not None and job.claim.node_id == node_id]

    def children(self, job_id: UUID) -> Iterator[ReferenceJob]:
        """The jobs that wait for this one."""
        return (job for job in self.jobs.values() if job.parent == job_id and job.status is JobStatus.WAITING)

    # --- changes --------------------------------------------------------------------------------

    def submit(self, job: ReferenceJob) -> None:
        """Store a job; if its parent has ended, the job is released or canceled at once."""
        self.jobs[job.job_id] = job
        if job.parent is not None:
            job.status = JobStatus.WAITING
            parent = self.jobs[job.parent]
            # a paused dead letter has ended too: it can only be resumed to FAILED, retried or canceled
            ended = JobStatus.FAILED if parent.paused_from is JobStatus.FAILED else parent.status
            if ended.is_terminal:
                self._settle(job, ended, cause=parent.job_id)

    def started_by(self, claim: JobClaim) -> None:
        """Record that a claim took the job."""
        job = self.jobs[claim.job_id]
        job.status, job.claim = JobStatus.RUNNING, claim

    def succeed(self, job: ReferenceJob) -> None:
        job.attempts += 1
        self._end(job, JobStatus.SUCCEEDED, cause=job.job_id)

    def fail(self, job: ReferenceJob) -> None:
        job.attempts += 1
        self._end(job, JobStatus.FAILED, cause=job.job_id)

    def requeue(self, job: ReferenceJob, *, at: datetime | None = None, counted: bool = False) -> None:
        """Back to PENDING: a retry, a postponement, or (without *at*) a hand-back."""
        job.attempts += counted
        job.due = at or job.due
        job.status, job.claim = JobStatus.PENDING, None

    def crash(self, job: ReferenceJob) -> None:
        job.crashes += 1
        if job.crashes >= MAX_CRASHES:
            self._end(job, JobStatus.FAILED, cause=job.job_id)
        else:
            self.requeue(job)

    def cancel(self, job: ReferenceJob) -> bool:
        if job.status.is_terminal:
            return False
        if job.claim is not None and job.key is not None:
            self.still_running[job.key] = job.claim
        self._end(job, JobStatus.CANCELED, cause=job.job_id)
        return True

    def pause(self, job: ReferenceJob) -> bool:
        if job.status in (JobStatus.PENDING, JobStatus.FAILED):
            job.paused_from, job.status = job.status, JobStatus.PAUSED
        return job.status is JobStatus.PAUSED

    def resume(self, job: ReferenceJob) -> bool:
        if job.paused_from is None:
            return False
        job.status, job.paused_from = job.paused_from, None
        return True

    def can_retry(self, job: ReferenceJob) -> bool:
        return job.status is JobStatus.FAILED or job.paused_from is JobStatus.FAILED

    def retry(self, job: ReferenceJob) -> None:
        """Start over, and revive the jobs that the failure had canceled."""
        job.attempts = job.crashes = 0
        job.paused_from = None
        job.status, job.due = JobStatus.PENDING, self.now
        for other in self.jobs.values():
            if other.canceled_by == job.job_id and other.status is JobStatus.CANCELED:
                other.status, other.canceled_by = JobStatus.WAITING, None

    def reschedule(self, job: ReferenceJob, at: datetime) -> bool:
        if job.status not in _HELD:
            return False
        job.due = at
        return True

    def expire(self) -> set[UUID]:
        """Cancel jobs that never started and are past their expiry, and the jobs that wait for them."""
        before = {job_id for job_id, job in self.jobs.items() if job.status is JobStatus.CANCELED}
        for job in list(self.jobs.values()):
            waits = job.status in _HELD and job.paused_from is not JobStatus.FAILED
            if waits and not job.started and job.expires_at is not None and job.expires_at <= self.now:
                self._end(job, JobStatus.CANCELED, cause=job.job_id)
        return {job_id for job_id, job in self.jobs.items() if job.status is JobStatus.CANCELED} - before

    def delete(self, job: ReferenceJob) -> bool:
        if job.status is JobStatus.RUNNING:
            return False
        self._end(job, JobStatus.CANCELED, cause=job.job_id)
        del self.jobs[job.job_id]
        return True

    def node_died(self, node_id: str) -> None:
        """Its runs have crashed, and code that was still running has ended."""
        for job in self.running_on(node_id):
            self.crash(job)
        self.still_running = {k: c for k, c in self.still_running.items() if c.node_id != node_id}

    # --- what an end does to other jobs ---------------------------------------------------------

    def _end(self, job: ReferenceJob, status: JobStatus, *, cause: UUID) -> None:
        job.status, job.claim, job.paused_from = status, None, None
        for child in list(self.children(job.job_id)):
            self._settle(child, status, cause=cause)

    def _settle(self, child: ReferenceJob, ended: JobStatus, *, cause: UUID) -> None:
        released = {
            EdgeKind.SUCCESS: ended is JobStatus.SUCCEEDED,
            EdgeKind.FAILURE: ended is JobStatus.FAILED,
            EdgeKind.END: True,
        }[child.kind]
        if released:
            child.status, child.due = JobStatus.PENDING, max(self.now, child.due)
        else:
            child.canceled_by = cause
            self._end(child, JobStatus.CANCELED, cause=cause)
