"""Nodes and locks in SQL: beats, rescue, and the clean end of a node."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.claim import SUSPECT_AFTER
from ratchet.model.cluster import (
    BeatAnswer,
    LockRecord,
    NodeChange,
    NodeRecord,
    NodeRequest,
    NodeSpec,
    NodeState,
    Rescue,
    dead_process,
    refuse_dead,
    request_of,
)
from ratchet.model.job import ExecutionStatus
from ratchet.stores.auditing import always
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.sql.finish.requeues import hand_back
from ratchet.stores.sql.recover.rescues import FIND_CLAIMS, FREE_LOCKS_OF_NODE, take_back_from
from ratchet.stores.sql.recover.unowned_claims import FIND_UNOWNED
from ratchet.stores.sql.rows.failures import write_runs
from ratchet.stores.sql.rows.keys_and_permits import settle_node
from ratchet.stores.sql.rows.locked import QUEUE_COLUMNS, QUEUED, QueueRow
from ratchet.stores.unreadable import readable, require_readable

#: Seconds before a rescue looks once more for jobs that somebody else had locked.
_SECOND_LOOKS = (0.02, 0.1, 0.3)
_MICROSECOND = timedelta(microseconds=1)

# An id belongs to one start of a node, so a row that exists was made by this very call, sent again after a
# lost answer. If the node was declared dead meanwhile it stays dead, and learns so from its next beat.
REGISTER = """
    INSERT INTO scheduler_node
           (node_id, name, host, pid, version, state, beat, beat_interval_us, silence_us, started_at, last_beat_at,
            node_info)
    VALUES (:node_id, :name, :host, :pid, :version, 'ACTIVE', 0, :beat_interval_us, :silence_us, :now, :now, :info)
        ON CONFLICT (node_id) DO NOTHING
"""

BEAT = """
    UPDATE scheduler_node
       SET beat = beat + 1, last_beat_at = :now
     WHERE node_id = :node_id AND state <> 'DEAD'
 RETURNING {clock} AS now_at, request
"""

BEAT_AND_CHANGE = """
    UPDATE scheduler_node
       SET beat = beat + 1, last_beat_at = :now,
           beat_interval_us = :beat_interval_us, silence_us = :silence_us, node_info = :info
     WHERE node_id = :node_id AND state <> 'DEAD'
 RETURNING {clock} AS now_at, request
"""

# By the jobs: the index of a node's claims has an entry for each of its runs that no vacuum could remove yet.
# "IS TRUE" keeps it out of the choice.
FIND_KNOWN_CLAIMS = """
    SELECT job_id, claim_id
      FROM scheduler_job_queue
     WHERE job_id {in known uuid} AND (picked_by = :node_id) IS TRUE AND status = 'RUNNING'
"""

LOCK_FREE_NODES = """
    SELECT node_id
      FROM scheduler_node
     WHERE node_id {in ids text} AND state <> 'DEAD'
     ORDER BY node_id
    {for update skip locked}
"""

BEAT_MANY = """
    UPDATE scheduler_node
       SET beat = beat + 1, last_beat_at = :now
     WHERE node_id {in ids text} AND state <> 'DEAD'
 RETURNING node_id
"""

SET_STATE = """
    UPDATE scheduler_node SET state = :state WHERE node_id = :node_id AND state <> 'DEAD'
"""

SET_REQUEST = """
    UPDATE scheduler_node
       SET request = CASE WHEN request = 'STOP' THEN request ELSE :request END
     WHERE node_id = :node_id AND state <> 'DEAD'
"""

_NODES = """
    SELECT n.node_id, n.name, n.host, n.pid, n.version, n.state, n.beat, n.beat_interval_us, n.silence_us,
           n.started_at, n.last_beat_at, n.node_info, n.rescued_at, n.rescued_by, n.request, <jobs> AS jobs
      FROM scheduler_node n
     ORDER BY n.started_at, n.node_id
"""
_JOBS_OF_NODE = """(SELECT count(*)
              FROM scheduler_job_queue q
             WHERE q.picked_by = n.node_id AND q.status = 'RUNNING')"""
LIST_NODES = _NODES.replace("<jobs>", _JOBS_OF_NODE)
WATCH_NODES = _NODES.replace("<jobs>", "0")

FIND_SUSPECT_STREAMS = """
    SELECT DISTINCT stream_id
      FROM scheduler_job_queue
     WHERE picked_by = :node_id AND status = 'RUNNING' AND crashes >= :crashes
"""

LOCK_RUNNING_OF_NODE = f"""
    SELECT {QUEUE_COLUMNS}
      FROM scheduler_job_queue
     WHERE picked_by = :node_id AND status = 'RUNNING'
     ORDER BY job_id
    {{for update}}
"""

LOCK_NODE = "SELECT node_id FROM scheduler_node WHERE node_id = :node_id {for update}"

REMOVE_NODE = "DELETE FROM scheduler_node WHERE node_id = :node_id"

# A claim that was in flight when its node was declared dead may commit afterwards. Its jobs show in
# `nodes`, and the row stays until somebody has handed them back (`deregister`).
PURGE_NODES = """
    DELETE FROM scheduler_node
     WHERE state = 'DEAD' AND rescued_at < :before
       AND NOT EXISTS (SELECT 1 FROM scheduler_job_queue q WHERE q.picked_by = scheduler_node.node_id)
"""

FIND_CLOCK = "SELECT {clock} AS now_at"

ACQUIRE_LOCK = """
    INSERT INTO scheduler_lock AS held (lock_name, locked_by, token, locked_at, expires_at)
    VALUES (:name, :holder, :token, :now, :expires_at)
        ON CONFLICT (lock_name) DO UPDATE
       SET locked_by = excluded.locked_by, token = excluded.token, expires_at = excluded.expires_at,
           locked_at = CASE WHEN held.token = excluded.token THEN held.locked_at ELSE excluded.locked_at END
     WHERE held.token = excluded.token OR held.expires_at <= :now
"""

RELEASE_LOCK = "DELETE FROM scheduler_lock WHERE lock_name = :name AND token = :token"

FIND_LOCK = (
    "SELECT lock_name, locked_by, token, locked_at, expires_at FROM scheduler_lock WHERE lock_name = :name"
)


class SqlCluster(SqlPart):
    """Nodes, and the locks they take."""

    # --- beats --------------------------------------------------------------------------------

    def register(self, node: NodeSpec, *, now: datetime) -> None:
        """Create the node's row with beat 0, ACTIVE; a row of the same incarnation is left alone."""
        values = {
            "node_id": node.node_id,
            "name": node.name,
            "host": node.host,
            "pid": node.pid,
            "version": node.version,
            **_pace(node),
            "info": node.info,
            "now": now,
        }
        self.database.run(lambda session: session.execute(REGISTER, values))

    def beat(
        self,
        node_id: str,
        *,
        now: datetime,
        change: NodeChange | None = None,
        known: Sequence[UUID] | None = None,
    ) -> BeatAnswer:
        """
        Raise the beat counter and read back the node's claims, of *known* jobs or all; a DEAD or missing row is not changed.

        The claims are read under the node's lock: a rescue has either taken them all, or none.
        """
        statement, values = BEAT, {"node_id": node_id, "now": now}
        if change is not None:
            statement, values = BEAT_AND_CHANGE, {**values, **_pace(change), "info": change.info}

        def beat(session: Session) -> BeatAnswer:
            row = session.row(statement, values)
            if row is None:
                return BeatAnswer(alive=False)
            clock, request = row
            return BeatAnswer(
                alive=True,
                claims=_claims(session, node_id, known),
                database_time=clock,
                request=request_of(request),
            )

        return self.database.run(beat)

    def beat_only(self, node_ids: Sequence[str], *, now: datetime) -> set[str]:
        """
        Raise the counters of several nodes without reading claims; those that are alive.

        One of them may be locked by a rescue that waits for other locks: the others beat first.
        """

        def beat_free(session: Session) -> set[str]:
            free = [node_id for (node_id,) in session.rows(LOCK_FREE_NODES, {"ids": list(node_ids)})]
            return _beat(session, free, now)

        if not node_ids:
            return set()
        alive = self.database.run(beat_free)
        for node_id in sorted(set(node_ids) - alive):
            alive |= self.database.run(lambda session, one=node_id: _beat(session, [one], now))  # type: ignore[misc]
        return alive

    def set_node_state(self, node_id: str, state: NodeState, *, now: datetime) -> bool:
        """ACTIVE to DRAINING and the like; False if the node is DEAD or missing."""
        refuse_dead(state)
        values = {"node_id": node_id, "state": state}
        return self.database.run(lambda session: session.execute(SET_STATE, values)) > 0

    def request_of_node(self, node_id: str, request: NodeRequest | None, *, now: datetime) -> bool:
        """Store what a person asks of a node, or take it back; False if the node is DEAD or missing."""
        values = {"node_id": node_id, "request": request}
        return self.change(lambda session: session.execute(SET_REQUEST, values)) > 0

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        """All rows, by start time, with the number of jobs each is running; 0 where that is not asked for."""
        rows = self.database.read(lambda session: session.rows(LIST_NODES if counting else WATCH_NODES))
        return readable(rows, _node, "scheduler_node", itemgetter(0))

    def database_time(self) -> datetime:
        """The database server's clock."""
        clock: datetime = self.database.read(lambda session: session.value(FIND_CLOCK))
        return clock

    # --- the end of a node --------------------------------------------------------------------

    def rescue(
        self,
        node_id: str,
        *,
        seen_beat: int,
        by: str,
        max_crashes: int,
        now: datetime,
        ran: Mapping[UUID, UUID] | None = None,
        seen: str | None = None,
    ) -> Rescue | None:
        """
        Declare a node dead and take its work back, in one transaction; None: it is alive or was rescued before.

        The node's row is locked first, so of two rescuers one finds it DEAD; then the rows of its
        jobs, which their completions lock too: each job is either completed or rescued. A row that
        another transaction has locked is left to a second look: usually that one is about to commit.
        """
        self._make_suspect_streams(node_id)
        claim = {"node_id": node_id, "seen_beat": seen_beat, "by": by, "now": now}

        def take_back(session: Session) -> tuple[Rescue, bool] | None:
            return take_back_from(
                session, self.stream_registry, claim, max_crashes=max_crashes, now=now, ran=ran, seen=seen
            )

        taken = self.database.run(take_back)
        if taken is None:
            return None
        rescue, declared = taken
        if rescue.held_up:
            self._end_transactions_of(node_id)
            for pause in _SECOND_LOOKS:
                time.sleep(pause)
                rest = self.database.run(take_back)
                rescue = rescue if rest is None else rescue.followed_by(rest[0])
                if not rescue.held_up:
                    break
        return rescue if declared or rescue.took else None

    def _end_transactions_of(self, node_id: str) -> None:
        """End what the process of a dead node has left open, where that can be done."""
        process = dead_process(node_id, self.nodes())
        if process is not None:
            self.database.dialect.end_transactions(process)

    def absent_nodes(self) -> list[str]:
        """Node ids that hold RUNNING jobs, or keys or permits of ended ones, and have no living row."""
        return [node_id for (node_id,) in self.database.read(lambda session: session.rows(FIND_UNOWNED))]

    def deregister(self, node_id: str, *, now: datetime) -> int:
        """End a node cleanly: hand back what is RUNNING (uncounted), free keys and permits of ended jobs, remove the row."""

        def deregister(session: Session) -> int:
            session.rows(LOCK_NODE, {"node_id": node_id})
            running = _lock_running(session, node_id)
            hand_back(session, self.stream_registry, running)
            write_runs(session, [_handed_back(row, now) for row in running.values()])
            settle_node(session, node_id)
            session.execute(FREE_LOCKS_OF_NODE, {"node_id": node_id})
            session.execute(REMOVE_NODE, {"node_id": node_id})
            return len(running)

        return self.change(deregister, count=always)

    def purge_nodes(self, *, before: datetime) -> int:
        """Delete DEAD rows older than *before*, except nodes that still have a RUNNING job."""
        return self.database.run(lambda session: session.execute(PURGE_NODES, {"before": before}))

    def _make_suspect_streams(self, node_id: str) -> None:
        # Before the transaction: inside it, making a stream would take a second connection.
        values = {"node_id": node_id, "crashes": SUSPECT_AFTER - 1}
        found = self.database.read(lambda session: session.rows(FIND_SUSPECT_STREAMS, values))
        keys = [self.stream_registry.recorded_key(stream_id) for (stream_id,) in found]
        self.stream_registry.ids_of(None, [replace(key, suspect=True) for key in keys])

    # --- locks --------------------------------------------------------------------------------

    def acquire_lock(self, name: str, *, holder: str, token: UUID, ttl: timedelta, now: datetime) -> bool:
        """Take the lock if it is free or expired; True also where *token* holds it already (renewed)."""
        values = {"name": name, "holder": holder, "token": token, "now": now, "expires_at": now + ttl}
        return self.database.run(lambda session: session.execute(ACQUIRE_LOCK, values)) > 0

    def release_lock(self, name: str, *, token: UUID) -> bool:
        """Give the lock back, if *token* still holds it."""
        return (
            self.database.run(lambda session: session.execute(RELEASE_LOCK, {"name": name, "token": token}))
            > 0
        )

    def lock(self, name: str) -> LockRecord | None:
        """Who holds the lock, even if it has expired; only reads."""
        row = self.database.read(lambda session: session.row(FIND_LOCK, {"name": name}))
        if row is None:
            return None
        lock_name, holder, token, locked_at, expires_at = row
        record = LockRecord(
            name=lock_name, holder=holder, token=token, locked_at=locked_at, expires_at=expires_at
        )
        return require_readable(record, lambda one: one, "scheduler_lock", name)


def _pace(node: NodeSpec | NodeChange) -> dict[str, int]:
    return {
        "beat_interval_us": node.beat_interval // _MICROSECOND,
        "silence_us": node.silence // _MICROSECOND,
    }


def _beat(session: Session, node_ids: list[str], now: datetime) -> set[str]:
    return {node_id for (node_id,) in session.rows(BEAT_MANY, {"ids": node_ids, "now": now})}


def _claims(session: Session, node_id: str, known: Sequence[UUID] | None) -> dict[UUID, UUID]:
    if known is None:
        return dict(session.rows(FIND_CLAIMS, {"node_id": node_id}))
    if not known:
        return {}
    return dict(session.rows(FIND_KNOWN_CLAIMS, {"node_id": node_id, "known": sorted(known)}))


def _lock_running(session: Session, node_id: str) -> dict[UUID, QueueRow]:
    rows = [QueueRow(*row) for row in QUEUED.read(session.rows(LOCK_RUNNING_OF_NODE, {"node_id": node_id}))]
    return {row.job_id: row for row in rows}


def _handed_back(row: QueueRow, now: datetime) -> tuple[object, ...]:
    times = (row.scheduled_at, row.claimed_at, now)
    status = (ExecutionStatus.HANDED_BACK, False, None, None, None)
    return (row.job_id, row.claim_id, row.attempts + 1, row.node_id, *times, *status)


def _node(row: Row) -> NodeRecord:
    node_id, name, host, pid, version, state, beat, beat_interval_us, silence_us, *rest = row
    started_at, last_beat_at, info, rescued_at, rescued_by, request, running = rest
    return NodeRecord(
        node_id=node_id,
        name=name,
        host=host,
        pid=pid,
        version=version,
        state=NodeState(state),
        beat=beat,
        beat_interval=timedelta(microseconds=beat_interval_us),
        silence=timedelta(microseconds=silence_us),
        started_at=started_at,
        last_beat_at=last_beat_at,
        info=info,
        rescued_at=rescued_at,
        rescued_by=rescued_by,
        running=running,
        request=request_of(request),
    )
