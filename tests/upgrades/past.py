"""
An application that was run with 0.1.0 to make the dumps, and whose jobs today's version runs.

``python -c 'from tests.upgrades import past; past.main()'`` leaves a job in every state, says in JSON what 0.1.0 itself thought of
each, and dies in the middle of one: its node never said goodbye.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from ratchet import JobContext, JobFilter, Join, Scheduler
from ratchet.model.status import BackoffPolicy, JobStatus, Priority

scheduler = Scheduler(allow=["tests.upgrades"])

#: Never set where the dumps are made.
OPEN = threading.Event()
#: No schedule and no delay of the dumps comes to an end while tests use them.
FAR = datetime(2099, 1, 1, tzinfo=UTC)


def greet(name: str, *, polite: bool = False) -> str:
    """A job that succeeds."""
    return f"dear {name}" if polite else f"hello {name}"


def decline(card: str) -> None:
    """A job that fails, until the gate is open."""
    if not OPEN.is_set():
        raise ValueError(f"{card} was declined")


def stall(name: str) -> str:
    """A job that runs until the gate is open, and has logged, reported and saved something by then."""
    context = JobContext.current()
    context.logger.info("stalling as %s", name)
    context.progress(0.25, "a quarter")
    context.state["seen"] = 3
    context.save()
    OPEN.wait(600)
    return f"{name} after {context.state['seen']}"


def together(results: list[str]) -> str:
    """What follows a join."""
    return " and ".join(sorted(results))


def alarm(context: JobContext, error: Any) -> None:
    """A callback for failures."""


def _wait(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def _is(handle: Any, status: JobStatus) -> Callable[[], bool]:
    return lambda: handle.status() is status


def _fill() -> dict[str, str]:
    """Submit jobs, run those that shall have an end, and leave one running; their ids by name."""
    ids: dict[str, str] = {}

    def keep(name: str, builder: Any) -> Any:
        handle = builder.submit()
        ids[name] = str(handle.id)
        return handle

    archived = keep("archived", scheduler.enqueue(greet, "archived"))
    scheduler.start()
    archived.result(timeout=60)
    scheduler.stop()
    now = scheduler.store.database_time() + timedelta(minutes=1)
    assert scheduler.store.archive(before=now, limit=10, now=now) == 1

    done = keep(
        "succeeded",
        scheduler.enqueue(greet, "ann", polite=True).with_tags("vip", "eu").with_param("region", "eu"),
    )
    dead = keep("failed", scheduler.enqueue(decline, "4242").on_failure(alarm))
    again = keep(
        "retried",
        scheduler.enqueue(decline, "1111")
        .with_max_retries(2)
        .with_backoff(BackoffPolicy.FIXED, timedelta(days=20000)),
    )
    scheduler.start()
    _wait(_is(done, JobStatus.SUCCEEDED), "succeeded")
    _wait(_is(dead, JobStatus.FAILED), "failed")
    _wait(lambda: again.job().attempts == 1 and again.status() is JobStatus.PENDING, "retried")
    _wait(lambda: scheduler.jobs.count(JobFilter(statuses=[JobStatus.RUNNING])) == 0, "the callback")
    scheduler.stop()

    canceled = keep("canceled", scheduler.enqueue(greet, "cid").at(FAR))
    assert canceled.cancel()
    replaced = keep("replaced", scheduler.enqueue(greet, "old").at(FAR))
    ids["successor"] = str(scheduler.replace(replaced.id, greet, "new").id)
    paused = keep("paused", scheduler.enqueue(greet, "dora"))
    assert paused.pause()
    keep("later", scheduler.enqueue(greet, "eve").at(FAR).with_priority(Priority.HIGH).with_queue("mails"))
    keep("keyed", scheduler.enqueue(greet, "fay").at(FAR).with_idempotency_key("order-1"))
    keep("busy", scheduler.enqueue(greet, "gus").at(FAR).with_business_key("customer-1"))
    scheduler.limits.set("press", concurrent=1)
    keep("limited", scheduler.enqueue(greet, "hal").with_resource("press").with_timeout(timedelta(minutes=5)))
    keep("signaled", scheduler.enqueue(greet, "ian").await_signal("order:1"))
    scheduler.signal("order:2", {"by": "ann"})
    scheduler.queues.pause("closed")
    keep("closed", scheduler.enqueue(greet, "jo").with_queue("closed"))
    scheduler.schedule_recurring("0 2 * * *", greet, "nightly", zone="Europe/Berlin", name="nightly")
    scheduler.schedules.get("nightly").pause()
    first = keep("parent", scheduler.enqueue(greet, "kim").at(FAR).then(greet, "lou"))
    ids["step"] = str(first.steps[-1].id)
    keep(
        "joined",
        scheduler.join([first, scheduler.enqueue(greet, "mia").at(FAR)], Join.ALL).then(greet, "joined"),
    )
    items = [f"item-{number}" for number in range(3)]
    batch = (
        scheduler.enqueue_batch("parcels").for_each(items, greet).then_on_batch_success(greet, "all").submit()
    )
    ids["batch"] = str(batch.id)

    scheduler.queues.pause("default")  # what is due stays due
    keep("running", scheduler.enqueue(stall, "running").with_queue("open"))
    keep("pending", scheduler.enqueue(greet, "ned"))
    scheduler.start()
    running = scheduler.handle(ids["running"])
    _wait(lambda: running.progress() is not None, "running")
    _wait(lambda: len(list(scheduler.jobs.logs(ids["running"]))) == 1, "its log line")
    time.sleep(2)  # by then it has beaten, and its streams and marks are stored
    return ids


def main() -> None:
    """Fill the store of RATCHET_URL, print what 0.1.0 sees in it, and die."""
    ids = _fill()
    seen = {
        str(job.id): msgspec.to_builtins(job)
        for job in scheduler.jobs.find(JobFilter(include_archived=True), limit=200)
    }
    facts = {
        "ids": ids,
        "jobs": seen,
        "dead_letters": [str(one.job_id) for one in scheduler.dead_letters.find()],
        "schedules": [one.name for one in scheduler.schedules.list()],
        "executions": {
            name: len(list(scheduler.jobs.executions(job_id)))
            for name, job_id in ids.items()
            if name != "batch"
        },
    }
    print(msgspec.json.encode(facts).decode(), flush=True)  # noqa: T201  # it is read from there
    os._exit(9)
