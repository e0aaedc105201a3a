"""Batches: jobs that are counted together, and the parent job that is released when they have ended."""

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
    Counts the children of batches exactly, however many nodes end them at once.

    A batch is inserted with `JobCrudStore.insert(batch=…)`. The transaction that ends a child also raises
    completed, failed or canceled. The change that makes ``completed + failed + canceled`` equal to the
    ``total`` of a sealed batch sets ``finished_at`` and releases the parent job, once.
    """

    def append_children(self, batch_id: UUID, specs: Sequence[JobSpec], *, now: datetime) -> bool:
        """
        Store more children of an unsealed batch and raise its total, in one transaction; False if it is
        sealed or gone.
        """
        ...

    def seal(self, batch_id: UUID, *, now: datetime) -> bool:
        """
        Allow no more children; a batch whose children have all ended finishes at once. False if it was
        already sealed.
        """
        ...

    def batch(self, batch_id: UUID) -> BatchRecord | None:
        """The batch with its counters; None if there is no such batch."""
        ...

    def batches(self, *, limit: int = 50) -> list[BatchRecord]:
        """The newest batches."""
        ...

    def cancel_batch(
        self, batch_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """
        Cancel the parent and every child that has not ended, and seal the batch.

        *within*: all of it in the caller's transaction. A batch that is not sealed is refused there (`InvalidJob`):
        others could add children until the commit, which nobody would cancel.
        """
        ...

    def retry_failed(self, batch_id: UUID, *, now: datetime, within: object | None = None) -> int:
        """Retry every FAILED child; a finished batch opens again, and its parent waits again."""
        ...

    def unfinished(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches whose children have all ended, but whose parent was not released; for the recovery sweep."""
        ...

    def unsealed(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches that may still get children, oldest first; `ratchet.api.batches.open_batches` says who asks."""
        ...

    def finish(self, batch_id: UUID, *, now: datetime) -> bool:
        """
        Release the parent of a batch whose counters are complete; False if they are not, or if it was
        already released.
        """
        ...


class BatchMetricsStore(Protocol):
    """How much run time batches take."""

    def batch_metrics(self, batch_id: UUID) -> BatchMetrics | None:
        """Run time and number of runs of a batch's children; None if there is no such batch."""
        ...
