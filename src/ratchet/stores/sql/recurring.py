"""Recurring schedules and their fire times in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from uuid import UUID

from msgspec import structs

from ratchet.model.composition import Fire, FireOutcome, FireRecord, ScheduleRecord, ScheduleSpec
from ratchet.model.errors import BusinessKeyBusy, StoreError
from ratchet.model.schedules import (
    ALLOW,
    DUPLICATE,
    KEY_BUSY,
    LATEST_RUNS,
    PlannedRun,
    changed_schedule,
    check_words,
    is_same_schedule,
    new_schedule,
    plan_fire,
    ran_fire,
    skipped_fire,
)
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.sql.submit.keys import LEAVE_LEDGER
from ratchet.stores.sql.submit.submissions import insert_specs
from ratchet.stores.unreadable import passed_by, readable, require_readable
from ratchet.stores.validation import validate

_SCHEDULE = """
    SELECT name, expression, zone_id, target, template, misfire, overlap, starts_at, ends_at, jitter_us, declared,
           paused, next_fire_at, last_fire_at, created_at, updated_at
      FROM scheduler_recurring_job
"""

FIND_SCHEDULE = f"{_SCHEDULE} WHERE name = :name"

LOCK_SCHEDULE = f"{_SCHEDULE} WHERE name = :name {{for update}}"

LOCK_DUE_SCHEDULE = (
    f"{_SCHEDULE} WHERE name = :name AND next_fire_at = :expected AND NOT paused {{for update}}"
)

LIST_SCHEDULES = f"{_SCHEDULE} ORDER BY name"

LIST_DUE = f"""{_SCHEDULE}
     WHERE next_fire_at IS NOT NULL AND next_fire_at <= :now AND NOT paused
     ORDER BY next_fire_at, name
     LIMIT :limit
"""

INSERT_SCHEDULE = """
    INSERT INTO scheduler_recurring_job
           (name, expression, zone_id, target, template, misfire, overlap, starts_at, ends_at, jitter_us, declared,
            paused, next_fire_at, created_at, updated_at)
    VALUES (:name, :expression, :zone, :target, :template, :misfire, :overlap, :starts_at, :ends_at, :jitter_us,
            :declared, false, :next_fire_at, :now, :now)
        ON CONFLICT (name) DO NOTHING
"""

UPDATE_SCHEDULE = """
    UPDATE scheduler_recurring_job
       SET expression = :expression, zone_id = :zone, target = :target, template = :template, misfire = :misfire,
           overlap = :overlap, starts_at = :starts_at, ends_at = :ends_at, jitter_us = :jitter_us,
           declared = :declared, next_fire_at = :next_fire_at, updated_at = :now
     WHERE name = :name
"""

REMOVE_SCHEDULE = "DELETE FROM scheduler_recurring_job WHERE name = :name"

REMOVE_FIRES = "DELETE FROM scheduler_recurring_fire WHERE name = :name"

PAUSE_SCHEDULE = """
    UPDATE scheduler_recurring_job SET paused = true, updated_at = :now WHERE name = :name AND NOT paused
"""

RESUME_SCHEDULE = """
    UPDATE scheduler_recurring_job
       SET paused = false, next_fire_at = :next_fire_at, updated_at = :now
     WHERE name = :name AND paused
"""

ADVANCE_SCHEDULE = """
    UPDATE scheduler_recurring_job
       SET next_fire_at = :next_fire_at, last_fire_at = :last_fire_at
     WHERE name = :name
"""

_FIRE = "SELECT name, fire_at, outcome, job_id, reason FROM scheduler_recurring_fire WHERE name = :name"

FIND_FIRE = f"{_FIRE} AND fire_at = :fire_at"

LIST_FIRES = f"{_FIRE} ORDER BY fire_at DESC LIMIT :limit"

FIND_OLD_FIRES = """
    SELECT fire_at
      FROM scheduler_recurring_fire
     WHERE name = :name AND fire_at < :before
     ORDER BY fire_at
     LIMIT :limit
"""

PURGE_FIRES = "DELETE FROM scheduler_recurring_fire WHERE name = :name AND fire_at {in times time}"

FIND_RECORDED = """
    SELECT fire_at FROM scheduler_recurring_fire WHERE name = :name AND fire_at {in times time}
"""

FIRE_COLUMNS = ("name", "fire_at", "outcome", "job_id", "reason", "recorded_at")

# Not the fire times but the runs: a schedule that skips for a day records a fire every minute. A run that
# was paused after it failed has ended.
FIND_UNENDED_RUN = """
    SELECT r.job_id
      FROM (SELECT job_id, status, paused_from
              FROM scheduler_job
             WHERE schedule = :name
             ORDER BY job_id DESC
             LIMIT :latest) r
     WHERE r.status IN ('PENDING', 'WAITING') OR (r.status = 'PAUSED' AND r.paused_from <> 'FAILED')
     ORDER BY r.job_id DESC
     LIMIT 1
"""

_MICROSECOND = timedelta(microseconds=1)
_TABLE = "scheduler_recurring_job"


class SqlRecurring(SqlPart):
    """Schedules, and what became of their fire times."""

    def upsert_schedule(
        self, spec: ScheduleSpec, *, now: datetime, within: object | None = None
    ) -> ScheduleRecord:
        """
        Create the schedule or change it to *spec*; equal specs change nothing.

        Every node declares its schedules when it starts, so the ordinary case is one read.
        """
        held = self.schedule(spec.name, within=within)
        if held is not None and is_same_schedule(spec, held.spec):
            return held
        return self.change(lambda session: _upsert(session, spec, now), within, wakes=False)

    def schedule(self, name: str, *, within: object | None = None) -> ScheduleRecord | None:
        """One schedule; None if there is none."""

        def find(session: Session) -> Row | None:
            return session.row(FIND_SCHEDULE, {"name": name})

        row = self.database.read(find) if within is None else self.database.run(find, within=within)
        return None if row is None else require_readable(row, _schedule, _TABLE, name)

    def schedules(self) -> list[ScheduleRecord]:
        """All schedules by name."""
        rows = self.database.read(lambda session: session.rows(LIST_SCHEDULES))
        return readable(rows, _schedule, _TABLE, itemgetter(0))

    def remove_schedule(self, name: str, *, within: object | None = None) -> bool:
        """Forget a schedule and its fire times; its runs stay."""

        def remove(session: Session) -> bool:
            # the schedule first: whoever advances it holds its row, and records no fire afterwards
            removed = session.execute(REMOVE_SCHEDULE, {"name": name})
            session.execute(REMOVE_FIRES, {"name": name})
            return removed > 0

        return self.change(remove, within, wakes=False)

    def pause_schedule(self, name: str, *, now: datetime, within: object | None = None) -> bool:
        """Stop firing; True also if it was paused."""

        def pause(session: Session) -> bool:
            paused = session.execute(PAUSE_SCHEDULE, {"name": name, "now": now})
            return paused > 0 or session.row(FIND_SCHEDULE, {"name": name}) is not None

        return self.change(pause, within, wakes=False)

    def resume_schedule(
        self, name: str, next_fire_at: datetime | None, *, now: datetime, within: object | None = None
    ) -> bool:
        """Fire again from *next_fire_at* on; False if it was not paused."""
        values = {"name": name, "next_fire_at": next_fire_at, "now": now}
        resumed = self.change(lambda session: session.execute(RESUME_SCHEDULE, values), within, wakes=False)
        return resumed > 0

    def claim_due_recurring(self, *, limit: int, now: datetime) -> list[ScheduleRecord]:
        """Schedules that are due, not paused, oldest first. A read: `advance` decides who fires."""
        most = limit
        while True:
            rows = self._due_schedules(most, now)
            found = readable(rows, _schedule, _TABLE, itemgetter(0))
            if len(found) >= limit or len(rows) < most:
                return found[:limit]
            most *= 2  # those that cannot be read are never advanced: they must not take the place of others

    def _due_schedules(self, limit: int, now: datetime) -> list[Row]:
        return self.database.read(lambda session: session.rows(LIST_DUE, {"now": now, "limit": limit}))

    # --- fires --------------------------------------------------------------------------------

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
        Record *fires*, insert their runs and move ``next_fire_at``, in one transaction; what was recorded.

        None: somebody else was faster, or the schedule is paused. Under the schedule's lock: of two
        nodes one finds the time it expects, and the other's fires are not even looked at.
        """
        self.stream_registry.ids_of(
            None, validate([fire.spec for fire in fires if fire.spec is not None], now=now)
        )

        def advance(session: Session) -> list[FireRecord] | None:
            row = session.row(LOCK_DUE_SCHEDULE, {"name": name, "expected": expected})
            if row is None:
                return None
            schedule = require_readable(row, _schedule, _TABLE, name)
            times = {"name": name, "times": [fire.fire_at for fire in fires]}
            recorded = {fire_at for (fire_at,) in session.rows(FIND_RECORDED, times)}
            new = [fire for fire in fires if fire.fire_at not in recorded]
            records = self._record(session, schedule.spec.name, new, now, overlap=schedule.spec.overlap)
            last = max((fire.fire_at for fire in fires), default=schedule.last_fire_at)
            moved = {"name": name, "next_fire_at": next_fire_at, "last_fire_at": last}
            session.execute(ADVANCE_SCHEDULE, moved)
            return records

        return self.database.run(advance)

    def fires(self, name: str, *, limit: int = 50) -> list[FireRecord]:
        """The latest recorded fire times, newest first."""
        values = {"name": name, "limit": limit}
        rows = self.database.read(lambda session: session.rows(LIST_FIRES, values))
        return readable(rows, _fire, "scheduler_recurring_fire", itemgetter(0))

    def purge_fires(self, *, before: datetime, limit: int) -> int:
        """Delete recorded fire times older than *before*, at most *limit*; how many. Runs stay."""

        def purge(session: Session, name: str, most: int) -> int:
            values = {"name": name, "before": before, "limit": most}
            old = [fire_at for (fire_at,) in session.rows(FIND_OLD_FIRES, values)]
            return session.execute(PURGE_FIRES, {"name": name, "times": old}) if old else 0

        purged = 0
        for record in self.schedules():
            if purged < limit:  # a schedule at a time: the key of the table begins with its name
                left, name = limit - purged, record.spec.name
                purged += self.change(partial(purge, name=name, most=left))
        return purged

    def trigger(
        self, name: str, fire: Fire, *, now: datetime, within: object | None = None
    ) -> FireRecord | None:
        """
        Record and insert one run outside the timetable; None if there is no such schedule.

        Somebody asked for it, so it runs beside a run that has not ended. A time that is already
        recorded is this call, sent again: its record is the answer.
        """
        if fire.spec is not None:
            streams = validate([fire.spec], now=now)
            if within is None:
                self.stream_registry.ids_of(None, streams)

        def trigger(session: Session) -> FireRecord | None:
            row = session.row(LOCK_SCHEDULE, {"name": name})
            if row is None:
                return None
            held = session.row(FIND_FIRE, {"name": name, "fire_at": fire.fire_at})
            if held is not None:
                return _fire(held)
            return self._record(session, name, [fire], now, overlap=ALLOW)[0]

        return self.change(trigger, within)

    def _record(
        self, session: Session, name: str, fires: Sequence[Fire], now: datetime, *, overlap: str
    ) -> list[FireRecord]:
        """Insert the runs of these fire times, which nobody has recorded, and record all of them."""
        unended: UUID | None = None
        if overlap != ALLOW and any(fire.spec is not None for fire in fires):
            unended = session.value(FIND_UNENDED_RUN, {"name": name, "latest": LATEST_RUNS})
        records: list[FireRecord] = []
        for fire in fires:
            plan = plan_fire(name, fire, overlap=overlap, unended=unended)
            record = (
                self._insert_run(session, name, fire, plan, now) if isinstance(plan, PlannedRun) else plan
            )
            unended = record.job_id or unended
            records.append(record)
        rows = [(r.schedule, r.fire_at, r.outcome, r.job_id, r.reason, now) for r in records]
        session.insert_rows("scheduler_recurring_fire", FIRE_COLUMNS, rows)
        return records

    def _insert_run(
        self, session: Session, name: str, fire: Fire, plan: PlannedRun, now: datetime
    ) -> FireRecord:
        run = plan.spec
        try:
            submission = insert_specs(session, self.stream_registry, [run], edges=plan.edges, now=now)
        except BusinessKeyBusy:
            # A schedule must not stop for ever at one fire time. Nothing is written by then but the ledger.
            if run.idempotency_key is not None:
                session.execute(LEAVE_LEDGER, {"keys": [run.idempotency_key], "ids": [run.job_id]})
            return skipped_fire(name, fire, KEY_BUSY)
        if submission.busy is not None:
            return skipped_fire(name, fire, KEY_BUSY)
        if not submission.insertions[0].created:
            return skipped_fire(name, fire, DUPLICATE)
        return ran_fire(name, fire, run.job_id)


def _upsert(session: Session, spec: ScheduleSpec, now: datetime) -> ScheduleRecord:
    values: dict[str, object] = {
        **structs.asdict(spec),
        "jitter_us": spec.jitter // _MICROSECOND,
        "now": now,
    }
    del values["jitter"]
    if session.execute(INSERT_SCHEDULE, values):
        return new_schedule(spec, now)
    row = session.row(LOCK_SCHEDULE, {"name": spec.name})
    if row is None:  # removed since
        return _upsert(session, spec, now)
    try:
        held = require_readable(row, _schedule, _TABLE, spec.name)
    except StoreError as error:
        passed_by(_TABLE, spec.name, error)
        changed = new_schedule(spec, now)  # a declaration mends what cannot be read
    else:
        if is_same_schedule(spec, held.spec):
            return held
        changed = changed_schedule(held, spec, now)
    session.execute(UPDATE_SCHEDULE, {**values, "next_fire_at": changed.next_fire_at})
    return changed


def _schedule(row: Row) -> ScheduleRecord:
    (
        name,
        expression,
        zone,
        target,
        template,
        misfire,
        overlap,
        starts_at,
        ends_at,
        jitter_us,
        declared,
        *rest,
    ) = row
    paused, next_fire_at, last_fire_at, created_at, updated_at = rest
    spec = ScheduleSpec(
        name=name,
        expression=expression,
        zone=zone,
        target=target,
        template=template,
        misfire=misfire,
        overlap=overlap,
        starts_at=starts_at,
        ends_at=ends_at,
        jitter=timedelta(microseconds=jitter_us),
        declared=declared,
        next_fire_at=next_fire_at,
    )
    check_words(spec)
    return ScheduleRecord(
        spec=spec,
        paused=paused,
        next_fire_at=next_fire_at,
        last_fire_at=last_fire_at,
        created_at=created_at,
        updated_at=updated_at,
    )


def _fire(row: Row) -> FireRecord:
    name, fire_at, outcome, job_id, reason = row
    return FireRecord(
        schedule=name, fire_at=fire_at, outcome=FireOutcome(outcome), job_id=job_id, reason=reason
    )
