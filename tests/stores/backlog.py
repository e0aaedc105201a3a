"""Backlogs made in bulk, straight into the tables: what a claim has to find its way through."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from ratchet.model.claim import ClaimRequest, JobClaim
from ratchet.model.identifiers import new_id
from ratchet.model.job import StreamKey
from ratchet.stores.sql.store import SqlStore

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)

JOB = (
    "job_id", "root_id", "target", "payload", "job_type", "priority", "stream_id", "status", "created_at", "scheduled_at",
)  # fmt: skip
QUEUE = ("job_id", "stream_id", "priority", "status", "job_type", "scheduled_time")

#: (priority, due time, stream)
Waiting = tuple[int, datetime, StreamKey]


def insert(store: SqlStore, waiting: Sequence[Waiting]) -> list[UUID]:
    """Store one PENDING job for each; their ids."""
    streams = store.stream_registry.ids_of(None, {stream for _, _, stream in waiting})
    jobs: list[tuple[Any, ...]] = []
    queue: list[tuple[Any, ...]] = []
    for priority, due_at, key in waiting:
        job_id, stream = new_id(), streams[key]
        jobs.append((job_id, job_id, "shop:work", "{}", "SINGLE", priority, stream, "PENDING", NOW, due_at))
        queue.append((job_id, stream, priority, "PENDING", "SINGLE", due_at))
    store.database.run(
        lambda session: (
            session.insert_rows("scheduler_job", JOB, jobs),
            session.insert_rows("scheduler_job_queue", QUEUE, queue),
            session.backdated(streams.values()),
        )
    )
    return [row[0] for row in jobs]


def spread(count: int, *, seed: int = 1, queues: int = 1) -> list[Waiting]:
    """Jobs of all priorities that have been due for up to an hour."""
    random = Random(seed)
    return [
        (
            random.randrange(5),
            NOW - timedelta(microseconds=random.randrange(3_600_000_000)),
            StreamKey(queue=f"q{random.randrange(queues)}"),
        )
        for _ in range(count)
    ]


def request(limit: int = 10, **changes: Any) -> ClaimRequest:
    """A claim by node n1 with a token of its own."""
    return ClaimRequest(**{"node_id": "n1", "claim_id": new_id(), "limit": limit, **changes})


def claim(store: SqlStore, limit: int = 10, **changes: Any) -> list[JobClaim]:
    """Claim at NOW."""
    return store.claim_next_batch_optimized(request(limit, **changes), now=NOW)


def in_order(
    jobs: Sequence[tuple[UUID, Waiting]], boost: timedelta | None, *, now: datetime = NOW
) -> list[UUID]:
    """The ids of what is due, sorted the slow way."""

    def rank(job: tuple[UUID, Waiting]) -> tuple[int, datetime, UUID]:
        job_id, (priority, due_at, _) = job
        return -(priority + ((now - due_at) // boost if boost else 0)), due_at, job_id

    return [job_id for job_id, _ in sorted((job for job in jobs if job[1][1] <= now), key=rank)]
