"""Dead letters that are purged at the times of a cron expression."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ratchet import ConfigurationError, JobFilter, Options
from ratchet.engine import maintenance
from ratchet.model.clock import ManualClock
from ratchet.testing import ManualScheduler
from tests.integration.option_effects import node_of

AFTERNOON = datetime(2026, 5, 4, 15, 0, tzinfo=UTC)


def fail() -> None:
    raise ValueError("no")


def note() -> None: ...


@pytest.fixture
def scheduler() -> ManualScheduler:
    """Failed jobs are old enough after an hour, others after two, and the purge is at three in the morning."""
    options = Options(
        retention=timedelta(hours=2),
        dead_letter_retention=timedelta(hours=1),
        dead_letter_purge_cron="0 3 * * *",
    )
    return ManualScheduler(clock=ManualClock(AFTERNOON), options=options)


def left(scheduler: ManualScheduler) -> int:
    return scheduler.jobs.count(JobFilter(include_archived=False))


def keep_house(scheduler: ManualScheduler, until: datetime, step: timedelta = timedelta(minutes=1)) -> None:
    clock = scheduler.clock
    assert isinstance(clock, ManualClock)
    while clock.now() < until:
        clock.advance(min(step, until - clock.now()))
        node_of(scheduler).assembly.housekeeping.run_once(clock.now())


def test_they_stay_until_the_hour_and_go_then(scheduler: ManualScheduler) -> None:
    """Other jobs go when they are old enough; failed ones wait for the fire time, and go in the round after it."""
    scheduler.enqueue_now(fail)
    scheduler.enqueue_now(note)
    scheduler.drain()
    keep_house(scheduler, AFTERNOON + timedelta(hours=11, minutes=58))
    assert left(scheduler) == 1
    keep_house(scheduler, AFTERNOON + timedelta(hours=12, minutes=1))
    assert left(scheduler) == 0
    scheduler.enqueue_now(fail)
    scheduler.drain()
    keep_house(scheduler, AFTERNOON + timedelta(hours=35))
    assert left(scheduler) == 1
    keep_house(scheduler, AFTERNOON + timedelta(hours=37))
    assert left(scheduler) == 0


def test_more_than_a_round_takes(scheduler: ManualScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one round does not manage, the next ones do, although the fire time is over."""
    monkeypatch.setattr(maintenance, "BATCH", 5)
    monkeypatch.setattr(maintenance, "ROUNDS", 2)
    scheduler.enqueue_many(fail, [()] * 13)
    scheduler.drain()
    keep_house(scheduler, AFTERNOON + timedelta(hours=12))
    assert left(scheduler) == 3
    keep_house(scheduler, AFTERNOON + timedelta(hours=12, minutes=5))
    assert left(scheduler) == 0


def test_what_is_no_cron_expression(caplog: pytest.LogCaptureFixture) -> None:
    """A node does not start, and the error names the option and what was written."""
    scheduler = ManualScheduler(options=Options(dead_letter_purge_cron="at night"))
    with pytest.raises(ConfigurationError, match=r"dead_letter_purge_cron.*at night"):
        scheduler.drain()
