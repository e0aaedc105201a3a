"""
Takes back the work of a dead node: what is free at once, and the rest when its locks are gone.

A process that was stopped, or whose machine has vanished, may have a transaction open, and then its locks stay. Only
the jobs that it changed there are held up, not the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from ratchet.model.claim import DOUBTFUL, LONGEST_DOUBT, is_ahead
from ratchet.model.cluster import Rescue, crash_detail, doubt_detail
from ratchet.model.job import ExecutionStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.callbacks import insert_failure_callbacks
from ratchet.stores.sql.dependants.edges import settle_edges
from ratchet.stores.sql.finish.requeues import count_crashes, hand_back
from ratchet.stores.sql.rows.failures import write_alerts, write_runs
from ratchet.stores.sql.rows.keys_and_permits import settle_node
from ratchet.stores.sql.rows.locked import QUEUE_COLUMNS, QUEUED, QueueRow
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

# The statement itself compares the beat that was seen: a node that has beaten since then, even in a transaction that
# this one waits for, is not declared dead. After this one its beat finds no row.
DECLARE_DEAD = """
    UPDATE scheduler_node
       SET state = 'DEAD', rescued_at = :now, rescued_by = :by
     WHERE node_id = :node_id AND beat = :seen_beat AND state <> 'DEAD'
"""

FIND_CLAIMS = """
    SELECT job_id, claim_id
      FROM scheduler_job_queue
     WHERE picked_by = :node_id AND status = 'RUNNING'
"""

LOCK_FREE_RUNNING_OF_NODE = f"""
    SELECT {QUEUE_COLUMNS}
      FROM scheduler_job_queue
     WHERE picked_by = :node_id AND status = 'RUNNING'
     ORDER BY job_id
    {{for update skip locked}}
"""

FIND_DEATH = """
    SELECT rescued_at
      FROM scheduler_node
     WHERE node_id = :node_id AND beat = :seen_beat AND state = 'DEAD'
"""

COUNT_DOUBTS = f"""
    SELECT job_id, count(*)
      FROM scheduler_job_execution
     WHERE job_id {{in ids uuid}} AND status = '{ExecutionStatus.HANDED_BACK}' AND error_type = '{DOUBTFUL}'
     GROUP BY job_id
"""

FREE_LOCKS_OF_NODE = "DELETE FROM scheduler_lock WHERE locked_by = :node_id"


def take_back_from(
    session: Session,
    streams: StreamRegistry,
    claim: Mapping[str, object],
    *,
    max_crashes: int,
    now: datetime,
    ran: Mapping[UUID, UUID] | None = None,
    seen: str | None = None,
) -> tuple[Rescue, bool] | None:
    """
    Declare the node of *claim* dead and take back what it runs and nobody has locked; None if it lives.

    *claim* has the binds of `DECLARE_DEAD`. From a node that is dead already, only what it ran when it died is taken:
    a claim that it made later, when it came back for a moment, is no crash. The second part of the answer is True where
    this call declared it dead.
    """
    node_id = str(claim["node_id"])
    died_at = None
    if not session.execute(DECLARE_DEAD, claim):
        died_at = session.value(FIND_DEATH, {"node_id": node_id, "seen_beat": claim["seen_beat"]})
        if died_at is None:
            return None
    running = locked = _lock_free_running(session, node_id)
    if died_at is not None:
        running = {key: row for key, row in locked.items() if row.claimed_at and row.claimed_at < died_at}
    claims: dict[UUID, UUID] = dict(session.rows(FIND_CLAIMS, {"node_id": node_id}))
    left = [claim_id for job_id, claim_id in claims.items() if job_id not in running]
    unstarted = _unstarted(session, running, ran)
    hand_back(session, streams, unstarted)
    if ran is None:
        write_runs(session, [_doubt(row, doubt_detail(node_id, seen), now) for row in unstarted.values()])
    crashes = count_crashes(
        session,
        streams,
        {job_id: row for job_id, row in running.items() if job_id not in unstarted},
        detail=crash_detail(node_id, seen),
        max_crashes=max_crashes,
        now=now,
    )
    effects = settle_edges(session, crashes.ended, now=now)
    insert_failure_callbacks(session, streams, crashes.dead_lettered, now=now)
    settle_node(session, node_id, left)
    if died_at is None:
        session.execute(FREE_LOCKS_OF_NODE, {"node_id": node_id})
    alerted = write_alerts(session, crashes.notes, now)
    rescue = Rescue(
        node_id=node_id,
        requeued=tuple(job_id for job_id in crashes.requeued if job_id not in crashes.suspects),
        suspects=crashes.suspects,
        dead_lettered=crashes.dead_lettered,
        alerted=tuple(job_id for job_id in crashes.dead_lettered if job_id in alerted),
        canceled=tuple(effects.canceled),
        released=tuple(effects.released),
        held_up=tuple(job_id for job_id in claims if job_id not in locked),
        handed_back=tuple(unstarted),
    )
    return rescue, died_at is None


def _unstarted(
    session: Session, running: Mapping[UUID, QueueRow], ran: Mapping[UUID, UUID] | None
) -> dict[UUID, QueueRow]:
    """Those of these locked rows whose run has not begun, as far as anybody knows, and need not count as begun."""
    if ran is not None:
        return {job_id: row for job_id, row in running.items() if ran.get(job_id) != row.claim_id}
    doubtful = {
        job_id: row
        for job_id, row in running.items()
        if is_ahead(row.claim_id) and row.held_claim_id != row.claim_id
    }
    doubts: dict[UUID, int] = dict(session.rows(COUNT_DOUBTS, {"ids": list(doubtful)})) if doubtful else {}
    return {job_id: row for job_id, row in doubtful.items() if doubts.get(job_id, 0) < LONGEST_DOUBT}


def _doubt(row: QueueRow, detail: str, now: datetime) -> tuple[object, ...]:
    """The row of a run that had perhaps not begun, for `write_runs`."""
    status = ExecutionStatus.HANDED_BACK
    start = (row.job_id, row.claim_id, row.attempts + 1, row.node_id, row.scheduled_at, None, now)
    return (*start, status, False, detail, DOUBTFUL, None)


def _lock_free_running(session: Session, node_id: str) -> dict[UUID, QueueRow]:
    rows = [
        QueueRow(*row) for row in QUEUED.read(session.rows(LOCK_FREE_RUNNING_OF_NODE, {"node_id": node_id}))
    ]
    return {row.job_id: row for row in rows}
