"""Searching jobs: a `JobFilter` as a WHERE clause over live jobs, and the same over the archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from ratchet.model.cursors import job_position
from ratchet.model.job import JobFilter, JobRecord, Page, SortBy, id_bounds
from ratchet.model.status import HOT, JobStatus
from ratchet.stores.listing import LOOKED_AT, Candidate, match_of, sorted_page, walk
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.rows.records import (
    ARCHIVED_COLUMNS,
    ARCHIVED_JOBS,
    FIND_ARCHIVED_JOBS,
    FIND_JOBS,
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
        for name in ("business_key", "batch_id", "parent_id", "schedule", "caller", "superseded_by"):
            if (value := getattr(where, name)) is not None:
                self.add(f"j.{name} = :{name}", **{name: value})
        if where.node_id is not None:
            node = "j.node_id" if self.archived else NODE
            self.add(f"{node} = :node_id", node_id=where.node_id)
        if where.error_contains is not None:
            self.add("{instr}(j.error, :error_contains) > 0", error_contains=where.error_contains)
        if where.parked is not None:
            self._add_parked(where.parked)
        if where.truncated is not None:
            self.add("j.result_truncated = :truncated", truncated=where.truncated)
        first_id, last_id = id_bounds(where)
        if first_id is not None:
            self.add("j.job_id >= :first_id", first_id=first_id)
        if last_id is not None:
            self.add("j.job_id <= :last_id", last_id=last_id)

    def _add_parked(self, parked: bool) -> None:
        if self.archived:
            self.add("1 = 0" if parked else "1 = 1")
            return
        streams = "SELECT s.stream_id FROM scheduler_stream s WHERE s.parked_target IS NOT NULL"
        if parked:
            self.add(f"q.status = 'PENDING' AND q.stream_id IN ({streams})")
        else:
            self.add(f"(q.status IS NULL OR q.status <> 'PENDING' OR q.stream_id NOT IN ({streams}))")

    def _add_times(self, where: JobFilter) -> None:
        due = "j.scheduled_at" if self.archived else "coalesce(q.scheduled_time, j.scheduled_at)"
        for column, name in (("j.created_at", "created"), (due, "scheduled")):
            if (after := getattr(where, f"{name}_after")) is not None:
                self.add(f"{column} >= :{name}_after", **{f"{name}_after": after})
            if (before := getattr(where, f"{name}_before")) is not None:
                self.add(f"{column} < :{name}_before", **{f"{name}_before": before})


def find_page(
    session: Session,
    streams: StreamRegistry,
    where: JobFilter,
    *,
    limit: int,
    cursor: str | None,
    sort: SortBy,
    descending: bool,
) -> Page[JobRecord]:
    """One page of matching jobs; CREATED is the order of their ids."""
    if sort is not SortBy.CREATED:
        ids, following = sorted_page(
            lambda top, most: _newest(session, where, sort, top, most),
            sort,
            descending=descending,
            limit=limit,
            cursor=cursor,
        )
        return Page(_records(session, streams, ids), following)
    after = None if cursor is None else job_position(cursor)
    match = match_of(where)
    if match is not None:
        ids, last = walk(
            lambda last, most: _payloads(session, where, most, last, descending=descending),
            match,
            limit=limit,
            after=after,
            most=LOOKED_AT,
        )
        return Page(_records(session, streams, ids), None if last is None else str(last))
    found = [
        (row, archived)
        for archived in _places(where)
        for row in _rows(session, where, limit + 1, after, archived=archived, descending=descending)
    ]
    found.sort(key=lambda one: one[0][0], reverse=descending)
    page = found[:limit]
    return Page(
        _as_records(session, streams, page), str(page[-1][0][0]) if page and len(found) > limit else None
    )


def _places(where: JobFilter) -> tuple[bool, ...]:
    """Where to look: False is the live jobs, True the archive."""
    return (False, True) if where.include_archived else (False,)


def _as_records(
    session: Session, streams: StreamRegistry, page: Sequence[tuple[Row, bool]]
) -> list[JobRecord]:
    tags = find_tags(session, [row[0] for row, _ in page])
    keys = {
        stream_id: streams.recorded_key(stream_id, session)
        for stream_id in {row[STREAM_ID] for row, _ in page}
    }
    return [record_of(row, keys[row[STREAM_ID]], tags.get(row[0], ()), archived=old) for row, old in page]


def _records(session: Session, streams: StreamRegistry, ids: Sequence[UUID]) -> list[JobRecord]:
    """These jobs, in this order; one that was deleted meanwhile is left out."""
    if not ids:
        return []
    found = {
        row[0]: (row, archived)
        for archived, sql in ((True, FIND_ARCHIVED_JOBS), (False, FIND_JOBS))  # one that is moving is live
        for row in session.rows(sql, {"ids": list(ids)})
    }
    return _as_records(session, streams, [found[job_id] for job_id in ids if job_id in found])


def _newest(session: Session, where: JobFilter, sort: SortBy, top: UUID | None, most: int) -> list[Candidate]:
    match = match_of(where)
    found: list[Row] = []
    for archived in _places(where):
        criteria = Criteria(where, archived=archived)
        if top is not None:
            criteria.add("j.job_id <= :top", top=top)
        due = "j.scheduled_at" if archived else "coalesce(q.scheduled_time, j.scheduled_at)"
        # under names of columns, by which values are read
        key = {
            SortBy.SCHEDULED: f"{due} AS scheduled_at",
            SortBy.FINISHED: "j.finished_at",
            SortBy.PRIORITY: "j.priority",
        }[sort]
        sql = f"""
            SELECT j.job_id, {key}{", j.payload" if match else ""}
              FROM {ARCHIVED_JOBS if archived else LIVE_JOBS}
             WHERE {criteria.text}
             ORDER BY j.job_id DESC
             LIMIT :limit
        """
        found += session.rows(sql, {**criteria.binds, "limit": most})
    found.sort(key=lambda row: row[0], reverse=True)
    return [Candidate(row[0], row[1]) for row in found[:most] if match is None or match(row[2])]


def _payloads(
    session: Session, where: JobFilter, limit: int, after: UUID | None, *, descending: bool
) -> list[tuple[UUID, str]]:
    """(id, payload) of the next jobs that meet the other criteria, in the order of their ids."""
    found: list[tuple[UUID, str]] = []
    for archived in _places(where):
        criteria = Criteria(where, archived=archived)
        if after is not None:
            criteria.add(f"j.job_id {'<' if descending else '>'} :after", after=after)
        source = ARCHIVED_JOBS if archived else LIVE_JOBS
        sql = f"""
            SELECT j.job_id, j.payload
              FROM {source}
             WHERE {criteria.text}
             ORDER BY j.job_id {"DESC" if descending else "ASC"}
             LIMIT :limit
        """
        found += [(row[0], row[1]) for row in session.rows(sql, {**criteria.binds, "limit": limit})]
    found.sort(key=lambda one: one[0], reverse=descending)
    return found[:limit]


def count_matching(session: Session, where: JobFilter) -> int:
    """How many jobs match. With ``args`` every job that meets the other criteria is read."""
    match = match_of(where)
    if match is not None:

        def read(after: UUID | None, most: int) -> list[tuple[UUID, str]]:
            return _payloads(session, where, most, after, descending=False)

        return len(walk(read, match, limit=-1, after=None, most=None)[0])
    total = 0
    for archived in _places(where):
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
    where = replace(where, statuses=sorted(wanted), include_archived=False)
    match = match_of(where)
    if match is not None:

        def read(last: UUID | None, most: int) -> list[tuple[UUID, str]]:
            return _payloads(session, where, most, last, descending=False)

        return walk(read, match, limit=limit, after=after, most=None)[0] if limit > 0 else []
    criteria = Criteria(where, archived=False)
    if after is not None:
        criteria.add("j.job_id > :after", after=after)
    sql = f"SELECT j.job_id FROM {LIVE_JOBS} WHERE {criteria.text} ORDER BY j.job_id LIMIT :limit"
    return [job_id for (job_id,) in session.rows(sql, {**criteria.binds, "limit": limit})]


def count_by_status(session: Session) -> dict[JobStatus, int]:
    """How many jobs are in each status; every status is a key."""
    counts = dict.fromkeys(JobStatus, 0)
    for status, jobs in session.rows(COUNT_BY_STATUS):
        if status in counts:  # a word that nobody knows is counted nowhere
            counts[JobStatus(status)] += int(jobs)
    return counts


def _rows(
    session: Session,
    where: JobFilter,
    limit: int,
    after: UUID | None,
    *,
    archived: bool,
    descending: bool,
) -> list[Row]:
    criteria = Criteria(where, archived=archived)
    if after is not None:
        criteria.add(f"j.job_id {'<' if descending else '>'} :after", after=after)
    columns, source = (ARCHIVED_COLUMNS, ARCHIVED_JOBS) if archived else (LIVE_COLUMNS, LIVE_JOBS)
    order = "DESC" if descending else "ASC"
    sql = f"SELECT {columns} FROM {source} WHERE {criteria.text} ORDER BY j.job_id {order} LIMIT :limit"
    return session.rows(sql, {**criteria.binds, "limit": limit})
