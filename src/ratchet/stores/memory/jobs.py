"""Jobs in memory: insert, read, search, delete, tags, and bulk verbs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.clock import require_aware
from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.cursors import job_position
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy, SubmissionBlocked
from ratchet.model.job import Insertion, JobFilter, JobRecord, JobResultRow, JobSpec, Page, SortBy
from ratchet.model.status import AT_REST, JobStatus, Priority
from ratchet.stores.listing import Candidate, sorted_page
from ratchet.stores.memory.changes import Effects, change, outgoing, prioritize
from ratchet.stores.memory.finish import cancel, cancel_all
from ratchet.stores.memory.history import forget, is_needed
from ratchet.stores.memory.insertion import InsertCall, RunningHolder, replace_job, supersede
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import LockTimeout, Part, State, atomic
from ratchet.stores.memory.transitions import retry
from ratchet.stores.memory.values import check


class MemoryJobs(Part):
    """Jobs as such."""

    def insert(
        self,
        specs: Sequence[JobSpec],
        *,
        now: datetime,
        edges: Sequence[Edge] = (),
        batch: BatchSpec | None = None,
        within: object | None = None,
    ) -> list[Insertion]:
        check(now, "now")
        state, specs, edges = self._state, tuple(specs), tuple(edges)
        try:
            return state.run(
                lambda: InsertCall(state, Effects(), now=now).store(specs, edges=edges, batch=batch),
                within=within,
            )
        except RunningHolder as busy:
            holder = busy.holder
            # nothing of the call is stored, but the holder was asked to make room
            state.run(lambda: supersede(state, holder, now=now), within=within)
            raise BusinessKeyBusy(busy.key, holder) from None
        except LockTimeout as timeout:
            raise SubmissionBlocked(f"this submission was not stored: {timeout}") from timeout

    @atomic
    def get(self, job_id: UUID) -> JobRecord | None:
        row = self._state.jobs.get(job_id)
        return None if row is None else row.record()

    @atomic
    def results(self, job_ids: Sequence[UUID]) -> dict[UUID, JobResultRow]:
        rows = (self._state.jobs.get(job_id) for job_id in dict.fromkeys(job_ids))
        return {row.job_id: _result(row) for row in rows if row is not None}

    @atomic
    def find(
        self,
        where: JobFilter,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: SortBy = SortBy.CREATED,
        descending: bool = True,
    ) -> Page[JobRecord]:
        if sort is not SortBy.CREATED:
            return self._find_sorted(where, limit, cursor, sort, descending)
        rows = sorted(self._state.matching(where), key=lambda row: row.job_id.int, reverse=descending)
        if cursor is not None:
            last = job_position(cursor).int
            rows = [row for row in rows if (row.job_id.int < last if descending else row.job_id.int > last)]
        page = [row.record() for row in rows[:limit]]
        return Page(page, str(page[-1].job_id) if page and len(rows) > limit else None)

    def _find_sorted(
        self, where: JobFilter, limit: int, cursor: str | None, sort: SortBy, descending: bool
    ) -> Page[JobRecord]:
        def newest(top: UUID | None, most: int) -> list[Candidate]:
            rows = [row for row in self._state.matching(where) if top is None or row.job_id.int <= top.int]
            rows.sort(key=lambda row: row.job_id.int, reverse=True)
            keys: dict[SortBy, Callable[[Row], datetime | int | None]] = {
                SortBy.SCHEDULED: lambda row: row.due_at,
                SortBy.FINISHED: lambda row: row.finished_at,
                SortBy.PRIORITY: lambda row: int(row.spec.priority),
            }
            return [Candidate(row.job_id, keys[sort](row)) for row in rows[:most]]

        ids, following = sorted_page(newest, sort, descending=descending, limit=limit, cursor=cursor)
        return Page([self._state.jobs[job_id].record() for job_id in ids], following)

    @atomic
    def count(self, where: JobFilter, *, at_most: int | None = None) -> int:
        found = len(self._state.matching(where))
        return found if at_most is None else min(found, at_most)

    @atomic
    def counts(self) -> dict[JobStatus, int]:
        return {status: self._state.by_status.size(status) for status in JobStatus}

    def delete(self, job_id: UUID) -> bool:
        now = self._state.database_time()  # the contract gives no other; nothing is decided by it
        return self._state.run(lambda: _delete(self._state, job_id, now))

    @atomic
    def reschedule(self, job_id: UUID, at: datetime, *, now: datetime, within: object | None = None) -> bool:
        row = self._state.jobs.get(job_id)
        if row is None or row.status not in AT_REST:
            return False
        after = change(self._state, row, Effects(), now=now, scheduled_at=require_aware(at, "the new time"))
        if after.status is JobStatus.PENDING and after.due_at < now:
            self._state.backdated(after.stream_id)
        return True

    @atomic
    def set_priority(
        self, job_id: UUID, priority: Priority, *, now: datetime, within: object | None = None
    ) -> bool:
        row = self._state.jobs.get(job_id)
        if row is None or row.status not in AT_REST:
            return False
        prioritize(self._state, row, priority, now=now)
        if row.status is JobStatus.PENDING:
            self._state.backdated(row.stream_id)
        return True

    @atomic
    def replace(
        self, job_id: UUID, spec: JobSpec, *, now: datetime, within: object | None = None
    ) -> CanceledJob | None:
        return replace_job(self._state, job_id, spec, now=now)

    # --- bulk verbs -----------------------------------------------------------------------------

    @atomic
    def cancel_matching(
        self, where: JobFilter, *, limit: int, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        where.require_criterion("cancel_matching")
        live = [row for row in _oldest(self._state.matching(where)) if not row.status.is_terminal]
        return cancel_all(self._state, live[:limit], reason=reason, now=now)

    @atomic
    def retry_matching(
        self, where: JobFilter, *, limit: int, now: datetime, within: object | None = None
    ) -> list[UUID]:
        where.require_criterion("retry_matching")
        retried: list[UUID] = []
        for row in _oldest(self._state.matching(where)):
            if (
                len(retried) < limit
                and row.status is JobStatus.FAILED
                and _retried(self._state, row.job_id, now)
            ):
                retried.append(row.job_id)
        return retried

    def purge_dead_letters(self, *, before: datetime, limit: int) -> int:
        now = self._state.database_time()
        return self._state.run(lambda: _archive_dead_letters(self._state, before, limit, now))

    @atomic
    def delete_dead_letters(
        self, where: JobFilter, *, limit: int, after: UUID | None = None, dry_run: bool = False
    ) -> tuple[int, UUID | None]:
        where.require_criterion("delete_dead_letters")
        state = self._state
        failed = [row for row in _oldest(state.matching(where)) if row.status is JobStatus.FAILED]
        looked_at = [row for row in failed if after is None or row.job_id.int > after.int][:limit]
        gone = [row.job_id for row in looked_at if not is_needed(state, row)]
        for job_id in () if dry_run else gone:
            forget(state, job_id)
        return len(gone), looked_at[-1].job_id if len(looked_at) == limit else None

    # --- tags -----------------------------------------------------------------------------------

    @atomic
    def tags_of(self, job_ids: Sequence[UUID]) -> Mapping[UUID, tuple[str, ...]]:
        rows = (self._state.jobs.get(job_id) for job_id in dict.fromkeys(job_ids))
        return {row.job_id: row.tags for row in rows if row is not None and row.tags}

    @atomic
    def tag_counts(self, *, limit: int = 100) -> dict[str, int]:
        counts: dict[str, int] = {}
        for row in self._state.jobs.values():
            for tag in row.tags:
                counts[tag] = counts.get(tag, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit])


def _delete(state: State, job_id: UUID, now: datetime) -> bool:
    row = state.jobs.get(job_id)
    if row is None or row.status is JobStatus.RUNNING:
        return False
    if row.ended_as is None:
        cancel(state, row, Effects(), reason="deleted", now=now)
    children = (state.jobs.get(edge.child_id) for edge in outgoing(state, job_id))
    waiting = [child for child in children if child is not None and child.status is JobStatus.WAITING]
    cancel_all(state, waiting, reason="parent_canceled", now=now)  # also who waits for another parent
    forget(state, job_id)
    return True


def _archive_dead_letters(state: State, before: datetime, limit: int, now: datetime) -> int:
    effects, moved = Effects(), 0
    rows = [state.jobs[job_id] for job_id in state.by_status.of(JobStatus.FAILED)]
    letters = [(row.dead_lettered_at, row) for row in rows if row.dead_lettered_at is not None]
    for failed_at, row in sorted(letters, key=lambda letter: (letter[0], letter[1].job_id.int)):
        if moved == limit or failed_at >= before:
            break
        if not is_needed(state, row):
            change(state, row, effects, now=now, archived_at=now)
            for alert_id in state.alerts_of.of(row.job_id):
                if not state.alerts[alert_id].suppressed:
                    state.alerts.remove(alert_id)
            moved += 1
    if moved < limit:  # an alert that counts others goes when all of them have gone
        for alert in state.alerts.values():
            if alert.created_at < before:
                state.alerts.remove(alert.alert_id)
    return moved


def _retried(state: State, job_id: UUID, now: datetime) -> bool:
    try:
        return state.run(lambda: retry(state, job_id, now=now))
    except BusinessKeyBusy:
        return False


def _oldest(rows: list[Row]) -> list[Row]:
    return sorted((row for row in rows if row.archived_at is None), key=lambda row: row.job_id.int)


def _result(row: Row) -> JobResultRow:
    if not row.status.is_terminal:
        return JobResultRow(job_id=row.job_id, status=row.status)
    return JobResultRow(
        job_id=row.job_id,
        status=row.status,
        result=row.result,
        result_truncated=row.result_truncated,
        error=row.error,
        error_type=row.error_type,
        canceled_reason=row.canceled_reason,
    )
