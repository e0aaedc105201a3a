"""Rates over time: the documents of scheduler_flow. A node writes its own, so none is written by two."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from pymongo.errors import BulkWriteError

from ratchet.model.flow_history import MERGED, MINUTE, FlowPeriod, floor, merged
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.values import Document, micros, time_of
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.work import Work
from ratchet.stores.unreadable import readable

_DUPLICATE: Final = 11000
_SHORT: Final = int(MINUTE.total_seconds())
_LENGTHS: Final = (_SHORT, int(MERGED.total_seconds()))


def insert_periods(collections: Collections, periods: Sequence[FlowPeriod]) -> int:
    """`FlowStore.record_flow`."""
    try:
        return len(
            collections[Names.FLOW]
            .insert_many([_document(one) for one in periods], ordered=False)
            .inserted_ids
        )
    except BulkWriteError as error:
        details = error.details or {}
        if any(one.get("code") != _DUPLICATE for one in details.get("writeErrors", ())):
            raise
        return int(details.get("nInserted", 0))


def find_periods(
    collections: Collections, since: datetime, until: datetime, only: str | None = None
) -> list[FlowPeriod]:
    """`FlowStore.flow`."""
    found = _periods(collections[Names.FLOW].find({"$or": _between(since, until)}), only)
    return sorted(found, key=lambda period: (period.at, period.seconds, period.source))


def oldest_minute(collections: Collections, before: datetime) -> datetime | None:
    """When the oldest minute that began before this time did; None: there is none."""
    where = {"_id": {"$gte": _key(_SHORT, 0), "$lt": _key(_SHORT, micros(before))}}
    first = list(collections[Names.FLOW].find(where, {"_id": 1}).sort("_id", 1).limit(1))
    return time_of(first[0]["_id"]["at"]) if first else None


def merge_slot(work: Work, at: datetime) -> int:
    """Make one period of those in the slot that *at* is in; how many minutes that were."""
    begin, session = floor(at, MERGED), work.session
    where: Document = {"$or": _between(begin, begin + MERGED)}
    found = list(work.collection(Names.FLOW).find(where, session=session))
    minutes = len([one for one in found if one["_id"]["seconds"] == _SHORT])
    if minutes:
        document = _document(merged(_periods(found), begin))
        gone: Document = {"_id": {"$in": [one["_id"] for one in found]}}
        work.write(Names.FLOW, lambda flow: flow.delete_many(gone, session=session))
        work.write(Names.FLOW, lambda flow: flow.insert_one(document, session=session))
    return minutes


def purge_periods(collections: Collections, before: datetime, limit: int) -> int:
    """`FlowStore.purge_flow`."""
    where = {"$or": [{"_id": {"$gte": _key(one, 0), "$lt": _key(one, micros(before))}} for one in _LENGTHS]}
    flow = collections[Names.FLOW]
    old = [one["_id"] for one in flow.find(where, {"_id": 1}).sort("_id", 1).limit(limit)]
    return flow.delete_many({"_id": {"$in": old}}).deleted_count if old else 0


def _between(since: datetime, until: datetime) -> list[Document]:
    return [{"_id": {"$gte": _key(one, micros(since)), "$lt": _key(one, micros(until))}} for one in _LENGTHS]


def _key(seconds: int, at: int, source: str = "") -> Document:
    """In the order of its fields, by which the server compares it."""
    return {"seconds": seconds, "at": at, "source": source}


def _document(period: FlowPeriod) -> Document:
    return {"_id": _key(period.seconds, micros(period.at), period.source), "document": period.document}


def _periods(documents: Iterable[Document], only: str | None = None) -> list[FlowPeriod]:
    def period(document: Any) -> FlowPeriod:
        key = document["_id"]
        return FlowPeriod.of_document(
            key["seconds"], time_of(key["at"]), key["source"], document["document"], only
        )

    return readable(documents, period, Names.FLOW, lambda one: one["_id"])
