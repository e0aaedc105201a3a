"""Which jobs a `JobFilter` means, as a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from ratchet.model.job import JobFilter, SortBy, id_bounds
from ratchet.model.places import target_of
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.listing import HELD, STRETCHES, Candidate, is_walk, match_of, statuses_of
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import Document, micros, time_of
from ratchet.stores.mongo.schema import RUNNING_INDEX, Names

_DEAD_LETTERS: Document = {"dead_lettered_at": {"$exists": True}}
#: The indexes of states that have one; the server cannot know that few jobs are in it.
_WAITING = frozenset({JobStatus.PENDING})
_HINTS = {frozenset({JobStatus.RUNNING}): RUNNING_INDEX, frozenset({JobStatus.FAILED}): "dead_letter"}

#: What a search by argument or trace reads of a job.
LOOKED_INTO: Final = {"payload": 1, "params": 1}


def query_of(collections: Collections, where: JobFilter) -> Document:
    """Every criterion that is given; times are compared as *after* <= t < *before*."""
    query: Document = {}
    if where.statuses is not None:
        query["status"] = {"$in": [JobStatus(status).value for status in where.statuses]}
        if statuses_of(where) == frozenset({JobStatus.FAILED}):
            query.update(_DEAD_LETTERS)  # in the words of the partial index, so that it is used
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
    if where.error_type is not None:
        query["error_type"] = where.error_type or {"$in": [None, ""]}
    if where.truncated is not None:
        query["result_truncated"] = True if where.truncated else {"$ne": True}
    if where.parked is not None:
        streams = collections[Names.STREAMS].find({"parked_target": {"$exists": True}}, {"parked_target": 1})
        parked = [one["_id"] for one in streams if target_of(one["parked_target"]) is not None]
        waits = {"status": JobStatus.PENDING.value, "stream_id": {"$in": parked}}
        query["$and" if where.parked else "$nor"] = [waits]
    if bounds := _id_bounds(where):
        query["_id"] = bounds
    if where.error_contains is not None:
        found = {"$indexOfCP": [{"$ifNull": ["$error", ""]}, {"$literal": where.error_contains}]}
        query["$expr"] = {"$gte": [found, 0]}
    return query


def after_id(query: Document, after: UUID | None, *, descending: bool) -> Document:
    """*query*, beginning after an id."""
    return query if after is None else {"$and": [query, {"_id": {"$lt" if descending else "$gt": after}}]}


def hint_of(where: JobFilter, name: str) -> str | None:
    """The index by which this collection is read; None: the server chooses."""
    statuses = statuses_of(where)
    if name != Names.JOBS or statuses is None or _links(where):
        return None
    return _HINTS.get(statuses)


def is_walk_of(where: JobFilter) -> bool:
    """True if matching jobs can only be found by looking at one after the other: also those that are held."""
    statuses = statuses_of(where)
    if statuses == _WAITING and where.queue is not None:
        return False  # the index of claims has them
    return is_walk(where) or (bool(statuses) and not _links(where) and (statuses or HELD) <= HELD)


def end_of(
    collections: Collections, where: JobFilter, after: UUID | None, size: int, *, descending: bool
) -> UUID | None:
    """The id that is so many jobs behind *after*, by the collections in which jobs are looked for; None: none has as many."""
    ends: list[UUID] = []
    bounds = _id_bounds(where)
    if after is not None:
        bounds["$lt" if descending else "$gt"] = after
    for name in collections_of(where):
        found = collections[name].find({"_id": bounds} if bounds else {}, {"_id": 1})
        ends += [one["_id"] for one in found.sort("_id", -1 if descending else 1).skip(size - 1).limit(1)]
    return (max if descending else min)(ends, key=lambda one: one.int) if ends else None


def newest_keys(
    collections: Collections, where: JobFilter, sort: SortBy, top: UUID | None, most: int
) -> list[Candidate]:
    """The newest matching jobs, up to an id, with what they are to be sorted by."""
    match = match_of(where)
    field = {SortBy.SCHEDULED: "due_at", SortBy.FINISHED: "finished_at", SortBy.PRIORITY: "priority"}[sort]
    query = query_of(collections, where)
    if top is not None:
        query = {"$and": [query, {"_id": {"$lte": top}}]}
    if is_walk_of(where):
        last = end_of(collections, where, top, sum(STRETCHES), descending=True)
        query = query if last is None else {"$and": [query, {"_id": {"$gte": last}}]}
    fields = {field: 1, **LOOKED_INTO} if match else {field: 1}
    found: list[Document] = []
    for name in collections_of(where):
        found += collections[name].find(query, fields).sort("_id", -1).limit(most)
    found.sort(key=lambda one: one["_id"].int, reverse=True)
    chosen = [one for one in found[:most] if match is None or match(*looked_into(one))]
    if sort is SortBy.PRIORITY:
        return [Candidate(one["_id"], one.get(field)) for one in chosen]
    return [Candidate(one["_id"], None if one.get(field) is None else time_of(one[field])) for one in chosen]


def newest_payloads(
    collections: Collections, where: JobFilter, after: UUID | None, most: int, *, descending: bool
) -> list[tuple[UUID, str, str | None]]:
    """(id, payload, params) of the next jobs that meet the other criteria, in the order of their ids."""
    query = after_id(query_of(collections, where), after, descending=descending)
    found: list[Document] = []
    for name in collections_of(where):
        found += collections[name].find(query, LOOKED_INTO).sort("_id", -1 if descending else 1).limit(most)
    found.sort(key=lambda one: one["_id"].int, reverse=descending)
    return [(one["_id"], *looked_into(one)) for one in found[:most]]


def looked_into(document: Document) -> tuple[str, str | None]:
    """Payload and params of a job."""
    return document.get("payload", ""), document.get("params")


def collections_of(where: JobFilter) -> Iterable[str]:
    """The collections in which to look."""
    return (Names.JOBS, Names.ARCHIVE) if where.include_archived else (Names.JOBS,)


def _id_bounds(where: JobFilter) -> Document:
    bounds: Document = {}
    first_id, last_id = id_bounds(where)
    if first_id is not None:
        bounds["$gte"] = first_id
    if last_id is not None:
        bounds["$lte"] = last_id
    return bounds


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
