"""Many failures of few causes: what the people who are told about them see, on every store."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from ratchet import JobDeadLettered, ManualClock, Scheduler
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores

JOBS = 60


def declined(number: int) -> None:
    raise ValueError(f"order {number} was declined")


def unreachable(number: int) -> None:
    if number % 2:
        raise ConnectionError(f"no way to host {number}")
    raise TimeoutError(f"no answer for {number}")


def of_three_causes(scheduler: Scheduler, count: int) -> None:
    """Jobs that fail for good: half of them with one error, the others with one of two."""
    calls = [((declined, unreachable)[n % 4 > 1], n) for n in range(count)]
    scheduler.submit_all(scheduler.enqueue(target, n).with_max_retries(0) for target, n in calls)


def test_three_causes_are_three_alerts(
    stores: Stores, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Three groups in the summary, three alerts that count every failure, three calls of the alert function and three ERROR
    lines. Each dead letter has a line, and names the alert that counted it.
    """
    told: list[JobDeadLettered] = []
    scheduler = ManualScheduler(store=stores.open(), clock=clock, alert=told.append)
    caplog.set_level(logging.WARNING, "ratchet.engine")
    of_three_causes(scheduler, JOBS)
    scheduler.drain()
    causes = {
        (f"{__name__}:declined", "ValueError", JOBS // 2),
        (f"{__name__}:unreachable", "ConnectionError", JOBS // 4),
        (f"{__name__}:unreachable", "TimeoutError", JOBS // 4),
    }
    groups = scheduler.dead_letters.summary()
    assert {(one.target, one.error_type, one.count) for one in groups} == causes
    alerts = {one.job_id: one for one in scheduler.dead_letters.alerts()}
    assert {(one.target, one.error_type, alerts[one.job_id].count) for one in told} == causes
    assert len(told) == len(alerts) == 3
    lines = [record for record in caplog.records if "is a dead letter" in record.getMessage()]
    assert (len(lines), sum(record.levelno == logging.ERROR for record in lines)) == (JOBS, 3)
    for letter in scheduler.dead_letters.find(limit=JOBS):
        (alert,) = letter.alerts
        assert (alert.target, str(alert.error).split(":")[0]) == (letter.target, letter.error_type)
    scheduler.close()


def test_the_next_hour(stores: Stores, clock: ManualClock) -> None:
    """A cause that goes on is told again when an hour has passed, by a node that knows nothing of the first alert."""
    told: list[JobDeadLettered] = []
    for hour in range(2):
        for minute in (0, 30):
            scheduler = ManualScheduler(store=stores.open(), clock=clock, alert=told.append)
            scheduler.enqueue(declined, hour).with_max_retries(0).submit()
            scheduler.drain()
            scheduler.close()
            clock.advance(timedelta(minutes=30, seconds=minute))
        assert len(told) == hour + 1
