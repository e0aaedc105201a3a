"""Dead letters and alerts in MongoDB; both are written by the transaction that fails the job."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ratchet.model.alerts import alerts_about, cause_of
from ratchet.model.cursors import dead_letter_cursor, dead_letter_position
from ratchet.model.job import Alert, DeadLetter, DeadLetterGroup, JobFilter, Page
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.search import collections_of, query_of
from ratchet.stores.mongo.documents.values import ALERTS, Document, micros, time_of
from ratchet.stores.mongo.schema import Names

_LETTER = dict.fromkeys(
    (
        "target",
        "error",
        "error_type",
        "dead_letter_reason",
        "attempts",
        "crashes",
        "dead_lettered_at",
        "archived_at",
    ),
    1,
)


class MongoDeadLetters(MongoPart):
    """Reads dead letters and alerts."""

    def dead_letters(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """FAILED jobs, latest failure first, each with its alerts."""
        wanted = where or JobFilter()
        after = None if cursor is None else dead_letter_position(cursor)

        def ask(collections: Collections) -> Page[DeadLetter]:
            criteria: list[Document] = [
                query_of(collections, wanted),
                {"status": JobStatus.FAILED.value, "dead_lettered_at": {"$exists": True}},
            ]
            if after is not None:
                at, job_id = micros(after[0]), after[1]
                criteria.append(
                    {
                        "$or": [
                            {"dead_lettered_at": {"$lt": at}},
                            {"dead_lettered_at": at, "_id": {"$lt": job_id}},
                        ]
                    }
                )
            order = [("dead_lettered_at", -1), ("_id", -1)]
            found: list[Document] = []
            for name in collections_of(wanted):
                found += collections[name].find({"$and": criteria}, _LETTER).sort(order).limit(limit + 1)
            found.sort(key=lambda one: (one["dead_lettered_at"], one["_id"].int), reverse=True)
            page = found[:limit]
            alerts = _alerts_about(collections, page)
            letters = [_letter(one, alerts.get(one["_id"], ())) for one in page]
            more = letters and len(found) > limit
            return Page(letters, dead_letter_cursor(letters[-1]) if more else None)

        return self.database.read(ask)

    def dead_letter_groups(
        self, where: JobFilter | None = None, *, limit: int = 100
    ) -> list[DeadLetterGroup]:
        """The matching FAILED jobs, by target and error type; most first."""
        wanted = where or JobFilter()

        def ask(collections: Collections) -> list[DeadLetterGroup]:
            failed = {"status": JobStatus.FAILED.value, "dead_lettered_at": {"$exists": True}}
            match = {"$and": [query_of(collections, wanted), failed]}
            stages: list[Document] = [
                {"$match": match},
                {"$sort": {"dead_lettered_at": 1, "_id": 1}},
                {
                    "$group": {
                        "_id": {"target": "$target", "error_type": {"$ifNull": ["$error_type", None]}},
                        "count": {"$sum": 1},
                        "first_at": {"$first": "$dead_lettered_at"},
                        "last_at": {"$last": "$dead_lettered_at"},
                        "message": {"$last": "$error"},
                        "sample": {"$last": "$_id"},
                    }
                },
            ]
            found: dict[tuple[str, str | None], Document] = {}
            for name in collections_of(wanted):
                for one in collections[name].aggregate(stages, allowDiskUse=True):
                    key = (one["_id"]["target"], one["_id"].get("error_type"))
                    found[key] = one if key not in found else _joined(found[key], one)
            ordered = sorted(
                found.items(), key=lambda item: (-item[1]["count"], item[0][0], item[0][1] or "")
            )
            return [_group(*key, one) for key, one in ordered[:limit]]

        return self.database.read(ask)

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        query: Document = {} if since is None else {"created_at": {"$gte": micros(since)}}
        order = [("created_at", -1), ("_id", -1)]
        return self.database.read(
            lambda c: [ALERTS.value(one) for one in c[Names.ALERTS].find(query).sort(order).limit(limit)]
        )

    def alerts_of(self, job_id: UUID) -> list[Alert]:
        """The alerts about one job, oldest first."""

        def ask(collections: Collections) -> list[Alert]:
            found = list(collections[Names.JOBS].find({"_id": job_id}, _LETTER))
            return list(_alerts_about(collections, found).get(job_id, ()))

        return self.database.read(ask)


def _joined(one: Document, other: Document) -> Document:
    latest = max((one, other), key=lambda group: (group["last_at"], group["sample"].int))
    return {
        **latest,
        "count": one["count"] + other["count"],
        "first_at": min(one["first_at"], other["first_at"]),
    }


def _group(target: str, error_type: str | None, one: Document) -> DeadLetterGroup:
    return DeadLetterGroup(
        target=target,
        error_type=error_type,
        message=one.get("message"),
        count=one["count"],
        first_at=time_of(one["first_at"]),
        last_at=time_of(one["last_at"]),
        sample=one["sample"],
    )


def _alerts_about(collections: Collections, letters: list[Document]) -> dict[UUID, tuple[Alert, ...]]:
    live = [one for one in letters if one.get("archived_at") is None]
    if not live:
        return {}
    causes = {one["_id"]: cause_of(one["target"], one.get("error_type")) for one in live}
    # There are few alerts, so those of a cause are found without an index.
    asked = {
        "$or": [{"job_id": {"$in": list(causes)}}, {"error_hash": {"$in": sorted(set(causes.values()))}}]
    }
    order = [("created_at", 1), ("_id", 1)]
    alerts = [ALERTS.value(one) for one in collections[Names.ALERTS].find(asked).sort(order)]
    return {
        job_id: alerts_about(job_id, cause, time_of(one.get("dead_lettered_at", 0)), alerts)
        for one in live
        for job_id, cause in ((one["_id"], causes[one["_id"]]),)
    }


def _letter(document: Document, alerts: tuple[Alert, ...]) -> DeadLetter:
    return DeadLetter(
        job_id=document["_id"],
        target=document["target"],
        error=document.get("error"),
        reason=document.get("dead_letter_reason", ""),
        attempts=document.get("attempts", 0),
        failed_at=time_of(document["dead_lettered_at"]),
        alerts=alerts,
        crashes=document.get("crashes", 0),
        error_type=document.get("error_type"),
    )
