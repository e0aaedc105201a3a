"""Recurring schedules and their fire times in memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.composition import Fire, FireRecord, ScheduleRecord, ScheduleSpec
from ratchet.model.errors import BusinessKeyBusy
from ratchet.model.schedules import (
    ALLOW,
    DUPLICATE,
    KEY_BUSY,
    PlannedRun,
    changed_schedule,
    firing_at,
    is_same_schedule,
    new_schedule,
    plan_fire,
    ran_fire,
    skipped_fire,
)
from ratchet.stores.memory.changes import Effects
from ratchet.stores.memory.insertion import InsertCall, RunningHolder
from ratchet.stores.memory.rows import FireRow
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.values import check


class MemoryRecurring(Part):
    """Schedules."""

    @atomic
    def upsert_schedule(
        self, spec: ScheduleSpec, *, now: datetime, within: object | None = None
    ) -> ScheduleRecord:
        check(spec)
        held = self._state.schedules.get(spec.name)
        if held is None:
            record = new_schedule(spec, now)
        elif is_same_schedule(spec, held.spec):
            return held
        else:
            record = changed_schedule(held, spec, now)
        self._state.schedules.put(spec.name, record)
        return record

    @atomic
    def schedule(self, name: str, *, within: object | None = None) -> ScheduleRecord | None:
        return self._state.schedules.get(name)

    @atomic
    def schedules(self) -> list[ScheduleRecord]:
        return sorted(self._state.schedules.values(), key=lambda record: record.spec.name)

    @atomic
    def remove_schedule(self, name: str, *, within: object | None = None) -> bool:
        for key in self._state.fires_of.of(name):
            self._state.fires.remove(key)
        return self._state.schedules.remove(name) is not None

    @atomic
    def pause_schedule(self, name: str, *, now: datetime, within: object | None = None) -> bool:
        record = self._state.schedules.get(name)
        if record is None:
            return False
        if not record.paused:
            self._state.schedules.put(name, replace(record, paused=True, updated_at=now))
        return True

    @atomic
    def resume_schedule(
        self, name: str, next_fire_at: datetime | None, *, now: datetime, within: object | None = None
    ) -> bool:
        record = self._state.schedules.get(name)
        if record is None or not record.paused:
            return False
        self._state.schedules.put(
            name, firing_at(replace(record, paused=False, updated_at=now), next_fire_at)
        )
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
            _record(self._state, name, fire, now, overlap=record.spec.overlap)
            for fire in fires
            if (name, fire.fire_at) not in self._state.fires
        ]
        last = max((fire.fire_at for fire in fires), default=record.last_fire_at)
        self._state.schedules.put(name, firing_at(replace(record, last_fire_at=last), next_fire_at))
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
    def trigger(
        self, name: str, fire: Fire, *, now: datetime, within: object | None = None
    ) -> FireRecord | None:
        if name not in self._state.schedules:
            return None
        held = self._state.fires.get((name, fire.fire_at))
        return held.record if held is not None else _record(self._state, name, fire, now, overlap=ALLOW)


def _record(state: State, name: str, fire: Fire, now: datetime, *, overlap: str) -> FireRecord:
    """Record one fire time, with its run or with the reason why there is none."""
    unended = None if overlap == ALLOW else _latest_unended_run(state, name)
    plan = plan_fire(name, fire, overlap=overlap, unended=unended)
    record = _insert_run(state, name, fire, plan, now) if isinstance(plan, PlannedRun) else plan
    state.fires.put((name, fire.fire_at), FireRow(record=record, recorded_at=now))
    return record


def _insert_run(state: State, name: str, fire: Fire, plan: PlannedRun, now: datetime) -> FireRecord:
    try:
        (answer,) = state.run(
            lambda: InsertCall(state, Effects(), now=now).store([plan.spec], edges=plan.edges)
        )
    except (BusinessKeyBusy, RunningHolder):
        return skipped_fire(name, fire, KEY_BUSY)  # a schedule must not stop for ever at one fire time
    return ran_fire(name, fire, plan.spec.job_id) if answer.created else skipped_fire(name, fire, DUPLICATE)


def _latest_unended_run(state: State, name: str) -> UUID | None:
    rows = [state.jobs[job_id] for job_id in state.unended_runs.of(name)]
    latest = max(rows, key=lambda row: row.serial, default=None)
    return None if latest is None else latest.job_id
