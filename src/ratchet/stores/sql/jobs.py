"""Jobs in SQL: insert, read, search, change, delete; tags and bulk verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from uuid import UUID

from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.decision import CanceledJob
from ratchet.model.identifiers import is_young
from ratchet.model.job import Insertion, JobFilter, JobRecord, JobResultRow, JobSpec, Page, SortBy
from ratchet.model.status import JobStatus, Priority
from ratchet.spi.store import Sent
from ratchet.stores.blocked_submissions import blocked
from ratchet.stores.sql.database import Session, SqlPart
from ratchet.stores.sql.dependants.cancellations import (
    CANCELABLE,
    cancel_jobs,
    cancel_locked,
    lock_cancelable,
)
from ratchet.stores.sql.errors import LockTimeout
from ratchet.stores.sql.history import IS_ARCHIVABLE, archive_jobs, find_archivable
from ratchet.stores.sql.recover.manual_retry import retry_jobs
from ratchet.stores.sql.rows.failures import Cancellation
from ratchet.stores.sql.rows.locked import LockedJob, lock_jobs
from ratchet.stores.sql.rows.records import find_record, find_results, find_tags
from ratchet.stores.sql.rows.search import count_by_status, count_matching, find_oldest, find_page
from ratchet.stores.sql.rows.specs import LATE, is_evident, is_plain, plain_values, tell_backdated
from ratchet.stores.sql.submit.keys import SUPERSEDED
from ratchet.stores.sql.submit.submissions import SubmissionResult, insert_specs
from ratchet.stores.validation import require_new, validate

RESCHEDULE_QUEUED = """
    UPDATE scheduler_job_queue
       SET scheduled_time = CASE WHEN held_claim_id IS NULL THEN CAST(:at AS {time})
                                 ELSE {greatest}(scheduled_time, CAST(:at AS {time})) END
     WHERE job_id = :job_id
"""

RESCHEDULE = "UPDATE scheduler_job SET scheduled_at = :at WHERE job_id = :job_id"

PRIORITIZE_QUEUED = "UPDATE scheduler_job_queue SET priority = :priority WHERE job_id = :job_id"

PRIORITIZE = "UPDATE scheduler_job SET priority = :priority WHERE job_id = :job_id"

FIND_CLOCK = "SELECT {clock} AS now_at"

# They may wait for other parents too; without this one they could never be released.
FIND_WAITING_CHILDREN = """
    SELECT d.child_id
      FROM scheduler_dependency d
      JOIN scheduler_job c ON c.job_id = d.child_id
     WHERE d.parent_id = :job_id AND c.status = 'WAITING'
"""

IS_ARCHIVED = "SELECT job_id FROM scheduler_job_archive WHERE job_id = :job_id {for update}"

# Everything that is known of a job except its idempotency key; the job itself last.
FORGET = (
    "DELETE FROM scheduler_job_queue WHERE job_id = :job_id",
    # what code that is still running uses stays until it ends: a marked key, and permits
    "DELETE FROM scheduler_business_key_reservation WHERE job_id = :job_id AND claim_id IS NULL",
    "DELETE FROM scheduler_job_tag WHERE job_id = :job_id",
    "DELETE FROM scheduler_job_execution WHERE job_id = :job_id",
    "DELETE FROM scheduler_job_log WHERE job_id = :job_id",
    "DELETE FROM scheduler_dlq_alert WHERE job_id = :job_id",
    "DELETE FROM scheduler_workflow_condition WHERE parent_id = :job_id",
    """DELETE FROM scheduler_workflow_condition
        WHERE child_id = :job_id
          AND parent_id IN (SELECT d.parent_id FROM scheduler_dependency d WHERE d.child_id = :job_id)""",
    # a child that still waits for others needs the edge that this parent has satisfied
    """DELETE FROM scheduler_dependency
        WHERE parent_id = :job_id
          AND child_id NOT IN (SELECT w.job_id
                                 FROM (SELECT DISTINCT c.job_id
                                         FROM scheduler_job c JOIN scheduler_dependency d ON d.child_id = c.job_id
                                        WHERE d.parent_id = :job_id AND c.status = 'WAITING') w)""",
    "DELETE FROM scheduler_dependency WHERE child_id = :job_id",
    "DELETE FROM scheduler_job WHERE job_id = :job_id",
    "DELETE FROM scheduler_job_archive WHERE job_id = :job_id",
)

# Jobs that something still needs are left out here already; otherwise they would fill the limit for ever.
LOCK_OLD_DEAD_LETTERS = f"""
    SELECT j.job_id
      FROM scheduler_job j
     WHERE j.dead_lettered_at IS NOT NULL AND j.dead_lettered_at < :before AND j.status = 'FAILED'
       AND {IS_ARCHIVABLE}
     ORDER BY j.dead_lettered_at, j.job_id
     LIMIT :limit
    {{for update skip locked}}
"""

# An alert that counts others goes when all of them have gone.
DROP_ALERTS_OF = "DELETE FROM scheduler_dlq_alert WHERE job_id {in ids uuid} AND suppressed = 0"

FIND_OLD_ALERTS = """
    SELECT alert_id FROM scheduler_dlq_alert WHERE created_at < :before ORDER BY created_at, alert_id LIMIT :limit
"""

DROP_ALERTS = "DELETE FROM scheduler_dlq_alert WHERE alert_id {in ids uuid}"

COUNT_TAGS = """
    SELECT tag, count(*) AS jobs FROM scheduler_job_tag GROUP BY tag ORDER BY count(*) DESC, tag LIMIT :limit
"""


class SqlJobs(SqlPart):
    """Creates, reads, changes and deletes jobs."""

    # --- one job --------------------------------------------------------------------------------

    def insert(
        self,
        specs: Sequence[JobSpec],
        *,
        now: datetime,
        edges: Sequence[Edge] = (),
        batch: BatchSpec | None = None,
        within: object | None = None,
    ) -> list[Insertion]:
        """Store *specs* with their *edges* (and *batch* with its parent job), all or none."""
        if within is None and not edges and batch is None and self._insert_plain(specs, now):
            return [Insertion(job_id=spec.job_id, created=True) for spec in specs]
        streams = validate(specs, edges, batch, now=now)
        if within is None:  # missing streams are made before, so that submitters do not wait for each other
            self.stream_registry.ids_of(None, streams)

        def store(session: Session) -> SubmissionResult:
            try:
                made = insert_specs(session, self.stream_registry, specs, now=now, edges=edges, batch=batch)
                if session.enlisted and any(insertion.created for insertion in made.insertions):
                    # only the caller's commit makes these jobs visible, so the wakeup must wait for it too
                    session.dialect.announce(session)
                if specs and not made.stored:  # they are there, by an earlier try or under the same key
                    session.confirm()
                return made
            except LockTimeout as error:
                raise blocked(specs, edges) from error

        submission = self.database.run(store, within=within)
        if submission.busy is not None:
            raise submission.busy
        return submission.insertions

    def _insert_plain(self, specs: Sequence[JobSpec], now: datetime) -> bool:
        """
        True if the jobs are stored, in a transaction with nothing else in it; False: take the ordinary way.

        That way also finds jobs that are stored already, by an earlier try whose answer was lost.
        """
        writer = self.database.dialect.row_writer
        if len(specs) != 1:
            return writer.copy(self.database, self.stream_registry, specs, now=now)
        values = self._plain_values(specs[0], self.stream_registry.known(specs[0].stream), now)
        return values is not None and writer.insert_one(self.database, values)

    def send_insert(self, spec: JobSpec, *, now: datetime) -> Sent | None:
        """Send a plain job that is due; None where something has to be opened, looked up or waited for first."""
        stream_id = self.stream_registry.known(spec.stream)
        if stream_id is None:
            return None
        values = self._plain_values(spec, stream_id, now)
        return None if values is None else self.database.dialect.row_writer.send_one(self.database, values)

    def _plain_values(self, spec: JobSpec, stream_id: int | None, now: datetime) -> dict[str, object] | None:
        """What is stored of a plain job; None where it takes more than its rows. Looks up a stream that is not known."""
        if not is_young(spec.job_id):
            return None  # it may be in the archive
        bare = is_evident(spec, now)
        if stream_id is None or not bare:
            if not is_plain(spec):
                return None
            streams = validate((spec,), now=now)
            if stream_id is None:
                stream_id = self.stream_registry.ids_of(None, streams)[spec.stream]
        if spec.status is not JobStatus.PENDING or spec.scheduled_at < now - LATE:
            return None  # claims that may have passed it must be told
        return plain_values(spec, stream_id, now, bare=bare)

    def get(self, job_id: UUID) -> JobRecord | None:
        """The job, wherever it lives; None if there is none."""
        return self.database.read(lambda session: find_record(session, self.stream_registry, job_id))

    def results(self, job_ids: Sequence[UUID]) -> dict[UUID, JobResultRow]:
        """Status and outcome of many jobs in one query."""
        if not job_ids:
            return {}
        return self.database.read(lambda session: find_results(session, job_ids))

    def delete(self, job_id: UUID) -> bool:
        """Remove a job that is not RUNNING and all that is known of it; what waits for it is canceled."""

        def delete(session: Session) -> bool:
            job = lock_jobs(session, [job_id]).get(job_id)
            if job is None and session.row(IS_ARCHIVED, {"job_id": job_id}) is None:
                return False
            if job is not None and job.status is JobStatus.RUNNING:
                return False
            now = session.value(FIND_CLOCK)
            if job is not None and job.status in CANCELABLE:
                cancel_locked(session, [Cancellation(job, "deleted")], now=now)
            _cancel_waiting(session, job_id, now)
            for statement in FORGET:
                session.execute(statement, {"job_id": job_id})
            return True

        return self.change(delete)

    def reschedule(self, job_id: UUID, at: datetime, *, now: datetime, within: object | None = None) -> bool:
        """Move the due time of a PENDING, PAUSED or WAITING job; a retry that is held back stays held back."""

        def reschedule(session: Session) -> bool:
            job = lock_cancelable(session, job_id, running=False)
            if job is None:
                return False
            if job.queue is not None:
                session.execute(RESCHEDULE_QUEUED, {"job_id": job_id, "at": at})
                tell_backdated(session, [(job.stream_id, at)], now)
            session.execute(RESCHEDULE, {"job_id": job_id, "at": at})
            return True

        return self.change(reschedule, within)

    def set_priority(
        self, job_id: UUID, priority: Priority, *, now: datetime, within: object | None = None
    ) -> bool:
        """Give a PENDING, PAUSED or WAITING job another priority, in both of its rows."""
        values = {"job_id": job_id, "priority": int(Priority(priority))}

        def prioritize(session: Session) -> bool:
            job = lock_cancelable(session, job_id, running=False)
            if job is None:
                return False
            if job.queue is not None:
                session.execute(PRIORITIZE_QUEUED, values)
                # claims may have passed its place in the new level, whenever it is due and whatever the clock says here
                session.backdated({job.stream_id})
            session.execute(PRIORITIZE, values)
            return True

        return self.change(prioritize, within)

    def replace(
        self, job_id: UUID, spec: JobSpec, *, now: datetime, within: object | None = None
    ) -> CanceledJob | None:
        """Cancel a PENDING, PAUSED or WAITING job and store *spec* in its place, in one transaction."""
        streams = validate([spec], now=now)
        if within is None:
            self.stream_registry.ids_of(None, streams)

        def replace(session: Session) -> tuple[CanceledJob | None, SubmissionResult | None]:
            job = lock_cancelable(session, job_id, running=False)
            if job is None:
                return None, None
            superseded = Cancellation(job, SUPERSEDED, superseded_by=spec.job_id)
            canceled = cancel_locked(session, [superseded], now=now)[0]
            submission = insert_specs(session, self.stream_registry, [spec], now=now)
            if submission.busy is not None:
                raise submission.busy
            require_new(job_id, spec, submission.insertions[0])
            return canceled, submission

        return self.change(replace, within, count=_replaced)[0]

    # --- many -----------------------------------------------------------------------------------

    def find(
        self,
        where: JobFilter,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: SortBy = SortBy.CREATED,
        descending: bool = True,
    ) -> Page[JobRecord]:
        """One page of matching jobs; CREATED is the order of their ids."""
        return self.database.read(
            lambda session: find_page(
                session,
                self.stream_registry,
                where,
                limit=limit,
                cursor=cursor,
                sort=sort,
                descending=descending,
            )
        )

    def count(self, where: JobFilter, *, at_most: int | None = None) -> int:
        """How many jobs match; counting ends at *at_most*."""
        return self.database.read(lambda session: count_matching(session, where, at_most))

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs are in each status."""
        return self.database.read(count_by_status)

    def cancel_matching(
        self, where: JobFilter, *, limit: int, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """Cancel up to *limit* matching jobs, oldest first, with their dependants."""
        where.require_criterion("cancel_matching")

        def cancel(session: Session) -> list[CanceledJob]:
            return cancel_jobs(
                session, find_oldest(session, where, CANCELABLE, limit=limit), reason=reason, now=now
            )

        return self.change(cancel, within)

    def retry_matching(
        self, where: JobFilter, *, limit: int, now: datetime, within: object | None = None
    ) -> list[UUID]:
        """Retry up to *limit* matching FAILED jobs, oldest first; skips those whose business key is busy."""
        where.require_criterion("retry_matching")

        def retry(session: Session) -> list[UUID]:
            done: list[UUID] = []
            after: UUID | None = None
            while (room := limit - len(done)) > 0:  # those that are skipped do not count
                ids = find_oldest(session, where, [JobStatus.FAILED], limit=room, after=after)
                done += retry_jobs(session, self.stream_registry, ids, now=now, pass_over_busy=True)
                if len(ids) < room:
                    break
                after = ids[-1]
            return done

        return self.change(retry, within)

    def purge_dead_letters(self, *, before: datetime, limit: int) -> int:
        """Move FAILED jobs that failed before *before* to the archive and drop their alerts."""

        def purge(session: Session) -> int:
            locked = session.rows(LOCK_OLD_DEAD_LETTERS, {"before": before, "limit": limit})
            ids = find_archivable(session, sorted(row[0] for row in locked))
            if ids:
                session.execute(DROP_ALERTS_OF, {"ids": ids})
                archive_jobs(session, ids, now=session.value(FIND_CLOCK))
            if len(ids) < limit and (
                old := session.rows(FIND_OLD_ALERTS, {"before": before, "limit": limit})
            ):
                session.execute(DROP_ALERTS, {"ids": sorted(alert_id for (alert_id,) in old)})
            return len(ids)

        return self.change(purge)

    def delete_dead_letters(
        self, where: JobFilter, *, limit: int, after: UUID | None = None, dry_run: bool = False
    ) -> tuple[int, UUID | None]:
        """Delete the next *limit* matching FAILED jobs, oldest first, but for those that something needs."""
        where.require_criterion("delete_dead_letters")

        def delete(session: Session) -> tuple[int, UUID | None]:
            ids = find_oldest(session, where, [JobStatus.FAILED], limit=limit, after=after)
            # one that somebody is changing at this moment is left alone
            locked = {} if dry_run else lock_jobs(session, ids, skip_locked=True)
            failed = ids if dry_run else [key for key in ids if _is_failed(locked.get(key))]
            gone = find_archivable(session, failed)
            for job_id in () if dry_run else gone:
                for statement in FORGET:
                    session.execute(statement, {"job_id": job_id})
            return len(gone), ids[-1] if len(ids) == limit else None

        return self.database.read(delete) if dry_run else self.change(delete, count=itemgetter(0))

    # --- tags -----------------------------------------------------------------------------------

    def tags_of(self, job_ids: Sequence[UUID]) -> Mapping[UUID, tuple[str, ...]]:
        """The tags of each job, sorted."""
        return self.database.read(lambda session: find_tags(session, job_ids))

    def tag_counts(self, *, limit: int = 100) -> dict[str, int]:
        """How many jobs carry each tag, most used first."""
        rows = self.database.read(lambda session: session.rows(COUNT_TAGS, {"limit": limit}))
        return {tag: int(jobs) for tag, jobs in rows}


def _replaced(answer: tuple[CanceledJob | None, object]) -> int:
    return 0 if answer[0] is None else 1


def _is_failed(job: LockedJob | None) -> bool:
    return job is not None and job.status is JobStatus.FAILED


def _cancel_waiting(session: Session, job_id: UUID, now: datetime) -> None:
    """Cancel the jobs that still wait for a job that is deleted, also those that its end alone would not have canceled."""
    ids = [child_id for (child_id,) in session.rows(FIND_WAITING_CHILDREN, {"job_id": job_id})]
    waiting = (
        [child for child in lock_jobs(session, ids).values() if child.status is JobStatus.WAITING]
        if ids
        else []
    )
    cancel_locked(session, [Cancellation(child, "parent_canceled") for child in waiting], now=now)
