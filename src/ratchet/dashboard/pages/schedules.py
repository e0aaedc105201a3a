"""Schedules: when they fire, and what came of it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ratchet.api.recurring import run_facts
from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.composition import ScheduleRecord
from ratchet.model.errors import RatchetError

NEXT = 10
FIRES = 50


def schedules(question: Question) -> Data:
    """All schedules by name."""
    return {"schedules": [_facts(record) for record in question.scheduler.schedules.records()]}


def schedule(question: Question) -> Data:
    """One schedule: its next fires in its own zone, and its last ones with their runs."""
    found = question.scheduler.schedules.get(question.names["name"])
    record = found.record()
    problem = None
    try:
        coming = [] if record.paused else found.next_fires(NEXT)
    except (RatchetError, ValueError) as error:  # health names it too; the page must not fail for it
        coming, problem = [], str(error)
    fires = found.fires(FIRES)
    runs = {run.id: run for run in found.runs(limit=FIRES)}
    return {
        "schedule": {**_facts(record), **run_facts(record.spec)},
        "problem": problem,
        "next_fires": [{"at": at, "there": _there(at, record.spec.zone)} for at in coming],
        "fires": [
            {
                "at": fire.fire_at,
                "outcome": fire.outcome,
                "reason": fire.reason,
                "job_id": fire.job_id,
                "status": runs[fire.job_id].status if fire.job_id in runs else None,
            }
            for fire in fires
        ],
    }


def _facts(record: ScheduleRecord) -> dict[str, Any]:
    spec = record.spec
    return {
        "name": spec.name,
        "target": spec.target,
        "expression": spec.expression,
        "zone": spec.zone,
        "misfire": spec.misfire,
        "overlap": spec.overlap,
        "starts_at": spec.starts_at,
        "ends_at": spec.ends_at,
        "declared": spec.declared,
        "paused": record.paused,
        "next_fire_at": record.next_fire_at,
        "next_there": None if record.next_fire_at is None else _there(record.next_fire_at, spec.zone),
        "last_fire_at": record.last_fire_at,
        "created_at": record.created_at,
    }


def _there(at: datetime, zone: str) -> str:
    """A time as clocks in the schedule's zone show it."""
    try:
        return at.astimezone(ZoneInfo(zone)).strftime("%a %Y-%m-%d %H:%M:%S")
    except (ValueError, OSError):
        return at.isoformat()
