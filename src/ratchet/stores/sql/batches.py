"""Batches in SQL; the counters that change when a child ends are in `dependants.batch_counters`."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from datetime import datetime, timedelta
from operator import itemgetter
from uuid import UUID

from ratchet.model.composition import BatchMetrics, BatchRecord
from ratchet.model.decision import CanceledJob
from ratchet.model.job import JobSpec
from ratchet.stores.auditing import counted
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.sql.dependants.batch_counters import finish_batches
from ratchet.stores.sql.dependants.cancellations import cancel_jobs
from ratchet.stores.sql.recover.manual_retry import retry_jobs
from ratchet.stores.sql.submit.submissions import insert_specs
from ratchet.stores.unreadable import readable, require_readable
from ratchet.stores.validation import require_sealed, validate

#: Children that one transaction cancels or retries.
_PORTION = 500
#: More children than a batch has; a change in the caller's transaction takes all of them.
_ALL = 2**31 - 1

_BATCH = """
    SELECT batch_id, name, parent_id, total, completed, failed, canceled, sealed, created_at, finished_at,
           progress_target
      FROM scheduler_batch
"""

FIND_BATCH = f"{_BATCH} WHERE batch_id = :batch_id"

LIST_BATCHES = f"{_BATCH} ORDER BY batch_id DESC LIMIT :limit"

LIST_UNFINISHED = f"""{_BATCH}
     WHERE finished_at IS NULL AND sealed AND completed + failed + canceled >= total
     ORDER BY batch_id
     LIMIT :limit
"""

LIST_UNSEALED = f"{_BATCH} WHERE finished_at IS NULL AND NOT sealed ORDER BY batch_id LIMIT :limit"

GROW = "UPDATE scheduler_batch SET total = total + :more WHERE batch_id = :batch_id AND NOT sealed"

SEAL = "UPDATE scheduler_batch SET sealed = true WHERE batch_id = :batch_id AND NOT sealed"

FIND_UNENDED_CHILDREN = """
    SELECT job_id
      FROM scheduler_job
     WHERE batch_id = :batch_id AND job_id > :after AND status IN ('PENDING', 'PAUSED', 'WAITING')
     ORDER BY job_id
     LIMIT :limit
"""

FIND_FAILED_CHILDREN = """
    SELECT job_id
      FROM scheduler_job
     WHERE batch_id = :batch_id AND job_id > :after AND status = 'FAILED'
     ORDER BY job_id
     LIMIT :limit
"""

FIND_METRICS = """
    SELECT b.batch_id, m.runs, m.run_time_us, m.started_at, b.finished_at
      FROM scheduler_batch b LEFT JOIN scheduler_batch_metrics m ON m.batch_id = b.batch_id
     WHERE b.batch_id = :batch_id
"""

_NIL = UUID(int=0)


class _Sealed(Exception):
    """The batch takes no more children; what was written is rolled back."""


_TABLE = "scheduler_batch"


class SqlBatches(SqlPart):
    """Counts the children of batches and releases their parents."""

    def append_children(self, batch_id: UUID, specs: Sequence[JobSpec], *, now: datetime) -> bool:
        """Store more children of an unsealed batch and raise its total, in one transaction; False: sealed or gone."""
        self.stream_registry.ids_of(None, validate(specs, now=now))

        def append(session: Session) -> None:
            # Jobs before batches, as everywhere. Children that were stored by an earlier try are not counted again.
            stored = insert_specs(session, self.stream_registry, specs, now=now).stored
            if session.execute(GROW, {"batch_id": batch_id, "more": len(stored)}) == 0:
                raise _Sealed

        try:
            self.database.run(append)
        except _Sealed:
            return False
        return True

    def seal(self, batch_id: UUID, *, now: datetime) -> bool:
        """No more children will come; completes the batch at once if all have ended. False: already sealed."""

        def seal(session: Session) -> bool:
            sealed = session.execute(SEAL, {"batch_id": batch_id}) > 0
            if sealed:
                finish_batches(session, [batch_id], now)
            return sealed

        return self.database.run(seal)

    def batch(self, batch_id: UUID) -> BatchRecord | None:
        """The counters; None if there is no such batch."""
        row = self.database.read(lambda session: session.row(FIND_BATCH, {"batch_id": batch_id}))
        return None if row is None else require_readable(row, _record, _TABLE, batch_id)

    def batches(self, *, limit: int = 50) -> list[BatchRecord]:
        """The newest batches."""
        return self._list(LIST_BATCHES, limit)

    def unfinished(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches whose children have all ended but whose parent was not released."""
        return self._list(LIST_UNFINISHED, limit)

    def unsealed(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches that may still get more children, oldest first."""
        return self._list(LIST_UNSEALED, limit)

    def finish(self, batch_id: UUID, *, now: datetime) -> bool:
        """Release the parent of a batch whose counters are complete; False if it is not, or was already."""
        return bool(self.database.run(lambda session: finish_batches(session, [batch_id], now)))

    def cancel_batch(
        self, batch_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """
        Cancel every child that has not ended and the parent; the batch is sealed.

        The parent goes first, so that the last child cannot release it. Children go in portions, each
        in a transaction of its own: called again, it goes on where it was interrupted.
        """
        if within is not None:
            return self.change(lambda session: _cancel_sealed(session, batch_id, reason, now), within)

        def stop(session: Session) -> list[CanceledJob] | None:
            session.execute(SEAL, {"batch_id": batch_id})
            row = session.row(FIND_BATCH, {"batch_id": batch_id})
            return None if row is None else cancel_jobs(session, [row[2]], reason=reason, now=now)

        parent = self.change(stop)
        if parent is None:
            return []
        canceled = parent
        after: UUID | None = _NIL
        while after is not None:

            def portion(session: Session, after: UUID = after) -> tuple[list[CanceledJob], UUID | None]:
                ids = _children(session, FIND_UNENDED_CHILDREN, batch_id, after)
                return cancel_jobs(session, ids, reason=reason, now=now), ids[-1] if ids else None

            more, after = self.change(portion, count=_in_portion)
            canceled += more
        self.finish(batch_id, now=now)  # a batch without children has no child whose end could finish it
        return canceled

    def retry_failed(self, batch_id: UUID, *, now: datetime, within: object | None = None) -> int:
        """Retry every FAILED child whose business key is free; a finished batch opens again and its parent waits again."""
        if within is not None:

            def retry(session: Session) -> int:
                # at once: jobs are locked before batches, and the second portion would come after the first one's batch
                ids = _children(session, FIND_FAILED_CHILDREN, batch_id, _NIL, limit=_ALL)
                return len(retry_jobs(session, self.stream_registry, ids, now=now, pass_over_busy=True))

            return self.change(retry, within)
        retried = 0
        after: UUID | None = _NIL
        while after is not None:

            def portion(session: Session, after: UUID = after) -> tuple[int, UUID | None]:
                ids = _children(session, FIND_FAILED_CHILDREN, batch_id, after)
                done = retry_jobs(session, self.stream_registry, ids, now=now, pass_over_busy=True)
                return len(done), ids[-1] if ids else None

            more, after = self.change(portion, count=_in_portion)
            retried += more
        return retried

    def batch_metrics(self, batch_id: UUID) -> BatchMetrics | None:
        """Run time and number of runs of a batch's children; None if there is no such batch."""
        row = self.database.read(lambda session: session.row(FIND_METRICS, {"batch_id": batch_id}))
        if row is None:
            return None
        _, runs, run_time_us, started_at, finished_at = row
        return BatchMetrics(
            batch_id=batch_id,
            started_at=started_at,
            finished_at=finished_at,
            run_time=timedelta(microseconds=run_time_us or 0),
            runs=runs or 0,
        )

    def _list(self, sql: str, limit: int) -> list[BatchRecord]:
        rows = self.database.read(lambda session: session.rows(sql, {"limit": limit}))
        return readable(rows, _record, _TABLE, itemgetter(0))


def _cancel_sealed(session: Session, batch_id: UUID, reason: str, now: datetime) -> list[CanceledJob]:
    """
    Cancel the parent of a sealed batch and then all its children, in one transaction.

    The children at once, not in portions: jobs are locked before batches, as everywhere.
    """
    row = session.row(FIND_BATCH, {"batch_id": batch_id})
    if row is None:
        return []
    batch = require_readable(row, _record, _TABLE, batch_id)
    require_sealed(batch)
    canceled = cancel_jobs(session, [batch.parent_id], reason=reason, now=now)
    children = _children(session, FIND_UNENDED_CHILDREN, batch_id, _NIL, limit=_ALL)
    return canceled + cancel_jobs(session, children, reason=reason, now=now)


def _in_portion(answer: tuple[Sized | int, UUID | None]) -> int:
    return counted(answer[0])


def _children(
    session: Session, sql: str, batch_id: UUID, after: UUID, *, limit: int = _PORTION
) -> list[UUID]:
    rows = session.rows(sql, {"batch_id": batch_id, "after": after, "limit": limit})
    return [job_id for (job_id,) in rows]


def _record(row: Row) -> BatchRecord:
    batch_id, name, parent_id, total, completed, failed, canceled, sealed, created_at, finished_at, target = (
        row
    )
    return BatchRecord(
        batch_id=batch_id,
        name=name,
        parent_id=parent_id,
        total=total,
        completed=completed,
        failed=failed,
        canceled=canceled,
        sealed=sealed,
        created_at=created_at,
        finished_at=finished_at,
        progress_target=target,
    )
