"""Durations as users write them, converted to ``timedelta``."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta

from .errors import InvalidJob

#: What every public duration parameter accepts: a ``timedelta`` or a number of seconds.
Duration = timedelta | int | float

_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min|m|h|d|w)\s*", re.ASCII)
_SHOWN = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)))


def to_timedelta(value: Duration, name: str, *, negative: bool = False, zero: bool = True) -> timedelta:
    """
    *value* as a ``timedelta``; a number counts seconds.

    Raises `InvalidJob` for any other type (also bool), for NaN and infinity, for a negative value unless
    ``negative=True``, and for zero if ``zero=False``. The message calls the value *name*.
    """
    if isinstance(value, timedelta):
        # a subclass (pendulum, pandas) must not go further: drivers choose their codec by the exact type
        result = timedelta(value.days, value.seconds, value.microseconds)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidJob(f"{name} must be a timedelta or a number of seconds, not {value!r}")
    elif not math.isfinite(value):
        raise InvalidJob(f"{name} must be a finite number of seconds, not {value!r}")
    else:
        try:
            result = timedelta(seconds=value)
        except OverflowError:
            raise InvalidJob(f"{name} of {value!r} seconds is longer than a timedelta can hold") from None
    if result < timedelta(0) and not negative:
        raise InvalidJob(f"{name} must not be negative, but is {value!r}")
    if not result and not zero:
        raise InvalidJob(f"{name} must be longer than zero, but is {value!r}")
    return result


def earlier(moment: datetime, by: timedelta) -> datetime:
    """*moment* minus *by*; the first moment there is where that would be before all times."""
    try:
        return moment - by
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def parse_duration(text: str) -> timedelta:
    """
    The duration written in *text*: "30" (seconds), "500ms", "30s", "5m", "1h30m", "7d", "2w".

    Raises `ValueError` for anything else, also for a sign.
    """
    stripped = text.strip()
    if re.fullmatch(r"\d+(\.\d+)?", stripped, re.ASCII):
        return _total(((stripped, "s"),), text)
    parts: list[tuple[str, str]] = []
    position = 0
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None:
            break
        parts.append((part[1], part[2]))
        position = part.end()
    if not parts or position != len(stripped):
        raise ValueError(f"{text!r} is not a duration; write seconds (30) or a unit (500ms, 30s, 5m, 1h, 7d)")
    return _total(tuple(parts), text)


def _total(parts: tuple[tuple[str, str], ...], text: str) -> timedelta:
    try:
        return sum((float(number) * _UNITS[unit] for number, unit in parts), timedelta(0))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than a timedelta can hold") from None


def format_duration(value: timedelta) -> str:
    """*value* in the form that `parse_duration` reads: "7d", "1h30m", "2.5s", "100ms"."""
    if value < timedelta(0):
        return "-" + format_duration(-value)
    if timedelta(0) < value < timedelta(seconds=1):
        micros = value // timedelta(microseconds=1)
        return f"{micros // 1000}ms" if micros % 1000 == 0 else f"{micros}us"
    shown = ""
    for unit, size in _SHOWN:
        count, value = divmod(value, size)
        shown += f"{count}{unit}" if count else ""
    if value or not shown:
        shown += f"{value.seconds}.{value.microseconds:06d}".rstrip("0").rstrip(".") + "s"
    return shown
