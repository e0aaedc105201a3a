"""
Jobs that no claim reaches, because of what stands in their queue rows: named by `health`, explained by `explain`.

A claim looks at each stream and each of its priorities, from the first due time on. What is beside these is found in the
gaps of the same index: a few looks for each stream, however many jobs wait.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from ratchet.model.cluster import UnreadableRow
from ratchet.stores.levels import PRIORITIES
from ratchet.stores.sql.database import Session
from ratchet.stores.unreadable import MOST_NAMED, Unread, named_job, shown

_TABLE: Final = "scheduler_job_queue"
_FIRST, _LAST = int(min(PRIORITIES)), int(max(PRIORITIES))
_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def _probe(where: str) -> str:
    # A scalar subquery in the order of the index: no planner turns it into a join that reads the whole backlog.
    return f"""(SELECT q.job_id FROM scheduler_job_queue q WHERE {where} AND q.status = 'PENDING'
                 ORDER BY q.stream_id, q.priority, q.scheduled_time LIMIT 1)"""


_BESIDE_PRIORITIES = [
    f"q.priority < {_FIRST}",
    *(f"q.priority > {one} AND q.priority < {one + 1}" for one in range(_FIRST, _LAST)),
    f"q.priority > {_LAST}",
]
_BESIDE_TIMES = [
    f"q.priority = {int(one)} AND q.scheduled_time {beyond}"
    for one in PRIORITIES
    for beyond in ("< :earliest", "> :latest")
]
_PROBES = [
    *(_probe(f"q.stream_id = s.stream_id AND {beside}") for beside in (*_BESIDE_PRIORITIES, *_BESIDE_TIMES)),
    _probe(
        """q.stream_id > s.stream_id
           AND q.stream_id < (SELECT min(n.stream_id) FROM scheduler_stream n WHERE n.stream_id > s.stream_id)"""
    ),
]
# at most one job of each stream
FIND_BESIDE = f"""
    SELECT n.job_id FROM (SELECT COALESCE({", ".join(_PROBES)}) AS job_id FROM scheduler_stream s) n
     WHERE n.job_id IS NOT NULL LIMIT :limit
"""
FIND_BEFORE_STREAMS = (
    f"SELECT {_probe('q.stream_id < (SELECT min(n.stream_id) FROM scheduler_stream n)')} AS job_id"
)
FIND_AFTER_STREAMS = (
    f"SELECT {_probe('q.stream_id > (SELECT max(n.stream_id) FROM scheduler_stream n)')} AS job_id"
)

FIND_STREAMS = "SELECT stream_id FROM scheduler_stream"
# the status is named so that the groups are a prefix of the index
FIND_LEVELS = """
    SELECT q.status, q.stream_id, q.priority FROM scheduler_job_queue q
     WHERE q.status = 'PENDING' GROUP BY q.status, q.stream_id, q.priority
"""
FIND_JOB_OF_LEVEL = """
    SELECT q.job_id FROM scheduler_job_queue q
     WHERE q.status = 'PENDING' AND q.stream_id = :stream_id AND q.priority = :priority LIMIT 1
"""

FIND_HOT = """
    SELECT q.job_id, q.status, q.stream_id, s.stream_id AS known_stream, q.priority, q.scheduled_time, q.picked_by
      FROM scheduler_job_queue q LEFT JOIN scheduler_stream s ON s.stream_id = q.stream_id
     WHERE q.job_id = :job_id
"""


def unreachable_jobs(session: Session) -> list[UnreadableRow]:
    """Some of the waiting jobs that no claim reaches, with what is wrong; none only if there are none."""
    found = []
    for job_id in _in_gaps(session) if session.dialect.seeks_ranges else _in_groups(session):
        if job_id is not None and (bad := bad_columns(session, job_id)):
            found.append(named_job(_TABLE, job_id, bad))
    return found


def _in_gaps(session: Session) -> list[Any]:
    rows = session.rows(FIND_BESIDE, {"earliest": _EARLIEST, "latest": _LATEST, "limit": MOST_NAMED})
    rows += [*session.rows(FIND_BEFORE_STREAMS), *session.rows(FIND_AFTER_STREAMS)]
    return [job_id for (job_id,) in rows]


def _in_groups(session: Session) -> list[Any]:
    """The same from the streams and priorities that have jobs. Where this is needed, times have no values that never come."""
    there = {stream_id for (stream_id,) in session.rows(FIND_STREAMS)}
    beside = [
        {"stream_id": stream_id, "priority": priority}
        for _, stream_id, priority in session.rows(FIND_LEVELS)
        if stream_id not in there or priority not in PRIORITIES
    ]
    return [session.value(FIND_JOB_OF_LEVEL, level) for level in beside[:MOST_NAMED]]


def bad_columns(session: Session, job_id: UUID | Unread) -> dict[str, str]:
    """What stands in a job's queue row that keeps every claim from it, by column; empty: nothing, or there is no such row."""
    row = session.row(FIND_HOT, {"job_id": job_id})
    if row is None:
        return {}
    stored_id, status, stream_id, known, priority, due_at, node_id = row
    bad: dict[str, Any] = {}
    if not isinstance(stored_id, UUID):
        bad["job_id"] = stored_id
    if status not in ("PENDING", "RUNNING"):
        bad["status"] = status
    if status == "RUNNING":
        return {
            name: shown(value) for name, value in (bad if node_id else {**bad, "picked_by": node_id}).items()
        }
    if known is None:
        bad["stream_id"] = stream_id
    if type(priority) is not int or priority not in PRIORITIES:
        bad["priority"] = priority
    if not isinstance(due_at, datetime):
        bad["scheduled_time"] = due_at
    return {name: shown(value) for name, value in bad.items()}
