"""History: executions, logs, archive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.job import Execution, LogEntry, LogLine


class ExecutionStore(Protocol):
    """One row per run, written by the transaction that ended it."""

    def executions(self, job_id: UUID, *, uncounted: bool = False) -> list[Execution]:
        """The runs of a job, oldest first; with *uncounted* also crashed, handed-back and canceled ones."""
        ...

    def purge_executions(self, *, before: datetime, limit: int) -> int:
        """Delete runs of ended jobs that finished before *before*; at most *limit*."""
        ...


class JobLogStore(Protocol):
    """What jobs logged."""

    def append_logs(self, entries: Sequence[LogEntry], *, now: datetime) -> None:
        """Store lines; a line that is already there (job, claim, sequence) is left alone. Never fenced: lines of a lost run are kept."""
        ...

    def logs(self, job_id: UUID, *, limit: int = 1000) -> list[LogLine]:
        """The newest *limit* lines of a job, in the order they were logged; lines of a run that lost its claim say so."""
        ...

    def purge_logs(self, *, before: datetime, limit: int) -> int:
        """Delete lines older than *before*; at most *limit*."""
        ...


class ArchiveStore(Protocol):
    """Moves ended jobs out of the way; search reaches them with ``include_archived``."""

    def archive(self, *, before: datetime, limit: int, now: datetime) -> int:
        """
        Move SUCCEEDED and CANCELED jobs that finished before *before* to the archive; at most *limit*.

        Not while a job that has not ended depends on them, or their batch is open; nor a job that a
        dead letter's failure canceled, while a retry of that dead letter could revive it.
        """
        ...

    def purge_archive(self, *, before: datetime, limit: int) -> int:
        """Delete archived jobs that were archived before *before*, with their runs and tags; at most *limit*."""
        ...

    def oldest_created_at(self) -> datetime | None:
        """
        When the oldest job outside the archive was created; None: there is none.

        Asked by every node every minute, so it costs the same however many jobs there are. Ids are made in the
        order of creation: it is enough to look at the first few hundred of them.
        """
        ...

    def oldest_archived_at(self) -> datetime | None:
        """When the job that has been in the archive for longest came there; None: it is empty. As cheap."""
        ...
