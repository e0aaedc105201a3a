"""Rules of recurring schedules: what a declaration changes, and what a fire time leads to."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.composition import (
    Edge,
    EdgeKind,
    Fire,
    FireOutcome,
    FireRecord,
    ScheduleRecord,
    ScheduleSpec,
)
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus

#: Overlap: what a fire time does while an earlier run of the schedule has not ended.
ALLOW: Final = "ALLOW"
SKIP: Final = "SKIP"
QUEUE: Final = "QUEUE"

#: Why a fire time has no run.
OVERLAP: Final = "overlap"
KEY_BUSY: Final = "business_key_busy"
DUPLICATE: Final = "duplicate"

#: Runs of a schedule that a store looks at to find one that has not ended; with more queued runs than this,
#: the newest is among them.
LATEST_RUNS: Final = 200


_MISFIRE: Final = re.compile(r"skip|fire_once|catch_up:\d{1,6}")


def check_words(spec: ScheduleSpec) -> None:
    """ValueError where a stored schedule has a word that this version does not know; a newer one may have written it."""
    if not _MISFIRE.fullmatch(spec.misfire):
        raise ValueError(f"misfire is {spec.misfire!r}")
    if spec.overlap not in (ALLOW, SKIP, QUEUE):
        raise ValueError(f"overlap is {spec.overlap!r}")


# --- declarations -------------------------------------------------------------------------------


def new_schedule(spec: ScheduleSpec, now: datetime) -> ScheduleRecord:
    """A schedule that has just been declared."""
    return ScheduleRecord(
        spec=spec,
        paused=False,
        next_fire_at=spec.next_fire_at,
        last_fire_at=None,
        created_at=now,
        updated_at=now,
    )


def is_same_schedule(spec: ScheduleSpec, held: ScheduleSpec) -> bool:
    """True where a declaration changes nothing: every node declares its schedules when it starts."""
    return replace(spec, next_fire_at=held.next_fire_at) == held


def changed_schedule(held: ScheduleRecord, spec: ScheduleSpec, now: datetime) -> ScheduleRecord:
    """The schedule as *spec* says; the next fire time is kept where the timetable is still the same."""
    is_kept = _timetable(spec) == _timetable(held.spec)
    changed = replace(held, spec=spec, updated_at=now)
    return firing_at(changed, held.next_fire_at if is_kept else spec.next_fire_at)


def firing_at(record: ScheduleRecord, next_fire_at: datetime | None) -> ScheduleRecord:
    """The schedule with another next fire time."""
    return replace(record, next_fire_at=next_fire_at, spec=replace(record.spec, next_fire_at=next_fire_at))


def _timetable(spec: ScheduleSpec) -> tuple[str, str, datetime | None, datetime | None]:
    return spec.expression, spec.zone, spec.starts_at, spec.ends_at


# --- fire times ---------------------------------------------------------------------------------


class PlannedRun(NamedTuple):
    """The run of a fire time, and the edge to the run that it waits for, if there is one."""

    spec: JobSpec
    edges: tuple[Edge, ...]


def plan_fire(schedule: str, fire: Fire, *, overlap: str, unended: UUID | None) -> PlannedRun | FireRecord:
    """
    The run of a fire time, or the record of a fire time without one.

    *unended* is the latest run of the schedule that has not ended. With ALLOW the new run starts beside it,
    with SKIP there is none, and with QUEUE it waits until that one has ended, however it ends.
    """
    if fire.spec is None:
        return skipped_fire(schedule, fire, fire.reason)
    run = replace(fire.spec, schedule=schedule)
    if unended is None or overlap == ALLOW:
        return PlannedRun(run, ())
    if overlap == SKIP:
        return skipped_fire(schedule, fire, OVERLAP)
    edge = Edge(parent_id=unended, child_id=run.job_id, kind=EdgeKind.END)
    return PlannedRun(replace(run, status=JobStatus.WAITING, needs=1), (edge,))


def skipped_fire(schedule: str, fire: Fire, reason: str | None) -> FireRecord:
    """The record of a fire time without a run."""
    return FireRecord(schedule=schedule, fire_at=fire.fire_at, outcome=FireOutcome.SKIPPED, reason=reason)


def ran_fire(schedule: str, fire: Fire, job_id: UUID) -> FireRecord:
    """The record of a fire time whose run was stored."""
    return FireRecord(schedule=schedule, fire_at=fire.fire_at, outcome=FireOutcome.RUN, job_id=job_id)
