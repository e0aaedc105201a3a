"""Searching jobs: a `JobFilter` as a WHERE clause over live jobs, and the same over the archive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobFilter, JobRecord, Page
from ratchet.model.status import HOT, JobStatus
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.rows.records import (
    ARCHIVED_COLUMNS,
    ARCHIVED_JOBS,
    LIVE_COLUMNS,
    LIVE_JOBS,
    NODE,
    STREAM_ID,
    find_tags,
    record_of,
)
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

HELD = frozenset({JobStatus.PAUSED, JobStatus.WAITING})

# Each table has its own jobs (ended, held, hot), so nothing is counted twice.
COUNT_BY_STATUS = """
    SELECT status, count(*) AS jobs FROM scheduler_job_queue GROUP BY status
    UNION ALL
    SELECT status, count(*) AS jobs FROM scheduler_job WHERE status <> 'PENDING' GROUP BY status
"""


class Criteria:
    """The conditions of a filter and what they bind, for live jobs or for the archive."""

    def __init__(self, where: JobFilter, *, archived: bool) -> None:
        self.archived = archived
        self.conditions: list[str] = []
        self.binds: dict[str, Any] = {}
        self._add_statuses(where.statuses)
        self._add_columns(where)
        self._add_times(where)

    @property
    def text(self) -> str:
        """All conditions."""
        return " AND ".join(self.conditions) or "true"

    def add(self, condition: str, **binds: object) -> None:
        """One more condition."""
        self.conditions.append(condition)
        self.binds.update(binds)

    def _add_statuses(self, statuses: Iterable[JobStatus] | None) -> None:
        if statuses is None:
            return
        wanted = {JobStatus(status) for status in statuses}
        hot = sorted(status.value for status in wanted & HOT)
        cold = sorted(status.value for status in wanted - HOT)
        if self.archived or not hot:
            self.add("j.status {in cold text}", cold=cold)
            # in the words of the partial indexes, so that they are used
            if wanted and wanted <= HELD:
                self.add("j.held_at IS NOT NULL")
            elif wanted == {JobStatus.FAILED}:
                self.add("j.dead_lettered_at IS NOT NULL")
        elif cold:
            self.add("(q.status {in hot text} OR j.status {in cold text})", hot=hot, cold=cold)
        else:
            self.add("q.status {in hot text}", hot=hot)

    def _add_columns(self, where: JobFilter) -> None:
        for index, tag in enumerate(dict.fromkeys(where.tags or ())):
            tagged = f"SELECT 1 FROM scheduler_job_tag t WHERE t.job_id = j.job_id AND t.tag = :tag_{index}"
            self.add(f"EXISTS ({tagged})", **{f"tag_{index}": tag})
        if where.targets is not None:
            self.add("j.target {in targets text}", targets=list(where.targets))
        if where.queue is not None:
            streams = "SELECT s.stream_id FROM scheduler_stream s WHERE s.queue = :queue"
            self.add(f"j.stream_id IN ({streams})", queue=where.queue)
        if where.types is not None:
            self.add("j.job_type {in types text}", types=[one.value for one in where.types])
        if where.priorities is not None:
            self.add("j.priority {in priorities int}", priorities=[int(one) for one in where.priorities])
        for name in ("business_key", "batch_id", "parent_id", "schedule"):
            if (value := getattr(where, name)) is not None:
                self.add(f"j.{name} = :{name}", **{name: value})
        if where.node_id is not None:
            node = "j.node_id" if self.archived else NODE
            self.add(f"{node} = :node_id", node_id=where.node_id)
        if where.error_contains is not None:
            self.add("{instr}(j.error, :error_contains) > 0", error_contains=where.error_contains)

    def _add_times(self, where: JobFilter) -> None:
        due = "j.scheduled_at" if self.archived else "coalesce(q.scheduled_time, j.scheduled_at)"
        for column, name in (("j.created_at", "created"), (due, "scheduled")):
            if (after := getattr(where, f"{name}_after")) is not None:
                self.add(f"{column} >= :{name}_after", **{f"{name}_after": after})
            if (before := getattr(where, f"{name}_before")) is not None:
                self.add(f"{column} < :{name}_before", **{f"{name}_before": before})


def find_page(
    session: Session, streams: StreamRegistry, where: JobFilter, *, limit: int, cursor: str | None
) -> Page[JobRecord]:
    """One page of matching jobs, newest id first."""
    after = None if cursor is None else _read_cursor(cursor)
    found = [(row, False) for row in _rows(session, where, limit + 1, after, archived=False)]
    if where.include_archived:
        found += [(row, True) for row in _rows(session, where, limit + 1, after, archived=True)]
        found.sort(key=lambda one: one[0][0], reverse=True)
    page = found[:limit]
    tags = find_tags(session, [row[0] for row, _ in page])
    keys = {
        stream_id: streams.recorded_key(stream_id, session)
        for stream_id in {row[STREAM_ID] for row, _ in page}
    }
    records = [record_of(row, keys[row[STREAM_ID]], tags.get(row[0], ()), archived=old) for row, old in page]
    return Page(records, str(page[-1][0][0]) if page and len(found) > limit else None)


def count_matching(session: Session, where: JobFilter) -> int:
    """How many jobs match."""
    total = 0
    for archived in (False, True) if where.include_archived else (False,):
        criteria = Criteria(where, archived=archived)
        source = ARCHIVED_JOBS if archived else LIVE_JOBS
        total += int(
            session.value(f"SELECT count(*) AS jobs FROM {source} WHERE {criteria.text}", criteria.binds)
        )
    return total


def find_oldest(
    session: Session,
    where: JobFilter,
    statuses: Iterable[JobStatus],
    *,
    limit: int,
    after: UUID | None = None,
) -> list[UUID]:
    """The ids of matching live jobs in one of *statuses*, oldest first, beginning after *after*."""
    wanted = set(statuses)
    if where.statuses is not None:
        wanted &= {JobStatus(status) for status in where.statuses}
    criteria = Criteria(replace(where, statuses=sorted(wanted)), archived=False)
    if after is not None:
        criteria.add("j.job_id > :after", after=after)
    sql = f"SELECT j.job_id FROM {LIVE_JOBS} WHERE {criteria.text} ORDER BY j.job_id LIMIT :limit"
    return [job_id for (job_id,) in session.rows(sql, {**criteria.binds, "limit": limit})]


def count_by_status(session: Session) -> dict[JobStatus, int]:
    """How many jobs are in each status; every status is a key."""
    counts = dict.fromkeys(JobStatus, 0)
    for status, jobs in session.rows(COUNT_BY_STATUS):
        counts[JobStatus(status)] += int(jobs)
    return counts


def _rows(session: Session, where: JobFilter, limit: int, after: UUID | None, *, archived: bool) -> list[Row]:
    criteria = Criteria(where, archived=archived)
    if after is not None:
        criteria.add("j.job_id < :after", after=after)
    columns, source = (ARCHIVED_COLUMNS, ARCHIVED_JOBS) if archived else (LIVE_COLUMNS, LIVE_JOBS)
    sql = f"SELECT {columns} FROM {source} WHERE {criteria.text} ORDER BY j.job_id DESC LIMIT :limit"
    return session.rows(sql, {**criteria.binds, "limit": limit})


def _read_cursor(cursor: str) -> UUID:
    try:
        return UUID(cursor)
    except ValueError:
        raise InvalidJob(f"{cursor!r} is not a cursor; pass on the next_cursor of the page before") from None
