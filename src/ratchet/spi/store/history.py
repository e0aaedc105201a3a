"""History: executions, rates, logs, archive."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from ratchet.model.flow import QueuedSample, RunSample
from ratchet.model.flow_history import FlowPeriod
from ratchet.model.job import Execution, LogEntry, LogLine
from ratchet.model.storage import Kept


class ExecutionStore(Protocol):
    """One row per run, written by the transaction that ended it."""

    def executions(self, job_id: UUID, *, uncounted: bool = False) -> list[Execution]:
        """The runs of a job, oldest first; with *uncounted* also those that crashed, were handed back or canceled."""
        ...

    def run_samples(self, *, limit: int) -> list[RunSample]:
        """
        The newest runs that have ended, by the ids of their jobs, newest first; at most *limit*.

        No other order is promised: a run of an old job comes behind those of all newer ones. The cost grows with
        *limit* alone.
        """
        ...

    def queued_samples(self, *, limit: int) -> list[QueuedSample]:
        """Jobs that are PENDING or RUNNING, at most *limit*; which, where there are more, is not promised."""
        ...

    def purge_executions(self, *, before: datetime, limit: int) -> int:
        """Delete runs of ended jobs that finished before *before*; at most *limit*."""
        ...


class FlowStore(Protocol):
    """What has flowed through each queue, minute by minute: written by each node for itself, and by one for what waits."""

    def record_flow(self, periods: Sequence[FlowPeriod]) -> int:
        """Store periods; one that is there already (seconds, at, source) is left alone. How many were new."""
        ...

    def flow(self, *, since: datetime, until: datetime, only: str | None = None) -> list[FlowPeriod]:
        """
        The periods that began at *since* or later and before *until*, of all lengths, by time, length and source.

        With *only* they have nothing but this queue, or `TOTAL`.
        """
        ...

    def merge_flow(self, *, before: datetime) -> int:
        """
        Make one period of the length `MERGED` of the minutes in the oldest such slot, if the first of them began before *before*.
        How many minutes were merged; 0: there are none that old.

        One transaction. A minute that comes later is added to the merged period by another call; two calls at once count
        nothing twice.
        """
        ...

    def purge_flow(self, *, before: datetime, limit: int) -> int:
        """Delete periods that began before *before*; at most *limit*."""
        ...


class JobLogStore(Protocol):
    """What jobs logged."""

    def append_logs(self, entries: Sequence[LogEntry], *, now: datetime) -> None:
        """
        Store lines; a line that is already there (job, claim, sequence) is left alone. There is no fence:
        lines of a lost run are kept.
        """
        ...

    def logs(self, job_id: UUID, *, limit: int = 1000) -> list[LogLine]:
        """
        The newest *limit* lines of a job, in the order they were logged; lines of a run that lost its claim
        are marked.
        """
        ...

    def purge_logs(self, *, before: datetime, limit: int) -> int:
        """Delete lines older than *before*; at most *limit*."""
        ...


class ArchiveStore(Protocol):
    """Moves ended jobs to the archive; search finds them there with ``include_archived``."""

    def archive(self, *, before: datetime, limit: int, now: datetime) -> int:
        """
        Move SUCCEEDED and CANCELED jobs that finished before *before* to the archive; at most *limit*.

        A job stays while another job that has not ended depends on it, or while its batch is open. It also stays
        while the retry of a dead letter could bring it back: the parent of a batch with failed children, and what
        was canceled below such a parent or below a failed job. A join stays while any of its parents has failed. What
        stays does not keep later jobs from being archived.
        """
        ...

    def purge_archive(self, *, before: datetime, limit: int) -> int:
        """Delete jobs that were archived before *before*, with their runs and tags; at most *limit*."""
        ...

    def count_old(self, kind: Kept, *, before: datetime, limit: int) -> int:
        """
        How many rows of a kind are older than *before*, for people: at most *limit*, and of jobs and runs only those among
        the first *limit* ids. What something still needs counts too. The cost grows with *limit* alone.
        """
        ...

    def oldest_created_at(self) -> datetime | None:
        """
        When the oldest job outside the archive was created; None if there is none.

        Every node asks this every minute, so the cost must not grow with the number of jobs. Ids are made in the
        order of creation: it is enough to look at the first few hundred of them.
        """
        ...

    def oldest_archived_at(self) -> datetime | None:
        """
        When the job that has been in the archive longest was archived; None if the archive is empty. It
        costs as little.
        """
        ...
