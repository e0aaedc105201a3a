"""Schedules that the code no longer declares are removed by one process at a time, under its lease."""

from __future__ import annotations

from datetime import timedelta

from ratchet import Options, Scheduler
from ratchet.model.identifiers import new_id
from ratchet.scheduler.nodes import UNDECLARED_LEASE
from ratchet.stores.memory import MemoryStore
from tests.support.running_jobs import HERE, add_one


def scheduler_on(store: MemoryStore, *, declares: bool) -> Scheduler:
    made = Scheduler(store=store, allow=[HERE], options=Options(remove_undeclared=True))
    if declares:
        made.recurring("every 1h", 1, name="hourly")(add_one)
    return made


def names(scheduler: Scheduler) -> list[str]:
    return [schedule.name for schedule in scheduler.schedules.list()]


def test_only_the_holder_of_the_lease_removes() -> None:
    """While another process holds it, nothing is deleted; afterwards it is, and the lease is given back."""
    store = MemoryStore()
    with scheduler_on(store, declares=True) as before:
        assert names(before) == ["hourly"]
    after, token = scheduler_on(store, declares=False), new_id()
    now = after.backend.now()
    assert store.acquire_lock(
        UNDECLARED_LEASE, holder="another", token=token, ttl=timedelta(minutes=1), now=now
    )
    with after:
        assert names(after) == ["hourly"]
    assert store.release_lock(UNDECLARED_LEASE, token=token)
    with after:
        assert names(after) == []
    assert store.lock(UNDECLARED_LEASE) is None
