"""Rates over time on every store: what flowed in each minute, and what waited."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import InvalidJob, ManualClock, Scheduler
from ratchet.model.flow_history import MINUTE, floor
from ratchet.testing import ManualScheduler


def greet(name: str) -> str:
    return f"hello {name}"


def fail() -> None:
    raise ValueError("no")


def to_minute(clock: ManualClock, minutes: int = 1, seconds: float = 16) -> None:
    """Go on to a time in a later minute at which every earlier one is stored."""
    now = clock.now()
    clock.advance(floor(now, MINUTE) + minutes * MINUTE + timedelta(seconds=seconds) - now)


def test_an_hour_and_a_day(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """Minutes of the last hour, by queue and for all; hours later they are merged, and no run is lost or counted twice."""
    to_minute(clock)
    scheduler.drain()
    begin = floor(clock.now(), MINUTE)
    for name in ("ann", "bob"):
        scheduler.enqueue(greet, name).with_queue("emails").submit()
    scheduler.enqueue(fail).submit()
    clock.advance(5)
    scheduler.drain()
    scheduler.queues.pause("emails")
    scheduler.enqueue(greet, "eve").with_queue("emails").submit()
    to_minute(clock)
    scheduler.drain()
    to_minute(clock)
    found = {point.at: point for point in scheduler.jobs.history(timedelta(minutes=10))}
    assert list(found) == sorted(found)
    first, second = found[begin], found[begin + MINUTE]
    assert (first.started, first.succeeded, first.failed, first.span) == (3, 2, 1, MINUTE)
    assert first.wait.p50 is not None
    assert timedelta(seconds=5) <= first.wait.p50 <= timedelta(seconds=6)
    assert (second.started, second.depth) == (0, 1)
    assert second.oldest_wait is not None
    emails = {point.at: point for point in scheduler.jobs.history(queue="emails")}
    assert (emails[begin].succeeded, emails[begin].failed, emails[begin + MINUTE].depth) == (2, 0, 1)
    each = scheduler.jobs.history(each_queue=True)
    assert {(point.queue, point.succeeded) for point in each if point.at == begin} >= {
        ("default", 0),
        ("emails", 2),
    }
    scheduler.queues.resume("emails")
    for _ in range(3):
        to_minute(clock, minutes=120)
        scheduler.enqueue(greet, "zoe").submit()
        scheduler.drain()
    to_minute(clock)
    scheduler.drain()
    to_minute(clock)
    day = scheduler.jobs.history(timedelta(days=1))
    assert sum(point.started for point in day) == sum(point.succeeded + point.failed for point in day) == 7
    assert {point.span for point in day[:-1]} == {timedelta(minutes=30)}
    hours = scheduler.jobs.history(timedelta(days=1), step=timedelta(hours=1))
    assert sum(point.started for point in hours) == 7


def test_another_process_sees_it(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """What a node has counted is in the store when it stops, and not in its memory alone."""
    to_minute(clock)
    scheduler.enqueue_now(greet, "ann")
    scheduler.drain()
    store, now = scheduler._core.store, clock.now()
    assert not [one for one in store.flow(since=now - timedelta(hours=1), until=now + MINUTE) if one.runs]
    scheduler._core.manual.close()
    (period,) = [one for one in store.flow(since=now - timedelta(hours=1), until=now + MINUTE) if one.runs]
    assert period.runs["default"].succeeded == 1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"window": 0}, "window"),
        ({"window": "1h"}, "window"),
        ({"step": 0}, "step"),
        ({"step": 90}, "whole number of minutes"),
        ({"queue": 3}, "queue"),
        ({"window": timedelta(hours=6), "step": 60}, "multiple of 10 minutes"),
        ({"window": timedelta(days=30), "step": 600}, "longer step"),
        ({"queue": "a", "each_queue": True}, "not both"),
    ],
)
def test_nonsense(scheduler: ManualScheduler, asked: dict[str, object], words: str) -> None:
    """It is refused with what was given and what to do."""
    with pytest.raises(InvalidJob, match=words):
        scheduler.jobs.history(**asked)  # type: ignore[arg-type]  # that is the point


def test_a_real_node(scheduler: ManualScheduler) -> None:
    """A node with threads stores what it did when it stops."""
    store = scheduler._core.store
    running = Scheduler(store=store, allow=[__name__])
    running.start()
    running.enqueue(greet, "ann").submit().result(timeout=30)
    running.stop()
    now = running._core.now()
    found = store.flow(since=now - timedelta(hours=1), until=now + MINUTE)
    assert sum(one.runs["default"].succeeded for one in found if one.runs) == 1
