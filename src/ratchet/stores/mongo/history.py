"""Executions, rates, logs and the archive in MongoDB."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.errors import BulkWriteError

from ratchet.model.flow import QueuedSample, RunSample
from ratchet.model.flow_history import FlowPeriod
from ratchet.model.job import Execution, ExecutionStatus, LogEntry, LogLine
from ratchet.model.status import HOT, JobStatus
from ratchet.model.storage import Kept
from ratchet.stores.bounded_scan import STEP, Stretch, Walk
from ratchet.stores.memory.changes import Effects, change
from ratchet.stores.memory.history import is_needed
from ratchet.stores.memory.values import check
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import Database, MongoPart
from ratchet.stores.mongo.documents.flow_periods import (
    find_periods,
    insert_periods,
    merge_slot,
    oldest_minute,
    purge_periods,
)
from ratchet.stores.mongo.documents.samples import queued_samples, run_samples
from ratchet.stores.mongo.documents.values import RUNS, Codec, Document, micros, time_of
from ratchet.stores.mongo.jobs import forget
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.work import Work

LINES: Final = Codec(LogEntry, "job_id", "claim_id", "sequence")

_ENDED: Final = [JobStatus.SUCCEEDED.value, JobStatus.CANCELED.value]
_TERMINAL: Final = {status.value for status in JobStatus if status.is_terminal}
_DUPLICATE: Final = 11000
_NIL: Final = UUID(int=0)


class MongoHistory(MongoPart):
    """What jobs did, and where they go when they are done."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._archiving: Walk[UUID] = Walk()
        self._purging_runs: Walk[tuple[UUID, UUID]] = Walk()

    # --- executions -----------------------------------------------------------------------------

    def executions(self, job_id: UUID, *, uncounted: bool = False) -> list[Execution]:
        """The runs of a job, oldest first; with *uncounted* also crashed, handed-back and canceled ones."""
        runs = self.database.read(
            lambda c: [RUNS.value(one) for one in c[Names.EXECUTIONS].find({"_id.job_id": job_id})]
        )
        found = [run for run in runs if run.counted or uncounted]
        return sorted(found, key=lambda run: (run.finished_at is not None, run.finished_at, run.claim_id.int))

    def run_samples(self, *, limit: int) -> list[RunSample]:
        """The newest runs that have ended, by the ids of their jobs, newest first; at most *limit*."""
        key_of = self.database.streams.key_of
        return self.database.read(lambda c: run_samples(c, key_of, RUNS.value, limit))

    def queued_samples(self, *, limit: int) -> list[QueuedSample]:
        """Jobs that are PENDING or RUNNING, at most *limit*."""
        return self.database.read(lambda c: queued_samples(c, self.database.streams.key_of, limit))

    def purge_executions(self, *, before: datetime, limit: int) -> int:
        """Delete runs of ended jobs that finished before *before*; at most *limit*."""
        at = micros(before)

        def step(position: tuple[UUID, UUID] | None, room: int) -> Stretch[tuple[UUID, UUID]]:
            runs, live = self.database.read(lambda c: _oldest_runs(c, position))
            old = [
                one["_id"]
                for one in runs
                if one.get("finished_at", at) < at and one["_id"]["job_id"] not in live
            ][:room]
            gone = {"_id": {"$in": old}}
            removed = (
                self.counted(lambda c: c[Names.EXECUTIONS].delete_many(gone).deleted_count) if old else 0
            )
            last = old[-1] if len(old) == room else runs[-1]["_id"] if len(runs) == STEP else None
            end = None if last is None else (last["job_id"], last["claim_id"])
            return Stretch(end, len(runs), removed)

        return self._purging_runs.remove(step, limit)

    # --- rates ----------------------------------------------------------------------------------

    def record_flow(self, periods: Sequence[FlowPeriod]) -> int:
        """Store what flowed; a period that is there already is left alone. How many were not."""
        return self.database.write(lambda c: insert_periods(c, periods)) if periods else 0

    def flow(self, *, since: datetime, until: datetime, only: str | None = None) -> list[FlowPeriod]:
        """The periods that began in this time, oldest first; with *only* no other queue is in them."""
        return self.database.read(lambda c: find_periods(c, since, until, only))

    def merge_flow(self, *, before: datetime) -> int:
        """Merge the oldest minutes that began before *before* into one period; how many minutes."""
        at = self.database.read(lambda c: oldest_minute(c, before))
        return 0 if at is None else self.database.run(lambda work: merge_slot(work, at))

    def purge_flow(self, *, before: datetime, limit: int) -> int:
        """Delete periods that began before *before*; at most *limit*."""
        return self.database.write(lambda c: purge_periods(c, before, limit)) if limit > 0 else 0

    # --- logs -----------------------------------------------------------------------------------

    def append_logs(self, entries: Sequence[LogEntry], *, now: datetime) -> None:
        """Store lines; a line that is already there (job, claim, sequence) is left alone."""
        lines = [LINES.document(_storable_entry(entry)) for entry in entries]

        def append(collections: Collections) -> None:
            try:
                collections[Names.LOGS].insert_many(lines, ordered=False)
            except BulkWriteError as error:
                if any(one.get("code") != _DUPLICATE for one in (error.details or {}).get("writeErrors", ())):
                    raise

        if lines:
            self.database.write(append)

    def logs(self, job_id: UUID, *, limit: int = 1000) -> list[LogLine]:
        """
        The newest *limit* lines of a job, run by run, each run's in the order they were logged.

        Lines of a run that lost the job (its node was declared dead while it ran) are ``lost``.
        """

        def ask(collections: Collections) -> list[LogLine]:
            order = [("_id.claim_id", -1), ("_id.sequence", -1)]
            found = collections[Names.LOGS].find({"_id.job_id": job_id}).sort(order).limit(limit)
            entries = [LINES.value(one) for one in found][::-1]
            lost = _lost_claims(collections, job_id, {entry.claim_id for entry in entries})
            return [
                LogLine(
                    at=entry.at,
                    level=entry.level,
                    logger=entry.logger,
                    message=entry.message,
                    attempt=entry.attempt,
                    lost=entry.claim_id in lost,
                )
                for entry in entries
            ]

        return self.database.read(ask) if limit > 0 else []

    def purge_logs(self, *, before: datetime, limit: int) -> int:
        """Delete lines older than *before*; at most *limit*."""
        old = {"at": {"$lt": micros(before)}}

        def purge(collections: Collections) -> int:
            logs = collections[Names.LOGS]
            ids = [one["_id"] for one in logs.find(old, {"_id": 1}).sort("at", 1).limit(limit)]
            return logs.delete_many({"_id": {"$in": ids}}).deleted_count if ids else 0

        return self.counted(purge) if limit > 0 else 0

    # --- archive --------------------------------------------------------------------------------

    def archive(self, *, before: datetime, limit: int, now: datetime) -> int:
        """
        Move SUCCEEDED and CANCELED jobs that finished before *before* to the archive; at most *limit*.

        Not while a job that has not ended depends on them, their batch is open, or a dead letter can
        still be retried that would bring them back. A walk in the order of ids: no index covers the
        time at which a job ended, because it would make every success more expensive.
        """
        check((now, before), "now")
        at = micros(before)

        def step(position: UUID | None, room: int) -> Stretch[UUID]:
            fields = {"status": 1, "finished_at": 1, "created_at": 1}
            behind = {"_id": {"$gt": position or _NIL}}
            jobs = self.database.read(
                lambda c: list(c[Names.JOBS].find(behind, fields).sort("_id", 1).limit(STEP))
            )
            old = [one["_id"] for one in jobs if one["status"] in _ENDED and one.get("finished_at", at) < at][
                :room
            ]
            removed = self.change(lambda work: _archive(work, old, now)) if old else 0
            if len(old) == room:
                return Stretch(old[-1], len(jobs), removed)
            # no job ends before it was created
            beyond = len(jobs) == STEP and any(one["created_at"] < at for one in jobs)
            return Stretch(jobs[-1]["_id"] if beyond else None, len(jobs), removed)

        return self._archiving.remove(step, limit)

    def purge_archive(self, *, before: datetime, limit: int) -> int:
        """Delete archived jobs that were archived before *before*, with all that is known of them; at most *limit*."""
        old = {"archived_at": {"$lt": micros(before)}}
        order = [("archived_at", 1), ("_id", 1)]

        def work(work: Work) -> int:
            archive, session = work.collection(Names.ARCHIVE), work.session
            found = archive.find(old, {"_id": 1}, session=session).sort(order).limit(limit)
            ids = [one["_id"] for one in found]
            if not ids:
                return 0
            batches = work.collection(Names.BATCHES).find(
                {"parent_id": {"$in": ids}}, {"_id": 1}, session=session
            )
            gone = {"_id": {"$in": [one["_id"] for one in batches]}}
            for name in (Names.BATCH_METRICS, Names.BATCHES):
                work.afterwards(name, lambda c: c.delete_many(gone, session=session))
            forget(work, ids)
            work.afterwards(Names.ARCHIVE, lambda c: c.delete_many({"_id": {"$in": ids}}, session=session))
            return len(ids)

        return self.change(work) if limit > 0 else 0

    def count_old(self, kind: Kept, *, before: datetime, limit: int) -> int:
        """How many documents of a kind are older than *before*: at most *limit*, of jobs and runs among the first *limit* ids."""
        old = {"$lt": micros(before)}

        def ask(collections: Collections) -> int:
            match kind:
                case Kept.JOBS:
                    first = (
                        collections[Names.JOBS]
                        .find({}, {"status": 1, "finished_at": 1})
                        .sort("_id", 1)
                        .limit(limit)
                    )
                    ended = [one for one in first if one["status"] in _ENDED]
                    return sum(one.get("finished_at", old["$lt"]) < old["$lt"] for one in ended)
                case Kept.EXECUTIONS:
                    runs = (
                        collections[Names.EXECUTIONS].find({}, {"finished_at": 1}).sort("_id", 1).limit(limit)
                    )
                    return sum((one.get("finished_at") or old["$lt"]) < old["$lt"] for one in runs)
                case Kept.DEAD_LETTERS:
                    name, where = Names.JOBS, {"dead_lettered_at": old, "status": JobStatus.FAILED.value}
                case Kept.LOGS:
                    name, where = Names.LOGS, {"at": old}
                case _:
                    name, where = Names.ARCHIVE, {"archived_at": old}
            return collections[name].count_documents(where, limit=limit)

        return self.database.read(ask) if limit > 0 else 0

    def oldest_created_at(self) -> datetime | None:
        """When the oldest job outside the archive was created, as far as the first ids tell; None: there is none."""
        first = self.database.read(
            lambda c: list(c[Names.JOBS].find({}, {"created_at": 1}).sort("_id", 1).limit(STEP))
        )
        return time_of(min(one["created_at"] for one in first)) if first else None

    def oldest_archived_at(self) -> datetime | None:
        """When the job that has been in the archive for longest came there; None: it is empty."""
        order = [("archived_at", 1), ("_id", 1)]
        first = self.database.read(
            lambda c: list(c[Names.ARCHIVE].find({}, {"archived_at": 1}).sort(order).limit(1))
        )
        return time_of(first[0]["archived_at"]) if first else None


def _archive(work: Work, job_ids: list[UUID], now: datetime) -> int:
    work.load_jobs(job_ids)
    work.load_parents(job_ids)
    moved = 0
    for job_id in job_ids:
        row = work.jobs.get(job_id)
        ended = row is not None and row.status.value in _ENDED and row.archived_at is None
        if row is not None and ended and not is_needed(work, row):
            change(work, row, Effects(), now=now, archived_at=now)
            moved += 1
    return moved


def _oldest_runs(
    collections: Collections, position: tuple[UUID, UUID] | None
) -> tuple[list[Document], set[UUID]]:
    """The next runs in the order of (job, claim), and those of their jobs that have not ended."""
    job_id, claim_id = position or (_NIL, _NIL)
    behind = {
        "$gt": {"job_id": job_id, "claim_id": claim_id},
        "$lt": {"job_id": MaxKey(), "claim_id": MinKey()},
    }
    runs = list(
        collections[Names.EXECUTIONS].find({"_id": behind}, {"finished_at": 1}).sort("_id", 1).limit(STEP)
    )
    ids = list({one["_id"]["job_id"] for one in runs})
    live = collections[Names.JOBS].find(
        {"_id": {"$in": ids}, "status": {"$nin": sorted(_TERMINAL)}}, {"_id": 1}
    )
    return runs, {one["_id"] for one in live}


def _lost_claims(collections: Collections, job_id: UUID, claims: set[UUID]) -> set[UUID]:
    """
    The runs that have lost the job: rescued, or holding it no longer without a row of their own.

    Where an ended job has no runs at all they were purged, and its lines are not judged.
    """
    runs = {
        one["_id"]["claim_id"]: one["status"]
        for one in collections[Names.EXECUTIONS].find({"_id.job_id": job_id}, {"status": 1})
    }
    job = collections[Names.JOBS].find_one({"_id": job_id}, {"status": 1, "claim_id": 1})
    holder = None if job is None else job.get("claim_id")
    judged = bool(runs) or (job is not None and JobStatus(job["status"]) in HOT)
    return {
        claim_id
        for claim_id in claims
        if (runs[claim_id] == ExecutionStatus.CRASHED if claim_id in runs else judged and claim_id != holder)
    }


def _storable_entry(entry: LogEntry) -> LogEntry:
    # one bad line must not take the others with it: what cannot be stored is made visible
    return LogEntry(
        job_id=entry.job_id,
        claim_id=entry.claim_id,
        sequence=entry.sequence,
        attempt=entry.attempt,
        at=entry.at,
        level=_storable(entry.level),
        logger=_storable(entry.logger),
        message=_storable(entry.message),
    )


def _storable(text: str) -> str:
    return text.replace("\0", "\\u0000").encode(errors="backslashreplace").decode()
