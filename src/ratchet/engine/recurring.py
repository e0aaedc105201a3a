"""
Recurring runs: which fire times are due, and the runs they become.

When a schedule fires is in `timetable`; who fires is decided by the store's compare-and-swap on the
schedule's next fire time, so any number of nodes may try.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from ratchet.engine.timetable import fire_times, next_fire
from ratchet.model.composition import Fire, FireRecord, ScheduleRecord, ScheduleSpec
from ratchet.model.errors import CommitUnknown, Conflict, StoreUnavailable
from ratchet.model.identifiers import IdSource
from ratchet.model.job import JobSpec
from ratchet.model.payload import refuse_sealed
from ratchet.model.status import JobType
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.store.recurring import RecurringStore

logger = logging.getLogger("ratchet.engine")
faults = FaultLog(logger)

#: A fire time that is at most this late is on time.
GRACE = timedelta(seconds=5)
#: Schedules may change at any time: seconds between two looks.
LOOK = 1.0
BATCH = 100
#: No fire time is older than its schedule; clocks may differ by less than this. To walk from 1970 to today takes too long.
OLDEST_FIRE = timedelta(days=31)
#: So many seconds a schedule that cannot be fired is passed by, unless it changes.
UNFIT = 60.0
#: How many fire times one transaction records, and how many missed ones are recorded one by one.
PORTION = 1000
MOST_RECORDED = 100_000


class RecurringRuns:
    """Fires schedules that are due."""

    def __init__(
        self,
        *,
        store: RecurringStore,
        ids: IdSource,
        wake: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._ids = ids
        self._wake = wake
        self._monotonic = monotonic
        self._unfit: dict[
            str, tuple[ScheduleSpec, float]
        ] = {}  # what could not be fired, and when that was tried
        self._seen: list[ScheduleRecord] | None = None  # in the last look, if nothing was due

    def run_once(self, now: datetime) -> int:
        """Fire what is due; how many runs were created by this node."""
        created = 0
        self._seen = self._store.schedules()
        if not any(_is_due(record, now) for record in self._seen):
            return 0
        self._seen = None
        # What cannot be fired stays due: it must not take the place of others.
        for record in self._store.claim_due_recurring(limit=BATCH + len(self._unfit), now=now):
            if self._is_unfit(record):
                continue
            try:
                created += self._fire(record, now)
            except Conflict as conflict:
                # Another node fires it at this moment, or somebody changes it: the next look shows what is left to do.
                logger.info("schedule %s: %s (will try again)", record.spec.name, conflict)
            except (StoreUnavailable, CommitUnknown):
                raise
            except Exception as error:
                # Its row is not what a schedule is (changed by hand, or by a newer version): the others go on.
                self._unfit[record.spec.name] = record.spec, self._monotonic()
                reason = str(error) or type(error).__name__
                faults.note(f"schedule {record.spec.name} cannot be fired and is passed by: {reason}"[:500])
        if created:
            self._wake()
        return created

    def rest(self, now: datetime, longest: float = LOOK) -> float:
        """Seconds until the next fire time, at most *longest*."""
        seen, self._seen = self._seen, None
        upcoming = [
            r.next_fire_at
            for r in (self._store.schedules() if seen is None else seen)
            if r.next_fire_at is not None and not r.paused and not self._is_unfit(r)
        ]
        if not upcoming:
            return longest
        return min(longest, max(0.01, (min(upcoming) - now).total_seconds()))

    def _is_unfit(self, record: ScheduleRecord) -> bool:
        """True if it could not be fired a short while ago, and has not changed since."""
        spec, tried = self._unfit.get(record.spec.name, (None, 0.0))
        if spec is None:
            return False
        if spec == record.spec and self._monotonic() - tried < UNFIT:
            return True
        del self._unfit[record.spec.name]
        return False

    def _fire(self, record: ScheduleRecord, now: datetime) -> int:
        expected = record.next_fire_at
        if expected is None:
            return 0
        due, upcoming = self._due(record, expected, now)
        fires = plan(record.spec, due, now, self._run_for)
        created = 0
        for start in range(0, len(fires), PORTION):
            portion, rest = fires[start : start + PORTION], fires[start + PORTION :]
            answer = self._store.advance(
                record.spec.name,
                expected=portion[0].fire_at,
                fires=portion,
                next_fire_at=rest[0].fire_at if rest else upcoming,
                now=now,
            )
            if answer is None:  # another node was first, or the schedule has changed
                break
            created += len([fire for fire in answer if _is_run(fire)])
        return created

    @staticmethod
    def _due(
        record: ScheduleRecord, expected: datetime, now: datetime
    ) -> tuple[list[datetime], datetime | None]:
        """Every fire time from *expected* to *now*, and the first one after."""
        if expected < record.created_at - OLDEST_FIRE:
            raise ValueError(f"its next fire time, {expected.isoformat()}, is before its creation")
        due = [expected]
        for fire in fire_times(record.spec, expected, record.created_at):
            if fire > now:
                return due, fire
            due.append(fire)
            if len(due) > MOST_RECORDED:
                logger.warning(
                    "schedule %s missed more than %d fire times; those after %s are not recorded one by one",
                    record.spec.name,
                    MOST_RECORDED,
                    fire,
                )
                return due, next_fire(record.spec, now, record.created_at)
        return due, None

    def _run_for(self, spec: ScheduleSpec, fire_at: datetime) -> JobSpec:
        return run_spec(spec, fire_at, self._ids)


def plan(
    spec: ScheduleSpec,
    due: list[datetime],
    now: datetime,
    run_for: Callable[[ScheduleSpec, datetime], JobSpec],
) -> list[Fire]:
    """
    What becomes of the due fire times under the schedule's misfire policy.

    A fire time within the grace is on time. Of missed ones ``skip`` runs none, ``fire_once`` the
    latest, ``catch_up:n`` the latest n; the others are recorded as skipped.
    """
    missed = [fire for fire in due if now - fire > GRACE]
    on_time = [fire for fire in due if now - fire <= GRACE]
    keep = _kept(spec.misfire, len(missed), bool(on_time))
    kept = set(missed[len(missed) - keep :]) | set(on_time)
    return [
        Fire(fire_at=fire, spec=run_for(spec, fire)) if fire in kept else Fire(fire_at=fire, reason="misfire")
        for fire in due
    ]


def _kept(misfire: str, missed: int, on_time: bool) -> int:
    if misfire == "skip":
        return 0
    if misfire.startswith("catch_up:"):
        return min(missed, int(misfire.removeprefix("catch_up:")))
    return 0 if on_time else min(missed, 1)


def run_spec(spec: ScheduleSpec, fire_at: datetime, ids: IdSource) -> JobSpec:
    """The job that one fire time becomes, made from the schedule's template."""
    template: dict[str, Any] = msgspec.json.decode(spec.template)
    for field in ("payload", "params"):
        # Sealed for the schedule: as the value of a job nobody could open it.
        refuse_sealed(template.get(field) or "", f"the {field} of schedule {spec.name!r}")
    template.update(
        job_id=str(ids()),
        scheduled_at=(fire_at + _spread(spec, fire_at)).isoformat(),
        type=JobType.RECURRING_RUN.value,
        schedule=spec.name,
        status="PENDING",
    )
    return msgspec.convert(template, JobSpec, strict=False)


def _spread(spec: ScheduleSpec, fire_at: datetime) -> timedelta:
    """One fire time's share of the jitter: the same on every node, so that it does not matter which one fires."""
    if not spec.jitter:
        return timedelta()
    digest = hashlib.sha256(f"{spec.name}\n{fire_at.isoformat()}".encode()).digest()
    return spec.jitter * (int.from_bytes(digest[:4]) / 2**32)


def _is_due(record: ScheduleRecord, now: datetime) -> bool:
    return record.next_fire_at is not None and record.next_fire_at <= now and not record.paused


def _is_run(fire: FireRecord) -> bool:
    return fire.job_id is not None
