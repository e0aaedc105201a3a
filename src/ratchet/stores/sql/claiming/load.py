"""What waits and runs in each stream: for health checks, at a cost that does not grow with the backlog."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ratchet.model.load import Load, StreamLoad
from ratchet.stores.levels import PRIORITIES
from ratchet.stores.sql.claiming.plan import FIRST_DUE
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.rows.stream_registry import KEY_COLUMNS, key_of_row
from ratchet.stores.unreadable import due_time

_FIRST = FIRST_DUE.replace("<bound>", "")
# Scalar subqueries with a LIMIT, and not EXISTS: no planner turns these into a join that reads the whole backlog.
FIND_FIRST_DUE = f"""
    SELECT s.stream_id, {KEY_COLUMNS},
           {", ".join(f"{_FIRST.replace('p.column1', str(int(one)))} AS first_{int(one)}_at" for one in PRIORITIES)}
      FROM scheduler_stream s
     WHERE (SELECT q.stream_id FROM scheduler_job_queue q
             WHERE q.stream_id = s.stream_id AND q.status = 'PENDING' LIMIT 1) IS NOT NULL
     ORDER BY s.stream_id
"""
COUNT_DUE = """
    SELECT count(*) AS jobs FROM (
        SELECT q.job_id FROM scheduler_job_queue q
         WHERE q.stream_id = :stream_id AND q.priority = :priority AND q.status = 'PENDING' AND q.scheduled_time <= :now
         ORDER BY q.scheduled_time LIMIT :most) n
"""
COUNT_PENDING = """
    SELECT count(*) AS jobs FROM (
        SELECT q.job_id FROM scheduler_job_queue q WHERE q.status = 'PENDING' LIMIT :most) n
"""
COUNT_DEAD_LETTERS = """
    SELECT count(*) AS jobs, min(n.dead_lettered_at) AS failed_at FROM (
        SELECT j.dead_lettered_at FROM scheduler_job j
         WHERE j.dead_lettered_at IS NOT NULL ORDER BY j.dead_lettered_at LIMIT :most) n
"""
# picked_by is named so that only the index of what runs is read
FIND_RUNNING = """
    SELECT q.stream_id, count(*) AS jobs, max(q.picked_at) AS claimed_at
      FROM scheduler_job_queue q WHERE q.picked_by IS NOT NULL AND q.status = 'RUNNING'
     GROUP BY q.stream_id
"""
FIND_KEYS = f"SELECT stream_id, {KEY_COLUMNS} FROM scheduler_stream WHERE stream_id {{in stream_ids int}}"


def read_load(session: Session, now: datetime, most: int) -> Load:
    """`StreamStore.load`."""
    heads = session.rows(FIND_FIRST_DUE)
    running = {stream_id: (int(jobs), at) for stream_id, jobs, at in session.rows(FIND_RUNNING)}
    rows = {row[0]: row[1:-5] for row in heads}
    if others := sorted(running.keys() - rows.keys()):
        rows |= {row[0]: row[1:] for row in session.rows(FIND_KEYS, {"stream_ids": others})}
    first = {row[0]: dict(zip(PRIORITIES, row[-5:], strict=True)) for row in heads}
    streams, left = [], most
    for stream_id in sorted(rows):
        heads_at = {priority: due_time(at) for priority, at in first.get(stream_id, {}).items()}
        dues = {priority: at for priority, at in heads_at.items() if at is not None}
        due = _count_due(session, stream_id, [p for p, at in dues.items() if at <= now], now, left)
        left -= due
        jobs, claimed_at = running.get(stream_id, (0, None))
        streams.append(
            StreamLoad(
                stream_id=stream_id,
                key=key_of_row(rows[stream_id]),
                due=due,
                first_at=min(dues.values(), default=None),
                running=jobs,
                claimed_at=claimed_at,
            )
        )
    pending = int(session.value(COUNT_PENDING, {"most": most}))
    letters = session.row(COUNT_DEAD_LETTERS, {"most": most}) or (0, None)
    return Load(
        streams=tuple(streams), pending=pending, dead_letters=int(letters[0]), dead_letters_since=letters[1]
    )


def _count_due(session: Session, stream_id: int, priorities: list[Any], now: datetime, left: int) -> int:
    """How many jobs of a stream are due: at most what is *left* to count, but one if there is any."""
    if left <= 0:
        return min(1, len(priorities))
    counted = 0
    for priority in priorities:
        values = {"stream_id": stream_id, "priority": int(priority), "now": now}
        if counted < left:
            counted += int(session.value(COUNT_DUE, {**values, "most": left - counted}))
    return counted
