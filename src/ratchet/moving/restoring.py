"""
Looks after a store that was restored from a backup: what was running when the backup was made.

Such a job has a claim of a node that is gone, or that knows nothing of it any more. Nobody can tell whether its code came to an end after the
backup, so a person says what is to become of it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

from msgspec import Struct

from ratchet.model.identifiers import new_id
from ratchet.model.job import ExecutionStatus, JobFilter
from ratchet.model.moves import (
    Fence,
    MoveOvertaken,
    MoveRecord,
    MoveRefused,
    MoveRole,
    MoveState,
    NeutralRow,
    RowKind,
    RunningJob,
)
from ratchet.model.options import Options
from ratchet.model.status import JobStatus
from ratchet.moving.stores import Side, opened

#: `Execution.error_type` of the run that a backup has caught.
RESTORED = "RestoredFromBackup"
_TEXT = "was running when the backup was made that this store was restored from; it may have ended since"
#: More running jobs than a cluster has.
_MOST = 1_000_000


class Restored(StrEnum):
    """What becomes of a job that was running when the backup was made."""

    PAUSE = "pause"  # until a person resumes or cancels it
    HAND_BACK = "hand-back"  # it runs again


class RestoreReport(Struct, frozen=True, kw_only=True):
    """
    What a restored store holds.

    ``running`` had been claimed when the backup was made. ``overdue`` wait in the queue and are due: those that ran after the backup
    run again. ``schedules`` have a fire time that has passed. ``nodes`` were removed, ``queues`` paused.
    """

    running: tuple[UUID, ...]
    overdue: int
    schedules: int
    nodes: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    dry_run: bool = False


def after_restore(
    url: str,
    running: Restored = Restored.PAUSE,
    *,
    options: Options | None = None,
    pause_queues: bool = False,
    dry_run: bool = False,
) -> RestoreReport:
    """
    Mark what was running when the backup was made, before any node starts on the restored store; the same call goes on after a crash.

    Each of these runs gets an entry in the job's history, uncounted, and the job is paused or handed back. With *pause_queues* nothing at all
    is claimed until a person resumes the queues. `MoveRefused` while a node is alive. A store that was a side of a move when the backup was
    made is left to `ratchet db move`.
    """
    with opened(url, options if options is not None else Options()) as side:
        record = side.movable.move_record()
        if record is not None and record.state not in (MoveState.RESTORING, MoveState.DONE):
            raise MoveRefused(
                f"the backup of {side.shown} was made during a move ({record.state.lower()}, the other side is {record.other}); go on with "
                f"it or give it up first: `ratchet db move`"
            )
        _refuse_nodes(side)
        return _Restoring(side).run(running, pause_queues=pause_queues, dry_run=dry_run)


def _refuse_nodes(side: Side) -> None:
    now = side.store.database_time()
    alive = [node.node_id for node in side.store.nodes(counting=False) if node.is_alive(now)]
    if alive:
        raise MoveRefused(
            f"{', '.join(alive)} may be alive: stop every node first. If the backup is only seconds old and none runs, wait for half a minute"
        )


class _Restoring:
    def __init__(self, side: Side) -> None:
        self._side = side

    def run(self, running: Restored, *, pause_queues: bool, dry_run: bool) -> RestoreReport:
        store, movable = self._side.store, self._side.movable
        now = store.database_time()
        held = [one for one in movable.held_claims(limit=_MOST) if not one.ended]
        record = movable.move_record()
        before = record.reached.get("running", []) if record is not None else []
        ids = sorted({UUID(one) for one in before} | {one.job_id for one in held})
        due = JobFilter(statuses=(JobStatus.PENDING,), scheduled_before=now)
        report = RestoreReport(
            running=tuple(ids),
            overdue=store.count(due),
            schedules=len(
                [one for one in store.schedules() if one.next_fire_at is not None and one.next_fire_at <= now]
            ),
            dry_run=dry_run,
        )
        if dry_run:
            return report
        # First what was running is written down, and nobody may claim: killed from here on, the next call knows it.
        written = MoveRecord(
            move_id=str(new_id()),
            role=MoveRole.SOURCE,
            state=MoveState.RESTORING,
            other="a backup",
            origin=movable.origin(),
            begun_at=datetime.now(UTC),
            reached={"running": [str(one) for one in ids]},
        )
        if not movable.save_move(written, was=record):
            raise MoveOvertaken
        movable.fence_off(Fence.CLAIMS, "`ratchet db after-restore` has not ended; run it again")
        movable.put_rows(RowKind.RUN, [_run(one, now) for one in held])
        nodes = tuple(
            sorted({one.node_id for one in store.nodes(counting=False)} | set(store.absent_nodes()))
        )
        for node_id in nodes:
            store.hand_back_unknown(node_id, (), now=now)  # its runs are in the history already
            store.deregister(node_id, now=now)
        if running is Restored.PAUSE:
            for job_id in ids:
                store.pause(job_id, now=now)
        queues = tuple(one.name for one in store.queues(counting=False)) if pause_queues else ()
        for name in queues:
            store.pause_queue(name, now=now)
        movable.lift_fence()
        movable.save_move(None, was=written)
        return RestoreReport(
            running=report.running,
            overdue=report.overdue,
            schedules=report.schedules,
            nodes=nodes,
            queues=queues,
        )


def _run(held: RunningJob, now: datetime) -> NeutralRow:
    return {
        "job_id": held.job_id,
        "claim_id": held.claim_id,
        "attempt": held.attempt,
        "node_id": held.node_id,
        "queue_wait_us": None if held.since is None else 0,
        "started_at": held.since,
        "finished_at": now,
        "status": ExecutionStatus.HANDED_BACK,
        "counted": False,
        "error": _TEXT,
        "error_type": RESTORED,
        "traceback": None,
    }
