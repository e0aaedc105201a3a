"""Batches: counted children and the parent job that their end releases."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.composition import BatchMetrics, BatchRecord
from ratchet.model.decision import CanceledJob
from ratchet.model.job import JobSpec


class BatchStore(Protocol):
    """
    Counts the children of batches exactly, under any concurrency.

    A batch is inserted with `JobCrudStore.insert(batch=…)`. completed, failed and canceled move in
    the transaction that ends a child. The change that makes ``completed + failed + canceled`` equal
    ``total`` of a sealed batch sets ``finished_at`` and releases the parent job, once.
    """

    def append_children(self, batch_id: UUID, specs: Sequence[JobSpec], *, now: datetime) -> bool:
        """Store more children of an unsealed batch and raise its total, in one transaction; False: sealed or gone."""
        ...

    def seal(self, batch_id: UUID, *, now: datetime) -> bool:
        """No more children will come; completes the batch at once if all have ended. False: already sealed."""
        ...

    def batch(self, batch_id: UUID) -> BatchRecord | None:
        """The counters; None if there is no such batch."""
        ...

    def batches(self, *, limit: int = 50) -> list[BatchRecord]:
        """The newest batches."""
        ...

    def cancel_batch(self, batch_id: UUID, *, reason: str, now: datetime) -> list[CanceledJob]:
        """Cancel every child that has not ended and the parent; the batch is sealed."""
        ...

    def retry_failed(self, batch_id: UUID, *, now: datetime) -> int:
        """Retry every FAILED child; a finished batch opens again and its parent waits again."""
        ...

    def unfinished(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches whose children have all ended but whose parent was not released (recovery sweep)."""
        ...

    def unsealed(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches to which more children may come, oldest first; see `ratchet.api.batches.open_batches` for who looks."""
        ...

    def finish(self, batch_id: UUID, *, now: datetime) -> bool:
        """Release the parent of a batch whose counters are complete; False if it is not, or was already."""
        ...


class BatchMetricsStore(Protocol):
    """What batches cost."""

    def batch_metrics(self, batch_id: UUID) -> BatchMetrics | None:
        """Run time and number of runs of a batch's children; None if there is no such batch."""
        ...
