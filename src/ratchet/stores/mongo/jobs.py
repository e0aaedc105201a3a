"""Jobs in MongoDB: read, search, change, delete; tags and bulk verbs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Final, cast
from uuid import UUID

from msgspec.structs import replace
from pymongo.collection import Collection

from ratchet.model.clock import require_aware
from ratchet.model.cursors import job_position
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import JobFilter, JobRecord, JobResultRow, Page, SortBy
from ratchet.model.status import AT_REST, LIVE, JobStatus, Priority
from ratchet.stores.listing import LOOKED_AT, match_of, sorted_page, walk, walked_page
from ratchet.stores.memory.changes import Effects, change, outgoing, prioritize
from ratchet.stores.memory.finish import cancel, cancel_all
from ratchet.stores.memory.history import is_needed
from ratchet.stores.memory.transitions import retry
from ratchet.stores.memory.values import check
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.jobs import row_of, salvaged
from ratchet.stores.mongo.documents.search import (
    LOOKED_INTO,
    after_id,
    collections_of,
    end_of,
    hint_of,
    is_walk_of,
    looked_into,
    newest_keys,
    newest_payloads,
    query_of,
)
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.work import Work

_RESULT: Final = dict.fromkeys(
    ("status", "result", "result_truncated", "error", "error_type", "canceled_reason"), 1
)


class MongoJobs(MongoPart):
    """Reads, changes and deletes jobs."""

    # --- reading --------------------------------------------------------------------------------

    def get(self, job_id: UUID) -> JobRecord | None:
        """The job, wherever it lives; None if there is none."""

        def ask(collections: Collections) -> JobRecord | None:
            # in this order: jobs move to the archive, never back
            for name in (Names.JOBS, Names.ARCHIVE):
                if (document := collections[name].find_one({"_id": job_id})) is not None:
                    return self._record(document)
            return None

        return self.database.read(ask)

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

        return self.database.read(ask) if wanted else {}

    def find(
        self,
        where: JobFilter,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: SortBy = SortBy.CREATED,
        descending: bool = True,
    ) -> Page[JobRecord]:
        """One page of matching jobs; CREATED is the order of their ids."""
        if sort is not SortBy.CREATED:
            return self.database.read(
                lambda collections: self._find_sorted(collections, where, limit, cursor, sort, descending)
            )
        after = None if cursor is None else job_position(cursor)
        match = match_of(where)

        def ask(collections: Collections) -> Page[JobRecord]:
            if match is not None:
                ids, last = walk(
                    lambda last, most: newest_payloads(collections, where, last, most, descending=descending),
                    match,
                    limit=limit,
                    after=after,
                    most=LOOKED_AT,
                )
                return Page(self._records(collections, ids), None if last is None else str(last))
            query = query_of(collections, where)
            if query.get("stream_id") == {"$in": []}:
                return Page([])  # nobody ever used this queue

            def read(after: UUID | None, end: UUID | None, most: int) -> list[Document]:
                documents: list[Document] = []
                asked = after_id(query, after, descending=descending)
                if end is not None:
                    asked = {"$and": [asked, {"_id": {"$gte" if descending else "$lte": end}}]}
                for name in collections_of(where):
                    found = collections[name].find(asked, hint=hint_of(where, name))
                    documents += found.sort("_id", -1 if descending else 1).limit(most)
                documents.sort(key=lambda document: document["_id"].int, reverse=descending)
                return documents[:most]

            if is_walk_of(where):
                found, following = walked_page(
                    lambda after, size: end_of(collections, where, after, size, descending=descending),
                    read,
                    lambda document: cast("UUID", document["_id"]),
                    limit=limit,
                    after=after,
                )
                return Page([self._record(document) for document in found], following)
            documents = read(after, None, limit + 1)
            page = [self._record(document) for document in documents[:limit]]
            return Page(page, str(page[-1].job_id) if page and len(documents) > limit else None)

        return self.database.read(ask)

    def _find_sorted(
        self,
        collections: Collections,
        where: JobFilter,
        limit: int,
        cursor: str | None,
        sort: SortBy,
        descending: bool,
    ) -> Page[JobRecord]:
        ids, following = sorted_page(
            lambda top, most: newest_keys(collections, where, sort, top, most),
            sort,
            descending=descending,
            limit=limit,
            cursor=cursor,
        )
        return Page(self._records(collections, ids), following)

    def _records(self, collections: Collections, ids: Sequence[UUID]) -> list[JobRecord]:
        """These jobs, in this order; one that was deleted meanwhile is left out."""
        found = {
            one["_id"]: self._record(one)
            for name in (Names.ARCHIVE, Names.JOBS)
            for one in (collections[name].find({"_id": {"$in": list(ids)}}) if ids else ())
        }
        return [found[job_id] for job_id in ids if job_id in found]

    def count(self, where: JobFilter, *, at_most: int | None = None) -> int:
        """How many jobs match; counting ends at *at_most*. With ``args`` every job that meets the other criteria is read."""
        match = match_of(where)

        def ask(collections: Collections) -> int:
            if match is not None:
                payloads = partial(newest_payloads, collections, where, descending=False)
                most = -1 if at_most is None else at_most
                return len(walk(payloads, match, limit=most, after=None, most=None)[0])
            query = query_of(collections, where)
            if at_most is None:
                return sum(collections[name].count_documents(query) for name in collections_of(where))
            total = 0
            for name in collections_of(where):
                if total < at_most:
                    total += collections[name].count_documents(query, limit=at_most - total)
            return total

        return self.database.read(ask)

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs are in each status."""

        def ask(collections: Collections) -> dict[JobStatus, int]:
            grouped = collections[Names.JOBS].aggregate([{"$group": {"_id": "$status", "jobs": {"$sum": 1}}}])
            found = {str(one["_id"]): int(one["jobs"]) for one in grouped}
            return {status: found.get(status.value, 0) for status in JobStatus}

        return self.database.read(ask)

    def _record(self, document: Document) -> JobRecord:
        record = row_of(document, self.database.streams.key_of).record()
        bad = salvaged(document)[1]
        return replace(record, unreadable=bad) if bad else record

    # --- changing -------------------------------------------------------------------------------

    def delete(self, job_id: UUID) -> bool:
        """Remove a job that is not RUNNING and all that is known of it; what waits for it is canceled."""
        now = self.database.clock()  # the contract gives no other; nothing is decided by it

        def work(work: Work) -> bool:
            work.load_jobs([job_id])
            row = work.jobs.get(job_id)
            if row is None or row.status is JobStatus.RUNNING:
                return False
            if row.ended_as is None:
                cancel(work, row, Effects(), reason="deleted", now=now)
            children = (work.jobs.get(edge.child_id) for edge in outgoing(work, job_id))
            waiting = [child for child in children if child is not None and child.status is JobStatus.WAITING]
            cancel_all(work, waiting, reason="parent_canceled", now=now)  # also who waits for another parent
            work.jobs.remove(job_id)
            forget(work, [job_id])
            return True

        return self.change(work)

    def reschedule(self, job_id: UUID, at: datetime, *, now: datetime, within: object | None = None) -> bool:
        """Move the due time of a PENDING, PAUSED or WAITING job; False in any other state."""
        due_at = require_aware(at, "the new time")
        check(now, "now")

        def work(work: Work) -> bool:
            row = work.jobs.get(job_id)
            if row is None or row.status not in AT_REST:
                return False
            change(work, row, Effects(), now=now, scheduled_at=due_at)
            return True

        return self.change(work, within)

    def set_priority(
        self, job_id: UUID, priority: Priority, *, now: datetime, within: object | None = None
    ) -> bool:
        """Give a PENDING, PAUSED or WAITING job another priority; False in any other state."""
        check(now, "now")

        def work(work: Work) -> bool:
            row = work.jobs.get(job_id)
            if row is None or row.status not in AT_REST:
                return False
            prioritize(work, row, priority, now=now)
            return True

        return self.change(work, within)

    # --- bulk verbs -----------------------------------------------------------------------------

    def cancel_matching(
        self, where: JobFilter, *, limit: int, reason: str, now: datetime, within: object | None = None
    ) -> list[CanceledJob]:
        """Cancel up to *limit* matching jobs, oldest first, with their dependants."""
        where.require_criterion("cancel_matching")
        check((now, reason), "the reason")

        def work(work: Work) -> list[CanceledJob]:
            ids = self._oldest(work, where, LIVE, limit)
            work.load_jobs(ids)
            live = [work.jobs[job_id] for job_id in ids]
            return cancel_all(
                work, [row for row in live if not row.status.is_terminal], reason=reason, now=now
            )

        return self.change(work, within)

    def retry_matching(
        self, where: JobFilter, *, limit: int, now: datetime, within: object | None = None
    ) -> list[UUID]:
        """Retry up to *limit* matching FAILED jobs, oldest first; skips those whose business key is busy."""
        where.require_criterion("retry_matching")
        check(now, "now")

        def work(work: Work) -> list[UUID]:
            done: list[UUID] = []
            after: UUID | None = None
            while (room := limit - len(done)) > 0:  # those that are skipped do not count
                ids = self._oldest(work, where, [JobStatus.FAILED], room, after)
                work.load_jobs(ids)
                done += [job_id for job_id in ids if retried(work, job_id, now)]
                if len(ids) < room:
                    break
                after = ids[-1]
            return done

        return self.change(work, within)

    def _oldest(
        self,
        work: Work,
        where: JobFilter,
        statuses: Iterable[JobStatus],
        limit: int,
        after: UUID | None = None,
    ) -> list[UUID]:
        query = query_of(self.database.collections(), where)
        states = {status.value for status in statuses}
        if "status" in query:
            states &= set(query["status"]["$in"])
        query["status"] = {"$in": sorted(states)}
        jobs, match = work.collection(Names.JOBS), match_of(where)
        if limit <= 0:
            return []
        if match is not None:

            def read(last: UUID | None, most: int) -> list[tuple[UUID, str, str | None]]:
                following = after_id(query, last, descending=False)
                found = jobs.find(following, LOOKED_INTO, session=work.session).sort("_id", 1).limit(most)
                return [(one["_id"], *looked_into(one)) for one in found]

            return walk(read, match, limit=limit, after=after, most=None)[0]
        following = after_id(query, after, descending=False)
        found = jobs.find(following, {"_id": 1}, session=work.session).sort("_id", 1).limit(limit)
        return [one["_id"] for one in found]

    def purge_dead_letters(self, *, before: datetime, limit: int) -> int:
        """Move FAILED jobs that failed before *before* to the archive and drop their alerts."""
        if limit <= 0:
            return 0
        old = {"dead_lettered_at": {"$lt": micros(before)}, "status": JobStatus.FAILED.value}

        def find(collections: Collections) -> list[UUID]:
            found = collections[Names.JOBS].find(old, {"_id": 1}).sort([("dead_lettered_at", 1), ("_id", 1)])
            return [one["_id"] for one in found.limit(2 * limit)]

        ids = self.database.read(find)
        now = self.database.clock()

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
                    # one that counts others goes when all of them have gone
                    lambda alerts: alerts.delete_many(
                        {"job_id": {"$in": moved}, "suppressed": {"$not": {"$gt": 0}}}, session=work.session
                    ),
                )
            return len(moved)

        count = self.change(work) if ids else 0
        if count < limit:
            too_old = {"created_at": {"$lt": micros(before)}}
            self.database.write(lambda collections: collections[Names.ALERTS].delete_many(too_old))
        return count

    def delete_dead_letters(
        self, where: JobFilter, *, limit: int, after: UUID | None = None, dry_run: bool = False
    ) -> tuple[int, UUID | None]:
        """Delete the next *limit* matching FAILED jobs, oldest first, but for those that something needs."""
        where.require_criterion("delete_dead_letters")

        def work(work: Work) -> tuple[int, UUID | None]:
            ids = self._oldest(work, where, [JobStatus.FAILED], limit, after)
            work.load_jobs(ids)
            rows = [row for row in map(work.jobs.get, ids) if row is not None and row.archived_at is None]
            gone = [row.job_id for row in rows if row.status is JobStatus.FAILED and not is_needed(work, row)]
            if gone and not dry_run:
                for job_id in gone:
                    work.jobs.remove(job_id)
                forget(work, gone)
            return len(gone), ids[-1] if len(ids) == limit else None

        return self.database.run(work) if dry_run else self.change(work, count=itemgetter(0))

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

        return self.database.read(ask) if job_ids else {}

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
        found = self.database.read(lambda collections: list(collections[Names.JOBS].aggregate(pipeline)))
        return {str(one["_id"]): int(one["jobs"]) for one in found}


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


def _delete(query: Document, work: Work, collection: Collection[Document]) -> None:
    collection.delete_many(query, session=work.session)


def retried(work: Work, job_id: UUID, now: datetime) -> bool:
    """Retry a failed job, unless another one has its business key."""
    try:
        return work.run(lambda: retry(work, job_id, now=now))
    except BusinessKeyBusy:
        return False


def _result(document: Document) -> JobResultRow:
    document = salvaged(document)[0]
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
