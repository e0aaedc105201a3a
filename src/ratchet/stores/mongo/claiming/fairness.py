"""
What a claim takes in MongoDB where open streams have fairness keys, or are very many.

There may be thousands of keys, most of them without work. The levels that had jobs are remembered, and their
first jobs are read in the same round trip as the gates. One more query asks whether any other level has a
job; the server walks the index for it and skips from level to level.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from ratchet.model.claim import ClaimRequest, party_of
from ratchet.model.status import JobStatus
from ratchet.stores.levels import PRIORITIES, Level
from ratchet.stores.mongo.claiming.claim_order import Chosen, choose
from ratchet.stores.mongo.claiming.gates import Gates, absorb_jobs, depth_of, read_gates, read_on
from ratchet.stores.mongo.claiming.many_streams import StreamsWithJobs, unknown_streams
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import BATCH, Names

#: Jobs that one walk over the other levels brings; and walks after which each level is asked on its own.
_FOUND: Final = 100
_WALKS: Final = 5

#: Which level it is: stream and priority.
LevelKey = tuple[int, int]
#: Streams that have the same priorities, by these priorities.
Groups = dict[tuple[int, ...], list[int]]


class KnownLevels:
    """What is remembered of one kind of request: the levels that had jobs last time, and all open streams."""

    def __init__(self) -> None:
        self._with_jobs: dict[LevelKey, str] = {}  # the party of each
        self._opened: list[int] = []

    @property
    def streams(self) -> set[int]:
        """The streams that had jobs."""
        return {stream_id for stream_id, _ in self._with_jobs}

    def choose(
        self,
        collections: Collections,
        request: ClaimRequest,
        now: datetime,
        avoided: Collection[UUID],
        streams: StreamsWithJobs,
    ) -> tuple[Chosen, Gates]:
        """What the claim should take; one round trip while the same levels have jobs."""
        depth = _share(request, self._with_jobs.values())
        levels = _levels(self._with_jobs)
        known = streams.remembered()
        ahead = [*first_jobs(levels, depth, now, avoided), *_others(self._opened, levels, now)]
        ahead += [] if known is None else [unknown_streams(known)]
        gates, documents = read_gates(collections, request, now, ahead, streams=known)
        if any("unknown_stream" in one for one in documents):
            gates, _ = read_gates(collections, request, now, streams=streams.find(collections))
            documents = [one for one in documents if "unknown_stream" not in one]
        _absorb(levels, (one for one in documents if "due_at" in one), depth, request, now)
        opened = gates.open_streams(request)
        found = {(one["stream_id"], one["priority"]) for one in documents if "due_at" not in one}
        if found or set(opened) - set(self._opened):
            more = _levels(_levels_with_jobs(collections, opened, levels, now))
            depth = _share(request, [_party(gates, key) for key in (*levels, *more)])
            for stage in first_jobs(more, depth, now, avoided):
                pipeline = stage["$unionWith"]["pipeline"]
                _absorb(
                    more, collections[Names.STREAMS].aggregate(pipeline, batchSize=BATCH), depth, request, now
                )
            levels |= more
        candidates = self._remember(gates, opened, levels)

        def read(wanted: Sequence[Level], share: int) -> None:
            read_on(collections, wanted, request, now, avoided, share)

        allowances = {name: gates.allowance(name) for level in candidates for name in level.gates}
        return choose(candidates, request.limit, allowances, read, request.after), gates

    def _remember(self, gates: Gates, opened: list[int], levels: dict[LevelKey, Level]) -> list[Level]:
        """The levels that have work, with their limits and what was read of them."""
        levels = {key: level for key, level in levels.items() if level.ranks}
        streams = {stream_id for stream_id, _ in levels}.intersection(opened)
        self._opened = opened
        self._with_jobs = {key: _party(gates, key) for key in levels if key[0] in streams}
        found = [one for one in gates.levels(streams) if (one.stream_id, one.priority) in levels]
        for level in found:
            read = levels[level.stream_id, level.priority]
            level.ranks, level.ended = read.ranks, read.ended
        return found


def _party(gates: Gates, key: LevelKey) -> str:
    stream = gates.streams.get(key[0])
    return party_of(None if stream is None else stream.fairness_key)


def _share(request: ClaimRequest, parties: Collection[str]) -> int:
    """How many jobs of each level to read: an even share for its party; what others leave is read later."""
    even = -(-request.limit // max(len(set(parties)), 1))
    return max(1, min(even, depth_of(len(parties), request.limit)))


def _levels(keys: Iterable[LevelKey]) -> dict[LevelKey, Level]:
    return {key: Level(*key) for key in keys}


def _absorb(
    levels: dict[LevelKey, Level],
    documents: Iterable[Document],
    depth: int,
    request: ClaimRequest,
    now: datetime,
) -> None:
    absorb_jobs([(level, depth) for level in levels.values()], documents, request.boost_interval, now)


def _groups(keys: Iterable[LevelKey]) -> Groups:
    priorities: dict[int, list[int]] = {}
    for stream_id, priority in keys:
        priorities.setdefault(stream_id, []).append(priority)
    groups: Groups = {}
    for stream_id, found in priorities.items():
        groups.setdefault(tuple(sorted(found)), []).append(stream_id)
    return groups


#: Before every time. To compare with it leaves out what is no number, and sorts before all numbers.
EARLIEST: Final = -(2**63)


def first_due(collections: Collections, stream_ids: Iterable[int]) -> Iterator[Document]:
    """The first job of each level of these streams, due or not."""
    keys = [(stream_id, priority) for stream_id in stream_ids for priority in PRIORITIES]
    for stage in first_jobs(keys, 1, None, ()):
        yield from collections[Names.STREAMS].aggregate(stage["$unionWith"]["pipeline"], batchSize=BATCH)


def first_jobs(
    keys: Collection[LevelKey], depth: int, now: datetime | None, avoided: Collection[UUID]
) -> list[Document]:
    """Stages that bring the first jobs of each of these levels; with *now* only those that are due."""
    due: Document = {
        "status": JobStatus.PENDING.value,
        "due_at": {"$gte": EARLIEST} if now is None else {"$lte": micros(now)},
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
        for priorities, stream_ids in _groups(keys).items()
    ]


def _others(opened: Iterable[int], known: Collection[LevelKey], now: datetime) -> list[Document]:
    """Stages that bring some due jobs of all other levels of these streams, if there are any."""
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


def _levels_with_jobs(
    collections: Collections, opened: Sequence[int], known: Collection[LevelKey], now: datetime
) -> set[LevelKey]:
    """The levels that have due jobs, but for the known ones; where there are many, perhaps some that have none."""
    found: set[LevelKey] = set()
    for _ in range(_WALKS):
        before = len(found)
        for stage in _others(opened, {*known, *found}, now):
            jobs = collections[Names.JOBS].aggregate(stage["$unionWith"]["pipeline"])
            found |= {(job["stream_id"], job["priority"]) for job in jobs}
        if len(found) == before:
            return found
    return {(stream_id, priority) for stream_id in opened for priority in PRIORITIES} - set(known)
