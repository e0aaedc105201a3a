"""Batches in memory; how they count their children is in `changes`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.composition import BatchMetrics, BatchRecord
from ratchet.model.decision import CanceledJob
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus
from ratchet.stores.memory.changes import Effects, finish_batch, is_complete
from ratchet.stores.memory.finish import cancel, cancel_all
from ratchet.stores.memory.insertion import InsertCall
from ratchet.stores.memory.rows import Cost, Row
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.transitions import retry
from ratchet.stores.validation import require_sealed


class MemoryBatches(Part):
    """Batches."""

    @atomic
    def append_children(self, batch_id: UUID, specs: Sequence[JobSpec], *, now: datetime) -> bool:
        state = self._state
        batch = state.batches.get(batch_id)
        if batch is None or batch.sealed:
            return False
        submission = InsertCall(state, Effects(), now=now)
        submission.store([replace(spec, batch_id=batch_id) for spec in specs])
        state.batches.put(batch_id, replace(batch, total=batch.total + len(submission.new)))
        return True

    @atomic
    def seal(self, batch_id: UUID, *, now: datetime) -> bool:
        batch = self._state.batches.get(batch_id)
        if batch is None or batch.sealed:
            return False
        sealed = replace(batch, sealed=True)
        self._state.batches.put(batch_id, sealed)
        finish_batch(self._state, sealed, Effects(), now=now)
        return True

    @atomic
    def batch(self, batch_id: UUID) -> BatchRecord | None:
        return self._state.batches.get(batch_id)

    @atomic
    def batches(self, *, limit: int = 50) -> list[BatchRecord]:
        newest = sorted(
            self._state.batches.values(),
            key=lambda batch: (batch.created_at, batch.batch_id.int),
            reverse=True,
        )
        return newest[:limit]

    @atomic
    def cancel_batch(
        self, batch_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        state, effects = self._state, Effects()
        batch = state.batches.get(batch_id)
        if batch is None:
            return []
        if within is not None:
            require_sealed(batch)
        state.batches.put(batch_id, replace(batch, sealed=True))
        parent = state.jobs.get(batch.parent_id)
        if parent is not None and not parent.status.is_terminal:
            cancel(
                state, parent, effects, reason=reason, now=now
            )  # first, or the last child would release it
        children = [child for child in _children(state, batch) if child.ended_as is None]
        canceled = cancel_all(state, children, reason=reason, now=now)
        finish_batch(state, state.batches[batch_id], effects, now=now)
        return effects.canceled + canceled

    @atomic
    def retry_failed(self, batch_id: UUID, *, now: datetime, within: object | None = None) -> int:
        batch = self._state.batches.get(batch_id)
        children = [] if batch is None else _children(self._state, batch)
        failed = [row.job_id for row in children if row.status is JobStatus.FAILED]
        return sum(retry(self._state, job_id, now=now) for job_id in failed)

    @atomic
    def unfinished(self, *, limit: int = 100) -> list[BatchRecord]:
        stuck = [
            batch
            for batch in self._state.batches.values()
            if batch.finished_at is None and is_complete(batch)
        ]
        return sorted(stuck, key=lambda batch: batch.batch_id.int)[:limit]

    @atomic
    def unsealed(self, *, limit: int = 100) -> list[BatchRecord]:
        growing = [batch for batch in self._state.batches.values() if not batch.sealed]
        return sorted(growing, key=lambda batch: batch.batch_id.int)[:limit]

    @atomic
    def finish(self, batch_id: UUID, *, now: datetime) -> bool:
        batch = self._state.batches.get(batch_id)
        return batch is not None and finish_batch(self._state, batch, Effects(), now=now)

    @atomic
    def batch_metrics(self, batch_id: UUID) -> BatchMetrics | None:
        batch = self._state.batches.get(batch_id)
        if batch is None:
            return None
        cost = self._state.costs.get(batch_id) or Cost()
        return BatchMetrics(
            batch_id=batch_id,
            started_at=cost.started_at,
            finished_at=batch.finished_at,
            run_time=cost.run_time,
            runs=cost.runs,
        )


def _children(state: State, batch: BatchRecord) -> list[Row]:
    rows = [state.jobs[job_id] for job_id in state.by_batch.of(batch.batch_id) if job_id != batch.parent_id]
    return sorted((row for row in rows if row.archived_at is None), key=lambda row: row.job_id.int)
