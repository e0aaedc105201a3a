"""How a job ended, as conditions and callbacks see it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import Struct

from ratchet.model.status import JobStatus


class JobError(Struct, frozen=True, kw_only=True):
    """Why a job failed for good; given to ``on_failure`` callbacks. All text is sanitized."""

    job_id: UUID
    message: str
    type: str
    reason: str
    attempts: int

    def __str__(self) -> str:
        return self.message


class JobResult(Struct, frozen=True, kw_only=True):
    """How a job ended; given to the predicates of ``when`` and ``branch``."""

    job_id: UUID
    status: JobStatus
    result: Any = None
    error: str | None = None
    error_type: str | None = None
    attempts: int = 1
    duration: timedelta | None = None

    @property
    def succeeded(self) -> bool:
        """True if the job ended as SUCCEEDED."""
        return self.status is JobStatus.SUCCEEDED


class BatchContext(Struct, frozen=True, kw_only=True):
    """A batch's counters, as its handle and its conditions see them."""

    batch_id: UUID
    total_items: int
    completed_items: int
    failed_items: int
    canceled_items: int
    is_complete: bool = False

    @property
    def percent_done(self) -> float:
        """How much has ended, from 0 to 100; an empty batch is done."""
        if not self.total_items:
            return 100.0
        return 100.0 * (self.completed_items + self.failed_items + self.canceled_items) / self.total_items

    @property
    def success_rate(self) -> float:
        """The share of items that succeeded, from 0 to 1; 1 for an empty batch."""
        return self.completed_items / self.total_items if self.total_items else 1.0
