"""Timetables: cron, intervals, zones, and the two days a year on which clocks are moved."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, takewhile
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim

from ratchet.engine.recurring import GRACE, plan, run_spec
from ratchet.engine.timetable import CronTable, fire_times, next_fire, timetable
from ratchet.model.composition import ScheduleSpec
from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobSpec
from ratchet.model.status import JobType

TEMPLATE = '{"job_id":"00000000-0000-0000-0000-000000000000","target":"t","payload":"{}","scheduled_at":"1970-01-01T00:00:00Z"}'


def at(text: str) -> datetime:
    """A time in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def until(end: datetime, times: Iterator[datetime]) -> list[datetime]:
    """The fire times before *end*."""
    return list(takewhile(lambda fire: fire < end, times))


def spec(expression: str = "*/30 * * * *", zone: str = "UTC", **more: object) -> ScheduleSpec:
    given = {"name": "s", "expression": expression, "zone": zone, "target": "t", "template": TEMPLATE}
    return ScheduleSpec(**(given | more))  # type: ignore[arg-type]


def fires(expression: str, zone: str, after: str, count: int) -> list[str]:
    found = islice(CronTable(expression, zone).after(at(after)), count)
    return [f"{fire:%m-%d %H:%M:%S}" for fire in found]


@dataclass(frozen=True)
class Clocks:
    """
    What one zone does in 2026, worked out by hand from the rules of its government.

    *gap*: a time on the wall that does not exist, and the instant (UTC) at which its gap ends.
    *twice*: a time on the wall that comes twice, and the instant of its first coming.
    """

    zone: str
    gap: str
    gap_ends: str
    twice: str
    first: str
    moved: timedelta = timedelta(hours=1)


GOLDEN = [
    # the Union changes everywhere at 01:00 UTC, on the last Sundays of March and October
    Clocks("Europe/Berlin", "03-29 02:30", "03-29 01:00", "10-25 02:30", "10-25 00:30"),
    Clocks("Europe/London", "03-29 01:30", "03-29 01:00", "10-25 01:30", "10-25 00:30"),
    Clocks("Europe/Dublin", "03-29 01:30", "03-29 01:00", "10-25 01:30", "10-25 00:30"),
    Clocks("Europe/Lisbon", "03-29 01:30", "03-29 01:00", "10-25 01:30", "10-25 00:30"),
    Clocks("Europe/Athens", "03-29 03:30", "03-29 01:00", "10-25 03:30", "10-25 00:30"),
    Clocks("Atlantic/Azores", "03-29 00:30", "03-29 01:00", "10-25 00:30", "10-25 00:30"),
    # North America at 02:00 local time, on the second Sunday of March and the first of November
    Clocks("America/New_York", "03-08 02:30", "03-08 07:00", "11-01 01:30", "11-01 05:30"),
    Clocks("America/Chicago", "03-08 02:30", "03-08 08:00", "11-01 01:30", "11-01 06:30"),
    Clocks("America/Denver", "03-08 02:30", "03-08 09:00", "11-01 01:30", "11-01 07:30"),
    Clocks("America/Los_Angeles", "03-08 02:30", "03-08 10:00", "11-01 01:30", "11-01 08:30"),
    Clocks("America/Halifax", "03-08 02:30", "03-08 06:00", "11-01 01:30", "11-01 04:30"),
    Clocks("America/St_Johns", "03-08 02:30", "03-08 05:30", "11-01 01:30", "11-01 04:00"),
    # at midnight: the day begins at one o'clock, or its last hour comes twice
    Clocks("America/Havana", "03-08 00:30", "03-08 05:00", "11-01 00:30", "11-01 04:30"),
    Clocks("America/Santiago", "09-06 00:30", "09-06 04:00", "04-04 23:30", "04-05 02:30"),
    Clocks("Africa/Cairo", "04-24 00:30", "04-23 22:00", "10-29 23:30", "10-29 20:30"),
    Clocks("Asia/Beirut", "03-29 00:30", "03-28 22:00", "10-24 23:30", "10-24 20:30"),
    Clocks("Asia/Jerusalem", "03-27 02:30", "03-27 00:00", "10-25 01:30", "10-24 22:30"),
    # the south, the other way round
    Clocks("Australia/Sydney", "10-04 02:30", "10-03 16:00", "04-05 02:30", "04-04 15:30"),
    Clocks("Pacific/Auckland", "09-27 02:30", "09-26 14:00", "04-05 02:30", "04-04 13:30"),
    # odd ones: three quarters of an hour off, half an hour moved, two hours moved
    Clocks("Pacific/Chatham", "09-27 03:00", "09-26 14:00", "04-05 03:00", "04-04 13:15"),
    Clocks(
        "Australia/Lord_Howe",
        "10-04 02:15",
        "10-03 15:30",
        "04-05 01:45",
        "04-04 14:45",
        timedelta(minutes=30),
    ),
    Clocks(
        "Antarctica/Troll", "03-29 02:00", "03-29 01:00", "10-25 02:30", "10-25 00:30", timedelta(hours=2)
    ),
]


def daily(wall: str) -> str:
    """The expression of a fixed time, every day."""
    hour, minute = wall.split()[1].split(":")
    return f"{int(minute)} {int(hour)} * * *"


def day_of(clocks: Clocks, wall: str) -> tuple[datetime, datetime]:
    """Begin and end of the local day on which *wall* lies."""
    begin = datetime.fromisoformat(f"2026-{wall.split()[0]}T12:00").replace(tzinfo=ZoneInfo(clocks.zone))
    midnight = begin.replace(hour=0)
    return midnight.astimezone(UTC), (midnight + timedelta(days=1)).astimezone(UTC)


@pytest.mark.parametrize("clocks", GOLDEN, ids=lambda clocks: clocks.zone)
class TestClockChanges:
    def test_a_fixed_time_in_the_gap_fires_once_after_it(self, clocks: Clocks) -> None:
        """On the day it does not exist it fires at the end of the gap; the day after, as usual."""
        ends = at(f"2026-{clocks.gap_ends}")
        found = list(islice(CronTable(daily(clocks.gap), clocks.zone).after(ends - timedelta(hours=12)), 2))
        assert found[0] == ends
        usual = found[1].astimezone(ZoneInfo(clocks.zone))
        assert f"{usual:%H:%M}" == clocks.gap.split()[1]
        assert found[1] - ends < timedelta(hours=25)

    def test_with_seconds_too(self, clocks: Clocks) -> None:
        """Asked in the very second in which the gap has ended, its fire time is still to come."""
        ends = at(f"2026-{clocks.gap_ends}")
        table = CronTable(f"15 {daily(clocks.gap)}", clocks.zone)
        for earlier in (timedelta(hours=12), timedelta(seconds=1), timedelta(seconds=-10)):
            assert next(table.after(ends - earlier)) == ends + timedelta(seconds=15)
        assert next(table.after(ends + timedelta(seconds=15))) > ends + timedelta(hours=20)

    def test_a_fixed_time_that_comes_twice_fires_the_first_time(self, clocks: Clocks) -> None:
        """Neither the second coming nor a question asked between the two makes it fire again."""
        first = at(f"2026-{clocks.first}")
        table = CronTable(daily(clocks.twice), clocks.zone)
        before, found, later = islice(table.after(first - timedelta(hours=30)), 3)
        assert found == first
        assert timedelta(hours=21) < first - before < timedelta(hours=27)
        assert timedelta(hours=21) < later - first < timedelta(hours=27)
        assert next(table.after(first)) == later
        assert next(table.after(first + timedelta(minutes=20))) == later

    def test_five_minutes_are_five_minutes(self, clocks: Clocks) -> None:
        """A repeating schedule has as many fire times as the day has minutes, and always five between them."""
        for wall, moved in ((clocks.gap, -clocks.moved), (clocks.twice, clocks.moved)):
            begin, end = day_of(clocks, wall)
            found = until(end, CronTable("*/5 * * * *", clocks.zone).after(begin))
            assert end - begin == timedelta(hours=24) + moved
            assert len(found) == (timedelta(hours=24) + moved) // timedelta(minutes=5) - 1
            assert {b - a for a, b in pairwise(found)} == {timedelta(minutes=5)}

    def test_a_repeating_schedule_follows_the_wall(self, clocks: Clocks) -> None:
        """Within one hour, on one weekday, on both days: what a look at the clock each minute would find."""
        zone = ZoneInfo(clocks.zone)
        for wall in (clocks.gap, clocks.twice):
            begin, end = day_of(clocks, wall)
            for expression in ("*/10 2 * * *", "*/20 0 * * SUN,SAT", "*/20 1-3 * * SUN", "0 */2 * * *"):
                fields = CronSim(expression, datetime(2026, 1, 1))
                minutes = (
                    begin + timedelta(minutes=n) for n in range(1, (end - begin) // timedelta(minutes=1))
                )
                wanted = [
                    minute
                    for minute in minutes
                    if (local := minute.astimezone(zone)).minute in fields.minutes
                    and local.hour in fields.hours
                    and fields.match_day(local.date())
                ]
                table = CronTable(expression, clocks.zone)
                assert until(end, table.after(begin)) == wanted, expression

    @pytest.mark.parametrize(
        ("misfire", "kept"), [("skip", 0), ("fire_once", 1), ("catch_up:5", 5), ("catch_up:50", 12)]
    )
    def test_an_outage_over_the_change(self, clocks: Clocks, misfire: str, kept: int) -> None:
        """Six hours are six hours: twelve half-hours were missed, of which the policy runs the latest."""
        for change in (clocks.gap_ends, clocks.first):
            now = at(f"2026-{change}") + timedelta(hours=3, minutes=7)
            schedule = spec(zone=clocks.zone, misfire=misfire)
            begin = now - timedelta(hours=6)
            due = until(now, fire_times(schedule, begin, begin))
            planned = plan(schedule, due, now, _run)
            assert len(planned) == 12
            assert [fire.spec is not None for fire in planned] == [False] * (12 - kept) + [True] * kept
            assert {fire.reason for fire in planned if fire.spec is None} <= {"misfire"}


def _run(schedule: ScheduleSpec, fire_at: datetime) -> JobSpec:
    return run_spec(schedule, fire_at, lambda: UUID(int=1))


class TestMisfire:
    @pytest.mark.parametrize(
        ("misfire", "expected"),
        [("skip", "..R"), ("fire_once", "..R"), ("catch_up:1", ".RR"), ("catch_up:11", "RRR")],
    )
    def test_one_that_is_on_time_runs_whatever_was_missed(self, misfire: str, expected: str) -> None:
        """Two were missed, the third is due now: it makes up for the others where one run does."""
        due = [at("2026-01-01 00:00"), at("2026-01-01 00:30"), at("2026-01-01 01:00")]
        planned = plan(spec(misfire=misfire), due, due[-1] + GRACE, _run)
        assert "".join("R" if fire.spec is not None else "." for fire in planned) == expected

    def test_the_grace(self) -> None:
        """Five seconds late is on time; a microsecond more is a misfire."""
        due = [at("2026-01-01 00:00")]
        assert plan(spec(misfire="skip"), due, due[0] + GRACE, _run)[0].spec is not None
        late = due[0] + GRACE + timedelta(microseconds=1)
        assert plan(spec(misfire="skip"), due, late, _run)[0].reason == "misfire"


class TestCron:
    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("@hourly", ["01-01 01:00:00", "01-01 02:00:00"]),
            ("@daily", ["01-02 00:00:00", "01-03 00:00:00"]),
            ("@midnight", ["01-02 00:00:00", "01-03 00:00:00"]),
            ("@weekly", ["01-04 00:00:00", "01-11 00:00:00"]),
            ("@monthly", ["02-01 00:00:00", "03-01 00:00:00"]),
            ("@yearly", ["01-01 00:00:00", "01-01 00:00:00"]),
            ("0 9 * * MON-FRI", ["01-01 09:00:00", "01-02 09:00:00", "01-05 09:00:00"]),
            ("0 0 31 * *", ["01-31 00:00:00", "03-31 00:00:00"]),
            ("0 0 L * *", ["01-31 00:00:00", "02-28 00:00:00"]),
            ("0 0 13 * FRI", ["01-02 00:00:00", "01-09 00:00:00", "01-13 00:00:00"]),
            ("*/20 * * * * *", ["01-01 00:00:20", "01-01 00:00:40", "01-01 00:01:00"]),
            ("10-12,50 0 6 * * *", ["01-01 06:00:10", "01-01 06:00:11", "01-01 06:00:12", "01-01 06:00:50"]),
            ("5/25 * * * * *", ["01-01 00:00:05", "01-01 00:00:30", "01-01 00:00:55", "01-01 00:01:05"]),
        ],
    )
    def test_expressions(self, expression: str, expected: list[str]) -> None:
        """Five fields, six with seconds first, names and aliases; days of month OR week, as cron has it."""
        assert fires(expression, "UTC", "2026-01-01 00:00", len(expected)) == expected

    def test_29_february(self) -> None:
        """A day that comes every four years is found; one that never comes ends the timetable."""
        leap = CronTable("0 0 29 2 *", "UTC").after(at("2026-01-01"))
        assert [fire.year for fire in islice(leap, 2)] == [2028, 2032]
        with pytest.raises(InvalidJob):
            CronTable("0 0 30 2 *", "UTC")

    @pytest.mark.parametrize(
        ("expression", "zone"),
        [
            ("", "UTC"),
            ("* * * *", "UTC"),
            ("* * * * * * * *", "UTC"),
            ("0 0 0 1 1 * 1969", "UTC"),
            ("0 0 0 1 1 * 2026-2025", "UTC"),
            ("0 0 0 1 1 * x", "UTC"),
            ("0 0 ? * ?", "UTC"),
            ("? 0 * * *", "UTC"),
            ("0 0 32W * *", "UTC"),
            ("0 0 0W * *", "UTC"),
            ("0 0 W * *", "UTC"),
            ("0 0 L-31 * *", "UTC"),
            ("0 0 * * L", "UTC"),
            ("0 0 * * MON#6", "UTC"),
            ("every 99999999999d", "UTC"),
            ("61 * * * *", "UTC"),
            ("60 * * * * *", "UTC"),
            ("*/0 * * * * *", "UTC"),
            ("a * * * * *", "UTC"),
            ("@fortnightly", "UTC"),
            ("* * * * *", "Mars/Olympus"),
            ("* * * * *", "../etc/passwd"),
            ("every 0s", "UTC"),
            ("every now and then", "UTC"),
        ],
    )
    def test_what_is_no_timetable_is_refused(self, expression: str, zone: str) -> None:
        """With a message, when the schedule is made and not when it should fire."""
        with pytest.raises(InvalidJob):
            timetable(expression, zone, at("2026-01-01"))


class TestIntervals:
    def test_they_are_counted_from_the_start(self) -> None:
        """Not from the last run: a late node does not push the next ones back, and DST means nothing."""
        schedule = spec("every 90m", "Europe/Berlin")
        anchor = at("2026-03-28 23:10")
        found = islice(fire_times(schedule, at("2026-03-29 00:30"), anchor), 3)
        assert [f"{fire:%H:%M}" for fire in found] == ["00:40", "02:10", "03:40"]

    def test_start_and_end(self) -> None:
        """The first is at the start, the last at the end or before; then there is none."""
        schedule = spec("every 30m", starts_at=at("2026-01-01 10:00"), ends_at=at("2026-01-01 11:10"))
        found = fire_times(schedule, at("2026-01-01 00:00"), at("2025-12-31 23:59"))
        assert [f"{fire:%H:%M}" for fire in found] == ["10:00", "10:30", "11:00"]
        assert next_fire(schedule, at("2026-01-01 11:00"), at("2025-12-31 23:59")) is None

    def test_a_cron_time_at_start_and_end_counts(self) -> None:
        """Both limits belong to the schedule."""
        schedule = spec("0 * * * *", starts_at=at("2026-01-01 10:00"), ends_at=at("2026-01-01 12:00"))
        found = fire_times(schedule, at("2026-01-01 00:00"), at("2026-01-01 00:00"))
        assert [f"{fire:%H:%M}" for fire in found] == ["10:00", "11:00", "12:00"]


class TestRuns:
    def test_jitter_is_the_same_on_every_node(self) -> None:
        """A fire time's run is delayed by less than the jitter, by as much whoever fires it, and not always the same."""
        schedule = spec(jitter=timedelta(minutes=10))
        times = [at("2026-01-01") + n * timedelta(minutes=30) for n in range(50)]
        delays = [_run(schedule, fire).scheduled_at - fire for fire in times]
        assert delays == [_run(schedule, fire).scheduled_at - fire for fire in times]
        assert all(timedelta() <= delay < timedelta(minutes=10) for delay in delays)
        assert len(set(delays)) == 50

    def test_a_run_is_made_from_the_template(self) -> None:
        """It is an ordinary job with the schedule's name, due at its fire time."""
        run = _run(spec(), at("2026-01-01 00:30"))
        assert (run.type, run.schedule, run.scheduled_at) == (
            JobType.RECURRING_RUN,
            "s",
            at("2026-01-01 00:30"),
        )


@dataclass(frozen=True)
class Fires:
    """An expression and the days of 2026 to 2029 on which it fires first, read from a calendar."""

    expression: str
    expected: str
    after: str = "2026-01-01"


#: In 2026, January 1 is a Thursday. Saturdays that begin a month: August 1. Sundays that end one: May 31.
FIELDS = [
    # ? stands for any day, where the other field says which
    Fires("0 0 ? * MON", "01-05 01-12 01-19"),
    Fires("0 0 15 * ?", "01-15 02-15 03-15"),
    Fires("0 0 12 ? * WED", "01-07 01-14 01-21"),
    # the last day, and days before it
    Fires("0 0 L * *", "01-31 02-28 03-31 04-30"),
    Fires("0 0 L 2 ?", "2026-02-28 2027-02-28 2028-02-29"),
    Fires("0 0 L-2 * *", "01-29 02-26 03-29"),
    Fires("0 0 L-30 * ?", "03-01 05-01 07-01", after="2026-01-02"),
    Fires("0 0 1,L-1 * ?", "01-30 02-01 02-27 03-01", after="2026-01-02"),
    # the last weekday of the month
    Fires("0 0 LW * ?", "01-30 02-27 03-31 04-30 05-29"),
    # the weekday nearest to a day, in the same month
    Fires("0 0 15W * ?", "01-15 02-16 03-16 04-15 05-15 06-15 07-15 08-14"),
    Fires("0 0 1W 8 ?", "2026-08-03 2027-08-02 2028-08-01"),
    Fires("0 0 31W 5 ?", "2026-05-29 2027-05-31 2028-05-31"),
    Fires("0 0 31W * ?", "01-30 03-31 05-29 07-31"),
    Fires("0 0 1W,15W * ?", "01-15 02-02 02-16 03-02", after="2026-01-02"),
    Fires("0 0 10,15W 2 ?", "2026-02-10 2026-02-16 2027-02-10 2027-02-15"),
    # weekdays by their number within the month; 0 and 7 are Sunday
    Fires("0 0 * * 5#3", "01-16 02-20 03-20"),
    Fires("0 0 ? * FRI#3", "01-16 02-20 03-20"),
    Fires("0 0 ? * 7#1", "01-04 02-01 03-01"),
    Fires("0 0 ? * MON#5", "03-30 06-29 08-31"),
    Fires("0 0 ? * MON#1,MON#3", "01-05 01-19 02-02"),
    # the last of its kind
    Fires("0 0 * * 5L", "01-30 02-27 03-27"),
    Fires("0 0 ? * FRIL", "01-30 02-27 03-27"),
    Fires("0 0 ? * SUNL", "01-25 02-22 03-29"),
    # years: at the end of seven fields, or of six if it cannot be a weekday
    Fires("0 0 0 1 1 ? 2028", "2028-01-01"),
    Fires("0 0 1 1 ? 2028-2030", "2028-01-01 2029-01-01 2030-01-01"),
    Fires("0 0 0 29 2 ? 2026/2", "2028-02-29 2032-02-29"),
    Fires("0 0 1 7 * 2027,2029", "2027-07-01 2029-07-01"),
    Fires("0 0 0 1 1 ? *", "2027-01-01 2028-01-01"),
    Fires("0 0 0 1 1 ? 2020", ""),
    # names in any case, and both days with L and W in one expression
    Fires("0 0 l jan,jul ?", "01-31 07-31"),
    Fires("0 0 LW * fri", "01-02 01-09 01-16 01-23 01-30", after="2026-01-01"),
]


class TestFields:
    @pytest.mark.parametrize("case", FIELDS, ids=lambda case: case.expression)
    def test_days_and_years(self, case: Fires) -> None:
        """Each expression fires on the days that the calendar says, at midnight or noon, and not between."""
        after = at(case.after)
        wanted = case.expected.split()
        found = list(islice(CronTable(case.expression, "UTC").after(after), len(wanted) or 1))
        shown = [f"{fire:%Y-%m-%d}" for fire in found]
        assert shown == [day if len(day) > 5 else f"2026-{day}" for day in wanted]

    @pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe"])
    @pytest.mark.parametrize("fields", ["* * ?", "L * ?", "15W * ?", "? * FRI#3", "L-3,1W * MON"])
    @pytest.mark.parametrize("times", ["30 2", "0 0", "*/30 *"])
    def test_every_day_of_a_year(self, times: str, fields: str, zone: str) -> None:
        """No day is missed or added, also where clocks change: each day of the year is asked by itself."""
        day, _, weekday = fields.split()
        table = CronTable(f"{times} {fields}", zone)
        start, end = at("2026-01-01"), at("2027-01-01")
        found = until(end, table.after(start))
        days = {fire.astimezone(ZoneInfo(zone)).date() for fire in found}
        assert found == sorted(set(found))
        assert days <= {one for one in _days_of(2025, 2027) if _is_meant(one, day, weekday)}
        expected = {one for one in _days_of(2026, 2026) if _is_meant(one, day, weekday)}
        # the first and the last day may lie outside of the year in UTC
        assert {one for one in expected if not _is_edge(one)} <= days

    def test_the_days_when_clocks_change(self) -> None:
        """The last Sunday of March at half past two does not exist in Berlin: the end of the gap stands for it."""
        assert fires("30 2 ? 3 SUNL", "Europe/Berlin", "2026-01-01", 1) == ["03-29 01:00:00"]
        assert fires("30 2 ? 10 SUNL", "Europe/Berlin", "2026-01-01", 1) == ["10-25 00:30:00"]
        assert fires("30 2 ? 3 SUNL 2026", "Europe/Berlin", "2026-01-01", 2) == ["03-29 01:00:00"]

    @pytest.mark.parametrize(
        ("expression", "says"),
        [
            ("every day", "@daily"),
            ("every night", "@daily"),
            ("every hour", "every 1h"),
            ("every minute", r"\* \* \* \* \*"),
            ("every week", "@weekly"),
            ("every month", "@monthly"),
            ("every monday", "MON"),
            ("every weekday at 9", "MON-FRI"),
            ("Every Day", "@daily"),
            ("every", "every 30s"),
            ("every 5 bananas", "every 30s"),
            ("daily", "'@daily'"),
        ],
    )
    def test_words_are_answered_with_what_to_write(self, expression: str, says: str) -> None:
        """Whoever writes English is told the expression."""
        with pytest.raises(InvalidJob, match=says):
            timetable(expression, "UTC", at("2026-01-01"))

    def test_an_interval_beyond_the_calendar_ends(self) -> None:
        """The year 9999 is the last one: an interval that leads beyond it fires no more."""
        table = timetable("every 99999999d", "UTC", at("2026-01-01"))
        assert list(table.after(at("2026-01-02"))) == []


def _days_of(first: int, last: int) -> list[date]:
    begin = date(first, 1, 1)
    return [begin + timedelta(days=n) for n in range((date(last + 1, 1, 1) - begin).days)]


def _is_edge(day: date) -> bool:
    return (day.month, day.day) in ((1, 1), (12, 31))


def _is_meant(day: date, days: str, weekday: str) -> bool:
    """Read off the calendar, without cronsim: does this day match?"""
    last = monthrange(day.year, day.month)[1]
    by_day = any(_is_day(day, term, last) for term in days.split(","))
    by_weekday = {"?": True, "MON": day.weekday() == 0, "FRI#3": day.weekday() == 4 and 15 <= day.day <= 21}[
        weekday
    ]
    return by_day and by_weekday if "?" in (days, weekday) or "*" in (days, weekday) else by_day or by_weekday


def _is_day(day: date, term: str, last: int) -> bool:
    if term in ("*", "?"):
        return True
    if term == "L":
        return day.day == last
    if term.startswith("L-"):
        return day.day == last - int(term[2:])
    wanted = date(day.year, day.month, int(term.removesuffix("W")))
    days = [date(day.year, day.month, number) for number in range(1, last + 1)]
    weekdays = [one for one in days if one.weekday() < 5]
    return day == min(weekdays, key=lambda one: (abs((one - wanted).days), one))
