"""An interruption that its thread has not noticed yet holds up nobody else, traced or not."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from ratchet import JobStatus, Options, Scheduler
from ratchet.stores.memory import MemoryStore
from tests.support.waiting import until

let_go = threading.Event()
ended = threading.Event()


def deaf() -> None:
    """Sits in a C call, where an interruption is not noticed."""
    try:
        let_go.wait(60)
    finally:
        ended.set()


def quick() -> None:
    """Ends about when its interruption comes."""
    time.sleep(0.1)


def traced() -> None: ...


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    let_go.clear()
    ended.clear()
    options = Options(concurrency=2, interrupt_grace=timedelta(milliseconds=50))
    with Scheduler(store=MemoryStore(), allow=[traced.__module__], options=options) as made:
        yield made
        let_go.set()
    made.close()


def call_profiled() -> None:
    """What a debugger, a profiler or coverage does to every call."""
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        traced()
    finally:
        sys.setprofile(before)


def test_a_profiled_thread_does_not_wait_for_it(scheduler: Scheduler) -> None:
    """The call returns while the job that was interrupted still sits in C."""
    job = scheduler.enqueue(deaf).with_timeout(timedelta(milliseconds=100)).submit()
    until(lambda: job.status() is JobStatus.FAILED, 30, "it was not given up")
    call_profiled()
    assert not ended.is_set()


def test_nothing_is_left_of_one_that_came_too_late(scheduler: Scheduler) -> None:
    """Jobs that end just when they are interrupted: whether it was raised or withdrawn, nobody waits afterwards."""
    for _ in range(20):
        job = scheduler.enqueue(quick).with_timeout(timedelta(milliseconds=100)).submit()
        job.wait(timeout=30)
        call_profiled()
