"""Dead letters: jobs that failed for good, and the alerts about them."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.job import Alert, DeadLetter, DeadLetterGroup, JobFilter, Page


class DlqAlertStore(Protocol):
    """Reads dead letters and alerts; the transaction that fails a job writes both."""

    def dead_letters(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """FAILED jobs, latest failure first, each with its alerts (see `alerts_of`); those in the archive have none."""
        ...

    def dead_letter_groups(
        self, where: JobFilter | None = None, *, limit: int = 100
    ) -> list[DeadLetterGroup]:
        """The matching FAILED jobs, by target and error type; most first, then by target and error type."""
        ...

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        ...

    def alerts_of(self, job_id: UUID) -> list[Alert]:
        """The alerts about one job: those it raised, and the latest of its cause when it failed; oldest first."""
        ...
