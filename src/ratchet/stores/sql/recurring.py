"""Recurring schedules and their fire times in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
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
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Row, Session, SqlPart

#: Runs that are looked at to find one that has not ended; with more queued runs than this, the newest is among them.
LATEST_RUNS = 200

_SCHEDULE = """
    SELECT name, expression, zone_id, target, template, misfire, overlap, starts_at, ends_at, jitter_us, declared,
           paused, next_fire_at, last_fire_at, created_at, updated_at
      FROM scheduler_recurring_job
"""

FIND_SCHEDULE = f"{_SCHEDULE} WHERE name = :name"

LOCK_SCHEDULE = f"{_SCHEDULE} WHERE name = :name {{for update}}"

LOCK_DUE_SCHEDULE = f"{_SCHEDULE} WHERE name = :name AND next_fire_at = :expected AND NOT paused {{for update}}"

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

MARK_FIRED = """
    UPDATE scheduler_recurring_job SET last_fire_at = :fire_at WHERE name = :name
"""

_FIRE = "SELECT name, fire_at, outcome, job_id, reason FROM scheduler_recurring_fire WHERE name = :name"

FIND_FIRE = f"{_FIRE} AND fire_at = :fire_at"

LIST_FIRES = f"{_FIRE} ORDER BY fire_at DESC LIMIT :limit"

INSERT_FIRE = """
    INSERT INTO scheduler_recurring_fire (name, fire_at, outcome, job_id, reason, recorded_at)
    VALUES (:name, :fire_at, :outcome, :job_id, :reason, :now)
"""

# Not the runs' fire times but the runs: a schedule that skips for a day records a fire every minute.
FIND_UNENDED_RUN = """
    SELECT r.job_id
      FROM (SELECT job_id, status
              FROM scheduler_job
             WHERE schedule = :name
             ORDER BY job_id DESC
             LIMIT :latest) r
     WHERE r.status NOT IN ('SUCCEEDED', 'FAILED', 'CANCELED')
        OR EXISTS (SELECT 1 FROM scheduler_job_queue q WHERE q.job_id = r.job_id)
     ORDER BY r.job_id DESC
     LIMIT 1
"""
