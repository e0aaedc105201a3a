"""Transitions in memory: every change of a job's state, under the fence of its claim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.alerts import ALERT_WINDOW
from ratchet.model.claim import JobClaim
from ratchet.model.decision import SIGNAL_TIMEOUT, CanceledJob, Completion, CompletionAnswer, ErrorRecord
from ratchet.model.job import Progress
from ratchet.model.places import parked_at
from ratchet.model.status import AT_REST, JobStatus
from ratchet.stores.memory.changes import (
    STILL_RUNNING_LIMIT,
    Effects,
    change,
    enqueue,
    requeue,
    revive,
    settle_run,
)
from ratchet.stores.memory.completion import apply_completions, held_by
from ratchet.stores.memory.finish import (
    EndedJob,
    cancel,
    cancel_all,
    fail,
    insert_failure_callback,
    settle_edges,
)
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import latest_still_running, reserve
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.values import check


class MemoryTransitions(Part):
    """Ends, retries, pauses, hand-backs."""

    def complete(
        self,
        completions: Sequence[Completion],
        *,
        now: datetime,
        alert_window: timedelta = ALERT_WINDOW,
        within: object | None = None,
    ) -> list[CompletionAnswer]:
        state, completions = self._state, tuple(completions)
        check(now, "now")
        for completion in completions:
            check(completion)
        return state.run(
            lambda: apply_completions(state, completions, now, alert_window),
            within=within,
        )

    @atomic
    def cancel(
        self, job_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        row, effects = self._state.jobs.get(job_id), Effects()
        if row is not None and not row.status.is_terminal:
            check(reason, "the reason")
            cancel(self._state, row, effects, reason=reason, now=now)
        return effects.canceled

    @atomic
    def settle(self, claims: Sequence[JobClaim], *, now: datetime) -> None:
        for claim in claims:
            settle_run(self._state, claim.job_id, claim.claim_id, Effects(), now=now)

    @atomic
    def expire(self, *, now: datetime, limit: int) -> list[CanceledJob]:
        state = self._state
        rows = [state.jobs[job_id] for job_id in state.expiring.of(True)]
        due = [(at, row) for row in rows if row.status in AT_REST and (at := _first_deadline(row)) <= now]
        due.sort(key=lambda item: (item[0], item[1].job_id.int))
        chosen = [row for _, row in due[:limit]]
        expired = [row for row in chosen if row.expiry_due_at is not None and row.expiry_due_at <= now]
        gone = {row.job_id for row in expired}
        ended = cancel_all(state, expired, reason="expired", now=now)
        waiting = [row.job_id for row in chosen if row.job_id not in gone]
        return ended + _fail_unsignaled(state, waiting, now=now)

    @atomic
    def retry(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        return retry(self._state, job_id, now=now)

    @atomic
    def pause(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        row = self._state.jobs.get(job_id)
        if row is None or row.archived_at is not None:
            return False
        if row.status in (JobStatus.PENDING, JobStatus.FAILED):
            # while it is paused it does not wait for code of an earlier run: the latest end of that wait is its due time
            held = {"scheduled_at": row.due_at, "held_claim_id": None, "held_until": None}
            change(
                self._state, row, Effects(), now=now, status=JobStatus.PAUSED, paused_from=row.status, **held
            )
            return True
        return row.status is JobStatus.PAUSED

    @atomic
    def resume(self, job_id: UUID, *, now: datetime, within: object | None = None) -> bool:
        row = self._state.jobs.get(job_id)
        if row is None or row.status is not JobStatus.PAUSED:
            return False
        after = change(self._state, row, Effects(), now=now, status=row.paused_from, paused_from=None)
        if after.status is JobStatus.PENDING and after.due_at < now:
            self._state.backdated(after.stream_id)
        return True

    @atomic
    def hand_back(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        returned = 0
        for claim in claims:
            row = held_by(self._state, claim)
            if row is not None:
                requeue(self._state, row, Effects(), now=now, at=row.due_at)
                returned += 1
        return returned

    @atomic
    def hand_back_unknown(self, node_id: str, known: Sequence[UUID], *, now: datetime) -> list[UUID]:
        state, tokens, returned = self._state, set(known), []
        for job_id in sorted(state.running_on.of(node_id), key=lambda job_id: job_id.int):
            row = state.jobs[job_id]
            if row.claim_id not in tokens and not state.is_locked(state.jobs, job_id):
                requeue(state, row, Effects(), now=now, at=row.due_at)
                returned.append(job_id)
        for (job_id, claim_id), node in sorted(state.still_running.items(), key=lambda item: item[0][0].int):
            if node == node_id and claim_id not in tokens:
                settle_run(state, job_id, claim_id, Effects(), now=now)
        return returned

    @atomic
    def park(self, claim: JobClaim, target: str, *, now: datetime) -> bool:
        row = held_by(self._state, claim)
        if row is None:
            return False
        stream = replace(row.stream, parked_target=parked_at(row.stream.parked_target, target))
        stream_id = self._state.stream(stream)
        requeue(self._state, row, Effects(), now=now, at=row.due_at, stream=stream, stream_id=stream_id)
        return True

    def save_progress(
        self, claim: JobClaim, progress: Progress, *, now: datetime, within: object | None = None
    ) -> bool:
        check((now, progress), "now")
        return self._state.run(lambda: _save(self._state, claim, now, progress=progress), within=within)

    @atomic
    def save_state(self, claim: JobClaim, state: str, *, now: datetime) -> bool:
        check(state, "the checkpoint")
        return _save(self._state, claim, now, state=state)


def _save(state: State, claim: JobClaim, now: datetime, /, **fields: Any) -> bool:
    row = held_by(state, claim)
    if row is not None:
        change(state, row, Effects(), now=now, **fields)
    return row is not None


def retry(state: State, job_id: UUID, *, now: datetime) -> bool:
    """
    Start a failed job over; raises `BusinessKeyBusy` where another job has its key.

    Where the code of an earlier run is still running, the job waits for it.
    """
    row, effects = state.jobs.get(job_id), Effects()
    if row is None or row.ended_as is not JobStatus.FAILED or row.archived_at is not None:
        return False
    reserve(state, row, now=now)
    earlier = latest_still_running(state, job_id)
    held_until = None if earlier is None else now + STILL_RUNNING_LIMIT
    enqueue(
        state,
        row,
        effects,
        now=now,
        at=now,
        held_claim_id=earlier,
        held_until=held_until,
        attempts=0,
        crashes=0,
        error=None,
        error_type=None,
        started_at=None,
        finished_at=None,
        progress=None,
        paused_from=None,
        dead_letter_reason=None,
        dead_lettered_at=None,
        stream=row.spec.stream,
        stream_id=state.stream(row.spec.stream),
    )
    revive(state, job_id, effects, now=now)
    return True


def _first_deadline(row: Row) -> datetime:
    return min(deadline for deadline in (row.expiry_due_at, row.signal_due_at) if deadline is not None)


def _fail_unsignaled(state: State, job_ids: Sequence[UUID], *, now: datetime) -> list[CanceledJob]:
    """Fail jobs that waited too long for their signal, unless they ended meanwhile because another job expired."""
    ended: list[EndedJob] = []
    for row in (state.jobs[job_id] for job_id in job_ids):
        if row.status is not JobStatus.WAITING or not row.awaits_signal or row.spec.signal is None:
            continue
        error = ErrorRecord(
            message=f"no signal {row.spec.signal.key!r} arrived in time", type="SignalTimeout"
        )
        effects = Effects()
        alerted = fail(state, row, effects, error=error, reason="signal timeout", now=now)
        effects.canceled.append(
            CanceledJob(
                job_id=row.job_id,
                target=row.spec.target,
                previous=row.status,
                reason=SIGNAL_TIMEOUT,
                status=JobStatus.FAILED,
                alerted=alerted,
            )
        )
        insert_failure_callback(state, row, error, reason="signal timeout", now=now)
        ended.append(EndedJob(row.job_id, effects))
    settle_edges(state, ended, now=now)
    return [job for one in ended for job in one.effects.canceled]
