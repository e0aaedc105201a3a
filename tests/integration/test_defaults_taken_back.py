"""What ``@scheduler.job`` declares can be taken back for one job, the same on every store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ratchet import BackoffPolicy, InvalidJob, Job, JobStatus, Priority
from ratchet.testing import ManualScheduler


class Odd(Exception):
    """An error after which the declaration wants no retry."""


def _declare(scheduler: ManualScheduler) -> None:
    vars(report).clear()  # what a test before this one declared
    scheduler.job(
        max_retries=3,
        backoff=BackoffPolicy.FIXED,
        backoff_base=timedelta(minutes=1),
        timeout=timedelta(minutes=5),
        priority=Priority.HIGH,
        tags=["billing", "eu"],
        resource="gateway",
        queue="reports",
        no_retry_for=(Odd,),
    )(report)


def report(number: int) -> int:
    if number < 0:
        raise Odd(number)
    return number


def _shown(job: Job) -> tuple[object, ...]:
    return (job.max_retries, job.timeout, job.priority, set(job.tags), job.resource, job.queue)


def test_every_default_can_be_taken_back(scheduler: ManualScheduler) -> None:
    """A job says None, 0 or nothing, and is stored as a job of an undeclared function would be."""
    _declare(scheduler)
    builder = scheduler.enqueue(report, 1).with_max_retries(0).with_backoff(BackoffPolicy.NONE)
    builder = builder.with_timeout(None).with_priority(None).with_tags(None).with_resource(None)
    handle = builder.with_queue(None).with_no_retry_for().submit()
    assert _shown(handle.job()) == (0, None, Priority.NORMAL, set(), None, "default")
    record = scheduler.store.get(handle.id)
    assert record is not None
    assert (record.backoff, record.backoff_base) == (BackoffPolicy.NONE, timedelta())
    # Others keep what was declared.
    other = scheduler.enqueue(report, 1).submit().job()
    declared = (3, timedelta(minutes=5), Priority.HIGH, {"billing", "eu"}, "gateway", "reports")
    assert _shown(other) == declared


def test_steps_batches_and_bulk(scheduler: ManualScheduler) -> None:
    """Steps of a chain, the items of a batch and bulk submissions take defaults back, too."""
    _declare(scheduler)
    chain = scheduler.enqueue(report, 1).then(report, 2).with_timeout(None).submit()
    assert [step.job().timeout for step in chain.steps] == [timedelta(minutes=5), None]
    batch = scheduler.enqueue_batch("many").for_each([1], report).with_resource(None).submit()
    assert [job.resource for job in batch.jobs()] == [None]
    (bulk,) = scheduler.submit_all([scheduler.enqueue(report, 1).with_queue(None)])
    assert bulk.job().queue == "default"


def test_tags_can_be_replaced(scheduler: ManualScheduler) -> None:
    """None takes away what was there, declared or said before; what follows it is kept."""
    _declare(scheduler)
    job = scheduler.enqueue(report, 1).with_tags("x").with_tags(None, "us").with_tags("new").submit().job()
    assert set(job.tags) == {"us", "new"}
    with pytest.raises(InvalidJob, match="a tag must be text"):
        scheduler.enqueue(report, 1).with_tags("a", None)


def test_an_error_is_retried_again(scheduler: ManualScheduler) -> None:
    """The declaration wants no retry after this error; without it, the job is tried three more times."""
    _declare(scheduler)
    plain = scheduler.enqueue(report, -1).submit()
    retried = scheduler.enqueue(report, -1).with_no_retry_for().with_backoff(BackoffPolicy.NONE).submit()
    scheduler.drain()
    assert (plain.status(), plain.job().attempts) == (JobStatus.FAILED, 1)
    assert (retried.status(), retried.job().attempts) == (JobStatus.FAILED, 4)
