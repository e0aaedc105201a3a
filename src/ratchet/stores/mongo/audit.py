"""The audit log in MongoDB. `append_entry` runs in the transaction of the change (see `MongoPart.change`)."""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import Any

from pymongo.errors import DuplicateKeyError

from ratchet.model.audit import EQUAL_CRITERIA, AuditEntry, AuditFilter
from ratchet.model.cursors import audit_cursor, audit_position
from ratchet.model.job import Page
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.audit_entries import append_entry, document_of, entry_of
from ratchet.stores.mongo.documents.values import Document, micros, time_of
from ratchet.stores.mongo.schema import Names
from ratchet.stores.unreadable import readable


class MongoAudit(MongoPart):
    """Reads and keeps the audit log."""

    def append_audit(self, entry: AuditEntry, *, within: object | None = None) -> None:
        """Store an entry by itself."""
        if within is not None:
            self.database.run(lambda work: append_entry(work, entry, True), within=within)
            return

        def append(collections: Collections) -> None:
            try:  # an insert: a role that may add to the log, and not change it, writes its refusals down
                collections[Names.AUDIT].insert_one(document_of(entry))
            except DuplicateKeyError:
                pass  # it was sent again, after a lost answer

        self.database.write(append)

    def find_audit(self, where: AuditFilter, *, limit: int, cursor: str | None = None) -> Page[AuditEntry]:
        """One page of matching entries, newest first."""
        query = _query(where)
        if cursor is not None:
            at, last = audit_position(cursor)
            query = {
                "$and": [
                    query,
                    {"$or": [{"at": {"$lt": micros(at)}}, {"at": micros(at), "_id": {"$lt": last}}]},
                ]
            }

        def ask(collections: Collections) -> list[Document]:
            found = collections[Names.AUDIT].find(query).sort([("at", -1), ("_id", -1)])
            return list(found.limit(limit + 1))

        found = self.database.read(ask)
        entries = readable(found[:limit], entry_of, Names.AUDIT, itemgetter("_id"))
        more = found[limit - 1] if len(found) > limit else None
        return Page(entries, None if more is None else audit_cursor(time_of(more["at"]), more["_id"]))

    def purge_audit(self, *, before: datetime, limit: int) -> int:
        """Delete the oldest entries from before *before*, at most *limit*; how many."""

        def purge(collections: Collections) -> int:
            audit = collections[Names.AUDIT]
            old = audit.find({"at": {"$lt": micros(before)}}, {"_id": 1}).sort([("at", 1), ("_id", 1)])
            ids = [one["_id"] for one in old.limit(limit)]
            return audit.delete_many({"_id": {"$in": ids}}).deleted_count if ids else 0

        return self.database.write(purge) if limit > 0 else 0

    def oldest_audit_at(self) -> datetime | None:
        """When the oldest entry was made; None if there is none."""
        order = [("at", 1), ("_id", 1)]
        found = self.database.read(lambda c: c[Names.AUDIT].find_one({}, {"at": 1}, sort=order))
        return None if found is None else time_of(found["at"])


def _query(where: AuditFilter) -> dict[str, Any]:
    query: dict[str, Any] = {
        name: value for name in EQUAL_CRITERIA if (value := getattr(where, name)) is not None
    }
    if where.after is not None:
        query.setdefault("at", {})["$gte"] = micros(where.after)
    if where.before is not None:
        query.setdefault("at", {})["$lt"] = micros(where.before)
    return query
