"""What waits and runs in each stream: for health checks, at a cost that does not grow with the backlog."""

from __future__ import annotations

from collections.abc import Iterator
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
# Several heads at once: a page about a hundred streams would send hundreds of statements otherwise.
HEADS_AT_ONCE = 32
_COUNT_HEAD = """
    SELECT {slot} AS slot, count(*) AS jobs FROM (
        SELECT q.job_id FROM scheduler_job_queue q
         WHERE q.stream_id = :stream_{slot} AND q.priority = :priority_{slot}
           AND q.status = 'PENDING' AND q.scheduled_time <= :now
         ORDER BY q.scheduled_time LIMIT :most) n
"""
COUNT_DUE = " UNION ALL ".join(_COUNT_HEAD.format(slot=slot) for slot in range(HEADS_AT_ONCE))
#: Fills the slots that a statement has left over; streams are counted from 1.
NO_STREAM = 0
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
    heads_at = {stream_id: _due_times(row) for stream_id, row in first.items()}
    counts = DueCounts(session, now, most)
    counts.look(
        [
            (stream_id, p)
            for stream_id in sorted(heads_at)
            for p, at in heads_at[stream_id].items()
            if at <= now
        ]
    )
    streams = []
    for stream_id in sorted(rows):
        dues = heads_at.get(stream_id, {})
        due = counts.of_stream(stream_id, [p for p, at in dues.items() if at <= now])
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


def _due_times(first: dict[Any, Any]) -> dict[Any, datetime]:
    """When the first job of each priority is due, without those that have none."""
    dues = {priority: due_time(at) for priority, at in first.items()}
    return {priority: at for priority, at in dues.items() if at is not None}


class DueCounts:
    """
    Counts what is due, stream after stream, until *most* jobs are counted in all.

    The heads (streams and priorities) are counted in groups, each group in one statement: first up to an equal share of
    what is left, and then four times as far those that have more, if they still matter. Those behind the *most*-th job
    do not, so a deep backlog ends with the first group.
    """

    def __init__(self, session: Session, now: datetime, most: int) -> None:
        self._session = session
        self._now = now
        self._left = most
        self._counted: dict[tuple[int, Any], int] = {}

    def look(self, heads: list[tuple[int, Any]]) -> None:
        """Count *heads*, which are in the order of the streams."""
        left = self._left
        for start in range(0, len(heads), HEADS_AT_ONCE):
            if left > 0:
                group = heads[start : start + HEADS_AT_ONCE]
                self._look(group, left)
                left -= sum(self._counted[head] for head in group)

    def _look(self, group: list[tuple[int, Any]], left: int) -> None:
        limit, unsure = -(-left // len(group)), group
        while unsure:
            self._count(unsure, limit)
            unsure = [head for head in self._needed(group, left) if self._counted[head] == limit < left]
            limit = min(4 * limit, left)

    def _needed(self, group: list[tuple[int, Any]], left: int) -> Iterator[tuple[int, Any]]:
        """Those in front of the last job that is counted."""
        for head in group:
            if left <= 0:
                return
            left -= self._counted[head]
            yield head

    def _count(self, group: list[tuple[int, Any]], limit: int) -> None:
        values: dict[str, Any] = {"now": self._now, "most": limit}
        for slot, (stream_id, priority) in enumerate(group + [(NO_STREAM, 0)] * (HEADS_AT_ONCE - len(group))):
            values |= {f"stream_{slot}": stream_id, f"priority_{slot}": int(priority)}
        found = {int(slot): int(jobs) for slot, jobs in self._session.rows(COUNT_DUE, values)}
        self._counted |= {head: found[slot] for slot, head in enumerate(group)}

    def of_stream(self, stream_id: int, priorities: list[Any]) -> int:
        """How many jobs of a stream are due: at most what is left to count, but one if there is any."""
        if self._left <= 0:
            return min(1, len(priorities))
        due = min(self._left, sum(self._counted.get((stream_id, priority), 0) for priority in priorities))
        self._left -= due
        return due
