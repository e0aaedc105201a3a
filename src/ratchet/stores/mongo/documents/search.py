"""Which jobs a `JobFilter` means, as a query."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.jobs import Link, link
from ratchet.stores.mongo.documents.values import Document, micros
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
    if where.error_contains is not None:
        found = {"$indexOfCP": [{"$ifNull": ["$error", ""]}, {"$literal": where.error_contains}]}
        query["$expr"] = {"$gte": [found, 0]}
    return query


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
