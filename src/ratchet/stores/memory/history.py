"""Executions, rates, logs and the archive in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from ratchet.model.flow import QueuedSample, RunSample
from ratchet.model.flow_history import MERGED, MINUTE, FlowPeriod, floor, merged
from ratchet.model.job import Execution, ExecutionStatus, LogEntry, LogLine
from ratchet.model.status import JobStatus
from ratchet.model.storage import Kept
from ratchet.stores.memory.changes import Effects, change
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.values import check


def forget(state: State, job_id: UUID) -> None:
    """Remove a job with everything that is known of it but its idempotency key."""
    for key in (*state.edges_in.of(job_id), *state.edges_out.of(job_id)):
        state.edges.remove(key)
    for run in state.runs_of.of(job_id):
        state.executions.remove(run)
    for line in state.logs_of.of(job_id):
        state.logs.remove(line)
    for alert_id in state.alerts_of.of(job_id):
        state.alerts.remove(alert_id)
    state.jobs.remove(job_id)


def is_needed(state: State, row: Row) -> bool:
    """True where an ended job must stay: something unfinished depends on it, or a retry may bring it back."""
    own = None if row.spec.batch_id is None else state.batches.get(row.spec.batch_id)
    if own is not None and own.finished_at is None:
        return True
    if _may_reopen(state, row) or (row.canceled_by is not None and _may_wait_again(state, row)):
        return True
    children = (state.jobs.get(child_id) for _, child_id in state.edges_out.of(row.job_id))
    return any(child is not None and child.ended_as is None for child in children)


def _may_reopen(state: State, row: Row) -> bool:
    """True for the parent of a batch that is open, or that opens again when a failed child is retried."""
    batches = (state.batches.get(batch_id) for batch_id in state.batches_of.of(row.job_id))
    return any(
        batch is not None
        and (batch.finished_at is None or (batch.failed > 0 and state.has_failed_child(batch.batch_id)))
        for batch in batches
    )


def _may_wait_again(state: State, row: Row) -> bool:
    """True where the retry of a job above this canceled one may revive it, also by way of other canceled ones."""
    seen, above = {row.job_id}, [row.job_id]
    while above:
        for parent_id, _ in state.edges_in.of(above.pop()):
            parent = state.jobs.get(parent_id)
            if parent is None or parent.archived_at is not None or parent_id in seen:
                continue
            if parent.ended_as is JobStatus.FAILED or _may_reopen(state, parent):
                return True
            if parent.canceled_by is not None:
                seen.add(parent_id)
                above.append(parent_id)
    return False


class MemoryHistory(Part):
    """What jobs did, and where they go when they are done."""

    @atomic
    def executions(self, job_id: UUID, *, uncounted: bool = False) -> list[Execution]:
        runs = [self._state.executions[key] for key in self._state.runs_of.of(job_id)]
        return sorted((run for run in runs if run.counted or uncounted), key=_age)

    @atomic
    def run_samples(self, *, limit: int) -> list[RunSample]:
        state = self._state
        newest = sorted(state.executions.keys(), key=lambda key: (key[0].int, key[1].int), reverse=True)
        found = [
            (state.jobs[key[0]], state.executions[key]) for key in newest[:limit] if key[0] in state.jobs
        ]
        return [
            RunSample(
                target=row.spec.target,
                queue=row.stream.queue,
                attempt=run.attempt,
                status=run.status,
                started_at=run.started_at,
                finished_at=run.finished_at,
                wait=run.queue_wait,
                duration=run.duration,
            )
            for row, run in found
        ]

    @atomic
    def queued_samples(self, *, limit: int) -> list[QueuedSample]:
        state = self._state
        ids = [*state.by_status.of(JobStatus.RUNNING), *state.by_status.of(JobStatus.PENDING)][:limit]
        return [
            QueuedSample(
                target=row.spec.target, queue=row.stream.queue, due_at=row.due_at, claimed_at=row.claimed_at
            )
            for row in (state.jobs[job_id] for job_id in ids)
        ]

    @atomic
    def purge_executions(self, *, before: datetime, limit: int) -> int:
        old = [
            run
            for run in self._state.executions.values()
            if run.finished_at is not None
            and run.finished_at < before
            and _has_ended(self._state, run.job_id)
        ]
        old = sorted(old, key=_age)[:limit]
        for run in old:
            self._state.executions.remove((run.job_id, run.claim_id))
        return len(old)

    # --- rates ----------------------------------------------------------------------------------

    @atomic
    def record_flow(self, periods: Sequence[FlowPeriod]) -> int:
        return sum(self._add_period(period) for period in periods)

    @atomic
    def flow(self, *, since: datetime, until: datetime, only: str | None = None) -> list[FlowPeriod]:
        return self._periods(since, until, only)

    @atomic
    def merge_flow(self, *, before: datetime) -> int:
        length = MINUTE.total_seconds()
        old = [at for seconds, at, _ in self._state.flow.keys() if seconds == length and at < before]  # noqa: SIM118 - no dict
        if not old:
            return 0
        begin = floor(min(old), MERGED)
        found = self._periods(begin, begin + MERGED)
        for period in found:
            self._state.flow.remove((period.seconds, period.at, period.source))
        self._add_period(merged(found, begin))
        return sum(period.seconds == length for period in found)

    @atomic
    def purge_flow(self, *, before: datetime, limit: int) -> int:
        old = sorted(key for key in self._state.flow.keys() if key[1] < before)[:limit]  # noqa: SIM118 - no dict
        for key in old:
            self._state.flow.remove(key)
        return len(old)

    def _add_period(self, period: FlowPeriod) -> bool:
        check((period.at, period.source), "a period")
        key = (period.seconds, period.at, period.source)
        if key in self._state.flow:
            return False
        self._state.flow.put(key, period.document)
        return True

    def _periods(self, since: datetime, until: datetime, only: str | None = None) -> list[FlowPeriod]:
        found = [
            FlowPeriod.of_document(*key, document, only)
            for key, document in self._state.flow.items()
            if since <= key[1] < until
        ]
        return sorted(found, key=lambda period: (period.at, period.seconds, period.source))

    # --- logs -----------------------------------------------------------------------------------

    @atomic
    def append_logs(self, entries: Sequence[LogEntry], *, now: datetime) -> None:
        for entry in entries:
            check(entry)
            key = (entry.job_id, entry.claim_id, entry.sequence)
            if key not in self._state.logs:
                self._state.logs.put(key, entry)

    @atomic
    def logs(self, job_id: UUID, *, limit: int = 1000) -> list[LogLine]:
        entries = [self._state.logs[key] for key in self._state.logs_of.of(job_id)]
        entries.sort(key=lambda entry: (entry.claim_id.int, entry.sequence))
        newest = entries[-limit:] if limit > 0 else []
        return [_line(entry, lost=_is_lost(self._state, entry)) for entry in newest]

    @atomic
    def purge_logs(self, *, before: datetime, limit: int) -> int:
        old = [(key, entry) for key, entry in self._state.logs.items() if entry.at < before]
        old = sorted(old, key=lambda item: (item[1].at, item[1].claim_id.int, item[1].sequence))[:limit]
        for key, _ in old:
            self._state.logs.remove(key)
        return len(old)

    # --- archive --------------------------------------------------------------------------------

    @atomic
    def archive(self, *, before: datetime, limit: int, now: datetime) -> int:
        state, moved = self._state, 0
        ended = [*state.by_status.of(JobStatus.SUCCEEDED), *state.by_status.of(JobStatus.CANCELED)]
        for row in sorted((state.jobs[job_id] for job_id in ended), key=lambda row: row.job_id.int):
            if moved == limit:
                break
            if row.finished_at is not None and row.finished_at < before and not is_needed(state, row):
                change(state, row, Effects(), now=now, archived_at=now)
                moved += 1
        return moved

    @atomic
    def purge_archive(self, *, before: datetime, limit: int) -> int:
        state = self._state
        old = [(row.archived_at, row) for row in state.jobs.values() if row.archived_at is not None]
        old = [item for item in old if item[0] < before]
        old = sorted(old, key=lambda item: (item[0], item[1].job_id.int))[:limit]
        for _, row in old:
            for batch_id in state.batches_of.of(row.job_id):
                state.batches.remove(batch_id)
                state.costs.remove(batch_id)
            forget(state, row.job_id)
        return len(old)

    @atomic
    def count_old(self, kind: Kept, *, before: datetime, limit: int) -> int:
        state = self._state
        rows = sorted(state.jobs.values(), key=lambda row: row.job_id.int)
        match kind:
            case Kept.JOBS:
                first = [row for row in rows if row.archived_at is None][:limit]
                ended = (JobStatus.SUCCEEDED, JobStatus.CANCELED)
                times = [row.finished_at for row in first if row.status in ended]
            case Kept.DEAD_LETTERS:
                failed = [row for row in rows if row.status is JobStatus.FAILED and row.archived_at is None]
                times = [row.dead_lettered_at for row in failed]
            case Kept.LOGS:
                times = [entry.at for entry in state.logs.values()]
            case Kept.EXECUTIONS:
                runs = sorted(state.executions.items(), key=lambda item: (item[0][0].int, item[0][1].int))[
                    :limit
                ]
                times = [run.finished_at for _, run in runs]
            case _:
                times = [row.archived_at for row in rows]
        return min(limit, sum(at is not None and at < before for at in times))

    @atomic
    def oldest_created_at(self) -> datetime | None:
        jobs = self._state.jobs.values()
        return min((row.created_at for row in jobs if row.archived_at is None), default=None)

    @atomic
    def oldest_archived_at(self) -> datetime | None:
        jobs = self._state.jobs.values()
        return min((row.archived_at for row in jobs if row.archived_at is not None), default=None)


def _age(run: Execution) -> tuple[bool, datetime | None, int]:
    return run.finished_at is not None, run.finished_at, run.claim_id.int


def _has_ended(state: State, job_id: UUID) -> bool:
    row = state.jobs.get(job_id)
    return row is None or row.status.is_terminal


def _line(entry: LogEntry, *, lost: bool) -> LogLine:
    return LogLine(
        at=entry.at,
        level=entry.level,
        logger=entry.logger,
        message=entry.message,
        attempt=entry.attempt,
        lost=lost,
    )


def _is_lost(state: State, entry: LogEntry) -> bool:
    """True for a run that was rescued, or that holds the job no longer and has left no row of its own."""
    run = state.executions.get((entry.job_id, entry.claim_id))
    if run is not None:
        return run.status == ExecutionStatus.CRASHED
    row = state.jobs.get(entry.job_id)
    if row is not None and row.claim_id == entry.claim_id:
        return False
    # an ended job without any rows has had them purged: its lines are not judged
    return (row is not None and row.status.is_hot) or state.runs_of.size(entry.job_id) > 0
