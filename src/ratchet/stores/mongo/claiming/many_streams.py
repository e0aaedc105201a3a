"""
Which streams have waiting jobs, in a database with very many streams.

A few streams are read with every claim, and looked into one by one. With a key for each customer there are
thousands, most of them without jobs. Then the streams that had jobs are remembered, and one query asks whether
any other stream has a job: the server walks the index and skips the streams that are known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ratchet.model.claim import ClaimRequest
from ratchet.model.job import StreamKey
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.claiming.gates import Gates, read_gates
from ratchet.stores.mongo.documents.stream_registry import key_of
from ratchet.stores.mongo.documents.values import Document
from ratchet.stores.mongo.schema import BATCH, CLAIM_INDEX, Names

if TYPE_CHECKING:
    from ratchet.stores.mongo.connections import Collections
    from ratchet.stores.mongo.documents.stream_registry import StreamRegistry

#: So many streams are read with every claim.
FEW_STREAMS: Final = 20

_PENDING: Final = {"status": JobStatus.PENDING.value}
_JOBS: Final = 100  # that one question for others brings
_QUESTIONS: Final = 8  # for others; where these find more, every stream is asked for itself
_FORGET: Final = 2.0  # seconds after which those are forgotten that have no jobs any more
_COUNT: Final = 60.0  # seconds after which streams are counted again


class StreamsWithJobs:
    """The streams that have waiting jobs, of all lanes and queues. Safe for many threads."""

    def __init__(self, registry: StreamRegistry, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self.are_many = False
        self._known: frozenset[int] = frozenset()
        self._forget_at = self._count_at = float("-inf")

    def count_read(self, streams: int) -> bool:
        """A claim has read so many streams; True: too many to read them all again."""
        if streams > FEW_STREAMS and not self.are_many:
            self.are_many = True
            self._count_at = self._monotonic() + _COUNT
        return self.are_many

    def remembered(self) -> Mapping[int, StreamKey] | None:
        """What was found last time, without asking; `unknown_streams` asks for the others. None: there are few streams."""
        if not self.are_many:
            return None
        keys = {stream_id: self._registry.known_key(stream_id) for stream_id in sorted(self._known)}
        return {stream_id: key for stream_id, key in keys.items() if key is not None}

    def find(self, collections: Collections) -> Mapping[int, StreamKey] | None:
        """Every stream that has waiting jobs now, and perhaps some that had; None: there are few, read them all."""
        if not self.are_many:
            return None
        now = self._monotonic()
        with self._lock:
            known, forget, count = self._known, now >= self._forget_at, now >= self._count_at
            self._forget_at = now + _FORGET if forget else self._forget_at
            self._count_at = now + _COUNT if count else self._count_at
        if count and collections[Names.STREAMS].estimated_document_count() <= FEW_STREAMS:
            self.are_many = False
            return None
        if forget and known:
            known = with_jobs_among(collections, known)
        found = known | _others(collections, known)
        with self._lock:
            self._known = found if forget else self._known | found
        return self._keys(collections, found)

    def gates(self, collections: Collections, request: ClaimRequest, now: datetime) -> Gates:
        """What may close the streams that have waiting jobs; where there are few streams, of all of them."""
        found = self.find(collections)
        gates, _ = read_gates(collections, request, now, streams=found)
        if found is None and self.count_read(len(gates.streams)):
            return self.gates(collections, request, now)
        return gates

    def _keys(self, collections: Collections, stream_ids: Iterable[int]) -> dict[int, StreamKey]:
        keys = {stream_id: self._registry.known_key(stream_id) for stream_id in sorted(stream_ids)}
        found = {stream_id: key for stream_id, key in keys.items() if key is not None}
        if missing := keys.keys() - found.keys():
            for document in collections[Names.STREAMS].find({"_id": {"$in": sorted(missing)}}):
                found[document["_id"]] = key = key_of(document)
                self._registry.knows(document["_id"], key)
        return found


def with_jobs_among(collections: Collections, stream_ids: Iterable[int]) -> frozenset[int]:
    """Those of these streams that have waiting jobs."""
    return _with_jobs(collections, {"_id": {"$in": sorted(stream_ids)}})


def unknown_streams(known: Iterable[int]) -> Document:
    """A stage that brings a job of a stream that is not *known*, if there is any: only that stream's number."""
    query: Document = {**_PENDING, "stream_id": {"$nin": list(known)}}
    pipeline = [{"$match": query}, {"$limit": 1}, {"$project": {"_id": 0, "unknown_stream": "$stream_id"}}]
    return {"$unionWith": {"coll": Names.JOBS, "pipeline": pipeline}}


def _others(collections: Collections, known: frozenset[int]) -> frozenset[int]:
    found: set[int] = set()
    for _ in range(_QUESTIONS):
        # ranges between the known ones: the server skips from one to the next
        query: Document = {**_PENDING, "stream_id": {"$nin": [*known, *found]}}
        jobs = collections[Names.JOBS].find(query, {"_id": 0, "stream_id": 1}, limit=_JOBS, hint=CLAIM_INDEX)
        others = {int(job["stream_id"]) for job in jobs}
        if not others:
            return frozenset(found)
        found |= others
    return _with_jobs(collections, {})


def _with_jobs(collections: Collections, streams: Document) -> frozenset[int]:
    """Those of these streams that have waiting jobs: a look at each."""
    first: list[Document] = [
        {"$match": {**_PENDING, "$expr": {"$eq": ["$stream_id", "$$stream_id"]}}},
        {"$limit": 1},
        {"$project": {"_id": 1}},
    ]
    lookup: dict[str, Any] = {
        "from": Names.JOBS,
        "let": {"stream_id": "$_id"},
        "pipeline": first,
        "as": "job",
    }
    pipeline: list[Document] = [
        {"$match": streams},
        {"$project": {"_id": 1}},
        {"$lookup": lookup},
        {"$match": {"job": {"$ne": []}}},
        {"$project": {"_id": 1}},
    ]
    return frozenset(
        int(one["_id"]) for one in collections[Names.STREAMS].aggregate(pipeline, batchSize=BATCH)
    )
