"""Batches in MongoDB; the rules that end a child also count it."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from datetime import datetime
from operator import itemgetter
from typing import Final
from uuid import UUID

from ratchet.model.composition import BatchMetrics, BatchRecord
from ratchet.model.decision import CanceledJob
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus
from ratchet.stores.auditing import counted
from ratchet.stores.memory.changes import Effects, is_complete
from ratchet.stores.memory.finish import cancel, cancel_all
from ratchet.stores.memory.rows import Cost
from ratchet.stores.memory.values import check, check_spec
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import BATCHES, COSTS
from ratchet.stores.mongo.jobs import retried
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.submissions import load_submission
from ratchet.stores.mongo.transaction.work import Rules, Work
from ratchet.stores.unreadable import readable
from ratchet.stores.validation import require_sealed, validate

#: Children that one transaction cancels or retries.
_PORTION: Final = 500

_UNENDED: Final = [
    status.value for status in (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.PAUSED, JobStatus.WAITING)
]
_NIL: Final = UUID(int=0)


def _in_portion(answer: tuple[Sized | int, UUID | None]) -> int:
    return counted(answer[0])


class MongoBatches(MongoPart):
    """Counts the children of batches and releases their parents."""

    def append_children(self, batch_id: UUID, specs: Sequence[JobSpec], *, now: datetime) -> bool:
        """Store more children of an unsealed batch and raise its total, in one transaction; False: sealed or gone."""
        for spec in specs:
            check_spec(spec)
        self.database.streams.make(validate(specs, now=now))

        def work(work: Work) -> bool:
            load_submission(work, specs, (), None)
            return Rules(work).append_children(batch_id, specs, now=now)

        return self.database.run(work)

    def seal(self, batch_id: UUID, *, now: datetime) -> bool:
        """No more children will come; completes the batch at once if all have ended. False: already sealed."""
        return self.database.run(lambda work: Rules(work).seal(batch_id, now=now))

    def batch(self, batch_id: UUID) -> BatchRecord | None:
        """The counters; None if there is no such batch."""
        found = self.database.read(lambda c: c[Names.BATCHES].find_one({"_id": batch_id}))
        return None if found is None else BATCHES.value(found)

    def batches(self, *, limit: int = 50) -> list[BatchRecord]:
        """The newest batches."""
        return self.database.read(
            lambda c: readable(
                c[Names.BATCHES].find().sort("_id", -1).limit(limit),
                BATCHES.value,
                Names.BATCHES,
                itemgetter("_id"),
            )
        )

    def unfinished(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches whose children have all ended but whose parent was not released."""
        open_ones = {"finished_at": None, "sealed": True}
        ended = {"$add": ["$completed", "$failed", "$canceled"]}
        complete = {**open_ones, "$expr": {"$gte": [ended, "$total"]}}
        return self.database.read(
            lambda c: [
                record
                for one in c[Names.BATCHES].find(complete).sort("_id", 1).limit(limit)
                if is_complete(record := BATCHES.value(one))
            ]
        )

    def unsealed(self, *, limit: int = 100) -> list[BatchRecord]:
        """Batches to which more children may come, oldest first."""
        growing = {"sealed": False}
        return self.database.read(
            lambda c: [
                BATCHES.value(one) for one in c[Names.BATCHES].find(growing).sort("_id", 1).limit(limit)
            ]
        )

    def finish(self, batch_id: UUID, *, now: datetime) -> bool:
        """Release the parent of a batch whose counters are complete; False if it is not, or was already."""
        return self.database.run(lambda work: Rules(work).finish(batch_id, now=now))

    def cancel_batch(
        self, batch_id: UUID, *, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """
        Cancel every child that has not ended and the parent; the batch is sealed.

        The parent goes first, so that the last child cannot release it. Children go in portions, each
        in a transaction of its own: called again, it continues where it was interrupted.
        """
        check((now, reason), "the reason")
        if within is not None:
            return self.change(lambda work: _cancel_sealed(work, batch_id, reason, now), within)

        def stop(work: Work) -> list[CanceledJob] | None:
            batch = work.batches.get(batch_id)
            if batch is None:
                return None
            parent, effects = work.jobs.get(batch.parent_id), Effects()
            if parent is not None and not parent.status.is_terminal:
                cancel(work, parent, effects, reason=reason, now=now)
            Rules(work).seal(batch_id, now=now)
            return effects.canceled

        canceled = self.change(stop)
        if canceled is None:
            return []
        after: UUID | None = _NIL
        while after is not None:

            def portion(work: Work, after: UUID = after) -> tuple[list[CanceledJob], UUID | None]:
                ids = _children(work, batch_id, after, _UNENDED)
                work.load_jobs(ids)
                rows = [work.jobs[job_id] for job_id in ids]
                unended = [row for row in rows if row.ended_as is None]
                return cancel_all(work, unended, reason=reason, now=now), ids[-1] if ids else None

            more, after = self.change(portion, count=_in_portion)
            canceled += more
        self.finish(batch_id, now=now)  # no child will finish a batch that has none
        return canceled

    def retry_failed(self, batch_id: UUID, *, now: datetime, within: object | None = None) -> int:
        """Retry every FAILED child whose business key is free; a finished batch opens again and its parent waits again."""
        check(now, "now")
        if within is not None:
            return self.change(lambda work: _retry_failed(work, batch_id, now), within)
        done = 0
        after: UUID | None = _NIL
        while after is not None:

            def portion(work: Work, after: UUID = after) -> tuple[int, UUID | None]:
                ids = _children(work, batch_id, after, [JobStatus.FAILED.value])
                work.load_jobs(ids)
                return sum(retried(work, job_id, now) for job_id in ids), ids[-1] if ids else None

            more, after = self.change(portion, count=_in_portion)
            done += more
        return done

    def batch_metrics(self, batch_id: UUID) -> BatchMetrics | None:
        """Run time and number of runs of a batch's children; None if there is no such batch."""

        def ask(collections: Collections) -> BatchMetrics | None:
            batch = collections[Names.BATCHES].find_one({"_id": batch_id})
            if batch is None:
                return None
            found = collections[Names.BATCH_METRICS].find_one({"_id": batch_id})
            cost = Cost() if found is None else COSTS.value(found)
            return BatchMetrics(
                batch_id=batch_id,
                started_at=cost.started_at,
                finished_at=BATCHES.value(batch).finished_at,
                run_time=cost.run_time,
                runs=cost.runs,
            )

        return self.database.read(ask)


def _cancel_sealed(work: Work, batch_id: UUID, reason: str, now: datetime) -> list[CanceledJob]:
    """Cancel the parent of a sealed batch and then all its children, in one transaction."""
    batch = work.batches.get(batch_id)
    if batch is None:
        return []
    require_sealed(batch)
    parent, effects = work.jobs.get(batch.parent_id), Effects()
    if parent is not None and not parent.status.is_terminal:
        cancel(work, parent, effects, reason=reason, now=now)
    ids = _children(work, batch_id, _NIL, _UNENDED, limit=0)
    work.load_jobs(ids)
    unended = [row for row in (work.jobs[job_id] for job_id in ids) if row.ended_as is None]
    return effects.canceled + cancel_all(work, unended, reason=reason, now=now)


def _retry_failed(work: Work, batch_id: UUID, now: datetime) -> int:
    """Retry all FAILED children in one transaction; how many."""
    ids = _children(work, batch_id, _NIL, [JobStatus.FAILED.value], limit=0)
    work.load_jobs(ids)
    return sum(retried(work, job_id, now) for job_id in ids)


def _children(
    work: Work, batch_id: UUID, after: UUID, statuses: list[str], *, limit: int = _PORTION
) -> list[UUID]:
    """The next *limit* children with these statuses; 0: all of them."""
    query = {"links": link(Link.BATCH, batch_id), "_id": {"$gt": after}, "status": {"$in": statuses}}
    found = work.collection(Names.JOBS).find(query, {"_id": 1}, session=work.session)
    return [one["_id"] for one in found.sort("_id", 1).limit(limit)]
