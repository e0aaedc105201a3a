"""
Cron expressions: their fields, and the times on the wall that they name. No zone, and no present.

cronsim parses most of it and steps through the times. The rest is here: ``?``, the weekday nearest to a day (``15W``),
days before the last (``L-2``), the names of last weekdays (``FRIL``), and years.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from cronsim import CronSim, CronSimError

from ratchet.model.errors import InvalidJob

ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_FIRST_YEAR, _LAST_YEAR = 1970, 2199
#: Where the search for a syntax error begins; any time would do.
_EPOCH = datetime(2000, 1, 1)  # noqa: DTZ001  # a time on the wall has no zone
_YEARS = re.compile(r"\d{4}([-,/].*)?", re.ASCII)
_NEAREST = re.compile(r"(\d{1,2})W", re.ASCII)
_BEFORE_LAST = re.compile(r"L-(\d{1,2})", re.ASCII)
_LAST_NAMED = re.compile(r"(SUN|MON|TUE|WED|THU|FRI|SAT)L")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY, _WEEKDAY = 2, 4
_SATURDAY, _SUNDAY = 5, 6


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression, checked and taken apart."""

    seconds: tuple[int, ...]
    fields: str  # minute, hour, day, month and weekday, as cronsim reads them
    plain_days: bool = True  # cronsim's field of days says something, too
    nearest: frozenset[int] = frozenset()  # days of which the nearest weekday is meant
    before_last: frozenset[int] = frozenset()  # so many days before the last of the month
    years: frozenset[int] | None = None

    @classmethod
    def of(cls, expression: str) -> Cron:
        """*expression*, with five fields, six (with seconds first, or a year last) or seven; `InvalidJob` if it is none."""
        fields = ALIASES.get(expression.strip().lower(), expression).upper().split()
        try:
            return cls._of(fields)
        except CronSimError as error:
            raise InvalidJob(
                f"{expression!r} is not a cron expression ({error}); it has five fields (minute hour day month "
                f"weekday), a sixth for seconds in front, one for years at the end, or is one of "
                f"{', '.join(sorted(ALIASES))}"
            ) from error

    @classmethod
    def _of(cls, fields: list[str]) -> Cron:
        years = None
        if len(fields) == 7 or (len(fields) == 6 and _YEARS.fullmatch(fields[-1])):
            years = _numbers(fields.pop(), _FIRST_YEAR, _LAST_YEAR, "year")
        seconds = _numbers(fields.pop(0), 0, 59, "second") if len(fields) == 6 else frozenset((0,))
        if len(fields) != 5:
            raise CronSimError("Wrong number of fields")
        if fields[_DAY] == fields[_WEEKDAY] == "?":
            raise CronSimError("only one of day and weekday can be ?")
        for position in (_DAY, _WEEKDAY):
            fields[position] = "*" if fields[position] == "?" else fields[position]
        plain, nearest, before_last = _days(fields[_DAY])
        fields[_DAY] = plain or "1"  # which is not asked for then
        fields[_WEEKDAY] = ",".join(
            f"{_WEEKDAYS.index(name[1])}L" if (name := _LAST_NAMED.fullmatch(term)) else term
            for term in fields[_WEEKDAY].split(",")
        )
        text = " ".join(fields)
        CronSim(text, _EPOCH)
        return cls(
            seconds=tuple(sorted(seconds)),
            fields=text,
            plain_days=bool(plain),
            nearest=nearest,
            before_last=before_last,
            years=None if years is None or len(years) > _LAST_YEAR - _FIRST_YEAR else years,
        )

    @property
    def repeats(self) -> bool:
        """True if it names no fixed time: its minute or its hour begins with ``*``."""
        return any(field.startswith("*") for field in self.fields.split()[:2])

    def minutes(self, wall: datetime) -> Iterator[datetime]:
        """The minutes after *wall* in which it fires."""
        return _Steps(self, wall)


class _Steps(CronSim):
    """Steps through the minutes of one expression."""

    def __init__(self, cron: Cron, wall: datetime) -> None:
        super().__init__(cron.fields, wall)
        self._cron = cron
        if not cron.plain_days:
            self.days = set()

    def match_dom(self, d: date) -> bool:
        if super().match_dom(d):
            return True
        cron = self._cron
        if cron.before_last and monthrange(d.year, d.month)[1] - d.day in cron.before_last:
            return True
        return any(_nearest_weekday(d.year, d.month, day) == d.day for day in cron.nearest)

    def __next__(self) -> datetime:
        years = self._cron.years
        while True:
            found = super().__next__()
            if years is None or found.year in years:
                return found
            later = [year for year in years if year > found.year]
            if not later:
                raise StopIteration
            self.dt = datetime(min(later), 1, 1) - timedelta(seconds=1)  # noqa: DTZ001  # a time on the wall


def _days(field: str) -> tuple[str, frozenset[int], frozenset[int]]:
    """The field of days without what cronsim does not know; the days whose nearest weekday is meant; those before the last."""
    plain: list[str] = []
    nearest: set[int] = set()
    before_last: set[int] = set()
    for term in field.split(","):
        if found := _NEAREST.fullmatch(term):
            nearest.add(_within(int(found[1]), 1, 31, "day-of-month"))
        elif found := _BEFORE_LAST.fullmatch(term):
            before_last.add(_within(int(found[1]), 1, 30, "day-of-month"))
        else:
            plain.append(term)
    return ",".join(plain), frozenset(nearest), frozenset(before_last)


def _nearest_weekday(year: int, month: int, day: int) -> int | None:
    """The weekday nearest to a day, in the same month; None if the month has no such day."""
    first, last = monthrange(year, month)
    if day > last:
        return None
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < last else day - 2
    return day


def _numbers(field: str, lowest: int, highest: int, name: str) -> frozenset[int]:
    """A field of plain numbers: ``*``, ``*/n``, ``a-b``, lists."""
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        width = _number(step, name) if "/" in part else 1
        if span == "*":
            low, high = lowest, highest
        elif "-" in span:
            low, high = (_number(end, name) for end in span.split("-", 1))
        else:
            low = _number(span, name)
            high = highest if "/" in part else low
        if width < 1 or not lowest <= low <= high <= highest:
            raise CronSimError(f"Bad {name}: it goes from {lowest} to {highest}")
        found.update(range(low, high + 1, width))
    return frozenset(found)


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 5):
        raise CronSimError(f"Bad {name}")
    return int(text)


def _within(value: int, lowest: int, highest: int, name: str) -> int:
    if not lowest <= value <= highest:
        raise CronSimError(f"Bad {name}")
    return value
