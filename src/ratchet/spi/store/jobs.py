"""Jobs: insert, read, search, delete, tags, and bulk verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.decision import CanceledJob
from ratchet.model.job import Insertion, JobFilter, JobRecord, JobResultRow, JobSpec, Page, SortBy
from ratchet.model.status import JobStatus, Priority


class JobCrudStore(Protocol):
    """Creates, reads, changes and deletes jobs."""

    def insert(
        self,
        specs: Sequence[JobSpec],
        *,
        now: datetime,
        edges: Sequence[Edge] = (),
        batch: BatchSpec | None = None,
        within: object | None = None,
    ) -> list[Insertion]:
        """
        Store *specs* with their *edges* (and *batch* with its parent job), all or none; one
        `Insertion` per spec, in order.

        - A spec whose ``idempotency_key`` is in the ledger is not stored, nor is any other spec of
          the same ``root_id``; its `Insertion` names the original. If submissions of one key race, one is
          stored, the others get its id, and none gets an exception.
        - ``business_key`` is reserved with the job. If a live job holds it, ``busy`` decides: raise
          `BusinessKeyBusy` (nothing of the call is stored), answer with the holder, or cancel the holder in
          the same transaction (reason ``superseded``, ``superseded_by`` set) and take the key. REPLACE of a
          holder that is RUNNING cancels it, but its key stays taken until its code has ended: until then
          `BusinessKeyBusy` is raised.
          The holders are read before anything is canceled: a key that is freed by what a replacement cancels
          is free for the next call.
        - A spec with an id that is already stored is the same submission, sent again after a lost
          answer: the job and the edges into it are left alone, and the answer is ``created=True``. The same
          holds for a job in the archive (ids of the last five minutes are not looked for there) and, if the
          batch is already stored, for its children: a child that is missing was deleted. A deleted job whose
          ``idempotency_key`` is in the ledger is not stored again: ``created=False``, with its own id.
        - An edge whose parent has already ended is settled at once: its child is released or canceled.
        - *within* is the caller's own connection, session or transaction: everything is written on
          it, and nothing is committed. Only statements that cannot fail on a duplicate are used, so
          that the caller's transaction stays usable after `BusinessKeyBusy`. If another open transaction
          holds a key, the call waits for it, at most 5 s, and then raises `SubmissionBlocked`.
        """
        ...

    def get(self, job_id: UUID) -> JobRecord | None:
        """The job, in the archive too; None if there is none."""
        ...

    def results(self, job_ids: Sequence[UUID]) -> dict[UUID, JobResultRow]:
        """The status of many jobs in one query and, for ended ones, their result or error; unknown ids are left out."""
        ...

    def find(
        self,
        where: JobFilter,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: SortBy = SortBy.CREATED,
        descending: bool = True,
    ) -> Page[JobRecord]:
        """
        One page of matching jobs; CREATED is the order of their ids. A cursor stays valid while jobs are added and deleted.

        Sorted by anything else, it is a listing of the newest 10,000 matching jobs, as they were when its first page
        was read; jobs without such a time come last. The cost of a page is bounded, however long history is: a search by ``args``
        reads 10,000 payloads for a page at most, and one by criteria without an index looks at 100,000 jobs. A page may then have
        less than *limit* jobs, or none, and a cursor.
        """
        ...

    def count(self, where: JobFilter, *, at_most: int | None = None) -> int:
        """How many jobs match. Counting ends at *at_most*, a positive number: there may be more."""
        ...

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs are in each status, without the archive; every status is a key."""
        ...

    def delete(self, job_id: UUID) -> bool:
        """
        Remove a job that is not RUNNING, with its history, tags, logs, alerts and reservation. A key or permit
        that the code of one of its runs still uses stays taken until that code ends.

        Its idempotency key stays in the ledger. Its edges are settled first, as by a cancel: dependants that wait
        are canceled, and those behind an END edge are released. A join that this job had already satisfied is
        canceled too, because it could not be given the job's result. False if there is no such job, or if it is RUNNING.
        """
        ...

    def reschedule(self, job_id: UUID, at: datetime, *, now: datetime, within: object | None = None) -> bool:
        """Move the due time of a PENDING, PAUSED or WAITING job; False in any other state."""
        ...

    def set_priority(
        self, job_id: UUID, priority: Priority, *, now: datetime, within: object | None = None
    ) -> bool:
        """
        Give a PENDING, PAUSED or WAITING job another priority; False in any other state.

        It counts for the next claim, on every node, whatever these nodes have seen of the queue before. It stays
        through retries, a pause and the release of a job that waits. A run keeps the priority it was claimed with.
        """
        ...

    def replace(
        self, job_id: UUID, spec: JobSpec, *, now: datetime, within: object | None = None
    ) -> CanceledJob | None:
        """
        Cancel a PENDING, PAUSED or WAITING job and store *spec* in its place, in one transaction.

        The old job is CANCELED with reason ``superseded`` and ``superseded_by``; its business key
        passes to the new job if *spec* names the same one. None if the old job was in another state; then
        nothing was written.
        """
        ...


class JobBulkStore(Protocol):
    """The same verbs for many jobs at once."""

    def cancel_matching(
        self, where: JobFilter, *, limit: int, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """Cancel up to *limit* matching jobs, oldest first, with their dependants."""
        ...

    def retry_matching(
        self, where: JobFilter, *, limit: int, now: datetime, within: object | None = None
    ) -> list[UUID]:
        """Retry up to *limit* matching FAILED jobs, oldest first; a job whose business key is busy is skipped."""
        ...

    def purge_dead_letters(self, *, before: datetime, limit: int) -> int:
        """
        Move FAILED jobs that failed before *before* to the archive; at most *limit*. Alerts from before then go with the last of them.

        A job stays while something unfinished needs it, as in `ArchiveStore.archive`.
        """
        ...

    def delete_dead_letters(
        self, where: JobFilter, *, limit: int, after: UUID | None = None, dry_run: bool = False
    ) -> tuple[int, UUID | None]:
        """
        Look at the next *limit* matching FAILED jobs, oldest first, beginning after an id, and delete them as `delete` does.

        How many that were (with *dry_run*: would be), and after which id to go on; None: there are no more. A job stays
        while something unfinished needs it, as in `ArchiveStore.archive`. Those in the archive are not looked at.
        """
        ...


class TagStore(Protocol):
    """Tags: free words on a job."""

    def tags_of(self, job_ids: Sequence[UUID]) -> Mapping[UUID, tuple[str, ...]]:
        """The tags of each job, sorted; jobs without tags are left out."""
        ...

    def tag_counts(self, *, limit: int = 100) -> dict[str, int]:
        """How many jobs carry each tag, most used first."""
        ...
