"""Runs that take long: one line in the log, where it is asked for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from ratchet import JobStatus, Options
from ratchet.model.clock import ManualClock
from ratchet.testing import ManualScheduler

SECOND = timedelta(seconds=1)
looks: list[Callable[[], None]] = []


def work() -> str:
    """Takes as long as the test says, and is looked at after each part."""
    for look in looks:
        look()
    return "done"


def scheduler_with(*parts: float, slow: float | None = 60) -> ManualScheduler:
    """A scheduler whose `work` takes these seconds, one after the other."""
    scheduler = ManualScheduler(options=Options(slow_run_warning=slow))
    assert isinstance(scheduler.clock, ManualClock)
    clock = scheduler.clock

    def look_after(seconds: float) -> Callable[[], None]:
        def look() -> None:
            clock.advance(seconds * SECOND)
            scheduler._core.manual.assembly.watch.run_once(clock.now())

        return look

    looks[:] = [look_after(seconds) for seconds in parts]
    return scheduler


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "is slow" in record.getMessage()]


def test_one_line_names_job_target_and_time(caplog: pytest.LogCaptureFixture) -> None:
    """However often the watch looks, a run is named once; it goes on, and succeeds."""
    scheduler = scheduler_with(59, 2, 30)
    handle = scheduler.enqueue_now(work)
    scheduler.drain()
    assert lines(caplog) == [
        f"job {handle.id} ({__name__}:work) is slow: attempt 1 has been running for 1m1s"
    ]
    assert handle.status() is JobStatus.SUCCEEDED


def test_each_run_has_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """What was said of one run does not silence the next one."""
    scheduler = scheduler_with(61)
    for _ in range(3):
        scheduler.enqueue_now(work)
        scheduler.drain()
    assert len(lines(caplog)) == 3


def test_most_of_the_timeout_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    """A run near its timeout is named before it is stopped, however long the option is."""
    scheduler = scheduler_with(7.9, 0.2)
    scheduler.enqueue(work).with_timeout(10 * SECOND).immediate().submit()
    scheduler.drain()
    assert [line.partition("attempt 1 ")[2] for line in lines(caplog)] == [
        "has been running for 8.1s, and its timeout is 10s"
    ]


@pytest.mark.parametrize(("slow", "seconds"), [(None, 7200), (60, 59)], ids=["off", "quick"])
def test_nothing_is_said(caplog: pytest.LogCaptureFixture, slow: float | None, seconds: float) -> None:
    """By default no run is slow, and with the option no quick one is."""
    scheduler = scheduler_with(seconds, slow=slow)
    scheduler.enqueue_now(work)
    scheduler.drain()
    assert lines(caplog) == []
