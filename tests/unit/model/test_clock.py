from __future__ import annotations

import threading
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.model.clock import Clock, DatabaseClock, ManualClock, SystemClock, require_aware
from ratchet.model.durations import format_duration, parse_duration, to_timedelta
from ratchet.model.errors import InvalidJob

START = datetime(2026, 1, 1, tzinfo=UTC)


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


class TestSystemClock:
    def test_tells_aware_time_in_utc(self) -> None:
        """The time is aware, in UTC, and monotonic time does not go back."""
        clock = SystemClock()
        assert clock.now().tzinfo is UTC
        assert clock.monotonic() <= clock.monotonic()

    @pytest.mark.parametrize("clock", [SystemClock(), ManualClock(), DatabaseClock()])
    def test_every_clock_is_a_clock(self, clock: object) -> None:
        """All three satisfy the protocol that the engine asks for."""
        assert isinstance(clock, Clock)


class TestManualClock:
    def test_stands_still_at_a_readable_start(self) -> None:
        """Without arguments it shows the first of January 2026, again and again."""
        clock = ManualClock()
        assert clock.now() == clock.now() == START
        assert repr(clock) == "ManualClock(2026-01-01T00:00:00+00:00)"

    def test_advance_moves_both_sides(self) -> None:
        """Letting time pass moves the time of day and the monotonic time by the same amount."""
        clock = ManualClock()
        before = clock.monotonic()
        assert clock.advance(timedelta(days=35)) == START + timedelta(days=35)
        clock.advance(0.5)
        assert clock.now() == START + timedelta(days=35, milliseconds=500)
        assert clock.monotonic() - before == timedelta(days=35, milliseconds=500).total_seconds()

    def test_set_is_a_step_of_the_wall_clock(self) -> None:
        """Setting the time, even back, lets no monotonic time pass."""
        clock = ManualClock()
        clock.set(datetime(2020, 6, 1, tzinfo=timezone(timedelta(hours=2))))
        assert clock.now() == datetime(2020, 5, 31, 22, tzinfo=UTC)
        assert clock.now().tzinfo is UTC
        assert clock.monotonic() == ManualClock().monotonic()

    def test_refuses_to_run_backwards(self) -> None:
        """Time that passes is not negative; a naive start has no meaning."""
        with pytest.raises(InvalidJob, match="negative"):
            ManualClock().advance(-1)
        with pytest.raises(InvalidJob, match="start"):
            ManualClock(datetime(2026, 1, 1))

    def test_threads_lose_no_step(self) -> None:
        """Steps made by several threads at once all count."""
        clock = ManualClock()

        def work() -> None:
            for _ in range(500):
                clock.advance(timedelta(microseconds=1))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert clock.now() == START + timedelta(microseconds=4000)


class TestDatabaseClock:
    def test_is_the_wall_clock_before_the_first_sample(self) -> None:
        """Without a sample the best guess is this machine's time, and no skew is claimed."""
        wall = ManualClock()
        clock = DatabaseClock(wall)
        wall.set(START + timedelta(days=1))
        assert clock.now() == START + timedelta(days=1)
        assert clock.skew == timedelta(0)
        assert not clock.sampled

    def test_first_sample_is_believed_to_its_middle(self) -> None:
        """The answer was given somewhere during the round trip: half of it has passed since."""
        clock = DatabaseClock(ManualClock())
        clock.sample(START + s(10), s(2))
        assert clock.sampled
        assert clock.now() == START + s(11)
        assert clock.skew == s(11)

    def test_runs_on_monotonic_time(self) -> None:
        """Between samples time passes as it does, whatever happens to the wall clock's time of day."""
        wall = ManualClock()
        clock = DatabaseClock(wall)
        clock.sample(START)
        wall.advance(3)
        wall.set(START - timedelta(days=1))
        assert clock.now() == START + s(3)
        assert clock.skew == timedelta(days=1, seconds=3)
        assert clock.monotonic() == wall.monotonic()

    def test_an_agreeing_sample_changes_nothing(self) -> None:
        """A slow answer that is compatible with the known time does not move it."""
        wall = ManualClock()
        clock = DatabaseClock(wall)
        clock.sample(START)
        wall.advance(10)
        clock.sample(START + s(1), s(9.5))
        assert clock.now() == START + s(10)

    def test_goes_back_by_what_the_sample_proves_and_no_more(self) -> None:
        """Time that was ahead goes back to the latest time that the sample allows."""
        wall = ManualClock()
        clock = DatabaseClock(wall)
        clock.sample(START + s(100))
        clock.sample(START + s(40), s(4))
        assert clock.now() == START + s(44)

    def test_goes_forward_to_the_earliest_possible_time(self) -> None:
        """Time that was behind goes forward to the earliest time that the sample allows."""
        clock = DatabaseClock(ManualClock())
        clock.sample(START)
        clock.sample(START + s(40), s(4))
        assert clock.now() == START + s(40)

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
    def test_is_always_within_the_last_sample(self, samples: list[tuple[int, int]]) -> None:
        """Right after any sample the time lies in the interval that the sample proves."""
        clock = DatabaseClock(ManualClock())
        for offset, width in samples:
            clock.sample(START + s(offset), s(width))
            assert START + s(offset) <= clock.now() <= START + s(offset + width)

    def test_a_negative_round_trip_counts_as_none(self) -> None:
        """A round trip measured across a clock step cannot turn the interval around."""
        clock = DatabaseClock(ManualClock())
        clock.sample(START + s(10), s(-5))
        assert clock.now() == START + s(10)

    def test_refuses_a_naive_sample(self) -> None:
        """A store that forgets the zone is a bug that must show at once."""
        with pytest.raises(InvalidJob, match="database time"):
            DatabaseClock().sample(datetime(2026, 1, 1))


class TestRequireAware:
    def test_returns_the_same_instant_in_utc(self) -> None:
        """Any zone is accepted and turned into UTC, microseconds included."""
        berlin = datetime(2026, 7, 1, 12, 0, 0, 123456, tzinfo=ZoneInfo("Europe/Berlin"))
        assert require_aware(berlin, "at") == berlin
        assert require_aware(berlin, "at").isoformat() == "2026-07-01T10:00:00.123456+00:00"

    def test_refuses_naive_times_and_shows_the_fix(self) -> None:
        """The message names the parameter, the value and how to write it."""
        with pytest.raises(InvalidJob, match=r"at is 2026-01-01 12:00:00 without a time zone.*tzinfo=UTC"):
            require_aware(datetime(2026, 1, 1, 12), "at")

    @pytest.mark.parametrize("value", [date(2026, 1, 1), "2026-01-01", 0, None])
    def test_refuses_what_is_no_datetime(self, value: Any) -> None:
        """A date, a text or a number is not a point in time."""
        with pytest.raises(InvalidJob, match="must be a datetime"):
            require_aware(value, "at")

    def test_refuses_times_that_utc_cannot_express(self) -> None:
        """The last moment of year 9999 west of Greenwich is refused, not an OverflowError."""
        with pytest.raises(InvalidJob, match="9999"):
            require_aware(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "at")

    def test_subclasses_become_plain(self) -> None:
        """Drivers pick their codec by exact type, so a subclass does not pass through."""

        class Special(datetime):
            pass

        moment = require_aware(Special(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC), "at")
        assert type(moment) is datetime
        assert moment == datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


class TestToTimedelta:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [(s(5), s(5)), (5, s(5)), (0.25, s(0.25)), (0, s(0)), (timedelta.max, timedelta.max)],
    )
    def test_accepts_timedeltas_and_seconds(self, value: Any, expected: timedelta) -> None:
        """A number counts seconds."""
        assert to_timedelta(value, "delay") == expected

    @pytest.mark.parametrize(
        "value", [True, "5", None, float("nan"), float("inf"), -float("inf"), 1e300, -1, s(-1)]
    )
    def test_refuses_everything_else_by_name(self, value: Any) -> None:
        """Bools, text, NaN, infinities, overflow and negatives are refused, and the parameter is named."""
        with pytest.raises(InvalidJob, match=r"^delay "):
            to_timedelta(value, "delay")

    def test_negatives_and_zero_depend_on_the_caller(self) -> None:
        """A caller may allow negatives, and may refuse zero."""
        assert to_timedelta(-1, "offset", negative=True) == s(-1)
        with pytest.raises(InvalidJob, match="longer than zero"):
            to_timedelta(0, "interval", zero=False)


class TestDurationTexts:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("30", s(30)),
            ("2.5", s(2.5)),
            ("500ms", s(0.5)),
            ("30s", s(30)),
            (" 5 m ", s(300)),
            ("5min", s(300)),
            ("1h30m", s(5400)),
            ("7d", timedelta(days=7)),
            ("2w", timedelta(days=14)),
            ("250us", timedelta(microseconds=250)),
        ],
    )
    def test_reads_units(self, text: str, expected: timedelta) -> None:
        """Seconds without a unit, or any sequence of numbers with units."""
        assert parse_duration(text) == expected

    @pytest.mark.parametrize(
        "text", ["", "s", "-5s", "5 parsecs", "1h-3m", "5s!", "nan", "1e3", "٣s", "9" * 400]
    )
    def test_refuses_other_texts(self, text: str) -> None:
        """Signs, unknown units, leftovers, foreign digits and overflow are refused."""
        with pytest.raises(ValueError, match=r"duration|longer"):
            parse_duration(text)

    @given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650)))
    def test_format_reads_back(self, value: timedelta) -> None:
        """What format_duration writes, parse_duration reads as the same duration."""
        assert parse_duration(format_duration(value)) == value

    def test_format_is_short(self) -> None:
        """Common durations look as a person would write them."""
        shown = [format_duration(v) for v in (s(0), s(2), s(0.1), s(90), timedelta(days=7), s(-5))]
        assert shown == ["0s", "2s", "100ms", "1m30s", "7d", "-5s"]
