"""
Recurring runs: which fire times are due, and the runs they become.

The timetable is pure (`Timetable`); who fires is decided by the store's compare-and-swap on the
schedule's next fire time, so any number of nodes may try.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from ratchet.model.composition import Fire, FireRecord, ScheduleRecord, ScheduleSpec
from ratchet.model.durations import parse_duration
from ratchet.model.errors import InvalidJob
from ratchet.model.identifiers import IdSource
from ratchet.model.job import JobSpec
from ratchet.model.status import JobType
from ratchet.spi.store.recurring import RecurringStore

logger = logging.getLogger("ratchet.engine")

#: A fire time that is at most this late is on time.
GRACE = timedelta(seconds=5)
BATCH = 100

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Timetable(Protocol):
    """When a schedule fires."""

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The fire times after *moment*, in order, in UTC."""
        ...


class CronTable:
    """
    Cron with 5 fields, 6 with seconds first, or an alias such as ``@daily``, in a zone.

    A fixed time that does not exist on the day the clock goes forward fires once after the gap; one
    that exists twice fires once.
    """

    def __init__(self, expression: str, zone: str) -> None:
        fields = ALIASES.get(expression.strip().lower(), expression).split()
        self._seconds = _seconds(fields[0]) if len(fields) == 6 else (0,)
        cron = " ".join(fields[1:] if len(fields) == 6 else fields)
        self._zone = _zone(zone)
        self._cron = cron
        try:
            CronSim(cron, datetime.now(UTC))
        except CronSimError as error:
            raise InvalidJob(
                f"{expression!r} is not a cron expression ({error}); it has five fields (minute hour day month "
                f"weekday), six with seconds first, or is one of {', '.join(sorted(ALIASES))}"
            ) from error

    def after(self, moment: datetime) -> Iterator[datetime]:
        start = moment.astimezone(self._zone)
        # The minute that *moment* lies in may have seconds left to fire.
        minutes = CronSim(self._cron, start - timedelta(minutes=1) if self._seconds != (0,) else start)
        for minute in minutes:
            for second in self._seconds:
                fire = minute.astimezone(UTC).replace(second=second, microsecond=0)
                if fire > moment:
                    yield fire


class IntervalTable:
    """A fixed interval, counted from the schedule's start."""

    def __init__(self, interval: timedelta, anchor: datetime) -> None:
        if interval < timedelta(seconds=1):
            raise InvalidJob(f"a schedule's interval must be at least one second, not {interval}")
        self._interval = interval
        self._anchor = anchor

    def after(self, moment: datetime) -> Iterator[datetime]:
        steps = max(0, (moment - self._anchor) // self._interval + 1)
        while True:
            yield self._anchor + steps * self._interval
            steps += 1


def timetable(expression: str, zone: str, anchor: datetime) -> Timetable:
    """The timetable of an expression: cron, or ``every <duration>``."""
    if expression.startswith("every "):
        try:
            return IntervalTable(parse_duration(expression.removeprefix("every ")), anchor)
        except ValueError as error:
            raise InvalidJob(str(error)) from error
    return CronTable(expression, zone)


def fire_times(spec: ScheduleSpec, after: datetime, anchor: datetime) -> Iterator[datetime]:
    """The fire times of *spec* after *after*, within its start and end."""
    begin = after
    if spec.starts_at is not None and spec.starts_at > after:
        begin = spec.starts_at - timedelta(microseconds=1)
    for fire in timetable(spec.expression, spec.zone, spec.starts_at or anchor).after(begin):
        if spec.ends_at is not None and fire > spec.ends_at:
            return
        yield fire


def next_fire(spec: ScheduleSpec, after: datetime, anchor: datetime) -> datetime | None:
    """The first fire time after *after*; None where the schedule has ended."""
    return next(iter(fire_times(spec, after, anchor)), None)


class RecurringRuns:
    """Fires schedules that are due."""

    def __init__(self, *, store: RecurringStore, ids: IdSource, wake: Callable[[], None]) -> None:
        self._store = store
        self._ids = ids
        self._wake = wake

    def run_once(self, now: datetime) -> int:
        """Fire what is due; how many runs were created by this node."""
        created = 0
        for record in self._store.claim_due_recurring(limit=BATCH, now=now):
            try:
                created += self._fire(record, now)
            except InvalidJob:
                logger.exception("schedule %s cannot be fired", record.spec.name)
        if created:
            self._wake()
        return created

    def rest(self, now: datetime) -> float:
        """How many seconds nothing will be due, at most one: schedules may change at any time."""
        upcoming = [
            r.next_fire_at for r in self._store.schedules() if r.next_fire_at is not None and not r.paused
        ]
        if not upcoming:
            return 1.0
        return min(1.0, max(0.01, (min(upcoming) - now).total_seconds()))

    def _fire(self, record: ScheduleRecord, now: datetime) -> int:
        expected = record.next_fire_at
        if expected is None:
            return 0
        due, upcoming = self._due(record, expected, now)
        fires = plan(record.spec, due, now, self._run_for)
        answer = self._store.advance(
            record.spec.name, expected=expected, fires=fires, next_fire_at=upcoming, now=now
        )
        return len([fire for fire in answer or () if _is_run(fire)])

    @staticmethod
    def _due(
        record: ScheduleRecord, expected: datetime, now: datetime
    ) -> tuple[list[datetime], datetime | None]:
        """Every fire time from *expected* to *now*, and the first one after."""
        due = [expected]
        for fire in fire_times(record.spec, expected, record.created_at):
            if fire > now:
                return due, fire
            due.append(fire)
            if len(due) > 100_000:
                # Years of seconds: what is older than this is not worth listing one by one.
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
    template.update(
        job_id=str(ids()),
        scheduled_at=(fire_at + _spread(spec, fire_at)).isoformat(),
        type=JobType.RECURRING_RUN.value,
        schedule=spec.name,
        status="PENDING",
    )
    return msgspec.convert(template, JobSpec, strict=False)


def _spread(spec: ScheduleSpec, fire_at: datetime) -> timedelta:
    """One fire time's share of the jitter: the same on every node, so that whoever fires decides the same."""
    if not spec.jitter:
        return timedelta()
    digest = hashlib.sha256(f"{spec.name}\n{fire_at.isoformat()}".encode()).digest()
    return spec.jitter * (int.from_bytes(digest[:4]) / 2**32)


def _is_run(fire: FireRecord) -> bool:
    return fire.job_id is not None


def _seconds(field: str) -> tuple[int, ...]:
    """The seconds field of a six-field expression: ``*``, ``*/n``, ``a-b``, lists."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        try:
            width = int(step) if step else 1
            if span == "*":
                low, high = 0, 59
            elif "-" in span:
                low, high = (int(end) for end in span.split("-", 1))
            else:
                low = int(span)
                high = 59 if step else low
            if width < 1 or not 0 <= low <= high <= 59:
                raise ValueError
        except ValueError:
            raise InvalidJob(
                f"{field!r} is not a seconds field: numbers from 0 to 59, ranges, lists, */n"
            ) from None
        found.update(range(low, high + 1, width))
    return tuple(sorted(found))


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidJob(f"{name!r} is not a time zone; write it as in 'Europe/Berlin' or 'UTC'") from error
