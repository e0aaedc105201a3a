"""Searching jobs: a `JobFilter` as a WHERE clause over live jobs, and the same over the archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from ratchet.model.cursors import job_position
from ratchet.model.job import JobFilter, JobRecord, Page, SortBy, id_bounds
from ratchet.model.places import WITH_KEYS, WITH_KEYS_AND_TARGET
from ratchet.model.status import HOT, JobStatus
from ratchet.stores.listing import (
    HELD,
    LOOKED_AT,
    STRETCHES,
    Candidate,
    has_few,
    is_walk,
    match_of,
    sorted_page,
    statuses_of,
    walk,
    walked_page,
)
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.rows.records import (
    ARCHIVED_JOBS,
    FIND_ARCHIVED_JOBS,
    FIND_JOBS,
    HOT_JOBS,
    LIVE_JOBS,
    NODE,
    STREAM_ID,
    find_tags,
    record_of,
)
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

#: At a place with a target; keys alone are not what a job is parked for (`ratchet.model.places`).
PARKED = "(s.parked_target NOT LIKE :with_keys OR s.parked_target LIKE :with_both)"

_WAITING = frozenset({JobStatus.PENDING})

# Each table has its own jobs (ended, held, hot), so nothing is counted twice.
COUNT_BY_STATUS = """
    SELECT status, count(*) AS jobs FROM scheduler_job_queue GROUP BY status
    UNION ALL
    SELECT status, count(*) AS jobs FROM scheduler_job WHERE status <> 'PENDING' GROUP BY status
"""


class Criteria:
    """
    The conditions of a filter and what they bind, for live jobs or for the archive.

    They hold for the tables in ``source``, of which ``table`` is read in the order of ``key``, the job's id. *streams*: those
    of the queue, if they are known; a product may look for them again with each job.
    """

    def __init__(self, where: JobFilter, *, archived: bool, streams: Sequence[int] | None = None) -> None:
        self.archived = archived
        self._streams = streams
        wanted = statuses_of(where)
        self.is_hot = not archived and bool(wanted) and (wanted or HOT) <= HOT
        self.table = (
            "scheduler_job_archive" if archived else "scheduler_job_queue" if self.is_hot else "scheduler_job"
        )
        self.source = ARCHIVED_JOBS if archived else HOT_JOBS if self.is_hot else LIVE_JOBS
        self.key = "q.job_id" if self.is_hot else "j.job_id"
        self._few = not archived and not where.tags and has_few(wanted)
        self.conditions: list[str] = []
        self.binds: dict[str, Any] = {}
        self._add_statuses(where.statuses)
        self._add_columns(where)
        self._add_times(where)

    @property
    def order(self) -> str:
        """What to sort by: where few jobs match, they are found by their own index and sorted, and not the other way around."""
        return f"{{unindexed}}({self.key})" if self._few else self.key

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
            if wanted == {JobStatus.RUNNING}:
                self.add("q.picked_by IS NOT NULL")

    def _add_columns(self, where: JobFilter) -> None:
        first, *others = dict.fromkeys(where.tags or ()) or [None]
        if first is not None:
            # In the order of the tag's jobs, so that a page reads no more of them than it has.
            jobs, left, queue = self.source.partition(" LEFT JOIN ")
            self.source = f"{jobs} JOIN scheduler_job_tag t ON t.job_id = j.job_id{left}{queue}"
            self.add("t.tag = :tag", tag=first)
            self.key = "t.job_id"
        for index, tag in enumerate(others):
            tagged = f"SELECT 1 FROM scheduler_job_tag o WHERE o.job_id = j.job_id AND o.tag = :tag_{index}"
            self.add(f"EXISTS ({tagged})", **{f"tag_{index}": tag})
        if where.targets is not None:
            self.add("j.target {in targets text}", targets=list(where.targets))
        if where.queue is not None:
            streams = "SELECT s.stream_id FROM scheduler_stream s WHERE s.queue = :queue"
            column = f"{'q' if self.is_hot else 'j'}.stream_id"
            if self._streams is None:
                self.add(f"{column} IN ({streams})", queue=where.queue)
            else:
                self.add(f"{column} {{in streams int}}", streams=list(self._streams))
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
        if where.error_type is not None:
            self.add("coalesce(j.error_type, '') = :error_type", error_type=where.error_type)
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
        streams = f"SELECT s.stream_id FROM scheduler_stream s WHERE {PARKED}"
        places = {"with_keys": WITH_KEYS, "with_both": WITH_KEYS_AND_TARGET}
        if parked:
            self.add(f"q.status = 'PENDING' AND q.stream_id IN ({streams})", **places)
        else:
            self.add(
                f"(q.status IS NULL OR q.status <> 'PENDING' OR q.stream_id NOT IN ({streams}))", **places
            )

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

    known = None if where.queue is None else _streams_of(session, where.queue)
    if known == []:
        return Page([])  # nobody ever used this queue

    def read(after: UUID | None, end: UUID | None, most: int) -> list[UUID]:
        found = [
            job_id
            for archived in _places(where)
            for job_id in _ids(
                session, where, known, most, after, end, archived=archived, descending=descending
            )
        ]
        return sorted(found, reverse=descending)[:most]

    if _is_walk(where):
        ids, following = walked_page(
            lambda after, size: _end_of(session, where, after, size, descending=descending),
            read,
            lambda one: one,
            limit=limit,
            after=after,
        )
        return Page(_records(session, streams, ids, _places(where)), following)
    ids = read(after, None, limit + 1)
    following = str(ids[limit - 1]) if limit and len(ids) > limit else None
    return Page(_records(session, streams, ids[:limit], _places(where)), following)


def _is_walk(where: JobFilter) -> bool:
    """True if jobs are found by looking at one after the other. The queue has nothing but PENDING and RUNNING ones."""
    hot_alone = (statuses_of(where) or frozenset()) == HOT or statuses_of(where) == _WAITING
    return is_walk(where) and not (hot_alone and replace(where, statuses=None).is_empty)


def _streams_of(session: Session, queue: str) -> list[int]:
    sql = "SELECT s.stream_id FROM scheduler_stream s WHERE s.queue = :queue"
    return [stream_id for (stream_id,) in session.rows(sql, {"queue": queue})]


def _end_of(
    session: Session, where: JobFilter, after: UUID | None, size: int, *, descending: bool
) -> UUID | None:
    """The id that is so many jobs behind *after*, by the tables in which jobs are looked for; None: none has as many."""
    ends: list[UUID] = []
    first_id, last_id = id_bounds(where)
    for archived in _places(where):
        conditions, binds = ["true"], dict[str, Any](size=size - 1)
        for sign, bound in ((">=", first_id), ("<=", last_id), ("<" if descending else ">", after)):
            if bound is not None:
                conditions.append(f"job_id {sign} :bound_{len(binds)}")
                binds[f"bound_{len(binds)}"] = bound
        sql = f"""
            SELECT job_id FROM {Criteria(where, archived=archived).table}
             WHERE {" AND ".join(conditions)}
             ORDER BY job_id {"DESC" if descending else "ASC"}
             LIMIT 1 OFFSET :size
        """
        ends += [row[0] for row in session.rows(sql, binds)]
    return max(ends) if descending and ends else min(ends, default=None)


def _places(where: JobFilter) -> tuple[bool, ...]:
    """Where to look: False is the live jobs, True the archive."""
    return (False, True) if where.include_archived else (False,)


def _as_records(
    session: Session, streams: StreamRegistry, page: Sequence[tuple[Row, bool]]
) -> list[JobRecord]:
    tags = find_tags(session, [row[0] for row, _ in page])
    keys = streams.recorded_keys([row[STREAM_ID] for row, _ in page], session)
    return [record_of(row, keys[row[STREAM_ID]], tags.get(row[0], ()), archived=old) for row, old in page]


def _records(
    session: Session, streams: StreamRegistry, ids: Sequence[UUID], places: Sequence[bool] = (False, True)
) -> list[JobRecord]:
    """These jobs, in this order; one that was deleted meanwhile is left out."""
    if not ids:
        return []
    found = {
        row[0]: (row, archived)
        for archived, sql in ((True, FIND_ARCHIVED_JOBS), (False, FIND_JOBS))  # one that is moving is live
        if archived in places
        for row in session.rows(sql, {"ids": list(ids)})
    }
    return _as_records(session, streams, [found[job_id] for job_id in ids if job_id in found])


def _newest(session: Session, where: JobFilter, sort: SortBy, top: UUID | None, most: int) -> list[Candidate]:
    match = match_of(where)
    found: list[Row] = []
    last = _end_of(session, where, top, sum(STRETCHES), descending=True) if _is_walk(where) else None
    for archived in _places(where):
        criteria = Criteria(where, archived=archived)
        if top is not None:
            criteria.add("j.job_id <= :top", top=top)
        if last is not None:
            criteria.add("j.job_id >= :last", last=last)
        due = "j.scheduled_at" if archived else "coalesce(q.scheduled_time, j.scheduled_at)"
        # under names of columns, by which values are read
        key = {
            SortBy.SCHEDULED: f"{due} AS scheduled_at",
            SortBy.FINISHED: "j.finished_at",
            SortBy.PRIORITY: "j.priority",
        }[sort]
        sql = f"""
            SELECT j.job_id, {key}{", j.payload, j.params" if match else ""}
              FROM {criteria.source}
             WHERE {criteria.text}
             ORDER BY {criteria.order} DESC
             LIMIT :limit
        """
        found += session.rows(sql, {**criteria.binds, "limit": most})
    found.sort(key=lambda row: row[0], reverse=True)
    return [Candidate(row[0], row[1]) for row in found[:most] if match is None or match(row[2], row[3])]


def _payloads(
    session: Session, where: JobFilter, limit: int, after: UUID | None, *, descending: bool
) -> list[tuple[UUID, str, str | None]]:
    """(id, payload, params) of the next jobs that meet the other criteria, in the order of their ids."""
    found: list[tuple[UUID, str, str | None]] = []
    for archived in _places(where):
        criteria = Criteria(where, archived=archived)
        if after is not None:
            criteria.add(f"j.job_id {'<' if descending else '>'} :after", after=after)
        sql = f"""
            SELECT j.job_id, j.payload, j.params
              FROM {criteria.source}
             WHERE {criteria.text}
             ORDER BY {criteria.order} {"DESC" if descending else "ASC"}
             LIMIT :limit
        """
        found += [(row[0], row[1], row[2]) for row in session.rows(sql, {**criteria.binds, "limit": limit})]
    found.sort(key=lambda one: one[0], reverse=descending)
    return found[:limit]


def count_matching(session: Session, where: JobFilter, at_most: int | None = None) -> int:
    """
    How many jobs match; counting ends at *at_most*.

    With ``args`` or ``trace_id`` every job that meets the other criteria is read.
    """
    match = match_of(where)
    if match is not None:

        def read(after: UUID | None, most: int) -> list[tuple[UUID, str, str | None]]:
            return _payloads(session, where, most, after, descending=False)

        return len(walk(read, match, limit=-1 if at_most is None else at_most, after=None, most=None)[0])
    total = 0
    for archived in _places(where):
        criteria = Criteria(where, archived=archived)
        # Where the queue's own columns say it all, its jobs need not be looked up one by one.
        alone = criteria.source == HOT_JOBS and "j." not in criteria.text
        source = "scheduler_job_queue q" if alone else criteria.source
        found = f"FROM {source} WHERE {criteria.text}"
        if at_most is None:
            total += int(session.value(f"SELECT count(*) AS jobs {found}", criteria.binds))
        elif total < at_most:
            some = f"SELECT count(*) AS jobs FROM (SELECT {criteria.key} {found} LIMIT :at_most) matching"
            total += int(session.value(some, {**criteria.binds, "at_most": at_most - total}))
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

        def read(last: UUID | None, most: int) -> list[tuple[UUID, str, str | None]]:
            return _payloads(session, where, most, last, descending=False)

        return walk(read, match, limit=limit, after=after, most=None)[0] if limit > 0 else []
    criteria = Criteria(where, archived=False)
    if after is not None:
        criteria.add("j.job_id > :after", after=after)
    sql = (
        f"SELECT j.job_id FROM {criteria.source} WHERE {criteria.text} ORDER BY {criteria.order} LIMIT :limit"
    )
    return [job_id for (job_id,) in session.rows(sql, {**criteria.binds, "limit": limit})]


def count_by_status(session: Session) -> dict[JobStatus, int]:
    """How many jobs are in each status; every status is a key."""
    counts = dict.fromkeys(JobStatus, 0)
    for status, jobs in session.rows(COUNT_BY_STATUS):
        if status in counts:  # a word that nobody knows is counted nowhere
            counts[JobStatus(status)] += int(jobs)
    return counts


def _ids(
    session: Session,
    where: JobFilter,
    streams: Sequence[int] | None,
    limit: int,
    after: UUID | None,
    end: UUID | None,
    *,
    archived: bool,
    descending: bool,
) -> list[UUID]:
    """
    The ids of jobs after an id, up to another, which is included.

    The jobs themselves are read by these: a product then leaves out tables that no condition names, and joins the queue to the
    jobs of a page and not to all of them.
    """
    criteria = Criteria(where, archived=archived, streams=streams)
    key = criteria.key
    if after is not None:
        criteria.add(f"{key} {'<' if descending else '>'} :after", after=after)
    if end is not None:
        criteria.add(f"{key} {'>=' if descending else '<='} :end", end=end)
    order = "DESC" if descending else "ASC"
    sql = f"SELECT {key} FROM {criteria.source} WHERE {criteria.text} ORDER BY {criteria.order} {order} LIMIT :limit"
    return [job_id for (job_id,) in session.rows(sql, {**criteria.binds, "limit": limit})]
