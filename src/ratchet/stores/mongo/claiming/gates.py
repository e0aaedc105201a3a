"""
What closes a stream, read together with the first jobs of the open ones.

One aggregation brings the streams, the paused queues, the open breakers, the limits, and the first due
jobs of the streams that were open last time; so a claim that finds nothing is one round trip.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from ratchet.model.claim import ClaimRequest, party_of
from ratchet.model.cluster import PermitRecord, breaker_gate, resources_of
from ratchet.model.job import StreamKey
from ratchet.model.status import JobStatus
from ratchet.stores.levels import PRIORITIES, Level
from ratchet.stores.memory.permits import meter_for
from ratchet.stores.memory.rows import Limit
from ratchet.stores.meters import Meter
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.stream_registry import key_of
from ratchet.stores.mongo.documents.values import LIMITS, Document, micros, pause_end, time_of
from ratchet.stores.mongo.schema import BATCH, Names
from ratchet.stores.unreadable import passed_by

#: Levels whose first jobs one aggregation reads; the server takes at most a thousand stages.
LEVELS: Final = 300
#: About how many jobs one round trip reads.
JOBS_READ: Final = 5_000

_MICROSECOND: Final = timedelta(microseconds=1)
NO_LIMIT: Final = 2**31


@dataclass(slots=True)
class Gates:
    """The streams of a lane and everything that may close them, at one moment."""

    now: datetime
    streams: dict[int, StreamKey] = field(default_factory=dict)
    paused: dict[str, datetime | None] = field(default_factory=dict)  # until; None: for good
    breakers: dict[str, datetime | None] = field(default_factory=dict)  # open until; None: for good
    limits: dict[str, Limit] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)  # of limits that have a rate
    held: dict[str, int] = field(default_factory=dict)

    def is_open(self, key: StreamKey, request: ClaimRequest) -> bool:
        """True where the request may claim from the stream, but for limits."""
        return (
            self._fits(key, request)
            and key.queue not in self.paused
            and not (key.breaker is not None and key.breaker in self.breakers)
        )

    def opens_at(self, key: StreamKey, request: ClaimRequest) -> datetime | None:
        """When the request may claim from it, but for limits: now, or when its queue opens and its breaker comes to its probes."""
        if not self._fits(key, request):
            return None
        queue_at = self.paused.get(key.queue, self.now)
        probes_at = self.now if key.breaker is None else self.breakers.get(key.breaker, self.now)
        return None if queue_at is None or probes_at is None else max(queue_at, probes_at)

    def _fits(self, key: StreamKey, request: ClaimRequest) -> bool:
        return (
            key.lane is request.lane
            and (request.queues is None or key.queue in request.queues)
            and key.suspect is request.suspects
            and (key.parked_target is None or key.parked_target in request.parked_targets)
        )

    def open_streams(self, request: ClaimRequest) -> list[int]:
        """The streams that the request may claim from, but for limits."""
        return [stream_id for stream_id, key in self.streams.items() if self.is_open(key, request)]

    def limits_of(self, stream_id: int) -> tuple[str, ...]:
        """The names of the limits that the jobs of a stream pass."""
        key = self.streams[stream_id]
        names = (*resources_of(key), breaker_gate(key.breaker))
        return tuple(name for name in names if name is not None and name in self.limits)

    def allowance(self, name: str) -> int:
        """How many jobs a limit lets through now."""
        meter = self.meters.get(name)
        return max(0, min(self.slots(name), NO_LIMIT if meter is None else meter.starts))

    def slots(self, name: str) -> int:
        """How many more jobs of a limit may run at once."""
        limit = self.limits[name]
        return NO_LIMIT if limit.concurrent is None else limit.concurrent - self.held.get(name, 0)

    def next_token_at(self, name: str) -> datetime | None:
        """When the rate of a limit lets another job be claimed; None: now, or not known."""
        meter = self.meters.get(name)
        return None if meter is None or meter.starts > 0 else meter.opens_at()

    def levels(self, stream_ids: Iterable[int]) -> list[Level]:
        """The levels of streams, each with its limits; those that a limit closes are left out."""
        found: list[Level] = []
        for stream_id in stream_ids:
            gates = self.limits_of(stream_id)
            most = min((self.allowance(name) for name in gates), default=None)
            if most is None or most > 0:
                party = party_of(self.streams[stream_id].fairness_key)
                found += [Level(stream_id, priority, gates, most, party) for priority in PRIORITIES]
        return found


def read_gates(
    collections: Collections,
    request: ClaimRequest,
    now: datetime,
    stages: Sequence[Document] = (),
    *,
    streams: Mapping[int, StreamKey] | None = None,
) -> tuple[Gates, list[Document]]:
    """
    Everything that may close the request's streams; and what the *stages* bring, in the same round trip.

    *streams* are those that count, where not all do: then neither the others are read, nor their limits.
    """
    gates, found = Gates(now), []
    wanted: Document = {"lane": request.lane.value, "suspect": request.suspects}
    limits: list[Document] = []
    if streams is not None:
        gates.streams = {
            stream_id: key
            for stream_id, key in streams.items()
            if key.lane is request.lane and key.suspect is request.suspects
        }
        wanted = {"_id": {"$in": []}}
        limits = [{"$match": {"_id": {"$in": sorted(_names(gates.streams.values()))}}}]
    pipeline: list[Document] = [
        {"$match": wanted},
        {"$unset": "key_hash"},
        {"$unionWith": {"coll": Names.QUEUES, "pipeline": [{"$match": {"paused": True}}, _kind("queue")]}},
        {"$unionWith": {"coll": Names.BREAKERS, "pipeline": [*_open_breakers(now), _kind("breaker")]}},
        {"$unionWith": {"coll": Names.LIMITS, "pipeline": [*limits, _kind("limit")]}},
        *stages,
    ]
    for document in collections[Names.STREAMS].aggregate(pipeline, batchSize=BATCH):
        match document.get("kind"):
            case None if "lane" in document:
                try:
                    gates.streams[document["_id"]] = key_of(document)
                except (ValueError, TypeError, KeyError) as error:
                    passed_by(Names.STREAMS, document["_id"], error)
            case None:
                found.append(document)
            case "queue":
                ends_at = pause_end(document)
                if ends_at is None or ends_at > now:
                    gates.paused[document["_id"]] = ends_at
            case "breaker":
                until = document.get("until")
                gates.breakers[document["_id"]] = time_of(until) if isinstance(until, int) else None
            case "limit":
                try:
                    limit = LIMITS.value(document)
                    if (meter := meter_for(limit, now, request.ahead)) is not None and meter.starts >= 0:
                        gates.meters[limit.name] = meter
                except (ValueError, TypeError, KeyError, ArithmeticError) as error:
                    passed_by(Names.LIMITS, document["_id"], error)
                    # which of its jobs may start, nobody can say
                    limit = Limit(name=document["_id"], concurrent=0, refilled_at=now)
                gates.limits[limit.name] = limit
    _count_permits(collections, gates)
    return gates, found


def _names(streams: Iterable[StreamKey]) -> set[str]:
    """The names of the limits that streams may have."""
    names = {name for key in streams for name in (key.resource, key.limit_key, breaker_gate(key.breaker))}
    return {name for name in names if name is not None}


def _kind(name: str) -> Document:
    return {"$addFields": {"kind": name}}


def _open_breakers(now: datetime) -> list[Document]:
    # OPEN without a time is open until somebody closes it
    until = [{"until": {"$exists": False}}, {"until": {"$gt": micros(now)}}]
    return [{"$match": {"state": "OPEN", "$or": until}}]


def _count_permits(collections: Collections, gates: Gates) -> None:
    wanted = {
        name
        for key in gates.streams.values()
        for name in resources_of(key)
        if name in gates.limits and gates.limits[name].concurrent is not None
    }
    if wanted:
        grouped = collections[Names.PERMITS].aggregate(
            [
                {"$match": {"_id.resource": {"$in": sorted(wanted)}}},
                {"$group": {"_id": "$_id.resource", "held": {"$sum": 1}}},
            ]
        )
        gates.held = {one["_id"]: int(one["held"]) for one in grouped}


def find_holders(collections: Collections, name: str, limit: int) -> list[PermitRecord]:
    """Who holds permits of a resource, the longest first: a claim's token begins with the time."""
    found = collections[Names.PERMITS].find({"_id.resource": name})
    held = found.sort([("_id.claim_id", 1), ("_id.job_id", 1)]).limit(limit)
    return [PermitRecord(**one["_id"], node_id=one["node_id"]) for one in held]


def depth_of(count: int, limit: int) -> int:
    """How far to read in each of *count* levels: as far as can be needed, unless they are many."""
    return min(limit, max(4, JOBS_READ // max(count, 1)))


def read_first_jobs(
    collections: Collections,
    wanted: Sequence[tuple[Level, int]],
    now: datetime | None,
    avoided: Collection[UUID] = (),
) -> Iterator[Document]:
    """The next jobs of these levels, a few hundred levels in one round trip."""
    for start in range(0, len(wanted), LEVELS):
        first, *others = first_job_stages(wanted[start : start + LEVELS], now, avoided)
        pipeline = [*first["$unionWith"]["pipeline"], *others]
        yield from collections[Names.JOBS].aggregate(pipeline, batchSize=BATCH)


def read_on(
    collections: Collections,
    wanted: Sequence[Level],
    request: ClaimRequest,
    now: datetime,
    avoided: Collection[UUID] = (),
    share: int = NO_LIMIT,
) -> None:
    """Read on in each level, as far as can be needed, but no further than a *share*."""
    depth = min(share, depth_of(len(wanted), request.limit))
    counted = [(one, depth if one.most is None else min(depth, one.most - len(one.ranks))) for one in wanted]
    absorb_jobs(counted, read_first_jobs(collections, counted, now, avoided), request.boost_interval, now)


def first_job_stages(
    wanted: Sequence[tuple[Level, int]], now: datetime | None, avoided: Collection[UUID] = ()
) -> list[Document]:
    """Stages that bring so many of the next jobs of each level; with *now* only those that are due."""
    return [
        {"$unionWith": {"coll": Names.JOBS, "pipeline": _first_jobs_of(level, count, now, avoided)}}
        for level, count in wanted
    ]


def _first_jobs_of(
    level: Level, count: int, now: datetime | None, avoided: Collection[UUID]
) -> list[Document]:
    match: Document = {
        "status": JobStatus.PENDING.value,
        "stream_id": level.stream_id,
        "priority": level.priority,
    }
    if now is not None:
        match["due_at"] = {"$lte": micros(now)}
    if avoided:
        match["_id"] = {"$nin": list(avoided)}
    if level.ranks:
        _, last_due_at, last_id = level.ranks[-1]
        match["$or"] = [{"due_at": {"$gt": last_due_at}}, {"due_at": last_due_at, "_id": {"$gt": last_id}}]
    return [
        {"$match": match},
        {"$sort": {"due_at": 1, "_id": 1}},
        {"$limit": count},
        {"$project": {"stream_id": 1, "priority": 1, "due_at": 1}},
    ]


def absorb_jobs(
    wanted: Sequence[tuple[Level, int]],
    documents: Iterable[Document],
    boost: timedelta | None,
    now: datetime,
) -> None:
    """Put what was read behind what the levels hold, and mark those that have no more."""
    by_key = {(level.stream_id, level.priority): level for level, _ in wanted}
    before = {key: len(level.ranks) for key, level in by_key.items()}
    at, step = micros(now), None if not boost else boost // _MICROSECOND
    for document in documents:
        level = by_key.get((document["stream_id"], document["priority"]))
        if level is not None:
            due_at = document["due_at"]
            if not isinstance(due_at, (int, float)):
                due_at = 0  # a list with a number in it, which the server takes for due
            raised = (at - due_at) // step if step else 0
            level.ranks.append((-(level.priority + raised), due_at, document["_id"]))
    for level, count in wanted:
        if len(level.ranks) - before[level.stream_id, level.priority] < count:
            level.ended = True
