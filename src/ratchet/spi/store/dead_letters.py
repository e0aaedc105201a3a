"""Dead letters: jobs that failed for good, and the alerts about them."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.job import Alert, DeadLetter, JobFilter, Page


class DlqAlertStore(Protocol):
    """Reads dead letters and alerts; the transaction that fails a job writes both."""

    def dead_letters(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """FAILED jobs, latest failure first, each with its alerts."""
        ...

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        ...

    def alerts_of(self, job_id: UUID) -> list[Alert]:
        """The alerts of one job, oldest first."""
        ...
