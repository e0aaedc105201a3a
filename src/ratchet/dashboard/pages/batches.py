"""Batches: how far they are, and what went wrong in them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.composition import BatchRecord
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus

MOST = 50


def batches(question: Question) -> Data:
    """The newest batches."""
    now = question.now
    return {
        "batches": [_facts(record, now) for record in question.scheduler.batches.records(limit=MOST)],
        "most": MOST,
    }


def batch(question: Question) -> Data:
    """One batch: its counters, when it may end, its failures by error, and its newest items."""
    scheduler = question.scheduler
    found = scheduler.batches.get(question.names["id"])
    record = found.record()
    metrics = found.metrics()
    failures = scheduler.dead_letters.summary(JobFilter(batch_id=found.id), limit=20) if record.failed else []
    return {
        "batch": _facts(record, question.now),
        "runs": None if metrics is None else metrics.runs,
        "run_time": None if metrics is None else metrics.run_time,
        "failures": failures,
        "running": found.jobs(JobFilter(statuses=[JobStatus.RUNNING]), limit=20).items,
    }


def batch_pulse(question: Question) -> Any:
    """Its counters."""
    return question.scheduler.batches.get(question.names["id"]).record()


def _facts(record: BatchRecord, now: datetime) -> dict[str, Any]:
    done = record.completed + record.failed + record.canceled
    return {
        "id": record.batch_id,
        "name": record.name,
        "parent_id": record.parent_id,
        "total": record.total,
        "completed": record.completed,
        "failed": record.failed,
        "canceled": record.canceled,
        "done": done,
        "percent": 100.0 if not record.total else 100.0 * done / record.total,
        "sealed": record.sealed,
        "created_at": record.created_at,
        "finished_at": record.finished_at,
        "ends_at": _ends_at(record, done, now),
    }


def _ends_at(record: BatchRecord, done: int, now: datetime) -> datetime | None:
    """When it ends if it goes on as it has; None while that cannot be told."""
    left = record.total - done
    if record.finished_at is not None or not done or left <= 0 or not record.sealed:
        return None
    try:
        return now + (now - record.created_at) / done * left
    except OverflowError:
        return None
