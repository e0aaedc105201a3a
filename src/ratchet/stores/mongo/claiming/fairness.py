"""
What a claim takes in MongoDB where open streams have fairness keys, or are very many.

There may be thousands of keys, most of them without work. The places that had some, each a stream and a
priority, are remembered, and their heads are read in the same round trip as the gates; of all other places
together it is asked whether there is any job: one walk over the index, which leaps from place to place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from ratchet.model.claim import ClaimRequest, party_of
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.claiming.claim_order import PRIORITIES, Branch, Chosen, choose
from ratchet.stores.mongo.claiming.gates import BATCH, Gates, absorb_heads, depth_of, read_gates, read_on
from ratchet.stores.mongo.claiming.many_streams import BusyStreams, strangers
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import Names

#: Jobs that one walk over the other places brings; and walks after which each place is asked for itself.
_FOUND: Final = 100
_WALKS: Final = 5

Place = tuple[int, int]  # stream and priority
#: Streams that have the same priorities, by these priorities.
Groups = dict[tuple[int, ...], list[int]]


class Tenants:
    """What is remembered of one kind of request: the places that had work last time, and all open streams."""

    def __init__(self) -> None:
        self._busy: dict[Place, str] = {}  # the party of each
        self._opened: list[int] = []

    def choose(
        self,
        collections: Collections,
        request: ClaimRequest,
        now: datetime,
        avoided: Collection[UUID],
        streams: BusyStreams,
    ) -> tuple[Chosen, Gates]:
        """What the claim should take; one round trip while the same places have work."""
        depth = _share(request, self._busy.values())
        busy = _branches(self._busy)
        known = streams.remembered()
        ahead = [*_heads(busy, depth, now, avoided), *_others(self._opened, busy, now)]
        ahead += [] if known is None else [strangers(known)]
        gates, documents = read_gates(collections, request, now, ahead, streams=known)
        if any("stranger" in one for one in documents):
            gates, _ = read_gates(collections, request, now, streams=streams.find(collections))
            documents = [one for one in documents if "stranger" not in one]
        _absorb(busy, (one for one in documents if "due_at" in one), depth, request, now)
        opened = gates.open_streams(request)
        found = {(one["stream_id"], one["priority"]) for one in documents if "due_at" not in one}
        if found or set(opened) - set(self._opened):
            more = _branches(_awake(collections, opened, busy, now))
            depth = _share(request, [_party(gates, place) for place in (*busy, *more)])
            for stage in _heads(more, depth, now, avoided):
                pipeline = stage["$unionWith"]["pipeline"]
                _absorb(
                    more, collections[Names.STREAMS].aggregate(pipeline, batchSize=BATCH), depth, request, now
                )
            busy |= more
        candidates = self._remember(gates, opened, busy)

        def read(wanted: Sequence[Branch], share: int) -> None:
            read_on(collections, wanted, request, now, avoided, share)

        allowances = {name: gates.allowance(name) for branch in candidates for name in branch.gates}
        return choose(candidates, request.limit, allowances, read, request.after), gates

    def _remember(self, gates: Gates, opened: list[int], busy: dict[Place, Branch]) -> list[Branch]:
        """The branches that have work, with their limits and what was read of them."""
        busy = {place: branch for place, branch in busy.items() if branch.ranks}
        streams = {stream_id for stream_id, _ in busy}.intersection(opened)
        self._opened = opened
        self._busy = {place: _party(gates, place) for place in busy if place[0] in streams}
        found = [one for one in gates.branches(streams) if (one.stream_id, one.priority) in busy]
        for branch in found:
            head = busy[branch.stream_id, branch.priority]
            branch.ranks, branch.ended = head.ranks, head.ended
        return found


def _party(gates: Gates, place: Place) -> str:
    key = gates.streams.get(place[0])
    return party_of(None if key is None else key.fairness_key)


def _share(request: ClaimRequest, parties: Collection[str]) -> int:
    """How many heads of each place to read: an even share of its party; what others leave is read later."""
    even = -(-request.limit // max(len(set(parties)), 1))
    return max(1, min(even, depth_of(len(parties), request.limit)))


def _branches(places: Iterable[Place]) -> dict[Place, Branch]:
    return {place: Branch(*place) for place in places}


def _absorb(
    branches: dict[Place, Branch],
    documents: Iterable[Document],
    depth: int,
    request: ClaimRequest,
    now: datetime,
) -> None:
    absorb_heads([(branch, depth) for branch in branches.values()], documents, request.boost_interval, now)


def _groups(places: Iterable[Place]) -> Groups:
    priorities: dict[int, list[int]] = {}
    for stream_id, priority in places:
        priorities.setdefault(stream_id, []).append(priority)
    groups: Groups = {}
    for stream_id, found in priorities.items():
        groups.setdefault(tuple(sorted(found)), []).append(stream_id)
    return groups


def first_due(collections: Collections, stream_ids: Iterable[int]) -> Iterator[Document]:
    """The first job of each place of these streams, due or not."""
    places = [(stream_id, priority) for stream_id in stream_ids for priority in PRIORITIES]
    for stage in _heads(places, 1, None, ()):
        yield from collections[Names.STREAMS].aggregate(stage["$unionWith"]["pipeline"], batchSize=BATCH)


def _heads(
    places: Collection[Place], depth: int, now: datetime | None, avoided: Collection[UUID]
) -> list[Document]:
    """Stages that bring the first jobs of each of these places; with *now* only those that are due."""
    due: Document = {
        "status": JobStatus.PENDING.value,
        **({} if now is None else {"due_at": {"$lte": micros(now)}}),
        "$expr": {"$and": [{"$eq": ["$stream_id", "$$stream_id"]}, {"$eq": ["$priority", "$$priority"]}]},
    }
    if avoided:
        due["_id"] = {"$nin": list(avoided)}
    first = [
        {"$match": due},
        {"$sort": {"due_at": 1, "_id": 1}},
        {"$limit": depth},
        {"$project": {"due_at": 1}},
    ]
    lookup = {
        "from": Names.JOBS,
        "let": {"stream_id": "$_id", "priority": "$priority"},
        "pipeline": first,
        "as": "job",
    }
    job = {"_id": "$job._id", "stream_id": "$_id", "priority": 1, "due_at": "$job.due_at"}
    return [
        {
            "$unionWith": {
                "coll": Names.STREAMS,
                "pipeline": [
                    {"$match": {"_id": {"$in": stream_ids}}},
                    {"$project": {"priority": {"$literal": list(priorities)}}},
                    {"$unwind": "$priority"},
                    {"$lookup": lookup},
                    {"$unwind": "$job"},
                    {"$project": job},
                ],
            }
        }
        for priorities, stream_ids in _groups(places).items()
    ]


def _others(opened: Iterable[int], known: Collection[Place], now: datetime) -> list[Document]:
    """Stages that bring some due jobs of all other places of these streams, if there are any."""
    others = [
        (stream_id, priority)
        for stream_id in opened
        for priority in PRIORITIES
        if (stream_id, priority) not in known
    ]
    return [
        {
            "$unionWith": {
                "coll": Names.JOBS,
                "pipeline": [
                    {
                        "$match": {
                            "status": JobStatus.PENDING.value,
                            "stream_id": {"$in": stream_ids},
                            "priority": {"$in": list(priorities)},
                            "due_at": {"$lte": micros(now)},
                        }
                    },
                    {"$limit": _FOUND},
                    {"$project": {"_id": 0, "stream_id": 1, "priority": 1}},
                ],
            }
        }
        for priorities, stream_ids in _groups(others).items()
    ]


def _awake(
    collections: Collections, opened: Sequence[int], known: Collection[Place], now: datetime
) -> set[Place]:
    """The places that have due jobs, but for the known ones; where these are many, perhaps some that have none."""
    found: set[Place] = set()
    for _ in range(_WALKS):
        before = len(found)
        for stage in _others(opened, {*known, *found}, now):
            jobs = collections[Names.JOBS].aggregate(stage["$unionWith"]["pipeline"])
            found |= {(job["stream_id"], job["priority"]) for job in jobs}
        if len(found) == before:
            return found
    return {(stream_id, priority) for stream_id in opened for priority in PRIORITIES} - set(known)
