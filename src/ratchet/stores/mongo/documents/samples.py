"""Samples of runs and of queued jobs, for statistics: so many documents are read, however many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from ratchet.model.flow import QueuedSample, RunSample
from ratchet.model.job import Execution, StreamKey
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.values import Document, time_of
from ratchet.stores.mongo.schema import CLAIM_INDEX, RUNNING_INDEX, Names

KeyOf = Callable[[int], StreamKey]

_QUEUED: Document = {"target": 1, "stream_id": 1, "due_at": 1, "claimed_at": 1}


def run_samples(
    collections: Collections, key_of: KeyOf, run_of: Callable[[Document], Execution], limit: int
) -> list[RunSample]:
    """`ExecutionStore.run_samples`."""
    found = collections[Names.EXECUTIONS].find({}, {"error": 0, "traceback": 0}).sort("_id", -1).limit(limit)
    runs = [run_of(one) for one in found]
    jobs = _targets(collections, {run.job_id for run in runs})
    return [
        RunSample(
            target=jobs[run.job_id]["target"],
            queue=key_of(jobs[run.job_id]["stream_id"]).queue,
            attempt=run.attempt,
            status=run.status,
            started_at=run.started_at,
            finished_at=run.finished_at,
            wait=run.queue_wait,
            duration=run.duration,
        )
        for run in runs
        if run.job_id in jobs
    ]


def _targets(collections: Collections, ids: Iterable[UUID]) -> dict[UUID, Document]:
    wanted = {"_id": {"$in": list(ids)}}
    return {
        one["_id"]: one
        for name in (Names.ARCHIVE, Names.JOBS)
        for one in collections[name].find(wanted, {"target": 1, "stream_id": 1})
    }


def queued_samples(collections: Collections, key_of: KeyOf, limit: int) -> list[QueuedSample]:
    """`ExecutionStore.queued_samples`: what runs, and as many of those that wait as there is room for."""
    jobs: Any = collections[Names.JOBS]
    running = list(jobs.find({"status": JobStatus.RUNNING.value}, _QUEUED, hint=RUNNING_INDEX).limit(limit))
    room = limit - len(running)
    waiting = (
        list(jobs.find({"status": JobStatus.PENDING.value}, _QUEUED, hint=CLAIM_INDEX).limit(room))
        if room > 0
        else []
    )
    return [
        QueuedSample(
            target=one["target"],
            queue=key_of(one["stream_id"]).queue,
            due_at=time_of(one["due_at"]),
            claimed_at=time_of(one["claimed_at"]) if one.get("claimed_at") is not None else None,
        )
        for one in (*running, *waiting)
    ]
