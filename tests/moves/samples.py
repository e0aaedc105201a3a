"""A small store with everything in it: jobs of every state and feature, some of them run."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from ratchet import (
    RESULT,
    RESULTS,
    BackoffPolicy,
    JobContext,
    Join,
    ManualClock,
    Options,
    Priority,
    circuit_breaker,
)
from ratchet.model.audit import AuditFilter
from ratchet.model.flow_history import FlowPeriod, Tally
from ratchet.model.job import JobFilter
from ratchet.model.moves import FIELDS, RowKind, key_of
from ratchet.spi.payload_codec import PayloadCodec
from ratchet.spi.store import JobStore
from ratchet.tck.steps import Steps
from ratchet.testing import ManualScheduler

log = logging.getLogger("shop.mail")

#: The ids of jobs whose code has run, in order.
ran: list[str] = []

OPTIONS = Options(result_limit=1024)


def fine(value: object = None) -> object:
    """Succeeds, and says so."""
    ran.append(str(JobContext.current().job_id))
    log.warning("mailed %s", value)
    return value


def broken(value: object = None) -> None:
    """Fails."""
    ran.append(str(JobContext.current().job_id))
    raise ValueError(f"no {value}")


def saves() -> str:
    """Leaves progress and a checkpoint, and fails the first time."""
    ctx = JobContext.current()
    ctx.progress(0.25, "parsed äöü")
    ctx.state["last"] = 7
    ctx.save()
    if ctx.attempt == 1:
        raise OSError("line dropped")
    return "saved"


def large() -> str:
    """More than the limit."""
    return "x" * 5000


@circuit_breaker("gateway")
def calls(good: bool) -> None:
    """Calls a service that has a breaker."""
    if not good:
        raise ConnectionError("gateway")


def is_high(result: Any) -> bool:
    """A condition."""
    return int(result) > 10


def told(ctx: Any, error: Any = None) -> None:
    """A callback."""


class _Steps(Steps):
    def __init__(self, store: JobStore, clock: ManualClock) -> None:
        self.store = store
        self.now = clock.now()


def scheduler_on(store: JobStore, clock: ManualClock, codec: PayloadCodec | None = None) -> ManualScheduler:
    """A scheduler that runs the functions of this module."""
    return ManualScheduler(store=store, clock=clock, options=OPTIONS, codec=codec)


def fill(store: JobStore, clock: ManualClock, codec: PayloadCodec | None = None) -> None:
    """Make everything that a store can hold, and leave the store at rest."""
    scheduler = scheduler_on(store, clock, codec)
    with scheduler.acting_as("ann"):
        _old(scheduler, clock)
        _gates(scheduler)
        _ended(scheduler)
        _composed(scheduler)
        scheduler.drain()
        clock.advance(timedelta(seconds=3))
        _waiting(scheduler, clock)
        _suspect(store, clock)
        _flow(store, clock)
    scheduler.stop()


def _old(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """What is in the archive by now."""
    for number in range(3):
        scheduler.enqueue(fine, number).with_tags("old", f"year:{number}").with_idempotency_key(
            f"o{number}"
        ).submit()
    scheduler.enqueue(broken, "old").submit()
    scheduler.drain()
    clock.advance(timedelta(days=40))
    scheduler.storage.purge(timedelta(days=30))


def _gates(scheduler: ManualScheduler) -> None:
    scheduler.limits.set("mail", concurrent=5)
    scheduler.limits.set_rate("sms", 100, per=timedelta(minutes=1))
    scheduler.limits.set("old", concurrent=1)
    scheduler.limits.remove("old")
    scheduler.enqueue(fine, "mail").with_resource("mail").submit()
    scheduler.enqueue(fine, "sms").with_resource("sms").submit()
    for customer in ("seven", "eight"):
        scheduler.enqueue(fine, customer).with_fairness_key(customer).submit()
        scheduler.enqueue(fine, customer).with_concurrency_key(customer, limit=2).submit()
    scheduler.enqueue(calls, True).submit()
    scheduler.breakers.open("gateway")
    scheduler.enqueue(calls, True).submit()
    scheduler.breakers.open("other")
    scheduler.breakers.reset("other")


def _ended(scheduler: ManualScheduler) -> None:
    scheduler.enqueue(fine, {"ü": [1, None]}).with_priority(Priority.HIGH).with_param("region", "eu").submit()
    scheduler.enqueue(broken, "twice").with_max_retries(1).submit()
    scheduler.enqueue(saves).with_max_retries(3).with_backoff(
        BackoffPolicy.EXPONENTIAL, timedelta(minutes=5), jitter=0.1
    ).submit()
    scheduler.enqueue(large).submit()
    scheduler.enqueue(fine, 1).with_timeout(5).with_no_retry_for(ValueError, KeyError).submit()
    scheduler.enqueue(broken, "told").on_failure(told).submit()
    scheduler.enqueue(fine, "told").on_success(told).submit()
    canceled = scheduler.enqueue(fine, "never").with_delay(timedelta(days=1)).submit()
    canceled.cancel("not needed")


def _composed(scheduler: ManualScheduler) -> None:
    scheduler.enqueue(fine, 1).then(fine, RESULT).then(fine, RESULT).submit()
    scheduler.enqueue(broken, "chain").then(fine, RESULT).submit()
    scheduler.enqueue(fine, 20).when_result(is_high, fine, "high").then_on_failure(fine, "escalated").submit()
    scheduler.enqueue(fine, 5).when_result(is_high, fine, "high").then_on_success(fine, "archived").submit()
    later = scheduler.enqueue(fine, "later").with_delay(timedelta(hours=5)).submit()
    done = scheduler.enqueue(fine, "now").submit()
    scheduler.join([done, later], Join.ALL).then(fine, RESULTS).submit()
    scheduler.enqueue_batch("import").for_each([1, 2, 3], fine).then_on_batch_success(fine, "all").submit()
    scheduler.enqueue_batch("bad").for_each([1, 2], broken).then_on_batch_failure(fine, "alarm").submit()
    scheduler.enqueue(fine, "signaled").await_signal("order:1").submit()
    scheduler.signal("order:1", {"by": "ann"})
    scheduler.schedule_recurring("*/5 * * * *", fine, "cron", name="often", zone="Europe/Berlin")
    scheduler.schedule_recurring(
        "0 2 * * *", fine, "night", name="nightly", jitter=timedelta(seconds=30)
    ).pause()


def _waiting(scheduler: ManualScheduler, clock: ManualClock) -> None:
    """What is there when the store is moved, and has not been run."""
    scheduler.signal("order:2", {"by": "bob"})
    scheduler.enqueue(fine, "waits").await_signal("order:3", timeout=timedelta(hours=24)).submit()
    scheduler.enqueue(fine, "key").with_business_key("customer-1").with_idempotency_key("i-1").submit()
    scheduler.enqueue(fine, "tagged").with_tags("a", "b b", "ç").with_queue("mail").submit()
    scheduler.enqueue(fine, "expires").with_expiry(timedelta(hours=2)).submit()
    scheduler.enqueue(fine, "paused").submit().pause()
    dead = next(iter(scheduler.jobs.find(JobFilter(targets=[scheduler._name_of(broken)])).items))
    scheduler.pause_job(dead.id)
    scheduler.enqueue_batch("open").for_each([1, 2, 3], fine).then_on_batch_success(fine, "all").submit()
    scheduler.enqueue(fine, "parent").then(fine, RESULT).when_result(is_high, fine, 1).submit()
    scheduler.queues.pause("paused", until=clock.now() + timedelta(hours=1))
    scheduler.queues.pause("mail")
    scheduler.queues.resume("mail")
    clock.advance(timedelta(minutes=6))
    scheduler.schedules.get("often").trigger()


def _suspect(store: JobStore, clock: ManualClock) -> None:
    """A job that was running in two crashes."""
    steps = _Steps(store, clock)
    spec = steps.spec(target="tests.moves.samples:fine", queue="suspect")
    store.insert([spec], now=steps.now)
    for number in range(2):
        steps.register(node := f"crashes-{number}")
        claims = steps.claim(1, node_id=node, queues=("suspect",))
        if not claims:
            claims = steps.claim(1, node_id=node, queues=("suspect",), suspects=True)
        assert claims
        store.rescue(
            node,
            seen_beat=0,
            by="rescuer",
            max_crashes=3,
            now=steps.now,
            ran={claim.job_id: claim.claim_id for claim in claims},
        )


def _flow(store: JobStore, clock: ManualClock) -> None:
    minute = clock.now().replace(second=0, microsecond=0)
    runs = {"default": Tally(started=3, succeeded=2, failed=1, wait={3: 2}, run={5: 1})}
    store.record_flow([FlowPeriod(at=minute, source="node", runs=runs)])
    store.record_flow([FlowPeriod(at=minute - timedelta(hours=1), source="", seconds=600, runs=runs)])


# --- what a store holds --------------------------------------------------------------------------


def rows_of(store: Any) -> dict[RowKind, dict[tuple[Any, ...], dict[str, Any]]]:
    """Every neutral row, without what only some products store."""
    found: dict[RowKind, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for kind in RowKind:
        names = [one.name for one in FIELDS[kind] if not one.extra]
        rows = store.neutral_rows(kind, limit=100_000)
        found[kind] = {key_of(kind, row): {name: row[name] for name in names} for row in rows}
    return found


def seen_by_others(store: JobStore, clock: ManualClock) -> dict[str, Any]:
    """The same through the contract of a store, which knows nothing of neutral rows."""
    found: dict[str, Any] = {}
    cursor = None
    while True:
        page = store.find(JobFilter(include_archived=True), limit=500, cursor=cursor)
        for record in page.items:
            job_id = record.job_id
            found[str(job_id)] = (
                record,
                sorted(store.executions(job_id, uncounted=True), key=lambda run: run.claim_id),
                store.logs(job_id),
                sorted(store.edges_of(job_id), key=lambda edge: (edge.parent_id, edge.child_id)),
                store.alerts_of(job_id),
                store.parents_of(job_id),
            )
        cursor = page.next_cursor
        if cursor is None:
            break
    found["counts"] = store.counts()
    found["limits"] = store.limits()
    found["breakers"] = store.breakers()
    found["queues"] = [one for one in store.queues() if one.paused or one.pending or one.running]
    found["schedules"] = [(one, store.fires(one.spec.name, limit=100)) for one in store.schedules()]
    found["batches"] = [(one, store.batch_metrics(one.batch_id)) for one in store.batches(limit=100)]
    found["flow"] = store.flow(since=clock.now() - timedelta(days=1), until=clock.now() + timedelta(days=1))
    found["signals"] = {key: store.waiting_for(key) for key in ("order:1", "order:2", "order:3")}
    found["audit"] = [
        one
        for one in store.find_audit(AuditFilter(), limit=1000).items
        if one.object not in ("schema", "storage")
    ]
    return found
