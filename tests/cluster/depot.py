"""
An application that runs unchanged on 0.1.0 and on this version: what a rolling upgrade of Ratchet is tried with.

`main` is what a process of it does that submits; it says in JSON what it saw.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import ratchet
from ratchet import JobContext, Join, Scheduler
from tests.cluster.shop import fail_once, gated, note, write

scheduler = Scheduler(allow=["tests.cluster"])


def strict(ledger: str, name: str, allowed: str) -> str:
    """Fails while the file *allowed* is not there."""
    if not Path(allowed).exists():
        raise ValueError("not allowed yet")
    return note(ledger, name)


def item(what: list[str]) -> str:
    """An item of a batch: a ledger, a name and a gate, which may be empty."""
    ledger, name, gate = what
    if gate:
        gated(ledger, f"gate-{name}", gate)
    return note(ledger, name)


def told(context: JobContext, ledger: str, name: str) -> None:
    """A callback with arguments."""
    note(ledger, name)


def plainly_told(context: JobContext) -> None:
    """A callback without arguments; what it needs is among the params of its job."""
    note(context.param("ledger"), context.param("told"))


def tick(ledger: str, name: str) -> None:
    """A run of a schedule."""
    write(ledger, "tick", name)


def is_long(result: str, least: int) -> bool:
    """A condition with an argument."""
    return len(result) >= least


def _seed(ledger: str, gate: str, allowed: str) -> dict[str, Any]:
    """Jobs in every state, as the version that is asked makes them."""
    ids: dict[str, Any] = {}

    def keep(name: str, builder: Any) -> Any:
        handle = builder.submit()
        ids[name] = str(handle.id)
        return handle

    with scheduler:
        done = keep("archived", scheduler.enqueue(note, ledger, "archived"))
        done.result(timeout=30)
        failed = keep("failed", scheduler.enqueue(strict, ledger, "failed", allowed))
        deadline = time.monotonic() + 30
        while str(failed.status()) not in ("FAILED", "JobStatus.FAILED"):
            if time.monotonic() > deadline:
                raise TimeoutError(f"failed is {failed.status()}")
            time.sleep(0.02)
    now = scheduler.store.database_time() + timedelta(minutes=1)
    assert scheduler.store.archive(before=now, limit=10, now=now) == 1
    scheduler.limits.set("press", concurrent=1)
    for number in range(4):
        keep(f"limited-{number}", scheduler.enqueue(note, ledger, f"limited-{number}").with_resource("press"))
    keep("later", scheduler.schedule(timedelta(hours=1), note, ledger, "later"))
    keep("pending", scheduler.enqueue(note, ledger, "pending"))
    keep("keyed", scheduler.enqueue(note, ledger, "keyed").with_idempotency_key("order-1"))
    keep("busy", scheduler.schedule(timedelta(hours=1), note, ledger, "busy").with_business_key("customer-1"))
    paused = keep("paused", scheduler.schedule(timedelta(hours=1), note, ledger, "paused"))
    assert paused.pause()
    running = keep("running", scheduler.enqueue(gated, ledger, "running", gate).then(note, ledger, "waiting"))
    ids["waiting"] = str(running.steps[-1].id)
    keep("join", scheduler.join([running, scheduler.enqueue(note, ledger, "joined")], Join.ALL).then(note, ledger, "join"))  # fmt: skip
    keep("retried", scheduler.enqueue(fail_once, ledger, "retried", 0.0).with_max_retries(3))
    items = [[ledger, f"item-{number}", gate if number == 0 else ""] for number in range(5)]
    batch = scheduler.enqueue_batch("parcels").for_each(items, item).then_on_batch_success(note, ledger, "batch-over").submit()  # fmt: skip
    ids["batch"] = str(batch.id)
    scheduler.schedule_recurring(timedelta(seconds=1), tick, ledger, "old", name="old-tick")
    return ids


def _submit(ledger: str, prefix: str, stop: str) -> dict[str, Any]:
    """Submits until the file *stop* is there: every id, and when each submission began and how long it took."""
    ids: dict[str, str] = {}
    took: list[tuple[float, float]] = []
    while not Path(stop).exists():
        name = f"{prefix}-{len(ids)}"
        begun = time.time()
        builder = scheduler.enqueue(note, ledger, name)
        if len(ids) % 5 == 0:
            told_name = f"{name}-told"
            builder = builder.on_success(plainly_told).with_param("ledger", ledger).with_param("told", told_name)  # fmt: skip
        if len(ids) % 7 == 0:
            builder = builder.with_resource("press")
        ids[name] = str(builder.submit().id)
        took.append((begun, time.time() - begun))
        if len(ids) == 1:
            write(ledger, "submitting", prefix)
        time.sleep(0.02)
    return {"ids": ids, "took": took}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {"seed": _seed, "submit": _submit}


def main(command: str, *arguments: str) -> None:
    """Does what a process of this application is started for, and prints what it saw."""
    answer = COMMANDS[command](*arguments)
    print(json.dumps({"code": ratchet.__file__, **answer}), flush=True)  # noqa: T201  # it is read from there
    scheduler.close()
