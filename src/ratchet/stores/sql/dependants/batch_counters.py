"""The counters of batches: the transaction that ends a child moves them, so they are exact under any concurrency."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.dependants.releases import release
from ratchet.stores.sql.rows.locked import lock_waiting_jobs

LOCK_BATCHES = """
    SELECT batch_id FROM scheduler_batch WHERE batch_id {in ids uuid} ORDER BY batch_id {for update}
"""

COUNT_ENDS = """
    UPDATE scheduler_batch
       SET completed = scheduler_batch.completed + delta.completed, failed = scheduler_batch.failed + delta.failed,
           canceled = scheduler_batch.canceled + delta.canceled
      FROM {rows delta (batch_id, completed, failed, canceled)}
     WHERE scheduler_batch.batch_id = delta.batch_id
"""

FIND_COMPLETE = """
    SELECT batch_id, parent_id
      FROM scheduler_batch
     WHERE batch_id {in ids uuid} AND finished_at IS NULL AND sealed AND completed + failed + canceled >= total
     ORDER BY batch_id
    {for update}
"""

MARK_FINISHED = """
    UPDATE scheduler_batch SET finished_at = :now WHERE batch_id {in ids uuid}
"""

COUNT_RUNS = """
    INSERT INTO scheduler_batch_metrics AS metrics (batch_id, runs, run_time_us, started_at, finished_at)
    SELECT batch_id, runs, run_time_us, started_at, finished_at
      FROM {rows delta (batch_id, runs, run_time_us, started_at, finished_at)}
     WHERE true
        ON CONFLICT (batch_id) DO UPDATE
       SET runs = metrics.runs + excluded.runs, run_time_us = metrics.run_time_us + excluded.run_time_us,
           started_at = {least}(coalesce(metrics.started_at, excluded.started_at), excluded.started_at),
           finished_at = {greatest}(coalesce(metrics.finished_at, excluded.finished_at), excluded.finished_at)
"""

# All of it in one statement, where the product can. The counters are read under the row's lock, so whoever brings them
# to the total sees it here. Measured: 20 % less CPU for children of one batch, 24 % less for those of 20 batches.
COUNT_AT_ONCE = """
    WITH counted AS (
        UPDATE scheduler_batch
           SET completed = scheduler_batch.completed + delta.completed, failed = scheduler_batch.failed + delta.failed,
               canceled = scheduler_batch.canceled + delta.canceled
          FROM {rows delta (batch_id, completed, failed, canceled)}
         WHERE scheduler_batch.batch_id = delta.batch_id
        RETURNING scheduler_batch.batch_id,
                  scheduler_batch.completed + scheduler_batch.failed + scheduler_batch.canceled >= scheduler_batch.total
                  AND scheduler_batch.sealed AND scheduler_batch.finished_at IS NULL AS is_complete
    ), ran AS (
        INSERT INTO scheduler_batch_metrics AS metrics (batch_id, runs, run_time_us, started_at, finished_at)
        SELECT batch_id, runs, run_time_us, started_at, finished_at
          FROM {rows run (batch_id, runs, run_time_us, started_at, finished_at)}
         WHERE true
            ON CONFLICT (batch_id) DO UPDATE
           SET runs = metrics.runs + excluded.runs, run_time_us = metrics.run_time_us + excluded.run_time_us,
               started_at = {least}(coalesce(metrics.started_at, excluded.started_at), excluded.started_at),
               finished_at = {greatest}(coalesce(metrics.finished_at, excluded.finished_at), excluded.finished_at)
    )
    SELECT batch_id FROM counted WHERE is_complete
"""

_COLUMN = {JobStatus.SUCCEEDED: 0, JobStatus.FAILED: 1, JobStatus.CANCELED: 2}
_MICROSECOND = timedelta(microseconds=1)


class _Delta:
    """What a transaction changes in one batch."""

    __slots__ = ("batch_id", "ends", "finished_at", "origin", "run_time", "runs", "started_at")

    def __init__(self, batch_id: UUID) -> None:
        self.batch_id = batch_id
        self.ends: list[int] | None = None
        self.origin: UUID | None = None
        self.runs = 0
        self.run_time = timedelta()
        self.started_at: datetime | None = None
        self.finished_at: datetime | None = None


class BatchDeltas:
    """
    What a transaction changes in batches: summed first, then written with one statement for all of them.

    The ``origin`` of a change is the job whose end caused it; `apply` names it with the batches that it finished.
    """

    def __init__(self) -> None:
        # by the number of the id: a batch has thousands of children, and Python hashes a UUID ten times slower
        self._deltas: dict[int, _Delta] = {}

    @property
    def batch_ids(self) -> set[UUID]:
        """The batches whose counters move."""
        return {delta.batch_id for delta in self._deltas.values() if delta.ends is not None}

    def count_end(self, batch_id: UUID, status: JobStatus, origin: UUID, *, by: int = 1) -> None:
        """A child of the batch has ended with *status*; with ``by=-1`` it is open again."""
        delta = self._of(batch_id)
        if delta.ends is None:
            delta.ends = [0, 0, 0]
        delta.ends[_COLUMN[status]] += by
        delta.origin = origin

    def count_run(self, batch_id: UUID, started_at: datetime | None, finished_at: datetime) -> None:
        """A child of the batch has run once."""
        delta = self._of(batch_id)
        started_at = started_at or finished_at
        delta.runs += 1
        delta.run_time += finished_at - started_at
        if delta.started_at is None or started_at < delta.started_at:
            delta.started_at = started_at
        if delta.finished_at is None or finished_at > delta.finished_at:
            delta.finished_at = finished_at

    def apply(self, session: Session, now: datetime) -> list[tuple[UUID, UUID, UUID | None]]:
        """
        Write the changes; (origin, batch, released parent) of each batch that they finish.

        The parent is None where it is not waiting any more.
        """
        deltas = [self._deltas[key] for key in sorted(self._deltas)]
        runs: list[Row] = [
            (one.batch_id, one.runs, one.run_time // _MICROSECOND, one.started_at, one.finished_at)
            for one in deltas
            if one.runs
        ]
        ends: list[Row] = [(one.batch_id, *one.ends) for one in deltas if one.ends is not None]
        if not ends:
            if runs:
                session.execute(COUNT_RUNS, {"delta": runs})
            return []
        if len(ends) > 1:  # one row needs no order
            session.rows(LOCK_BATCHES, {"ids": [end[0] for end in ends]})
        complete = session.dialect.count_ends(session, ends, runs)
        finished = finish_batches(session, complete, now) if complete else []
        return [(self._origin(batch_id), batch_id, parent_id) for batch_id, parent_id in finished]

    def _of(self, batch_id: UUID) -> _Delta:
        delta = self._deltas.get(batch_id.int)
        if delta is None:
            delta = self._deltas[batch_id.int] = _Delta(batch_id)
        return delta

    def _origin(self, batch_id: UUID) -> UUID:
        origin = self._deltas[batch_id.int].origin
        assert origin is not None
        return origin


def count_in_steps(session: Session, ends: Sequence[Row], runs: Sequence[Row]) -> list[UUID]:
    """Move the counters of batches, on any product; the batches that may be complete now."""
    session.execute(COUNT_ENDS, {"delta": ends})
    if runs:
        session.execute(COUNT_RUNS, {"delta": runs})
    return [end[0] for end in ends]


def count_at_once(session: Session, ends: Sequence[Row], runs: Sequence[Row]) -> list[UUID]:
    """`count_in_steps` in one statement, where one may change several tables; it says which batches are complete."""
    return [batch_id for (batch_id,) in session.rows(COUNT_AT_ONCE, {"delta": ends, "run": runs})]


def finish_batches(
    session: Session, batch_ids: Iterable[UUID], now: datetime
) -> list[tuple[UUID, UUID | None]]:
    """
    Finish those of these batches whose children have all ended; (batch, released parent) of each.

    ``finished_at`` is set under the batch's lock, so that each batch is finished by one transaction.
    """
    ids = sorted(batch_ids)
    complete = session.rows(FIND_COMPLETE, {"ids": ids})
    if not complete:
        return []
    session.execute(MARK_FINISHED, {"ids": [batch_id for batch_id, _ in complete], "now": now})
    parents = [parent_id for _, parent_id in complete]
    waiting = lock_waiting_jobs(session, parents)
    session.hold("scheduler_job", "job_id", [one for one in parents if one not in waiting])  # paused, say
    release(session, waiting, now)
    return [(batch_id, parent_id if parent_id in waiting else None) for batch_id, parent_id in complete]
