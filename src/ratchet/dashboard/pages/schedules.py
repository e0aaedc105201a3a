"""Schedules: when they fire, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from ratchet.api.recurring import Overlap, plain_arguments, run_facts
from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.composition import FireOutcome, ScheduleRecord
from ratchet.model.durations import format_duration
from ratchet.model.errors import RatchetError

NEXT = 10
FIRES = 50
#: Characters of arguments that are shown, and can be changed.
LONGEST_ARGUMENTS = 10_000


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
    arguments = plain_arguments(record.spec, question.scheduler.backend)
    if arguments is not None and len(json.dumps(arguments)) > LONGEST_ARGUMENTS:
        arguments = None
    return {
        "schedule": {**_facts(record), **run_facts(record.spec)},
        "arguments": None if arguments is None else {"args": arguments[0], "kwargs": arguments[1]},
        "jitter": format_duration(record.spec.jitter) if record.spec.jitter else "",
        "overlaps": [one.value for one in Overlap],
        "misfires": sorted({"skip", "fire_once", "catch_up:11", record.spec.misfire}),
        "skipped": dict(
            Counter(one.reason or "skipped" for one in fires if one.outcome is FireOutcome.SKIPPED)
        ),
        "ended": dict(Counter(runs[one.job_id].status for one in fires if one.job_id in runs)),
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
        "jitter": spec.jitter,
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
