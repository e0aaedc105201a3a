"""
Timetables: when a schedule fires. Pure: nothing here knows the present or a store.

The fields of a cron expression are cronsim's; what they mean on the days when clocks change is
decided here, because its own answer misses times where a clock moves by half an hour or at midnight.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from ratchet.model.composition import ScheduleSpec
from ratchet.model.durations import parse_duration
from ratchet.model.errors import InvalidJob

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


#: Where the search for a syntax error begins; any time would do.
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001  # a time on the wall has no zone
_MINUTE = timedelta(minutes=1)
#: No clock is put forward by more than a day (Samoa left one out in 2011), and mostly by an hour or two.
_LONGEST_GAP = timedelta(hours=25)
_USUAL_GAP = timedelta(hours=3)


class Timetable(Protocol):
    """When a schedule fires."""

    def after(self, moment: datetime) -> Iterator[datetime]:
        """The fire times after *moment*, in order, in UTC."""
        ...


class CronTable:
    """
    Cron with 5 fields, 6 with seconds first, or an alias such as ``@daily``, in a zone.

    A fixed time (neither minute nor hour begins with ``*``) that does not exist on the day the clock
    goes forward fires once, at the end of the gap; one that exists twice fires the first time. A
    repeating expression (``*/5 * * * *``) fires whenever the clock on the wall says so: not in a gap,
    and in both passes of an hour that comes twice.
    """

    def __init__(self, expression: str, zone: str) -> None:
        fields = ALIASES.get(expression.strip().lower(), expression).split()
        self._seconds = _seconds(fields[0]) if len(fields) == 6 else (0,)
        self._cron = " ".join(fields[1:] if len(fields) == 6 else fields)
        self._zone = _zone(zone)
        try:
            CronSim(self._cron, _EPOCH)
            if len(fields) not in (5, 6):
                raise CronSimError("Wrong number of fields")
        except CronSimError as error:
            raise InvalidJob(
                f"{expression!r} is not a cron expression ({error}); it has five fields (minute hour day month "
                f"weekday), six with seconds first, or is one of {', '.join(sorted(ALIASES))}"
            ) from error
        self._repeats = any(field.startswith("*") for field in self._cron.split()[:2])

    def after(self, moment: datetime) -> Iterator[datetime]:
        # The minute that *moment* lies in may have seconds left to fire.
        begin = moment.astimezone(UTC) - timedelta(minutes=1)
        last = moment
        for minute in self._repeated(begin) if self._repeats else self._fixed(begin):
            for second in self._seconds:
                fire = minute + timedelta(seconds=second)
                if fire > last:
                    yield fire
                    last = fire

    def _fixed(self, begin: datetime) -> Iterator[datetime]:
        """Times on the wall, each at the one instant that stands for it."""
        # A time in a gap becomes one after it, so the search begins before any gap that ends here.
        wall = (begin + self._offset(begin)).replace(tzinfo=None) - _USUAL_GAP
        for local in CronSim(self._cron, wall):
            instant = local.replace(tzinfo=self._zone).astimezone(UTC)
            if instant.astimezone(self._zone).replace(tzinfo=None) != local:
                instant = self._change(instant - _LONGEST_GAP, instant)
            yield instant

    def _repeated(self, begin: datetime) -> Iterator[datetime]:
        """Every instant whose time on the wall matches, one stretch of equal offset after the other."""
        while True:
            offset = self._offset(begin)
            local = (begin + offset).replace(tzinfo=None)
            before = begin
            for wall in CronSim(self._cron, local):
                instant = wall.replace(tzinfo=UTC) - offset
                if self._offset(instant) != offset:
                    begin = self._change(before, instant)
                    break
                yield instant
                before = instant
            else:
                return
            yield from self._at(begin)

    def _at(self, instant: datetime) -> Iterator[datetime]:
        """*instant* itself, if its time on the wall matches."""
        wall = (instant + self._offset(instant)).replace(tzinfo=None)
        if next(CronSim(self._cron, wall - timedelta(seconds=1)), None) == wall:
            yield instant

    def _offset(self, instant: datetime) -> timedelta:
        return instant.astimezone(self._zone).utcoffset() or timedelta()

    def _change(self, before: datetime, after: datetime) -> datetime:
        """The first minute in which the offset is no longer what it was at *before*."""
        offset = self._offset(before)
        low, high = 0, int((after - before) / _MINUTE) + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self._offset(before + middle * _MINUTE) == offset:
                low = middle
            else:
                high = middle
        return (before + high * _MINUTE).replace(second=0, microsecond=0)


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
