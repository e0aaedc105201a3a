"""Batches and schedules with ``within=``, through the public API, the same on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ratchet import JobFilter, JobStatus, Schedule, ScheduleNotFound
from ratchet.tck.contracts.transactions import rolled_back
from ratchet.testing import ManualScheduler

NAME = "nightly"


def work(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number


def batch(scheduler: ManualScheduler) -> Any:
    """A batch whose only item has failed."""
    handle = scheduler.enqueue_batch("b").for_each([-1], work).submit()
    scheduler.drain()
    return handle


def schedule(scheduler: ManualScheduler) -> Schedule:
    return scheduler.schedule_recurring("0 3 * * *", work, 1, name=NAME)


def paused(scheduler: ManualScheduler) -> Schedule:
    made = schedule(scheduler)
    made.pause()
    return made


Change = Callable[[ManualScheduler, Any, object], Any]

VERBS: dict[str, tuple[Callable[[ManualScheduler], Any], Change]] = {
    "batch.cancel": (
        lambda s: s.enqueue_batch("b").for_each([1, 2], work).submit(),
        lambda s, b, own: b.cancel(within=own),
    ),
    "batch.retry_failed": (batch, lambda s, b, own: b.retry_failed(within=own)),
    "schedule_recurring": (
        lambda s: None,
        lambda s, _, own: s.schedule_recurring("0 3 * * *", work, 1, name=NAME, within=own),
    ),
    "schedule.pause": (schedule, lambda s, it, own: it.pause(within=own)),
    "schedule.resume": (paused, lambda s, it, own: it.resume(within=own)),
    "schedule.remove": (schedule, lambda s, it, own: it.remove(within=own)),
    "schedule.trigger": (schedule, lambda s, it, own: it.trigger(within=own)),
}


def state(scheduler: ManualScheduler) -> tuple[object, ...]:
    return (
        scheduler.store.schedule(NAME),
        scheduler.store.fires(NAME),
        scheduler.store.batches(),
        scheduler.jobs.counts(),
        scheduler.jobs.count(JobFilter(statuses=list(JobStatus))),
    )


@pytest.mark.parametrize("verb", VERBS)
def test_rolled_back(scheduler: ManualScheduler, verb: str) -> None:
    """Nothing has happened, and the same verb does it afterwards."""
    prepare, change = VERBS[verb]
    subject = prepare(scheduler)
    before = state(scheduler)
    with rolled_back(scheduler.store) as connection:
        assert change(scheduler, subject, connection)
    assert state(scheduler) == before
    assert change(scheduler, subject, None)
    assert state(scheduler) != before


@pytest.mark.parametrize("verb", VERBS)
def test_committed(scheduler: ManualScheduler, verb: str) -> None:
    """It is done with the commit."""
    prepare, change = VERBS[verb]
    subject = prepare(scheduler)
    before = state(scheduler)
    with scheduler.store.begin() as connection:
        assert change(scheduler, subject, connection)
    assert state(scheduler) != before


def test_a_triggered_run(scheduler: ManualScheduler) -> None:
    """The handle of a run that is not committed waits for it; after the commit, the run is run."""
    with scheduler.store.begin() as connection:
        made = scheduler.schedule_recurring(timedelta(hours=1), work, 7, name=NAME, within=connection)
        handle = made.trigger(within=connection)
    scheduler.drain()
    assert handle.result(timeout=5) == 7
    assert made.runs().items[0].id == handle.id


def test_awaited(scheduler: ManualScheduler) -> None:
    """The await faces of the handles join a transaction, too."""
    handle = scheduler.enqueue_batch("b").for_each([1, 2], work).submit()
    made = schedule(scheduler)

    def canceled() -> int:
        record = scheduler.store.batch(handle.id)
        assert record is not None
        return record.canceled

    async def change(connection: object) -> None:
        assert await handle.aio.cancel(within=connection)
        assert await made.aio.pause(within=connection)

    with rolled_back(scheduler.store) as connection:
        asyncio.run(change(connection))
    assert not made.paused
    assert canceled() == 0
    with scheduler.store.begin() as connection:
        asyncio.run(change(connection))
    assert made.paused
    assert canceled() == 2


def test_a_schedule_that_is_not_there(scheduler: ManualScheduler) -> None:
    """Inside of a transaction the answers and errors are those outside of it."""
    gone = schedule(scheduler)
    gone.remove()
    with scheduler.store.begin() as connection:
        assert not gone.pause(within=connection)
        assert not gone.remove(within=connection)
        for verb in (gone.resume, gone.trigger):
            with pytest.raises(ScheduleNotFound):
                verb(within=connection)
