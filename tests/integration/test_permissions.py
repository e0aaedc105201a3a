"""
Every public verb, for each of three roles: carried out and written down, or refused and written down.

The table is compared with the public classes: a new verb without a row fails, so that none is forgotten.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from ratchet import (
    AuditFilter,
    BatchHandle,
    JobFilter,
    JobHandle,
    ManualClock,
    NotAuthorized,
    Permission,
    Priority,
    Schedule,
    Scheduler,
)
from ratchet.api.observe.audit import Audit
from ratchet.api.observe.nodes import Nodes
from ratchet.api.observe.queries import (
    Batches,
    Breakers,
    DeadLetters,
    Jobs,
    Limits,
    Queues,
    Schedules,
)
from ratchet.api.storage import Storage
from ratchet.model.cluster import NodeSpec
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler
from tests.integration.conftest import Stores
from tests.integration.people_samples import ROLES, by_role, work

P = Permission
Q = "q"


@dataclass
class World:
    """A store with one of everything, prepared by the administrator."""

    scheduler: ManualScheduler
    pending: JobHandle[Any]
    paused: JobHandle[Any]
    failed: JobHandle[Any]
    ended: JobHandle[Any]
    batch: BatchHandle
    failed_batch: BatchHandle
    schedule: Schedule
    paused_schedule: Schedule


def prepare(store: Any, clock: ManualClock) -> World:
    scheduler = ManualScheduler(store=store, clock=clock, authorizer=by_role, allow=["tests"])
    with scheduler.acting_as("admin"):
        failed = scheduler.enqueue(work, -1).with_tags("t").submit()
        ended = scheduler.enqueue_now(work, 1)
        failed_batch = scheduler.enqueue_batch("b").for_each([-1], work).submit()
        scheduler.drain()
        pending = scheduler.enqueue(work, 1).with_tags("t").with_queue(Q).with_delay(60).submit()
        paused = scheduler.enqueue(work, 1).with_delay(60).submit()
        scheduler.enqueue(work, 2).await_signal("go").submit()
        batch = scheduler.enqueue_batch("b").for_each([1, 2], work).submit()
        schedule = scheduler.schedule_recurring("0 0 1 1 *", work, 1, name="yearly", tags=["t"])
        paused_schedule = scheduler.schedule_recurring("0 0 1 1 *", work, 1, name="resting")
        scheduler.limits.set("gateway", concurrent=2)
        scheduler.breakers.open("broken")
        scheduler.queues.pause("closed")
        paused.pause()
        paused_schedule.pause()
    silent = _node("gone", timedelta(seconds=2))
    store.register(silent, now=store.database_time() - timedelta(hours=1))
    for name in ("busy", "drained"):
        store.register(_node(name, timedelta(hours=1)), now=store.database_time())
    with scheduler.acting_as("admin"):
        scheduler.nodes.drain("drained")
    return World(scheduler, pending, paused, failed, ended, batch, failed_batch, schedule, paused_schedule)


def _node(name: str, silence: timedelta) -> NodeSpec:
    return NodeSpec(
        node_id=name,
        name=name,
        host="h",
        pid=1,
        version="0",
        beat_interval=timedelta(seconds=1),
        silence=silence,
    )


def _purge_old(world: World) -> Any:
    """There is something that has ended long ago."""
    clock = world.scheduler.clock
    assert isinstance(clock, ManualClock)
    clock.advance(timedelta(hours=1))
    return world.scheduler.storage.purge(timedelta(minutes=1))


@dataclass(frozen=True)
class Row:
    """What a verb asks for, how it is called, and as what it is written down: None if it changes nothing."""

    permission: Permission
    call: Callable[[World], Any]
    verb: str | None = None
    narrows: bool = False  # a refusal leaves jobs out, and raises nothing


T = JobFilter(tags=["t"])
VERBS: dict[tuple[type, str], Row] = {
    (Scheduler, "enqueue"): Row(P.SUBMIT, lambda w: w.scheduler.enqueue(work, 1).submit()),
    (Scheduler, "enqueue_by_name"): Row(
        P.SUBMIT,
        lambda w: w.scheduler.enqueue_by_name("tests.integration.people_samples:work", 1).submit(),
    ),
    (Scheduler, "enqueue_now"): Row(P.SUBMIT, lambda w: w.scheduler.enqueue_now(work, 1)),
    (Scheduler, "enqueue_many"): Row(P.SUBMIT, lambda w: w.scheduler.enqueue_many(work, [(1,), (2,)])),
    (Scheduler, "submit_all"): Row(
        P.SUBMIT, lambda w: w.scheduler.submit_all([w.scheduler.enqueue(work, 1)])
    ),
    (Scheduler, "schedule"): Row(P.SUBMIT, lambda w: w.scheduler.schedule(60, work, 1).submit()),
    (Scheduler, "join"): Row(P.SUBMIT, lambda w: w.scheduler.join([w.pending.id]).then(work, 1).submit()),
    (Scheduler, "enqueue_batch"): Row(
        P.SUBMIT, lambda w: w.scheduler.enqueue_batch("n").for_each([1], work).submit()
    ),
    (Scheduler, "streaming_batch"): Row(
        P.SUBMIT, lambda w: w.scheduler.streaming_batch("n").from_iterable([1]).process(work).start()
    ),
    (Scheduler, "schedule_recurring"): Row(
        P.SCHEDULES, lambda w: w.scheduler.schedule_recurring("0 0 2 2 *", work, 1, name="new"), "set"
    ),
    (Scheduler, "cancel_job"): Row(P.CANCEL, lambda w: w.scheduler.cancel_job(w.pending.id), "cancel"),
    (Scheduler, "pause_job"): Row(P.PAUSE, lambda w: w.scheduler.pause_job(w.pending.id), "pause"),
    (Scheduler, "resume_job"): Row(P.RESUME, lambda w: w.scheduler.resume_job(w.paused.id), "resume"),
    (Scheduler, "retry_job"): Row(P.RETRY, lambda w: w.scheduler.retry_job(w.failed.id), "retry"),
    (Scheduler, "retry_jobs"): Row(P.RETRY, lambda w: w.scheduler.retry_jobs(T), "retry", narrows=True),
    (Scheduler, "cancel_jobs"): Row(P.CANCEL, lambda w: w.scheduler.cancel_jobs(T), "cancel", narrows=True),
    (Scheduler, "reschedule_job"): Row(
        P.RESCHEDULE, lambda w: w.scheduler.reschedule_job(w.pending.id, 90), "reschedule"
    ),
    (Scheduler, "set_priority"): Row(
        P.SET_PRIORITY, lambda w: w.scheduler.set_priority(w.pending.id, Priority.HIGH), "set_priority"
    ),
    (Scheduler, "replace"): Row(P.REPLACE, lambda w: w.scheduler.replace(w.pending.id, work, 2), "replace"),
    (Scheduler, "signal"): Row(P.SIGNAL, lambda w: w.scheduler.signal("go"), "signal"),
    (Scheduler, "explain"): Row(P.VIEW, lambda w: w.scheduler.explain(w.pending.id)),
    (Scheduler, "health"): Row(P.LIST, lambda w: w.scheduler.health()),
    (Scheduler, "migrate"): Row(P.SCHEMA, lambda w: w.scheduler.migrate(), "upgrade"),
    (JobHandle, "cancel"): Row(P.CANCEL, lambda w: w.pending.cancel(), "cancel"),
    (JobHandle, "pause"): Row(P.PAUSE, lambda w: w.pending.pause(), "pause"),
    (JobHandle, "resume"): Row(P.RESUME, lambda w: w.paused.resume(), "resume"),
    (JobHandle, "retry"): Row(P.RETRY, lambda w: w.failed.retry(), "retry"),
    (JobHandle, "set_priority"): Row(
        P.SET_PRIORITY, lambda w: w.pending.set_priority(Priority.LOW), "set_priority"
    ),
    (JobHandle, "explain"): Row(P.VIEW, lambda w: w.pending.explain()),
    (JobHandle, "graph"): Row(P.VIEW, lambda w: w.pending.graph()),
    (JobHandle, "job"): Row(P.VIEW, lambda w: w.pending.job()),
    (JobHandle, "progress"): Row(P.VIEW, lambda w: w.pending.progress()),
    (JobHandle, "result"): Row(P.VIEW, lambda w: w.ended.result(1)),
    (JobHandle, "status"): Row(P.VIEW, lambda w: w.pending.status()),
    (JobHandle, "wait"): Row(P.VIEW, lambda w: w.ended.wait(1)),
    (BatchHandle, "cancel"): Row(P.BATCHES, lambda w: w.batch.cancel(), "cancel"),
    (BatchHandle, "retry_failed"): Row(P.BATCHES, lambda w: w.failed_batch.retry_failed(), "retry"),
    (BatchHandle, "context"): Row(P.LIST, lambda w: w.batch.context()),
    (BatchHandle, "jobs"): Row(P.VIEW, lambda w: w.batch.jobs(), narrows=True),
    (BatchHandle, "record"): Row(P.LIST, lambda w: w.batch.record()),
    (BatchHandle, "metrics"): Row(P.LIST, lambda w: w.batch.metrics()),
    (BatchHandle, "results"): Row(P.VIEW, lambda w: w.batch.results(), narrows=True),
    (BatchHandle, "wait"): Row(P.VIEW, lambda w: w.failed_batch.wait(1)),
    (Schedule, "fires"): Row(P.LIST, lambda w: w.schedule.fires()),
    (Schedule, "next_fires"): Row(P.LIST, lambda w: w.schedule.next_fires(1)),
    (Schedule, "record"): Row(P.LIST, lambda w: w.schedule.record()),
    (Schedule, "runs"): Row(P.VIEW, lambda w: w.schedule.runs(), narrows=True),
    (Schedule, "pause"): Row(P.SCHEDULES, lambda w: w.schedule.pause(), "pause"),
    (Schedule, "resume"): Row(P.SCHEDULES, lambda w: w.paused_schedule.resume(), "resume"),
    (Schedule, "trigger"): Row(P.SCHEDULES, lambda w: w.schedule.trigger(), "trigger"),
    (Schedule, "change"): Row(P.SCHEDULES, lambda w: w.schedule.change(zone="Asia/Tokyo"), "change"),
    (Schedule, "remove"): Row(P.SCHEDULES, lambda w: w.schedule.remove(), "remove"),
    (Jobs, "get"): Row(P.VIEW, lambda w: w.scheduler.jobs.get(w.pending.id)),
    (Jobs, "find"): Row(P.VIEW, lambda w: w.scheduler.jobs.find(), narrows=True),
    (Jobs, "count"): Row(P.VIEW, lambda w: w.scheduler.jobs.count(), narrows=True),
    (Jobs, "counts"): Row(P.VIEW, lambda w: w.scheduler.jobs.counts(), narrows=True),
    (Jobs, "executions"): Row(P.VIEW, lambda w: w.scheduler.jobs.executions(w.failed.id)),
    (Jobs, "logs"): Row(P.VIEW, lambda w: w.scheduler.jobs.logs(w.failed.id)),
    (Jobs, "statistics"): Row(P.LIST, lambda w: w.scheduler.jobs.statistics()),
    (Jobs, "history"): Row(P.LIST, lambda w: w.scheduler.jobs.history()),
    (Jobs, "tags"): Row(P.LIST, lambda w: w.scheduler.jobs.tags()),
    (Jobs, "delete"): Row(P.DELETE, lambda w: w.scheduler.jobs.delete(w.ended.id), "delete"),
    (DeadLetters, "find"): Row(P.VIEW, lambda w: w.scheduler.dead_letters.find(), narrows=True),
    (DeadLetters, "summary"): Row(P.LIST, lambda w: w.scheduler.dead_letters.summary()),
    (DeadLetters, "alerts"): Row(P.LIST, lambda w: w.scheduler.dead_letters.alerts()),
    (DeadLetters, "purge"): Row(P.DELETE, lambda w: w.scheduler.dead_letters.purge(T), "purge", narrows=True),
    (Nodes, "list"): Row(P.LIST, lambda w: w.scheduler.nodes.list()),
    (Nodes, "drain"): Row(P.NODES, lambda w: w.scheduler.nodes.drain("busy"), "drain"),
    (Nodes, "resume"): Row(P.NODES, lambda w: w.scheduler.nodes.resume("drained"), "resume"),
    (Nodes, "stop"): Row(P.NODES, lambda w: w.scheduler.nodes.stop("busy"), "stop"),
    (Nodes, "remove"): Row(P.NODES, lambda w: w.scheduler.nodes.remove("gone"), "remove"),
    (Queues, "list"): Row(P.LIST, lambda w: w.scheduler.queues.list()),
    (Queues, "pause"): Row(P.QUEUES, lambda w: w.scheduler.queues.pause(Q), "pause"),
    (Queues, "resume"): Row(P.QUEUES, lambda w: w.scheduler.queues.resume("closed"), "resume"),
    (Limits, "list"): Row(P.LIST, lambda w: w.scheduler.limits.list()),
    (Limits, "holders"): Row(P.LIST, lambda w: w.scheduler.limits.holders("gateway")),
    (Limits, "set"): Row(P.LIMITS, lambda w: w.scheduler.limits.set("new", concurrent=1), "set"),
    (Limits, "set_rate"): Row(P.LIMITS, lambda w: w.scheduler.limits.set_rate("new", 1, per=60), "set"),
    (Limits, "remove"): Row(P.LIMITS, lambda w: w.scheduler.limits.remove("gateway"), "remove"),
    (Breakers, "list"): Row(P.LIST, lambda w: w.scheduler.breakers.list()),
    (Breakers, "open"): Row(P.BREAKERS, lambda w: w.scheduler.breakers.open("new"), "open"),
    (Breakers, "reset"): Row(P.BREAKERS, lambda w: w.scheduler.breakers.reset("broken"), "reset"),
    (Schedules, "get"): Row(P.LIST, lambda w: w.scheduler.schedules.get("yearly")),
    (Schedules, "list"): Row(P.LIST, lambda w: w.scheduler.schedules.list()),
    (Schedules, "remove"): Row(
        P.SCHEDULES, lambda w: w.scheduler.schedules.remove(tag="t"), "remove", narrows=True
    ),
    (Batches, "get"): Row(P.LIST, lambda w: w.scheduler.batches.get(w.batch.id)),
    (Schedules, "records"): Row(P.LIST, lambda w: w.scheduler.schedules.records()),
    (Batches, "records"): Row(P.LIST, lambda w: w.scheduler.batches.records()),
    (Storage, "stats"): Row(P.LIST, lambda w: w.scheduler.storage.stats()),
    (Storage, "purge"): Row(P.STORAGE, _purge_old, "purge"),
    (Batches, "list"): Row(P.LIST, lambda w: w.scheduler.batches.list()),
    (Audit, "find"): Row(P.AUDIT, lambda w: w.scheduler.audit.find()),
}

#: What is no verb on anything stored: it declares, connects, listens, or runs the process.
NO_VERB = {
    Scheduler: {
        "acting_as",
        "add_meters",
        "add_tracer",
        "around",
        "close",
        "configure",
        "discover",
        "handle",
        "job",
        "off",
        "on",
        "recurring",
        "run",
        "start",
        "stop",
    }
}
CHANGES = {key: row for key, row in VERBS.items() if row.verb is not None}


def _name(key: tuple[type, str]) -> str:
    return f"{key[0].__name__}.{key[1]}"


def test_every_verb_has_a_permission() -> None:
    """Each public method of what users hold is in the table, and nothing else is."""
    classes = {cls for cls, _ in VERBS}
    public = {
        (cls, name)
        for cls in classes
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_") and name not in NO_VERB.get(cls, ())
    }
    assert public == set(VERBS)


def test_every_permission_is_asked_for() -> None:
    """None is in the list for nothing."""
    assert {row.permission for row in VERBS.values()} == set(Permission)


def _written(world: World, principal: str) -> list[Any]:
    found = world.scheduler.store.find_audit(AuditFilter(principal=principal), limit=100)
    return found.items


@pytest.fixture
def memory(clock: ManualClock) -> Iterator[World]:
    world = prepare(MemoryStore(clock.now), clock)
    yield world
    world.scheduler.close()


@pytest.mark.parametrize("role", ["viewer", "operator", "somebody"])
@pytest.mark.parametrize("key", VERBS, ids=_name)
def test_each_verb_for_each_role(memory: World, key: tuple[type, str], role: str) -> None:
    """What the role may not do raises `NotAuthorized`, changes nothing, and is written down once; the rest is done."""
    row = VERBS[key]
    asked = [P.SUBMIT, P.REPLACE] if row.permission is P.REPLACE else [row.permission]
    permitted = set(asked) <= ROLES.get(role, frozenset())
    # waiting for a batch reads its counters, too
    before = memory.scheduler.store.count(JobFilter(statuses=None, tags=["t"]))
    with memory.scheduler.acting_as(role):
        if permitted or row.narrows:
            answer = row.call(memory)
        else:
            with pytest.raises(NotAuthorized, match=f"'{role}' may not ") as raised:
                row.call(memory)
            assert raised.value.permission in asked
            assert raised.value.principal == role
    entries = _written(memory, role)
    if not permitted and row.narrows:
        assert not (
            sum(answer.values())
            if isinstance(answer, dict)
            else answer
            if isinstance(answer, int)
            else list(answer)
        )
        assert [one.outcome for one in entries] == (["unchanged"] if row.verb else [])
    elif not permitted:
        assert [(one.outcome, one.principal) for one in entries] == [("refused", role)]
    else:
        assert [(one.verb, one.outcome) for one in entries] == ([(row.verb, "done")] if row.verb else [])
    if not permitted:
        assert memory.scheduler.store.count(JobFilter(tags=["t"])) == before


@pytest.mark.parametrize("key", CHANGES, ids=_name)
def test_each_change_leaves_one_entry(stores: Stores, clock: ManualClock, key: tuple[type, str]) -> None:
    """On every store: exactly one entry, by who did it, through what, with its verb and outcome."""
    world = prepare(stores.open(), clock)
    with world.scheduler.acting_as("admin", source="dashboard"):
        VERBS[key].call(world)
    try:
        found = world.scheduler.store.find_audit(AuditFilter(source="dashboard"), limit=100)
        outcome = "unchanged" if key == (Scheduler, "migrate") else "done"  # it is up to date
        assert [(one.verb, one.principal, one.outcome) for one in found] == [
            (VERBS[key].verb, "admin", outcome)
        ]
    finally:
        world.scheduler.close()


def test_a_bounded_count_narrows_too(memory: World) -> None:
    """Also where each job is asked about: counting ends at the bound, and leaves out what may not be seen."""
    with memory.scheduler.acting_as("admin"):
        assert memory.scheduler.jobs.count(at_most=2) == 2
    with memory.scheduler.acting_as("somebody"):
        assert memory.scheduler.jobs.count(at_most=2) == 0


def test_a_purge_has_one_entry_with_its_count(stores: Stores, clock: ManualClock) -> None:
    """On every store: all portions together are one entry, with how many rows went, and why; counting leaves none."""
    world = prepare(stores.open(), clock)
    try:
        with world.scheduler.acting_as("admin", source="dashboard"):
            world.scheduler.storage.purge(timedelta(minutes=1), dry_run=True)
            done = _purge_old(world)
            [one] = world.scheduler.audit.find(AuditFilter(source="dashboard"))
        assert sum(done.values()) > 1
        assert (one.verb, one.object, one.count) == ("purge", "storage", sum(done.values()))
        assert one.reason == "older than 1m"
    finally:
        world.scheduler.close()
