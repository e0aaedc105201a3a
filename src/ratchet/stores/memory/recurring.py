"""Recurring schedules and their fire times in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

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
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.job import JobSpec
from ratchet.model.status import JobStatus
from ratchet.stores.memory.changes import Effects
from ratchet.stores.memory.insertion import RunningHolder, Submission
from ratchet.stores.memory.rows import FireRow, Row
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.values import check


class MemoryRecurring(Part):
    """Schedules."""

    @atomic
    def upsert_schedule(self, spec: ScheduleSpec, *, now: datetime) -> ScheduleRecord:
        check(spec)
        held = self._state.schedules.get(spec.name)
        if held is None:
            record = ScheduleRecord(
                spec=spec,
                paused=False,
                next_fire_at=spec.next_fire_at,
                last_fire_at=None,
                created_at=now,
                updated_at=now,
            )
        elif replace(spec, next_fire_at=None) == replace(held.spec, next_fire_at=None):
            return held
        else:
            next_fire_at = (
                spec.next_fire_at if _timetable(spec) != _timetable(held.spec) else held.next_fire_at
            )
            record = _at(replace(held, spec=spec, updated_at=now), next_fire_at)
        self._state.schedules.put(spec.name, record)
        return record

    @atomic
    def schedule(self, name: str) -> ScheduleRecord | None:
        return self._state.schedules.get(name)

    @atomic
    def schedules(self) -> list[ScheduleRecord]:
        return sorted(self._state.schedules.values(), key=lambda record: record.spec.name)

    @atomic
    def remove_schedule(self, name: str) -> bool:
        for key in self._state.fires_of.of(name):
            self._state.fires.remove(key)
        return self._state.schedules.remove(name) is not None

    @atomic
    def pause_schedule(self, name: str, *, now: datetime) -> bool:
        record = self._state.schedules.get(name)
        if record is None:
            return False
        if not record.paused:
            self._state.schedules.put(name, replace(record, paused=True, updated_at=now))
        return True

    @atomic
    def resume_schedule(self, name: str, next_fire_at: datetime | None, *, now: datetime) -> bool:
        record = self._state.schedules.get(name)
        if record is None or not record.paused:
            return False
        self._state.schedules.put(name, _at(replace(record, paused=False, updated_at=now), next_fire_at))
        return True

    @atomic
    def claim_due_recurring(self, *, limit: int, now: datetime) -> list[ScheduleRecord]:
        due = [
            (record.next_fire_at, record.spec.name, record)
            for record in self._state.schedules.values()
            if record.next_fire_at is not None and record.next_fire_at <= now and not record.paused
        ]
        return [record for _, _, record in sorted(due, key=lambda item: item[:2])[:limit]]

    @atomic
    def advance(
        self,
        name: str,
        *,
        expected: datetime,
        fires: Sequence[Fire],
        next_fire_at: datetime | None,
        now: datetime,
    ) -> list[FireRecord] | None:
        record = self._state.schedules.get(name)
        if record is None or record.paused or record.next_fire_at != expected:
            return None
        recorded = [
            _record(self._state, record.spec, fire, now, overlap=record.spec.overlap)
            for fire in fires
            if (name, fire.fire_at) not in self._state.fires
        ]
        last = max((fire.fire_at for fire in fires), default=record.last_fire_at)
        self._state.schedules.put(name, _at(replace(record, last_fire_at=last), next_fire_at))
        return recorded

    @atomic
    def fires(self, name: str, *, limit: int = 50) -> list[FireRecord]:
        rows = [self._state.fires[key] for key in self._state.fires_of.of(name)]
        newest = sorted(rows, key=lambda row: row.record.fire_at, reverse=True)
        return [row.record for row in newest[:limit]]

    @atomic
    def purge_fires(self, *, before: datetime, limit: int) -> int:
        old = sorted(key for key in self._state.fires.keys() if key[1] < before)[:limit]  # noqa: SIM118  # a table
        for key in old:
            self._state.fires.remove(key)
        return len(old)

    @atomic
    def trigger(self, name: str, fire: Fire, *, now: datetime) -> FireRecord | None:
        record = self._state.schedules.get(name)
        if record is None:
            return None
        held = self._state.fires.get((name, fire.fire_at))
        return (
            held.record if held is not None else _record(self._state, record.spec, fire, now, overlap="ALLOW")
        )


def _timetable(spec: ScheduleSpec) -> tuple[str, str, datetime | None, datetime | None]:
    return spec.expression, spec.zone, spec.starts_at, spec.ends_at


def _at(record: ScheduleRecord, next_fire_at: datetime | None) -> ScheduleRecord:
    return replace(record, next_fire_at=next_fire_at, spec=replace(record.spec, next_fire_at=next_fire_at))


def _record(state: State, schedule: ScheduleSpec, fire: Fire, now: datetime, *, overlap: str) -> FireRecord:
    """Record one fire time, with its run or with the reason why there is none."""
    job, reason = fire.spec, fire.reason
    before = None if overlap == "ALLOW" else _latest_live_run(state, schedule.name)
    if job is not None and before is not None and overlap == "SKIP":
        job, reason = None, "overlap"
    if job is not None:
        reason = _insert_run(state, replace(job, schedule=schedule.name), before, now)
    ran = job is not None and reason is None
    record = FireRecord(
        schedule=schedule.name,
        fire_at=fire.fire_at,
        outcome=FireOutcome.RUN if ran else FireOutcome.SKIPPED,
        job_id=job.job_id if job is not None and ran else None,
        reason=reason,
    )
    state.fires.put((schedule.name, fire.fire_at), FireRow(record=record, recorded_at=now))
    return record


def _insert_run(state: State, job: JobSpec, before: Row | None, now: datetime) -> str | None:
    """Store a run, behind its predecessor if there is one; or why it was not stored."""
    edges: list[Edge] = []
    if before is not None:
        job = replace(job, status=JobStatus.WAITING, needs=1)
        edges = [Edge(parent_id=before.job_id, child_id=job.job_id, kind=EdgeKind.END)]
    try:
        (answer,) = state.run(lambda: Submission(state, Effects(), now=now).store([job], edges=edges))
    except (BusinessKeyBusy, RunningHolder):
        return "business_key_busy"  # a schedule must not stop for ever at one fire time
    return None if answer.created else "duplicate"


def _latest_live_run(state: State, name: str) -> Row | None:
    rows = [state.jobs[job_id] for job_id in state.live_runs.of(name)]
    return max(rows, key=lambda row: row.serial, default=None)
