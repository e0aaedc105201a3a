"""What waits and runs in each stream: for health checks, at a cost that does not grow with the backlog."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ratchet.model.load import Load, StreamLoad
from ratchet.model.status import JobStatus
from ratchet.stores.levels import PRIORITIES, Level
from ratchet.stores.mongo.claiming.gates import LEVELS, read_first_jobs
from ratchet.stores.mongo.claiming.many_streams import FEW_STREAMS, with_jobs_among
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.stream_registry import key_of
from ratchet.stores.mongo.documents.values import Document, micros, time_of
from ratchet.stores.mongo.schema import BATCH, CLAIM_INDEX, RUNNING_INDEX, Names
from ratchet.stores.unreadable import NO_TIME

_PENDING: Document = {"status": JobStatus.PENDING.value}
_BY_STREAM: list[Document] = [
    {"$match": {"status": JobStatus.RUNNING.value}},
    {"$group": {"_id": "$stream_id", "jobs": {"$sum": 1}, "claimed_at": {"$max": "$claimed_at"}}},
]
_LATEST = datetime.max.replace(tzinfo=UTC)
_DEAD_LETTERS: Document = {"dead_lettered_at": {"$exists": True}}


def read_load(collections: Collections, now: datetime, most: int) -> Load:
    """`StreamStore.load`."""
    jobs, at = collections[Names.JOBS], micros(now)
    keys = {one["_id"]: key_of(one) for one in collections[Names.STREAMS].find().sort("_id", 1)}
    busy = with_jobs_among(collections, keys) if len(keys) > FEW_STREAMS else keys
    levels = [(Level(stream_id, priority), 1) for stream_id in busy for priority in PRIORITIES]
    first: dict[int, dict[int, int]] = {}
    # up to the last of all times: one that cannot be read would stand before the others
    for one in read_first_jobs(collections, levels, _LATEST):
        if all(isinstance(one[name], (int, float)) for name in ("stream_id", "priority", "due_at")):
            first.setdefault(one["stream_id"], {})[one["priority"]] = one["due_at"]
    grouped = jobs.aggregate(_BY_STREAM, hint=RUNNING_INDEX)
    running = {one["_id"]: one for one in grouped if isinstance(one["_id"], int)}
    streams, left = [], most
    counted = _count_due(
        jobs,
        [
            Level(one, priority)
            for one in keys
            for priority, due_at in first.get(one, {}).items()
            if due_at <= at
        ],
        at,
        most,
    )
    for stream_id, key in keys.items():
        dues, runs = first.get(stream_id, {}), running.get(stream_id, {})
        if not dues and not runs:
            continue
        has_due = any(due_at <= at for due_at in dues.values())
        due = min(counted.get(stream_id, 0), left) if left > 0 else 0
        due = max(due, 1) if has_due else 0
        left -= due
        streams.append(
            StreamLoad(
                stream_id=stream_id,
                key=key,
                due=due,
                first_at=_time(min(dues.values(), default=None)),
                running=int(runs.get("jobs", 0)),
                claimed_at=_time(runs.get("claimed_at")),
            )
        )
    oldest = list(jobs.find(_DEAD_LETTERS, {"dead_lettered_at": 1}).sort("dead_lettered_at", 1).limit(1))
    return Load(
        streams=tuple(streams),
        pending=jobs.count_documents(_PENDING, limit=most, hint=CLAIM_INDEX),
        dead_letters=jobs.count_documents(_DEAD_LETTERS, limit=most, hint="dead_letter"),
        dead_letters_since=_time(oldest[0]["dead_lettered_at"]) if oldest else None,
    )


def _count_due(jobs: Any, levels: list[Level], at: int, left: int) -> dict[int, int]:
    """
    How many jobs are due in the levels of each stream, in this order, until there is nothing *left* to count.

    A few hundred levels in one round trip: one for each took a second with a thousand queues.
    """
    counted: dict[int, int] = {}
    for start in range(0, len(levels), LEVELS):
        if left <= 0:
            break
        first, *others = (_count_of(level, at, left) for level in levels[start : start + LEVELS])
        stages = [*first, *({"$unionWith": {"coll": Names.JOBS, "pipeline": one}} for one in others)]
        for found in jobs.aggregate(stages, batchSize=BATCH):
            counted[found["stream_id"]] = counted.get(found["stream_id"], 0) + found["jobs"]
            left -= found["jobs"]
    return counted


def _count_of(level: Level, at: int, most: int) -> list[Document]:
    where: Document = {
        **_PENDING,
        "stream_id": level.stream_id,
        "priority": level.priority,
        "due_at": {"$lte": at},
    }
    # sorted as the index is, so that it is read and nothing else
    return [
        {"$match": where},
        {"$sort": {"due_at": 1}},
        {"$limit": most},
        {"$count": "jobs"},
        {"$set": {"stream_id": level.stream_id}},
    ]


def _time(stored: object) -> datetime | None:
    try:
        return time_of(int(stored)) if isinstance(stored, (int, float)) else None
    except (OverflowError, ValueError):
        return NO_TIME
