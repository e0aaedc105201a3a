"""Nodes, beats, rescue and locks in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import structs
from msgspec.structs import replace

from ratchet.model.claim import DOUBTFUL, LONGEST_DOUBT, SUSPECT_AFTER, is_ahead
from ratchet.model.cluster import (
    BeatAnswer,
    LockRecord,
    NodeChange,
    NodeRecord,
    NodeRequest,
    NodeSpec,
    NodeState,
    Rescue,
    crash_detail,
    doubt_detail,
    new_node,
    refuse_dead,
)
from ratchet.model.decision import ErrorRecord
from ratchet.model.job import ExecutionStatus
from ratchet.model.status import JobStatus
from ratchet.stores.memory.changes import Effects, requeue, settle_run
from ratchet.stores.memory.completion import count_crash
from ratchet.stores.memory.finish import EndedJob, settle_edges
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import record_run
from ratchet.stores.memory.state import Part, State, atomic


class MemoryCluster(Part):
    """Nodes and locks."""

    @atomic
    def register(self, node: NodeSpec, *, now: datetime) -> None:
        self._state.nodes.put(node.node_id, new_node(node, now))

    @atomic
    def beat(
        self,
        node_id: str,
        *,
        now: datetime,
        change: NodeChange | None = None,
        known: Sequence[UUID] | None = None,
    ) -> BeatAnswer:
        if not _beat(self._state, node_id, now):
            return BeatAnswer(alive=False, database_time=self._state.database_time())
        if change is not None:
            changed = replace(self._state.nodes[node_id], **structs.asdict(change))
            self._state.nodes.put(node_id, changed)
        claims = {
            row.job_id: row.claim_id
            for row in _running(self._state, node_id)
            if row.claim_id is not None and (known is None or row.job_id in known)
        }
        return BeatAnswer(
            alive=True,
            claims=claims,
            database_time=self._state.database_time(),
            request=self._state.nodes[node_id].request,
        )

    @atomic
    def beat_only(self, node_ids: Sequence[str], *, now: datetime) -> set[str]:
        return {node_id for node_id in dict.fromkeys(node_ids) if _beat(self._state, node_id, now)}

    @atomic
    def set_node_state(self, node_id: str, state: NodeState, *, now: datetime) -> bool:
        refuse_dead(state)
        node = _living(self._state, node_id)
        if node is not None:
            self._state.nodes.put(node_id, replace(node, state=state))
        return node is not None

    @atomic
    def request_of_node(self, node_id: str, request: NodeRequest | None, *, now: datetime) -> bool:
        node = _living(self._state, node_id)
        if node is not None and node.request is not NodeRequest.STOP:
            self._state.nodes.put(node_id, replace(node, request=request))
        return node is not None

    @atomic
    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        nodes = sorted(self._state.nodes.values(), key=lambda node: (node.started_at, node.node_id))
        if not counting:
            return [replace(node, running=0) for node in nodes]
        return [replace(node, running=self._state.running_on.size(node.node_id)) for node in nodes]

    @atomic
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
        held_up: Collection[UUID] = (),
    ) -> Rescue | None:
        state, effects = self._state, Effects()
        node = state.nodes.get(node_id)
        if node is None or node.beat != seen_beat:
            return None
        all_running = _running(state, node_id)
        left = {*held_up, *(row.job_id for row in all_running if state.is_locked(state.jobs, row.job_id))}
        running = [row for row in all_running if row.job_id not in left]
        if node.rescued_at is not None:
            running = [row for row in running if row.claimed_at and row.claimed_at < node.rescued_at]
            if not running and not held_up:
                return None
        else:
            state.nodes.put(node_id, replace(node, state=NodeState.DEAD, rescued_at=now, rescued_by=by))
        unstarted = [row for row in running if not _has_run(state, row, ran)]
        back = [row.job_id for row in unstarted]
        for row in unstarted:
            _hand_back(state, row, effects, None if ran is not None else doubt_detail(node_id, seen), now)
        detail = crash_detail(node_id, seen)
        alerted = {
            row.job_id: _count_crash(state, row, effects, detail, max_crashes, now)
            for row in running
            if row.job_id not in back
        }
        rescued = list(alerted)
        dead = [job_id for job_id in rescued if state.jobs[job_id].ended_as is not None]
        settle_edges(state, [EndedJob(job_id, effects) for job_id in dead], now=now)
        if node.rescued_at is None:
            _free(state, node_id, effects, now)
        after = [state.jobs[job_id] for job_id in rescued]
        pending = [row for row in after if row.status is JobStatus.PENDING]
        return Rescue(
            node_id=node_id,
            requeued=tuple(row.job_id for row in pending if row.crashes < SUSPECT_AFTER),
            suspects=tuple(row.job_id for row in pending if row.crashes >= SUSPECT_AFTER),
            dead_lettered=tuple(row.job_id for row in after if row.status is JobStatus.FAILED),
            alerted=tuple(job_id for job_id, is_told in alerted.items() if is_told),
            canceled=tuple(effects.canceled),
            released=tuple(effects.released),
            held_up=tuple(left),
            handed_back=tuple(back),
        )

    @atomic
    def absent_nodes(self) -> list[str]:
        holders = {*self._state.running_on.groups(), *(node for _, node in self._state.still_running.items())}
        return sorted(node_id for node_id in holders if _living(self._state, node_id) is None)

    @atomic
    def deregister(self, node_id: str, *, now: datetime) -> int:
        state, effects = self._state, Effects()
        running = _running(state, node_id)
        for row in running:
            record_run(
                state,
                row,
                ExecutionStatus.HANDED_BACK,
                now=now,
                counted=False,
                started_at=row.claimed_at,
            )
            requeue(state, row, effects, now=now, at=row.due_at)
        _free(state, node_id, effects, now)
        state.nodes.remove(node_id)
        return len(running)

    @atomic
    def purge_nodes(self, *, before: datetime) -> int:
        dead = [
            node.node_id
            for node in self._state.nodes.values()
            if node.state is NodeState.DEAD
            and (node.rescued_at or node.last_beat_at) < before
            and not self._state.running_on.size(node.node_id)
        ]
        for node_id in dead:
            self._state.nodes.remove(node_id)
        return len(dead)

    def database_time(self) -> datetime:
        return self._state.database_time()

    # --- locks ----------------------------------------------------------------------------------

    @atomic
    def acquire_lock(self, name: str, *, holder: str, token: UUID, ttl: timedelta, now: datetime) -> bool:
        held = self._state.locks.get(name)
        if held is not None and held.token != token and held.expires_at > now:
            return False
        since = now if held is None or held.token != token else held.locked_at
        record = LockRecord(name=name, holder=holder, token=token, locked_at=since, expires_at=now + ttl)
        self._state.locks.put(name, record)
        return True

    @atomic
    def release_lock(self, name: str, *, token: UUID) -> bool:
        held = self._state.locks.get(name)
        if held is None or held.token != token:
            return False
        self._state.locks.remove(name)
        return True

    @atomic
    def lock(self, name: str) -> LockRecord | None:
        return self._state.locks.get(name)


def _living(state: State, node_id: str) -> NodeRecord | None:
    node = state.nodes.get(node_id)
    return None if node is None or node.state is NodeState.DEAD else node


def _beat(state: State, node_id: str, now: datetime) -> bool:
    node = _living(state, node_id)
    if node is not None:
        state.nodes.put(node_id, replace(node, beat=node.beat + 1, last_beat_at=now))
    return node is not None


def _running(state: State, node_id: str) -> list[Row]:
    job_ids = sorted(state.running_on.of(node_id), key=lambda job_id: job_id.int)
    return [state.jobs[job_id] for job_id in job_ids]


def _has_run(state: State, row: Row, ran: Mapping[UUID, UUID] | None) -> bool:
    """Whether the current run of a dead node's job has begun, or must count as begun."""
    if ran is not None:
        return ran.get(row.job_id) == row.claim_id
    if not is_ahead(row.claim_id) or row.held_claim_id == row.claim_id:
        return True
    runs = (state.executions[key] for key in state.runs_of.of(row.job_id))
    doubts = sum(run.status == ExecutionStatus.HANDED_BACK and run.error_type == DOUBTFUL for run in runs)
    return doubts >= LONGEST_DOUBT


def _hand_back(state: State, row: Row, effects: Effects, doubt: str | None, now: datetime) -> None:
    """Back to PENDING, not charged; a run is recorded only where it may have begun."""
    if doubt is not None:
        error = ErrorRecord(message=doubt, type=DOUBTFUL)
        status = ExecutionStatus.HANDED_BACK
        record_run(state, row, status, now=now, counted=False, started_at=None, error=error)
    requeue(state, row, effects, now=now, at=row.due_at)


def _count_crash(
    state: State, row: Row, effects: Effects, detail: str, max_crashes: int, now: datetime
) -> bool:
    """Count one crash; True if that made a dead letter whose alert was not suppressed."""
    error = ErrorRecord(message=detail, type="Crashed")
    record_run(
        state, row, ExecutionStatus.CRASHED, now=now, counted=False, started_at=row.claimed_at, error=error
    )
    return bool(count_crash(state, row, effects, detail=detail, max_crashes=max_crashes, now=now))


def _free(state: State, node_id: str, effects: Effects, now: datetime) -> None:
    """All code of the node has ended: free what waits for that, and what the node locked."""
    for (job_id, claim_id), node in sorted(state.still_running.items(), key=lambda item: item[0][0].int):
        if node == node_id:
            settle_run(state, job_id, claim_id, effects, now=now)
    for name, lock in state.locks.items():
        if lock.holder == node_id:
            state.locks.remove(name)
