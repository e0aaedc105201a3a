"""What has run is gone: run and context refer to each other, but not until the garbage collector comes."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ratchet import JobContext, Scheduler
from ratchet.engine.run import Run

JOBS = 40


def look(number: int) -> int:
    """Use the context as jobs do."""
    context = JobContext.current()
    context.state["number"] = number
    context.logger.info("number %s of attempt %s", number, context.attempt)
    return number


async def look_async(number: int) -> int:
    """The same on the event loop."""
    return look(number)


def leave_alone(number: int) -> int:
    """Use nothing of it."""
    return number


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Nothing is collected meanwhile."""
    gc.collect()
    gc.disable()
    yield
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("job", [look, look_async, leave_alone])
def test_a_run_leaves_nothing_to_collect(scheduler: Scheduler, job: object) -> None:
    """Forty runs have ended, and the store has their outcomes: the collector finds nothing of them."""
    with scheduler:
        handles = scheduler.enqueue_many(job, [(number,) for number in range(JOBS)])
        for handle in handles:
            handle.wait(60)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        ours = {handle.id for handle in handles}  # the test before may have left an engine
        found = [one for one in gc.garbage if type(one) in (Run, JobContext) and one.job_id in ours]
    assert not found
