"""What waits and runs in each stream: for health checks, at a cost that does not grow with the backlog."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ratchet.model.load import Load, StreamLoad
from ratchet.model.status import JobStatus
from ratchet.stores.levels import PRIORITIES, Level
from ratchet.stores.mongo.claiming.gates import read_first_jobs
from ratchet.stores.mongo.claiming.many_streams import FEW_STREAMS, with_jobs_among
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.stream_registry import key_of
from ratchet.stores.mongo.documents.values import Document, micros, time_of
from ratchet.stores.mongo.schema import CLAIM_INDEX, RUNNING_INDEX, Names
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
    for stream_id, key in keys.items():
        dues, runs = first.get(stream_id, {}), running.get(stream_id, {})
        if not dues and not runs:
            continue
        due = _count_due(jobs, stream_id, [p for p, due_at in dues.items() if due_at <= at], at, left)
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


def _count_due(jobs: Any, stream_id: int, priorities: list[int], at: int, left: int) -> int:
    """How many jobs of a stream are due: at most what is *left* to count, but one if there is any."""
    if left <= 0:
        return min(1, len(priorities))
    counted = 0
    for priority in priorities:
        where = {**_PENDING, "stream_id": stream_id, "priority": priority, "due_at": {"$lte": at}}
        if counted < left:
            counted += jobs.count_documents(where, limit=left - counted, hint=CLAIM_INDEX)
    return counted


def _time(stored: object) -> datetime | None:
    try:
        return time_of(int(stored)) if isinstance(stored, (int, float)) else None
    except (OverflowError, ValueError):
        return NO_TIME
