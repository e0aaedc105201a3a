"""What a move says while it goes on, and at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from ratchet.model.moves import RowKind, Tally
from ratchet.spi.store import JobStore


class Stage(StrEnum):
    """What is being done."""

    DRAIN = "drain"
    COPY = "copy"
    COMPARE = "compare"


class Progress(Struct, frozen=True, kw_only=True):
    """
    How far a stage is.

    ``rows`` is what this call has gone through in the stage, in ``seconds``; ``expected`` an estimate of all of it, None where the
    database does not tell. While draining, ``rows`` is the number of runs that are waited for.
    """

    stage: Stage
    kind: RowKind | None
    rows: int
    seconds: float
    expected: int | None = None

    @property
    def rate(self) -> float:
        """Rows in a second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


OnProgress = Callable[[Progress], None]


def unheard(progress: Progress) -> None:
    """Nobody wants to know."""


class MoveReport(Struct, frozen=True, kw_only=True):
    """
    What was moved, and how fast. ``tallies`` were found on both sides; of a dry run, on the source.

    ``seconds`` is the time of this call's copying and comparing. ``copied`` are the rows that it copied itself: after an interruption, the
    rest. ``handed_back`` are runs that were taken from their nodes.
    """

    tallies: dict[RowKind, Tally]
    copied: int = 0
    copied_jobs: int = 0
    seconds: float = 0.0
    handed_back: int = 0
    resumed: bool = False
    dry_run: bool = False
    running: int = 0
    nodes: int = 0

    @property
    def rows(self) -> int:
        """All rows."""
        return sum(tally.count for tally in self.tallies.values())

    @property
    def jobs(self) -> int:
        """All jobs, archived ones included."""
        return sum(
            self.tallies[kind].count for kind in (RowKind.JOB, RowKind.ARCHIVED_JOB) if kind in self.tallies
        )

    @property
    def jobs_per_second(self) -> float:
        """Jobs that were copied and compared in a second."""
        return self.copied_jobs / self.seconds if self.seconds > 0 else 0.0


#: Where each kind is kept, by the name that SQL and MongoDB share.
TABLES = {
    RowKind.QUEUE: "scheduler_queue",
    RowKind.LIMIT: "scheduler_resource_limit",
    RowKind.BREAKER: "scheduler_circuit_breaker",
    RowKind.SCHEDULE: "scheduler_recurring_job",
    RowKind.FIRE: "scheduler_recurring_fire",
    RowKind.BATCH: "scheduler_batch",
    RowKind.BATCH_COST: "scheduler_batch_metrics",
    RowKind.SIGNAL: "scheduler_signal",
    RowKind.EDGE: "scheduler_dependency",
    RowKind.BUSINESS_KEY: "scheduler_business_key_reservation",
    RowKind.IDEMPOTENCY_KEY: "scheduler_idempotency_key",
    RowKind.ARCHIVED_JOB: "scheduler_job_archive",
    RowKind.RUN: "scheduler_job_execution",
    RowKind.LOG: "scheduler_job_log",
    RowKind.ALERT: "scheduler_dlq_alert",
    RowKind.FLOW: "scheduler_flow",
    RowKind.AUDIT: "scheduler_audit",
    RowKind.JOB: "scheduler_job",
}


def expected_rows(store: JobStore) -> int | None:
    """About how many rows there are to move; None: the database does not tell, or has counted up to a limit."""
    sizes = {table.name: table for table in store.size().tables}
    found = [sizes[name] for name in TABLES.values() if name in sizes]
    if any(table.rows is None or table.more for table in found):
        return None
    return sum(table.rows or 0 for table in found)


class Clockwork:
    """Counts the rows of a stage and tells them."""

    def __init__(self, stage: Stage, on_progress: OnProgress, expected: int | None = None) -> None:
        self._stage = stage
        self._tell = on_progress
        self._expected = expected
        self._started = time.monotonic()
        self.rows = 0

    def add(self, kind: RowKind | None, rows: int) -> None:
        """So many rows more."""
        self.rows += rows
        self.now(kind, self.rows)

    def now(self, kind: RowKind | None, rows: int) -> None:
        """So many rows in all."""
        seconds = time.monotonic() - self._started
        self._tell(
            Progress(stage=self._stage, kind=kind, rows=rows, seconds=seconds, expected=self._expected)
        )
