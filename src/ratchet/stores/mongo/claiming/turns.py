"""How MongoDB walks through the registry of streams, in the order in which keys take turns (`stores.next_parties`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from ratchet.model.claim import NO_PARTY, ClaimRequest
from ratchet.model.job import StreamKey
from ratchet.model.status import JobStatus
from ratchet.stores.levels import Level
from ratchet.stores.mongo.claiming.claim_order import Chosen, choose
from ratchet.stores.mongo.claiming.fairness import LevelKey, first_jobs
from ratchet.stores.mongo.claiming.gates import Gates, absorb_jobs, read_gates, read_on
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.stream_registry import key_of
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import BATCH, Names
from ratchet.stores.next_parties import Met, NextParties, Turns
from ratchet.stores.unreadable import passed_by

#: Jobs of each stream that one look reads, on average: one or two, as a rule, and then these are all that there are.
_JOBS: Final = 4


def choose_of_next_parties(
    collections: Collections,
    request: ClaimRequest,
    now: datetime,
    avoided: Collection[UUID],
    parties: NextParties,
) -> tuple[Chosen, Gates] | None:
    """What the claim should take of the parties whose turn is next; None: look at everything."""
    registry = _Registry(collections, request, now, avoided)
    turns = parties.find(registry, request)
    if turns is None:
        return None
    chosen = registry.choose(turns)
    if turns.suffice([level.party for _, level in chosen], request.limit):
        return chosen, registry.gates
    parties.forget(request)
    return None


class _Registry:
    """`stores.next_parties.Registry`; keeps what closes the streams that it met, and the first jobs of the others."""

    def __init__(
        self,
        collections: Collections,
        request: ClaimRequest,
        now: datetime,
        avoided: Collection[UUID],
    ) -> None:
        self.gates = Gates(now)
        self.levels: dict[LevelKey, Level] = {}
        self._collections = collections
        self._request = request
        self._now = now
        self._avoided = avoided

    def choose(self, turns: Turns) -> Chosen:
        """What to take of the parties whose turn is next."""
        candidates = [level for key, level in self.levels.items() if key in turns.levels]

        def read(wanted: Sequence[Level], share: int) -> None:
            read_on(self._collections, wanted, self._request, self._now, self._avoided, share)

        allowances = {name: self.gates.allowance(name) for level in candidates for name in level.gates}
        return choose(candidates, self._request.limit, allowances, read, self._request.after)

    def keys(self, after: tuple[str, int], until: str | None, most: int) -> Sequence[Met]:
        """The first so many streams after a key and a number."""
        key, number = after
        between = {"$gte": key} if until is None else {"$gte": key, "$lte": until}
        place = [{"fairness_key": {"$gt": key}}, {"fairness_key": key, "_id": {"$gt": number}}]
        return self._met({"fairness_key": between, "$or": place}, most)

    def without_key(self, most: int) -> Sequence[Met]:
        """So many of the streams without a key."""
        return self._met({"fairness_key": {"$in": [None, NO_PARTY]}}, most)

    def _met(self, place: Document, most: int) -> Sequence[Met]:
        ours = {"lane": self._request.lane.value, "suspect": self._request.suspects}
        found = self._collections[Names.STREAMS].find({**ours, **place}, {"key_hash": 0}, batch_size=BATCH)
        documents = list(found.sort([("fairness_key", 1), ("_id", 1)]).limit(most))
        streams: dict[int, StreamKey] = {}
        for document in documents:
            try:
                streams[document["_id"]] = key_of(document)
            except (ValueError, TypeError, KeyError) as error:
                passed_by(Names.STREAMS, document["_id"], error)
        due = self._look(streams) if streams else {}
        return [(one["_id"], one.get("fairness_key"), due.get(one["_id"], 0)) for one in documents]

    def _look(self, streams: Mapping[int, StreamKey]) -> dict[int, int]:
        """The priorities of which these streams have due jobs, as bits."""
        most = _JOBS * len(streams) + self._request.limit
        gates, jobs = read_gates(
            self._collections, self._request, self._now, [self._due(streams, most)], streams=streams
        )
        _merge(self.gates, gates)
        levels = {
            (level.stream_id, level.priority): level
            for level in gates.levels(gates.open_streams(self._request))
        }
        if len(jobs) >= most:  # some streams have very many
            jobs, most = [], 1
            for stage in first_jobs(levels, 1, self._now, self._avoided):
                pipeline = stage["$unionWith"]["pipeline"]
                jobs += self._collections[Names.STREAMS].aggregate(pipeline, batchSize=BATCH)
        absorb_jobs(
            [(level, most) for level in levels.values()], jobs, self._request.boost_interval, self._now
        )
        due: dict[int, int] = {}
        for (stream_id, priority), level in levels.items():
            if level.ranks:
                level.ranks.sort()
                due[stream_id] = due.get(stream_id, 0) | 1 << priority
                self.levels[stream_id, priority] = level
        return due

    def _due(self, streams: Mapping[int, StreamKey], most: int) -> Document:
        match: Document = {
            "status": JobStatus.PENDING.value,
            "stream_id": {"$in": sorted(streams)},
            "due_at": {"$lte": micros(self._now)},
        }
        if self._avoided:
            match["_id"] = {"$nin": list(self._avoided)}
        found = {"stream_id": 1, "priority": 1, "due_at": 1}
        pipeline = [{"$match": match}, {"$limit": most}, {"$project": found}]
        return {"$unionWith": {"coll": Names.JOBS, "pipeline": pipeline}}


def _merge(gates: Gates, more: Gates) -> None:
    for name in ("streams", "paused", "breakers", "limits", "meters", "held"):
        getattr(gates, name).update(getattr(more, name))
