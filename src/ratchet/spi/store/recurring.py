"""Recurring schedules and their fire times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from ratchet.model.composition import Fire, FireRecord, ScheduleRecord, ScheduleSpec


class RecurringStore(Protocol):
    """Keeps schedules; there is one run per (schedule, fire time), however many nodes race."""

    def upsert_schedule(
        self, spec: ScheduleSpec, *, now: datetime, within: object | None = None
    ) -> ScheduleRecord:
        """
        Create the schedule or change it to *spec*; an equal spec changes nothing.

        ``next_fire_at`` is taken from *spec* only if the schedule is new or its expression, zone, start or
        end changed. A paused schedule stays paused. Here and below, *within* is the caller's transaction.
        """
        ...

    def schedule(self, name: str, *, within: object | None = None) -> ScheduleRecord | None:
        """One schedule, as the caller's transaction sees it, if there is one; None if there is none."""
        ...

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules, by name."""
        ...

    def remove_schedule(self, name: str, *, within: object | None = None) -> bool:
        """Remove a schedule and its fire times; its runs stay."""
        ...

    def pause_schedule(self, name: str, *, now: datetime, within: object | None = None) -> bool:
        """Stop firing; True also if it was already paused."""
        ...

    def resume_schedule(
        self, name: str, next_fire_at: datetime | None, *, now: datetime, within: object | None = None
    ) -> bool:
        """Fire again from *next_fire_at* on; False if it was not paused."""
        ...

    def claim_due_recurring(self, *, limit: int, now: datetime) -> list[ScheduleRecord]:
        """Schedules that are due and not paused, oldest first. This is a read: `advance` decides who fires."""
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

        This happens only if ``next_fire_at`` is still *expected* and the schedule is not paused; otherwise the
        answer is None, and nothing is written. With overlap SKIP, a fire whose predecessor has not ended is
        recorded as SKIPPED (``overlap``). With QUEUE, its run is stored WAITING and released when the predecessor
        ends (by an END edge). A fire time that is already recorded is left alone.
        """
        ...

    def fires(self, name: str, *, limit: int = 50) -> list[FireRecord]:
        """The latest recorded fire times, newest first."""
        ...

    def purge_fires(self, *, before: datetime, limit: int) -> int:
        """Delete recorded fire times older than *before*, at most *limit*; how many were deleted. Runs stay."""
        ...

    def trigger(
        self, name: str, fire: Fire, *, now: datetime, within: object | None = None
    ) -> FireRecord | None:
        """Record and insert one run outside the timetable; None if there is no such schedule."""
        ...
