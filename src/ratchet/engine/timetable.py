"""
Timetables: when a schedule fires. Pure: nothing here knows the present or a store.

`cron` knows which times on the wall an expression names. What they mean on the days when clocks change is
decided here, because cronsim's own answer misses times where a clock moves by half an hour or at midnight.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ratchet.engine.cron import Cron
from ratchet.model.composition import ScheduleSpec
from ratchet.model.durations import parse_duration
from ratchet.model.errors import InvalidJob

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
    A cron expression (`Cron`) in a zone.

    A fixed time (neither minute nor hour begins with ``*``) that does not exist on the day the clock
    goes forward fires once, at the end of the gap; one that exists twice fires the first time. A
    repeating expression (``*/5 * * * *``) fires whenever the clock on the wall says so: not in a gap,
    and in both passes of an hour that comes twice.
    """

    def __init__(self, expression: str, zone: str) -> None:
        self._cron = Cron.of(expression)
        self._zone = _zone(zone)

    def after(self, moment: datetime) -> Iterator[datetime]:
        # The minute that *moment* lies in may have seconds left to fire.
        begin = moment.astimezone(UTC) - timedelta(minutes=1)
        last = moment
        for minute in self._repeated(begin) if self._cron.repeats else self._fixed(begin):
            for second in self._cron.seconds:
                fire = minute + timedelta(seconds=second)
                if fire > last:
                    yield fire
                    last = fire

    def _fixed(self, begin: datetime) -> Iterator[datetime]:
        """Times on the wall, each at the one instant that stands for it."""
        # A time in a gap becomes one after it, so the search begins before any gap that ends here.
        wall = (begin + self._offset(begin)).replace(tzinfo=None) - _USUAL_GAP
        for local in self._cron.minutes(wall):
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
            for wall in self._cron.minutes(local):
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
        if next(self._cron.minutes(wall - timedelta(seconds=1)), None) == wall:
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
            try:
                fire = self._anchor + steps * self._interval
            except OverflowError:  # after the year 9999
                return
            yield fire
            steps += 1


def timetable(expression: str, zone: str, anchor: datetime) -> Timetable:
    """The timetable of an expression: cron, or ``every <duration>``."""
    words = expression.strip().lower()
    if words.startswith("every ") or words == "every":
        every = words.removeprefix("every").strip()
        try:
            interval = parse_duration(every)
        except ValueError as error:
            raise InvalidJob(f"{expression!r} is not a schedule: {_instead(every)}") from error
        return IntervalTable(interval, anchor)
    if words in ("hourly", "daily", "weekly", "monthly", "yearly", "midnight", "annually"):
        raise InvalidJob(f"{expression!r} is not a schedule: write '@{words}'")
    return CronTable(expression, zone)


_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
#: What people mean by "every …".
_MEANT = {
    "second": "'every 1s' for an interval, or '* * * * * *'",
    "minute": "'every 1m' for an interval, or '* * * * *'",
    "hour": "'every 1h' for an interval, or '@hourly' for each full hour",
    "day": "'every 1d' for an interval, or '@daily' for midnight ('30 4 * * *' for 4:30)",
    "night": "'@daily' for midnight, or '30 4 * * *' for 4:30",
    "weekday": "'0 9 * * MON-FRI' for nine o'clock on weekdays",
    "week": "'every 7d' for an interval, or '@weekly' for midnight on Sundays",
    "month": "'@monthly' for midnight on the first",
    "year": "'@yearly' for midnight on January 1",
}


def _instead(every: str) -> str:
    """What to write for an interval that is none."""
    word = every.split()[0].rstrip("s") if every else ""
    if word in _MEANT:
        return f"write {_MEANT[word]}"
    if word in _WEEKDAYS:
        return f"write '0 9 * * {word[:3].upper()}' for nine o'clock on {word.capitalize()}s"
    return "write an interval as in 'every 30s', 'every 5m', 'every 1h30m', 'every 1d', or a cron expression such as '30 4 * * *'"


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


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidJob(f"{name!r} is not a time zone; write it as in 'Europe/Berlin' or 'UTC'") from error
