"""Control verbs with ``within=``, through the public API, the same on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from ratchet import (
    InvalidJob,
    JobCanceled,
    JobEvent,
    JobFilter,
    JobHandle,
    JobPaused,
    JobResumed,
    JobRetrying,
    JobStatus,
    Priority,
)
from ratchet.tck.contracts.transactions import rolled_back
from ratchet.testing import ManualScheduler


def work(number: int) -> int:
    if number < 0:
        raise ValueError(number)
    return number


heard: list[Any] = []


@pytest.fixture(autouse=True)
def listener(scheduler: ManualScheduler) -> Iterator[None]:
    heard.clear()
    scheduler.on(JobCanceled, JobPaused, JobResumed, JobRetrying, JobEvent)(heard.append)
    yield
    heard.clear()


def pending(scheduler: ManualScheduler) -> JobHandle[Any]:
    return scheduler.enqueue(work, 1).with_tags("t").with_business_key("k").submit()


def paused(scheduler: ManualScheduler) -> JobHandle[Any]:
    handle = pending(scheduler)
    assert handle.pause()
    return handle


def failed(scheduler: ManualScheduler) -> JobHandle[Any]:
    handle = scheduler.enqueue(work, -1).with_tags("t").submit()
    scheduler.drain()
    return handle


def waiting(scheduler: ManualScheduler) -> JobHandle[Any]:
    return scheduler.enqueue(work, 1).await_signal("go").submit()


Change = Callable[[ManualScheduler, JobHandle[Any], object], Any]

VERBS: dict[str, tuple[Callable[[ManualScheduler], JobHandle[Any]], Change, JobStatus]] = {
    "cancel_job": (pending, lambda s, h, own: s.cancel_job(h.id, within=own), JobStatus.CANCELED),
    "cancel_jobs": (
        pending,
        lambda s, h, own: s.cancel_jobs(JobFilter(tags=["t"]), within=own),
        JobStatus.CANCELED,
    ),
    "pause_job": (pending, lambda s, h, own: s.pause_job(h.id, within=own), JobStatus.PAUSED),
    "resume_job": (paused, lambda s, h, own: s.resume_job(h.id, within=own), JobStatus.PENDING),
    "retry_job": (failed, lambda s, h, own: s.retry_job(h.id, within=own), JobStatus.PENDING),
    "retry_jobs": (
        failed,
        lambda s, h, own: s.retry_jobs(JobFilter(tags=["t"]), within=own),
        JobStatus.PENDING,
    ),
    "reschedule_job": (
        pending,
        lambda s, h, own: s.reschedule_job(h.id, timedelta(hours=1), within=own),
        JobStatus.PENDING,
    ),
    "set_priority": (
        pending,
        lambda s, h, own: s.set_priority(h.id, Priority.HIGH, within=own),
        JobStatus.PENDING,
    ),
    "handle.set_priority": (
        pending,
        lambda s, h, own: h.set_priority(Priority.HIGH, within=own),
        JobStatus.PENDING,
    ),
    "replace": (pending, lambda s, h, own: s.replace(h.id, work, 2, within=own), JobStatus.CANCELED),
    "signal": (waiting, lambda s, h, own: s.signal("go", within=own), JobStatus.PENDING),
    "handle.cancel": (pending, lambda s, h, own: h.cancel(within=own), JobStatus.CANCELED),
    "handle.pause": (pending, lambda s, h, own: h.pause(within=own), JobStatus.PAUSED),
    "handle.resume": (paused, lambda s, h, own: h.resume(within=own), JobStatus.PENDING),
    "handle.retry": (failed, lambda s, h, own: h.retry(within=own), JobStatus.PENDING),
}


@pytest.mark.parametrize("verb", VERBS)
def test_rolled_back(scheduler: ManualScheduler, verb: str) -> None:
    """Nothing has happened, and nobody is told that something has."""
    prepare, change, _ = VERBS[verb]
    handle = prepare(scheduler)
    before, count = handle.job(), scheduler.jobs.count(JobFilter(statuses=list(JobStatus)))
    heard.clear()
    with rolled_back(scheduler.store) as connection:
        assert change(scheduler, handle, connection)
    assert handle.job() == before
    assert scheduler.jobs.count(JobFilter(statuses=list(JobStatus))) == count
    assert heard == []


@pytest.mark.parametrize("verb", VERBS)
def test_committed(scheduler: ManualScheduler, verb: str) -> None:
    """The change is made with the commit; no event came before it, and what may run runs."""
    prepare, change, after = VERBS[verb]
    handle = prepare(scheduler)
    heard.clear()
    with scheduler.store.begin() as connection:
        assert change(scheduler, handle, connection)
        assert heard == []
    assert handle.status() is after
    if after is JobStatus.PENDING and verb != "reschedule_job":
        scheduler.drain()
        assert handle.status() in (JobStatus.SUCCEEDED, JobStatus.FAILED)


def test_the_key_passes_on(scheduler: ManualScheduler) -> None:
    """A job that is replaced within a transaction gives its business key to the new one."""
    old = pending(scheduler)
    with scheduler.store.begin() as connection:
        new = scheduler.replace(old.id, work, 2, within=connection)
    assert new is not None
    assert (new.job().business_key, old.job().superseded_by) == ("k", new.id)


def test_a_job_of_the_same_transaction(scheduler: ManualScheduler) -> None:
    """It can be canceled before anybody has seen it; replacing it is refused, because its key cannot be read."""
    with scheduler.store.begin() as connection:
        new = scheduler.enqueue(work, 1).submit(within=connection)
        assert new.cancel(within=connection)
        with pytest.raises(InvalidJob, match="not stored yet"):
            scheduler.replace(new.id, work, 2, within=connection)
    assert new.status() is JobStatus.CANCELED


def test_the_await_face(scheduler: ManualScheduler) -> None:
    """``await scheduler.aio.pause_job(id, within=…)`` joins the transaction, too."""
    handle = pending(scheduler)
    with rolled_back(scheduler.store) as connection:
        assert asyncio.run(scheduler.aio.pause_job(handle.id, within=connection))
    assert handle.status() is JobStatus.PENDING


def test_what_is_no_transaction(scheduler: ManualScheduler) -> None:
    """It is refused, and nothing is changed."""
    handle = pending(scheduler)
    with pytest.raises(Exception, match="within"):
        scheduler.cancel_job(handle.id, within="nonsense")
    assert handle.status() is JobStatus.PENDING
