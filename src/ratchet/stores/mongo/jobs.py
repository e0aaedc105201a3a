"""Jobs in MongoDB: insert, read, search, change, delete; tags and bulk verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from ratchet.model.clock import require_aware
from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy, Conflict, SubmissionBlocked
from ratchet.model.identifiers import timestamp_of
from ratchet.model.job import Insertion, JobFilter, JobRecord, JobResultRow, JobSpec, Page
from ratchet.model.status import LIVE, JobStatus
from ratchet.stores.memory.changes import Effects, change, outgoing
from ratchet.stores.memory.ends import cancel
from ratchet.stores.memory.history import is_needed
from ratchet.stores.memory.insertion import RunningHolder, Submission
from ratchet.stores.memory.jobs import require_new
from ratchet.stores.memory.transitions import retry
from ratchet.stores.memory.values import check, check_spec, in_utc
from ratchet.stores.mongo.database import Collections, Database
from ratchet.stores.mongo.documents import Document, micros
from ratchet.stores.mongo.errors import TransactionAborted, aborted
from ratchet.stores.mongo.job_documents import document_of, new_row, row_of
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.search import places, position, query_of
from ratchet.stores.mongo.wakeups import wake_with
from ratchet.stores.mongo.work import Work
from ratchet.stores.sql.validation import validate

#: Seconds that a submission waits for a key that another open transaction holds.
KEY_PATIENCE: Final = 5.0
#: Ids that are younger than this are new, or those of a submission that is sent again right now.
_YOUNG: Final = timedelta(minutes=5)

_AT_REST: Final = (JobStatus.PENDING, JobStatus.PAUSED, JobStatus.WAITING)
_RESULT: Final = dict.fromkeys(
    ("status", "result", "result_truncated", "error", "error_type", "canceled_reason"), 1
)


class MongoJobs:
    """Creates, reads, changes and deletes jobs."""

    def __init__(self, database: Database, *, notify: bool = True) -> None:
        self._database = database
        self._notify = notify  # wake other nodes with the commit of a caller's transaction

    # --- one submission -------------------------------------------------------------------------

    def insert(
        self,
        specs: Sequence[JobSpec],
        *,
        now: datetime,
        edges: Sequence[Edge] = (),
        batch: BatchSpec | None = None,
        within: object | None = None,
    ) -> list[Insertion]:
        """Store *specs* with their *edges* (and *batch* with its parent job), all or none."""
        self._prepare(specs, edges, batch, now)
        fresh = within is None and all(map(_is_fresh, specs))  # then nobody looks whether they are stored
        alone = bool(specs) and fresh and not edges and batch is None and all(map(_stands_alone, specs))
        if alone and len(specs) == 1:
            return [self._insert_one(specs[0], now)]
        tries = 0

        def store(work: Work) -> list[Insertion] | BusinessKeyBusy:
            nonlocal tries
            tries += 1
            if alone and tries == 1:
                return self._insert_alone(work, specs, now)
            load_submission(work, specs, edges, batch, fresh=fresh and tries == 1)
            if within is not None and self._notify:
                work.afterwards(Names.WAKEUPS, lambda wakeups: wake_with(wakeups, work.session))
            submission = Submission(work, Effects(), now=now)
            try:
                return work.run(lambda: submission.store(specs, edges=edges, batch=batch))
            except RunningHolder as busy:
                # nothing of the call is stored, but the holder is asked to make room
                _supersede(work, busy.holder, now)
                return BusinessKeyBusy(busy.key, busy.holder)

        try:
            answer = self._database.run(store, within=within, patience=KEY_PATIENCE)
        except TransactionAborted as error:
            raise aborted(error, submission=True) from error
        except Conflict as error:
            raise SubmissionBlocked(
                "a key or a parent of this submission is held by another transaction that is still open; "
                "submit again after it has ended"
            ) from error
        if isinstance(answer, BusinessKeyBusy):
            raise answer
        return answer

    def _insert_one(self, spec: JobSpec, now: datetime) -> Insertion:
        """Store a job that nothing else belongs to: one document is whole by itself, and needs no transaction."""

        def insert(collections: Collections) -> None:
            try:
                collections[Names.JOBS].insert_one(self._document(spec, now))
            except DuplicateKeyError:
                pass  # the same submission again, after a lost answer

        self._database.write(insert)
        return Insertion(job_id=spec.job_id, created=True)

    def _insert_alone(self, work: Work, specs: Sequence[JobSpec], now: datetime) -> list[Insertion]:
        """Store many of them; one that is there already is a conflict, and the next try looks."""
        documents = [self._document(spec, now) for spec in specs]
        work.write(Names.JOBS, lambda jobs: jobs.insert_many(documents, ordered=False, session=work.session))
        return [Insertion(job_id=spec.job_id, created=True) for spec in specs]

    def _document(self, spec: JobSpec, now: datetime) -> Document:
        stream_id = self._database.streams.id_of(spec.stream)
        return document_of(new_row(in_utc(spec), stream_id, now), stream_id)

    def replace(self, job_id: UUID, spec: JobSpec, *, now: datetime) -> CanceledJob | None:
        """Cancel a PENDING, PAUSED or WAITING job and store *spec* in its place, in one transaction."""
        self._prepare([spec], (), None, now)

        def work(work: Work) -> CanceledJob | None:
            effects = Effects()
            work.load_jobs([job_id])
            load_submission(work, [spec], (), None)
            row = work.jobs.get(job_id)
            if row is None or row.status not in _AT_REST:
                return None
            cancel(work, row, effects, reason="superseded", now=now)
            try:
                (answer,) = Submission(work, effects, now=now).store([spec])
            except RunningHolder as busy:
                raise BusinessKeyBusy(busy.key, busy.holder) from None
            require_new(job_id, spec, answer)
            change(work, work.jobs[job_id], effects, now=now, superseded_by=answer.job_id)
            return effects.canceled[0]

        return self._database.run(work)

    def _prepare(
        self, specs: Sequence[JobSpec], edges: Sequence[Edge], batch: BatchSpec | None, now: datetime
    ) -> None:
        """Refuse what cannot be stored, and make the streams that are missing, before anything is written."""
        check((now, *edges, batch), "now")
        for spec in specs if batch is None else (*specs, batch.parent):
            check_spec(spec)
        self._database.streams.make(validate(specs, edges, batch, now=now))

    # --- reading --------------------------------------------------------------------------------

    def get(self, job_id: UUID) -> JobRecord | None:
        """The job, wherever it lives; None if there is none."""

        def ask(collections: Collections) -> JobRecord | None:
            # in this order: jobs move to the archive, never back
            for name in (Names.JOBS, Names.ARCHIVE):
                if (document := collections[name].find_one({"_id": job_id})) is not None:
                    return self._record(document)
            return None

        return self._database.read(ask)

    def results(self, job_ids: Sequence[UUID]) -> dict[UUID, JobResultRow]:
        """Status and outcome of many jobs in one query, two where some are archived."""
        wanted = list(dict.fromkeys(job_ids))

        def ask(collections: Collections) -> dict[UUID, JobResultRow]:
            found: dict[UUID, JobResultRow] = {}
            for name in (Names.JOBS, Names.ARCHIVE):
                if missing := [job_id for job_id in wanted if job_id not in found]:
                    for document in collections[name].find({"_id": {"$in": missing}}, _RESULT):
                        found[document["_id"]] = _result(document)
            return found

        return self._database.read(ask) if wanted else {}

    def find(self, where: JobFilter, *, limit: int = 50, cursor: str | None = None) -> Page[JobRecord]:
        """One page of matching jobs, newest id first."""
        after = None if cursor is None else position(cursor)

        def ask(collections: Collections) -> Page[JobRecord]:
            query = query_of(collections, where)
            if after is not None:
                query["_id"] = {"$lt": after}
            documents: list[Document] = []
            for name in places(where):
                documents += collections[name].find(query).sort("_id", -1).limit(limit + 1)
            documents.sort(key=lambda document: document["_id"].int, reverse=True)
            page = [self._record(document) for document in documents[:limit]]
            return Page(page, str(page[-1].job_id) if page and len(documents) > limit else None)

        return self._database.read(ask)

    def count(self, where: JobFilter) -> int:
        """How many jobs match."""

        def ask(collections: Collections) -> int:
            query = query_of(collections, where)
            return sum(collections[name].count_documents(query) for name in places(where))

        return self._database.read(ask)

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs are in each status."""

        def ask(collections: Collections) -> dict[JobStatus, int]:
            grouped = collections[Names.JOBS].aggregate([{"$group": {"_id": "$status", "jobs": {"$sum": 1}}}])
            found = {JobStatus(one["_id"]): int(one["jobs"]) for one in grouped}
            return {status: found.get(status, 0) for status in JobStatus}

        return self._database.read(ask)

    def _record(self, document: Document) -> JobRecord:
        return row_of(document, self._database.streams.key_of).record()

    # --- changing -------------------------------------------------------------------------------

    def delete(self, job_id: UUID) -> bool:
        """Remove a job that is not RUNNING and all that is known of it; what waits for it is canceled."""
        now = self._database.clock()  # the contract gives no other; nothing is decided by it

        def work(work: Work) -> bool:
            work.load_jobs([job_id])
            row, effects = work.jobs.get(job_id), Effects()
            if row is None or row.status is JobStatus.RUNNING:
                return False
            if row.ended_as is None:
                cancel(work, row, effects, reason="deleted", now=now)
            for edge in outgoing(work, job_id):  # those that wait for another parent, too
                child = work.jobs.get(edge.child_id)
                if child is not None and child.status is JobStatus.WAITING:
                    cancel(work, child, effects, reason="parent_canceled", now=now)
            work.jobs.remove(job_id)
            forget(work, [job_id])
            return True

        return self._database.run(work)

    def reschedule(self, job_id: UUID, at: datetime, *, now: datetime) -> bool:
        """Move the due time of a PENDING, PAUSED or WAITING job; False in any other state."""
        due_at = require_aware(at, "the new time")
        check(now, "now")

        def work(work: Work) -> bool:
            row = work.jobs.get(job_id)
            if row is None or row.status not in _AT_REST:
                return False
            change(work, row, Effects(), now=now, scheduled_at=due_at)
            return True

        return self._database.run(work)

    # --- bulk verbs -----------------------------------------------------------------------------

    def cancel_matching(
        self, where: JobFilter, *, limit: int, reason: str, now: datetime
    ) -> list[CanceledJob]:
        """Cancel up to *limit* matching jobs, oldest first, with their dependants."""
        where.require_criterion("cancel_matching")
        check((now, reason), "the reason")

        def work(work: Work) -> list[CanceledJob]:
            effects = Effects()
            ids = self._oldest(work, where, LIVE, limit)
            work.load_jobs(ids)
            for job_id in ids:
                row = work.jobs[job_id]  # a cascade may have reached it meanwhile
                if not row.status.is_terminal:
                    cancel(work, row, effects, reason=reason, now=now)
            return effects.canceled

        return self._database.run(work)

    def retry_matching(self, where: JobFilter, *, limit: int, now: datetime) -> list[UUID]:
        """Retry up to *limit* matching FAILED jobs, oldest first; skips those whose business key is busy."""
        where.require_criterion("retry_matching")
        check(now, "now")

        def work(work: Work) -> list[UUID]:
            ids = self._oldest(work, where, [JobStatus.FAILED], limit)
            work.load_jobs(ids)
            return [job_id for job_id in ids if retried(work, job_id, now)]

        return self._database.run(work)

    def _oldest(self, work: Work, where: JobFilter, statuses: Iterable[JobStatus], limit: int) -> list[UUID]:
        query = query_of(self._database.collections(), where)
        states = {status.value for status in statuses}
        if "status" in query:
            states &= set(query["status"]["$in"])
        query["status"] = {"$in": sorted(states)}
        jobs = work.collection(Names.JOBS)
        found = jobs.find(query, {"_id": 1}, session=work.session).sort("_id", 1).limit(limit)
        return [one["_id"] for one in found] if limit > 0 else []

    def purge_dead_letters(self, *, before: datetime, limit: int) -> int:
        """Move FAILED jobs that failed before *before* to the archive and drop their alerts."""
        if limit <= 0:
            return 0
        old = {"dead_lettered_at": {"$lt": micros(before)}, "status": JobStatus.FAILED.value}

        def find(collections: Collections) -> list[UUID]:
            found = collections[Names.JOBS].find(old, {"_id": 1}).sort([("dead_lettered_at", 1), ("_id", 1)])
            return [one["_id"] for one in found.limit(2 * limit)]

        ids = self._database.read(find)
        if not ids:
            return 0
        now = self._database.clock()

        def work(work: Work) -> int:
            moved: list[UUID] = []
            work.load_jobs(ids)
            for job_id in ids:
                row = work.jobs.get(job_id)
                if len(moved) == limit or row is None or row.archived_at is not None:
                    continue
                if row.status is JobStatus.FAILED and not is_needed(work, row):
                    change(work, row, Effects(), now=now, archived_at=now)
                    moved.append(job_id)
            if moved:
                work.afterwards(
                    Names.ALERTS,
                    lambda alerts: alerts.delete_many({"job_id": {"$in": moved}}, session=work.session),
                )
            return len(moved)

        return self._database.run(work)

    # --- tags -----------------------------------------------------------------------------------

    def tags_of(self, job_ids: Sequence[UUID]) -> Mapping[UUID, tuple[str, ...]]:
        """The tags of each job, sorted; jobs without tags are left out."""
        query = {"_id": {"$in": list(dict.fromkeys(job_ids))}, "tags": {"$exists": True}}

        def ask(collections: Collections) -> dict[UUID, tuple[str, ...]]:
            return {
                one["_id"]: tuple(one["tags"])
                for name in (Names.JOBS, Names.ARCHIVE)
                for one in collections[name].find(query, {"tags": 1})
            }

        return self._database.read(ask) if job_ids else {}

    def tag_counts(self, *, limit: int = 100) -> dict[str, int]:
        """How many jobs carry each tag, most used first."""
        tagged: list[Document] = [{"$match": {"tags": {"$exists": True}}}, {"$project": {"tags": 1}}]
        pipeline: list[Document] = [
            *tagged,
            {"$unionWith": {"coll": Names.ARCHIVE, "pipeline": tagged}},
            {"$unwind": "$tags"},
            {"$group": {"_id": "$tags", "jobs": {"$sum": 1}}},
            {"$sort": {"jobs": -1, "_id": 1}},
            {"$limit": limit},
        ]
        found = self._database.read(lambda collections: list(collections[Names.JOBS].aggregate(pipeline)))
        return {str(one["_id"]): int(one["jobs"]) for one in found}


def load_submission(
    work: Work,
    specs: Sequence[JobSpec],
    edges: Sequence[Edge],
    batch: BatchSpec | None,
    *,
    fresh: bool = False,
) -> None:
    """Read together what a submission will ask for one by one; *fresh* as in `Work.load_new`."""
    everything = list(specs) if batch is None else [*specs, batch.parent]
    own = {spec.job_id for spec in everything}
    work.load_new([spec.job_id for spec in everything], fresh=fresh)
    work.idempotency.load({spec.idempotency_key for spec in everything if spec.idempotency_key is not None})
    work.reservations.load({spec.business_key for spec in everything if spec.business_key is not None})
    work.batches.load({spec.batch_id for spec in everything if spec.batch_id is not None})
    work.load_jobs({edge.parent_id for edge in edges} - own)


def forget(work: Work, job_ids: Sequence[UUID]) -> None:
    """Remove what is known of jobs besides the jobs and their idempotency keys."""
    ids = list(job_ids)
    for name, fields in (
        (Names.DEPENDENCIES, ("_id.parent_id", "_id.child_id")),
        (Names.EXECUTIONS, ("_id.job_id",)),
        (Names.LOGS, ("_id.job_id",)),
        (Names.ALERTS, ("job_id",)),
    ):
        for field in fields:
            work.afterwards(name, partial(_delete, {field: {"$in": ids}}, work))


def _is_fresh(spec: JobSpec) -> bool:
    """True for a job without keys whose id is so young that it can hardly be stored, and not in the archive."""
    keyless = spec.idempotency_key is None and spec.business_key is None
    return keyless and spec.job_id.version == 7 and datetime.now(UTC) - timestamp_of(spec.job_id) < _YOUNG


def _stands_alone(spec: JobSpec) -> bool:
    """True for a keyless job without parents, batch and signal."""
    return spec.status is JobStatus.PENDING and spec.batch_id is None and spec.signal is None


def _delete(query: Document, work: Work, collection: Collection[Document]) -> None:
    collection.delete_many(query, session=work.session)


def retried(work: Work, job_id: UUID, now: datetime) -> bool:
    """Retry a failed job, unless another one has its business key."""
    try:
        return work.run(lambda: retry(work, job_id, now=now))
    except BusinessKeyBusy:
        return False


def _supersede(work: Work, job_id: UUID, now: datetime) -> None:
    row = work.jobs.get(job_id)
    if row is not None and not row.status.is_terminal:
        cancel(work, row, Effects(), reason="superseded", now=now)


def _result(document: Document) -> JobResultRow:
    status = JobStatus(document["status"])
    if not status.is_terminal:
        return JobResultRow(job_id=document["_id"], status=status)
    return JobResultRow(
        job_id=document["_id"],
        status=status,
        result=document.get("result"),
        result_truncated=document.get("result_truncated", False),
        error=document.get("error"),
        error_type=document.get("error_type"),
        canceled_reason=document.get("canceled_reason"),
    )
