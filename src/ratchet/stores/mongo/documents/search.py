"""Which jobs a `JobFilter` means, as a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ratchet.model.job import JobFilter, SortBy, id_bounds
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.listing import Candidate, match_of
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import Document, micros, time_of
from ratchet.stores.mongo.schema import Names


def query_of(collections: Collections, where: JobFilter) -> Document:
    """Every criterion that is given; times are compared as *after* <= t < *before*."""
    query: Document = {}
    if where.statuses is not None:
        query["status"] = {"$in": [JobStatus(status).value for status in where.statuses]}
    if where.targets is not None:
        query["target"] = {"$in": list(where.targets)}
    if where.queue is not None:
        streams = collections[Names.STREAMS].find({"queue": where.queue}, {"_id": 1})
        query["stream_id"] = {"$in": [stream["_id"] for stream in streams]}
    if where.types is not None:
        # the ordinary type is not written down
        query["type"] = {"$in": [None if one is JobType.SINGLE else one.value for one in where.types]}
    if where.priorities is not None:
        query["priority"] = {"$in": [int(one) for one in where.priorities]}
    if where.node_id is not None:
        query["node_id"] = where.node_id
    if links := _links(where):
        query["links"] = {"$all": links}
    _add_times(query, "created_at", where.created_after, where.created_before)
    _add_times(query, "due_at", where.scheduled_after, where.scheduled_before)
    if where.caller is not None:
        query["caller"] = where.caller
    if where.superseded_by is not None:
        query["superseded_by"] = where.superseded_by
    if where.truncated is not None:
        query["result_truncated"] = True if where.truncated else {"$ne": True}
    if where.parked is not None:
        streams = collections[Names.STREAMS].find({"parked_target": {"$exists": True}}, {"_id": 1})
        waits = {"status": JobStatus.PENDING.value, "stream_id": {"$in": [one["_id"] for one in streams]}}
        query["$and" if where.parked else "$nor"] = [waits]
    bounds: Document = {}
    first_id, last_id = id_bounds(where)
    if first_id is not None:
        bounds["$gte"] = first_id
    if last_id is not None:
        bounds["$lte"] = last_id
    if bounds:
        query["_id"] = bounds
    if where.error_contains is not None:
        found = {"$indexOfCP": [{"$ifNull": ["$error", ""]}, {"$literal": where.error_contains}]}
        query["$expr"] = {"$gte": [found, 0]}
    return query


def after_id(query: Document, after: UUID | None, *, descending: bool) -> Document:
    """*query*, beginning after an id."""
    return query if after is None else {"$and": [query, {"_id": {"$lt" if descending else "$gt": after}}]}


def newest_keys(
    collections: Collections, where: JobFilter, sort: SortBy, top: UUID | None, most: int
) -> list[Candidate]:
    """The newest matching jobs, up to an id, with what they are to be sorted by."""
    match = match_of(where)
    field = {SortBy.SCHEDULED: "due_at", SortBy.FINISHED: "finished_at", SortBy.PRIORITY: "priority"}[sort]
    query = query_of(collections, where)
    if top is not None:
        query = {"$and": [query, {"_id": {"$lte": top}}]}
    fields = {field: 1, "payload": 1} if match else {field: 1}
    found: list[Document] = []
    for name in collections_of(where):
        found += collections[name].find(query, fields).sort("_id", -1).limit(most)
    found.sort(key=lambda one: one["_id"].int, reverse=True)
    chosen = [one for one in found[:most] if match is None or match(one.get("payload", ""))]
    if sort is SortBy.PRIORITY:
        return [Candidate(one["_id"], one.get(field)) for one in chosen]
    return [Candidate(one["_id"], None if one.get(field) is None else time_of(one[field])) for one in chosen]


def newest_payloads(
    collections: Collections, where: JobFilter, after: UUID | None, most: int, *, descending: bool
) -> list[tuple[UUID, str]]:
    """(id, payload) of the next jobs that meet the other criteria, in the order of their ids."""
    query = after_id(query_of(collections, where), after, descending=descending)
    found: list[Document] = []
    for name in collections_of(where):
        found += (
            collections[name].find(query, {"payload": 1}).sort("_id", -1 if descending else 1).limit(most)
        )
    found.sort(key=lambda one: one["_id"].int, reverse=descending)
    return [(one["_id"], one.get("payload", "")) for one in found[:most]]


def collections_of(where: JobFilter) -> Iterable[str]:
    """The collections in which to look."""
    return (Names.JOBS, Names.ARCHIVE) if where.include_archived else (Names.JOBS,)


def _links(where: JobFilter) -> list[str]:
    named: tuple[tuple[str, UUID | str | None], ...] = (
        (Link.BATCH, where.batch_id),
        (Link.PARENT, where.parent_id),
        (Link.BUSINESS_KEY, where.business_key),
        (Link.SCHEDULE, where.schedule),
    )
    links = [link(kind, to) for kind, to in named if to is not None]
    return links + [link(Link.TAG, tag) for tag in dict.fromkeys(where.tags or ())]


def _add_times(query: Document, name: str, after: Any, before: Any) -> None:
    bounds: Document = {}
    if after is not None:
        bounds["$gte"] = micros(after)
    if before is not None:
        bounds["$lt"] = micros(before)
    if bounds:
        query[name] = bounds
