"""Code that does not stop when its run has timed out: a retry starts when it has ended, at once if it has."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ratchet import JobHandle, JobStatus, Scheduler
from tests.lifecycle import jobs
from tests.support.waiting import until

#: Far less than the minute that a retry waits at most, and enough for a busy machine.
SOON = 20.0


@pytest.fixture(autouse=True)
def gate() -> Iterator[None]:
    """Closed before the test, open after it, so that no code is left running."""
    jobs.gate.clear()
    yield
    jobs.gate.set()


def codes(handle: JobHandle[str]) -> list[str]:
    return [reason.code for reason in handle.explain()]


def test_a_retry_after_a_timeout(scheduler: Scheduler) -> None:
    """It waits for the code of the first run, says so, and starts when that has ended."""
    with scheduler:
        handle = scheduler.enqueue(jobs.ignore_everything).with_timeout(0.2).with_max_retries(1).submit()
        until(lambda: codes(handle) == ["still_running"], what="explain did not say still_running")
        time.sleep(0.5)
        assert codes(handle) == ["still_running"]
        jobs.gate.set()
        assert handle.result(timeout=SOON) == "ignored"
    assert [run.status for run in scheduler.jobs.executions(handle.id)] == ["TIMED_OUT", "SUCCEEDED"]


@pytest.mark.parametrize("key", [None, "one"])
def test_a_retry_by_hand(scheduler: Scheduler, key: str | None) -> None:
    """It waits in the same way, with and without a business key."""
    with scheduler:
        builder = scheduler.enqueue(jobs.ignore_everything).with_timeout(0.2)
        handle = (builder if key is None else builder.with_business_key(key)).submit()
        until(lambda: handle.status() is JobStatus.FAILED, what="the run did not time out")
        assert handle.retry()
        assert codes(handle) == ["still_running"]
        time.sleep(0.5)
        assert handle.status() is JobStatus.PENDING
        jobs.gate.set()
        assert handle.result(timeout=SOON) == "ignored"
