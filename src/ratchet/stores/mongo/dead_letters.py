"""Dead letters and alerts in MongoDB; both are written by the transaction that fails the job."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ratchet.model.cursors import dead_letter_cursor, dead_letter_position
from ratchet.model.job import Alert, DeadLetter, JobFilter, Page
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.search import collections_of, query_of
from ratchet.stores.mongo.documents.values import ALERTS, Document, micros, time_of
from ratchet.stores.mongo.schema import Names

_LETTER = dict.fromkeys(
    ("target", "error", "error_type", "dead_letter_reason", "attempts", "crashes", "dead_lettered_at"), 1
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
            alerts = _alerts_of(collections, [one["_id"] for one in page])
            letters = [_letter(one, alerts.get(one["_id"], [])) for one in page]
            more = letters and len(found) > limit
            return Page(letters, dead_letter_cursor(letters[-1]) if more else None)

        return self.database.read(ask)

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        query: Document = {} if since is None else {"created_at": {"$gte": micros(since)}}
        order = [("created_at", -1), ("_id", -1)]
        return self.database.read(
            lambda c: [ALERTS.value(one) for one in c[Names.ALERTS].find(query).sort(order).limit(limit)]
        )

    def alerts_of(self, job_id: UUID) -> list[Alert]:
        """The alerts of one job, oldest first."""
        return self.database.read(lambda c: _alerts_of(c, [job_id]).get(job_id, []))


def _alerts_of(collections: Collections, job_ids: list[UUID]) -> dict[UUID, list[Alert]]:
    found: dict[UUID, list[Alert]] = {}
    order = [("created_at", 1), ("_id", 1)]
    if job_ids:
        for one in collections[Names.ALERTS].find({"job_id": {"$in": job_ids}}).sort(order):
            found.setdefault(one["job_id"], []).append(ALERTS.value(one))
    return found


def _letter(document: Document, alerts: list[Alert]) -> DeadLetter:
    return DeadLetter(
        job_id=document["_id"],
        target=document["target"],
        error=document.get("error"),
        reason=document.get("dead_letter_reason", ""),
        attempts=document.get("attempts", 0),
        failed_at=time_of(document["dead_lettered_at"]),
        alerts=tuple(alerts),
        crashes=document.get("crashes", 0),
        error_type=document.get("error_type"),
    )
