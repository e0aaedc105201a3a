"""Recurring schedules and their fire times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from ratchet.model.composition import Fire, FireRecord, ScheduleRecord, ScheduleSpec


class RecurringStore(Protocol):
    """Keeps schedules; one run per (schedule, fire time), whoever races."""

    def upsert_schedule(self, spec: ScheduleSpec, *, now: datetime) -> ScheduleRecord:
        """
        Create the schedule or change it to *spec*; equal specs change nothing.

        ``next_fire_at`` is taken from *spec* only where the schedule is new or its expression, zone,
        start or end changed; pausing survives.
        """
        ...

    def schedule(self, name: str) -> ScheduleRecord | None:
        """One schedule; None if there is none."""
        ...

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules by name."""
        ...

    def remove_schedule(self, name: str) -> bool:
        """Forget a schedule and its fire times; its runs stay."""
        ...

    def pause_schedule(self, name: str, *, now: datetime) -> bool:
        """Stop firing; True also if it was paused."""
        ...

    def resume_schedule(self, name: str, next_fire_at: datetime | None, *, now: datetime) -> bool:
        """Fire again from *next_fire_at* on; False if it was not paused."""
        ...

    def claim_due_recurring(self, *, limit: int, now: datetime) -> list[ScheduleRecord]:
        """Schedules that are due, not paused, oldest first. A read: `advance` decides who fires."""
        ...

    def advance(
        self,
        name: str,
        *,
        expected: datetime,
        fires: Sequence[Fire],
        next_fire_at: datetime | None,
        now: datetime,
    ) -> list[FireRecord] | None:
        """
        Record *fires*, insert their runs and move ``next_fire_at``, in one transaction.

        Only if ``next_fire_at`` still is *expected* and the schedule is not paused: otherwise None,
        and nothing is written. Overlap SKIP: a fire whose predecessor has not ended is recorded as
        SKIPPED (``overlap``). QUEUE: its run is stored WAITING and released when the predecessor ends
        (an edge that any end satisfies). A fire time that is already recorded is left alone.
        """
        ...

    def fires(self, name: str, *, limit: int = 50) -> list[FireRecord]:
        """The latest recorded fire times, newest first."""
        ...

    def purge_fires(self, *, before: datetime, limit: int) -> int:
        """Delete recorded fire times older than *before*, at most *limit*; how many. Runs stay."""
        ...

    def trigger(self, name: str, fire: Fire, *, now: datetime) -> FireRecord | None:
        """Record and insert one run outside the timetable; None if there is no such schedule."""
        ...
