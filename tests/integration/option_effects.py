"""What each option changes, as something that can be seen: one function per option, from `Options` to what is observed."""

from __future__ import annotations

import logging
import os
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from ratchet import JobContext, JobFilter, JobStatus, Options, Priority, Scheduler
from ratchet.cli.worker.child import WorkerChild
from ratchet.cli.worker.messages import ChildSettings
from ratchet.engine.manual import ManualNode
from ratchet.engine.node import Node
from ratchet.model.clock import ManualClock
from ratchet.model.decision import Crashed
from ratchet.model.errors import JobNotFound, RatchetError, SchemaOutOfDate, StoreUnavailable
from ratchet.model.events import JobCompleted
from ratchet.model.metrics import Metric
from ratchet.model.status import Lane
from ratchet.spi.polling_strategy import PollObservation
from ratchet.stores import open_store
from ratchet.stores.memory import MemoryStore
from ratchet.testing import ManualScheduler

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

#: Urls of fresh servers and folders, by the name of the fixture.
Ask = Callable[[str], Any]
Effect = Callable[[Options, Ask], object]


# --- jobs of the effects ---------------------------------------------------------------------------

ran: list[str] = []


def note(name: str) -> str:
    ran.append(name)
    return name


def nothing() -> None: ...


def fail(text: str = "boom") -> None:
    ran.append("fail")
    raise ValueError(text)


def deep(depth: int) -> None:
    if depth:
        deep(depth - 1)
    raise ValueError("boom")


def failing_callback(ctx: JobContext) -> None:
    ran.append("callback")
    raise ValueError("boom")


during: list[Callable[[], None]] = []


def looked_at() -> None:
    for look in during:
        look()


def slow_condition(result: object) -> bool:
    threading.Event().wait(0.3)
    return True


def large_state() -> None:
    JobContext.current().state["text"] = "x" * 500


def talk(lines: int, text: str = "line") -> None:
    logger = JobContext.current().logger
    logger.setLevel(logging.DEBUG)
    logger.debug("%s in detail", text)
    for _ in range(lines):
        logger.info("%s", text)


# --- stands ----------------------------------------------------------------------------------------


def manual(options: Options, **given: Any) -> ManualScheduler:
    """A scheduler in memory on a manual clock; what ran before is forgotten."""
    ran.clear()
    return ManualScheduler(options=options, **given)


def node_of(scheduler: ManualScheduler) -> ManualNode:
    return scheduler._core.manual


def real_node(options: Options, **given: Any) -> Node:
    """The node of a scheduler in memory, not started."""
    scheduler = Scheduler(store=MemoryStore(), allow=[__name__], options=options, **given)
    return Node(scheduler._core.node_parts())


@contextmanager
def started(options: Options, **given: Any) -> Iterator[Node]:
    node = real_node(options, **given)
    node.start()
    try:
        yield node
    finally:
        node.stop(drain=False)


def advance(scheduler: ManualScheduler, by: timedelta) -> None:
    assert isinstance(scheduler.clock, ManualClock)
    scheduler.clock.advance(by)


def slots(lane: Lane) -> Effect:
    """How many jobs of a lane a node says it runs at once."""

    def effect(options: Options, ask: Ask) -> object:
        return real_node(options).assembly.coordinator.lanes[lane].slots

    return effect


# --- running jobs ----------------------------------------------------------------------------------


def queues(options: Options, ask: Ask) -> object:
    """Is a job of another queue run?"""
    scheduler = manual(options)
    handle = scheduler.enqueue(note, "a").with_queue("mail").immediate().submit()
    scheduler.drain()
    return handle.status()


def node_name(options: Options, ask: Ask) -> object:
    """What listings call the node."""
    scheduler = manual(options)
    scheduler.drain()
    return next(iter(scheduler.nodes.list())).name == "alpha"


def node_tags(options: Options, ask: Ask) -> object:
    """The words that listings show about the node."""
    scheduler = manual(options)
    scheduler.drain()
    return next(iter(scheduler.nodes.list())).about.tags


def max_crashes(options: Options, ask: Ask) -> object:
    """What becomes of a job whose process was killed once."""
    scheduler = manual(options)
    handle = scheduler.enqueue_now(note, "a")
    node = node_of(scheduler)
    node.register()
    node.assembly.poller.run_once(scheduler.clock.now())
    lane: Any = node.assembly.coordinator.lanes[Lane.THREAD]
    node.assembly.completer.put(lane.holding()[0], Crashed("killed"))
    node.assembly.completer.run_once(scheduler.clock.now())
    return handle.status()


def priority_boost_interval(options: Options, ask: Ask) -> object:
    """The order of an old job of low priority and a new one of normal priority."""
    scheduler = manual(options)
    scheduler.enqueue(note, "old").with_priority(Priority.LOW).immediate().submit()
    advance(scheduler, HOUR)
    scheduler.enqueue_now(note, "new")
    scheduler.drain()
    return list(ran)


def callback_retries(options: Options, ask: Ask) -> object:
    """How often a callback that fails is run, and what its row says."""
    scheduler = manual(options)
    scheduler.enqueue(note, "a").on_success(failing_callback).immediate().submit()
    for _ in range(10):
        scheduler.drain()
        advance(scheduler, HOUR)
    (callback,) = scheduler.jobs.find(JobFilter(statuses=[JobStatus.FAILED]))
    return ran.count("callback"), callback.max_retries


def condition_timeout(options: Options, ask: Ask) -> object:
    """Does a branch run whose condition takes 300 ms?"""
    scheduler = manual(options)
    scheduler.enqueue(note, "a").immediate().when_result(slow_condition, note, "branch").submit()
    scheduler.drain()
    return "branch" in ran


def chain_depth_limit(options: Options, ask: Ask) -> object:
    """Is a chain of three steps stored?"""
    scheduler = manual(options)
    try:
        scheduler.enqueue(note, "a").then(note, "b").then(note, "c").submit()
    except RatchetError:
        return False
    return True


def remove_undeclared(options: Options, ask: Ask) -> object:
    """Is a schedule kept that the code declares no more?"""
    url = f"sqlite:///{ask('tmp_path')}/{options.remove_undeclared}.db"
    with_schedule = Scheduler(url, allow=[__name__])
    with_schedule.recurring("0 2 * * *", name="nightly")(nothing)
    with with_schedule:
        pass
    later = Scheduler(url, allow=[__name__], options=options)
    with later:
        return [schedule.name for schedule in later.schedules.list()]


def resource_retry_delay(options: Options, ask: Ask) -> object:
    """How long an idle node rests while a job that is due waits for a permit."""
    scheduler = manual(options)
    scheduler.limits.set("gateway", concurrent=0)
    scheduler.enqueue(note, "a").with_resource("gateway").immediate().submit()
    poller = node_of(scheduler).assembly.poller
    for _ in range(5):
        poller.run_once(scheduler.clock.now())
        advance(scheduler, 10 * SECOND)
    return poller.rest


# --- liveness --------------------------------------------------------------------------------------


def beat(options: Options, ask: Ask) -> object:
    """What the node's row says about its beats."""
    scheduler = manual(options)
    scheduler.drain()
    (record,) = scheduler.backend.store.nodes()
    return record.beat_interval, record.silence


def idle_heartbeat(options: Options, ask: Ask) -> object:
    """The time between two beats of a node that was idle for long."""
    scheduler = manual(options)
    node = node_of(scheduler)
    node.register()
    heart = node.assembly.heartbeat
    for _ in range(40):
        advance(scheduler, heart.interval)
        heart.run_once(scheduler.clock.now())
    return heart.interval


def clock_skew_warning(options: Options, ask: Ask) -> object:
    """Is a difference of 3 s warned about?"""
    heart = node_of(manual(options)).assembly.heartbeat
    heart._warn_of_skew(3 * SECOND)
    return heart._skewed


# --- claiming --------------------------------------------------------------------------------------


def prefetch(rate: float) -> Effect:
    """How many jobs a lane asks for that starts *rate* jobs in a second."""

    def effect(options: Options, ask: Ask) -> object:
        lane: Any = real_node(options).assembly.coordinator.lanes[Lane.THREAD]
        lane._prefetch.rate.per_second = rate
        return lane.wanted()

    return effect


def hand_back_after(options: Options, ask: Ask) -> object:
    """What became of a job that was claimed two seconds ago and has not started."""
    scheduler = manual(options)
    handle = scheduler.enqueue_now(note, "a")
    node = node_of(scheduler)
    node.register()
    node.assembly.poller.run_once(scheduler.clock.now())
    advance(scheduler, 2 * SECOND)
    node.assembly.watch.run_once(scheduler.clock.now())
    node.assembly.completer.run_once(scheduler.clock.now())
    return handle.status()


def rests(*found: int, woken: bool = False, every: float = 1.0) -> Effect:
    """How long the stock strategy rests after polls that found so many jobs, *every* so many seconds; in seconds."""

    def effect(options: Options, ask: Ask) -> object:
        strategy = real_node(options)._parts.polling()
        if woken:
            strategy.woken()
        observations = [PollObservation(each, 10, index * every, 0.5) for index, each in enumerate(found)]
        return [strategy.next_delay(observation).total_seconds() for observation in observations][-1]

    return effect


def poll_delay_unwoken(options: Options, ask: Ask) -> object:
    """How long a node that no wakeup reaches rests between two polls; in seconds."""
    clock = ManualClock()
    with started(options, clock=clock) as node:
        for _ in range(5):  # the first poll is as good as woken, and a burst ends with an empty one
            clock.advance(SECOND)
            rest = node._polling._step()  # type: ignore[union-attr]  # a node that runs polls
        return rest


class Bell:
    """A coordinator that counts wakeups."""

    connected = True

    def __init__(self) -> None:
        self.rings = 0

    def notify_new_work(self, priority: Priority) -> None:
        self.rings += 1

    def register_wakeup_listener(self, listener: Callable[[], None]) -> None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...


def notify(options: Options, ask: Ask) -> object:
    """Does a submission wake other nodes?"""
    bell = Bell()
    scheduler = Scheduler(
        store=MemoryStore(), allow=[__name__], options=options, cluster_coordinator=bell, clock=ManualClock()
    )
    scheduler.enqueue_now(note, "a")
    scheduler.close()
    return bell.rings > 0


# --- completing ------------------------------------------------------------------------------------


class Noting(MemoryStore):
    """Notes how many completions each transaction had."""

    sizes: list[int]

    def complete(self, completions: Any, **given: Any) -> Any:
        self.sizes.append(len(completions))
        return super().complete(completions, **given)


def completion_batch(options: Options, ask: Ask) -> object:
    """How ten outcomes are divided into transactions."""
    store = Noting()
    store.sizes = []
    scheduler = manual(options, store=store)
    scheduler.enqueue_many(note, [(str(n),) for n in range(10)])
    node = ManualNode(scheduler._core.node_parts(), slots=20)
    node.register()
    node.assembly.poller.run_once(scheduler.clock.now())
    lane: Any = node.assembly.coordinator.lanes[Lane.THREAD]
    while lane.step():
        pass
    while node.assembly.completer.backlog():
        node.assembly.completer.run_once(scheduler.clock.now())
    return store.sizes


def event_queue_size(options: Options, ask: Ask) -> object:
    """Which of three events a listener hears that could not keep up."""
    scheduler = manual(options)
    heard: list[str] = []
    scheduler.on(JobCompleted)(lambda event: heard.append(event.target))
    bus = scheduler._core.bus
    for name in ("a", "b", "c"):
        facts = dict.fromkeys(("attempt", "business_key", "node_id", "at", "duration"))
        bus.publish(
            JobCompleted(
                job_id=UUID(int=1), target=name, status=JobStatus.SUCCEEDED, priority=Priority.NORMAL, **facts
            )  # type: ignore[arg-type]  # only the target is looked at
        )
    bus.flush()
    return heard


class Targets:
    """Meters that keep the targets of what was counted."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def add(self, metric: Metric, labels: tuple[str, ...], amount: float) -> None:
        if metric.labels[:1] == ("target",):
            self.seen.add(labels[0])

    def record(self, metric: Metric, labels: tuple[str, ...], values: Sequence[float]) -> None: ...

    def watch(self, metric: Metric, read: object) -> Callable[[], None]:
        return lambda: None


def metric_labels(options: Options, ask: Ask) -> object:
    """Is a second target counted under its own name?"""
    meters = Targets()
    scheduler = Scheduler(store=MemoryStore(), allow=[__name__], options=options)
    scheduler._core.meters.append(meters)
    with scheduler:
        scheduler.enqueue_now(note, "a").wait(timeout=20)
        scheduler.enqueue_now(nothing).wait(timeout=20)
    return f"{__name__}:nothing" in meters.seen


# --- stopping --------------------------------------------------------------------------------------


def drain_timeout(options: Options, ask: Ask) -> object:
    """How long `stop()` waits for running jobs unless it is told; in seconds."""
    return real_node(options)._limit(None)


def interrupt_grace(options: Options, ask: Ask) -> object:
    """How long the watch waits for interrupted code; in seconds."""
    return real_node(options).assembly.watch._grace


def slow_run_warning(options: Options, ask: Ask) -> object:
    """How many lines say that a run of 61 seconds is slow, when the watch looks at it twice?"""
    scheduler = manual(options)
    lines: list[str] = []

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    def look() -> None:
        advance(scheduler, 61 * SECOND)
        node_of(scheduler).assembly.watch.run_once(scheduler.clock.now())

    during[:] = [look, look]
    handler = Lines(logging.WARNING)
    logging.getLogger("ratchet.engine").addHandler(handler)
    try:
        scheduler.enqueue_now(looked_at)
        scheduler.drain()
    finally:
        logging.getLogger("ratchet.engine").removeHandler(handler)
    return sum("is slow" in line for line in lines)


def stuck_thread_limit(options: Options, ask: Ask) -> object:
    """Does a worker process with one stuck thread leave?"""
    child = WorkerChild("app:scheduler", ChildSettings(status=0, control=0, path=""))
    scheduler = Scheduler(store=MemoryStore(), allow=[__name__], options=options)
    node = Node(scheduler._core.node_parts())
    child._starting = True  # not while it is imported
    reports: list[object] = []

    def report(message: object) -> None:
        reports.append(message)
        if len(reports) > 3:
            child._leave.set()

    class Stuck:
        stuck = 1

        def __getattr__(self, name: str) -> Any:
            return getattr(node, name)

    child._node = Stuck()  # type: ignore[assignment]  # what the loop looks at
    child._report = report  # type: ignore[method-assign]  # there is no supervisor
    child._work(scheduler._core)
    return "threads ignored their interruption" in child._reason


# --- retention -------------------------------------------------------------------------------------


def keeps(
    job: Callable[..., Any], after: timedelta, seen: Callable[[ManualScheduler, UUID], object]
) -> Effect:
    """What is *seen* of a job, and of what belongs to it, *after* it has ended and the house was kept every day."""

    def effect(options: Options, ask: Ask) -> object:
        scheduler = manual(
            options, clock=ManualClock(datetime.now(UTC))
        )  # log lines have the time of this machine
        handle = scheduler.enqueue_now(job, 1) if job is talk else scheduler.enqueue_now(job, "a")
        scheduler.drain()
        rounds = 8
        for _ in range(rounds):
            advance(scheduler, after / rounds)
            node_of(scheduler).assembly.housekeeping.run_once(scheduler.clock.now())
        return seen(scheduler, handle.id)

    return effect


def is_there(scheduler: ManualScheduler, job_id: UUID) -> bool:
    """True if a search finds it outside of the archive."""
    return scheduler.jobs.count(JobFilter(include_archived=False)) > 0


def is_kept(scheduler: ManualScheduler, job_id: UUID) -> bool:
    with suppress(JobNotFound):
        return scheduler.jobs.get(job_id) is not None
    return False


def runs(scheduler: ManualScheduler, job_id: UUID) -> int:
    return len(list(scheduler.jobs.executions(job_id)))


def lines(scheduler: ManualScheduler, job_id: UUID) -> int:
    return len(list(scheduler.jobs.logs(job_id)))


def history_retention(options: Options, ask: Ask) -> object:
    """Is a run of a month ago still in the rates?"""
    scheduler = manual(options)
    scheduler.enqueue_now(note, "a")
    scheduler.drain()
    for _ in range(31):
        advance(scheduler, timedelta(days=1, seconds=10))
        scheduler.enqueue_now(note, "a")
        scheduler.drain()
        advance(scheduler, timedelta(minutes=1))
        scheduler.drain()
    points = scheduler.jobs.history(timedelta(days=40))
    return sum(point.started for point in points) > 30


def audit_retention(options: Options, ask: Ask) -> object:
    """How many entries of the audit log are left after four hundred days."""
    scheduler = manual(options)
    scheduler.queues.pause("emails")
    advance(scheduler, timedelta(days=400))
    node_of(scheduler).assembly.housekeeping.run_once(scheduler.clock.now())
    return len(scheduler.audit.find().items)


def signal_retention(options: Options, ask: Ask) -> object:
    """Does a waiter that comes two hours after its signal get it?"""
    scheduler = manual(options)
    scheduler.signal("order:1", {"by": "ann"})
    advance(scheduler, 2 * HOUR)
    handle = scheduler.enqueue(note, "a").await_signal("order:1").immediate().submit()
    scheduler.drain()
    return handle.status()


def dlq_alert_window(options: Options, ask: Ask) -> object:
    """Are two failures with the same error, half an hour apart, one alert?"""
    scheduler = manual(options)
    handle = scheduler.enqueue_now(fail)
    scheduler.drain()
    advance(scheduler, HOUR / 2)
    handle.retry()
    scheduler.drain()
    (letter,) = scheduler.dead_letters.find()
    return len(letter.alerts)


def interval_of(service: str) -> Effect:
    """How long a service of a running node rests after a round; in seconds."""

    def effect(options: Options, ask: Ask) -> object:
        with started(options) as node:
            return next(each._step() for each in node._services if each.name == service)

    return effect


# --- limits ----------------------------------------------------------------------------------------


def payload_limit(options: Options, ask: Ask) -> object:
    """Are arguments of 200 bytes accepted?"""
    try:
        manual(options).enqueue_now(note, "x" * 200)
    except RatchetError:
        return False
    return True


def result_limit(options: Options, ask: Ask) -> object:
    """Is a result of 200 bytes cut?"""
    scheduler = manual(options)
    handle = scheduler.enqueue_now(note, "x" * 200)
    scheduler.drain()
    return handle.job().result_truncated


def state_limit(options: Options, ask: Ask) -> object:
    """Does a job end well that keeps a checkpoint of 500 bytes?"""
    scheduler = manual(options)
    handle = scheduler.enqueue_now(large_state)
    scheduler.drain()
    return handle.status()


def error_limit(options: Options, ask: Ask) -> object:
    """Is an error message of 500 characters kept whole?"""
    scheduler = manual(options)
    handle = scheduler.enqueue_now(fail, "x" * 500)
    scheduler.drain()
    return len(handle.job().error or "") >= 500


def traceback_limit(options: Options, ask: Ask) -> object:
    """Is a traceback of more than 512 bytes kept whole?"""
    scheduler = manual(options)
    handle = scheduler.enqueue_now(deep, 3)
    scheduler.drain()
    (execution,) = scheduler.jobs.executions(handle.id)
    return len(execution.traceback or "") > 512


def logged(count: int, text: str = "line") -> Effect:
    """How many lines are kept of a job that logs one at DEBUG and *count* at INFO, and how long the last is."""

    def effect(options: Options, ask: Ask) -> object:
        scheduler = manual(options)
        handle = scheduler.enqueue_now(talk, count, text)
        scheduler.drain()
        kept = [line.message for line in scheduler.jobs.logs(handle.id) if line.message.startswith(text[:4])]
        return len(kept), len(kept[-1]) if kept else 0

    return effect


# --- database --------------------------------------------------------------------------------------


def auto_migrate(options: Options, ask: Ask) -> object:
    """Does a submission make the tables?"""
    scheduler = Scheduler(ask("postgresql_url"), allow=[__name__], options=options)
    try:
        scheduler.enqueue_now(note, "a")
    except SchemaOutOfDate:
        return False
    finally:
        scheduler.close()
    return True


def schema(options: Options, ask: Ask) -> object:
    """Are the tables in the schema of that name?"""
    store = open_store(ask("postgresql_url"), options)
    store.migrate()
    with store.begin() as connection:
        found = connection.execute(
            "SELECT schemaname FROM pg_tables WHERE tablename = 'scheduler_job'"
        ).fetchall()
    store.close()
    return "jobs" in [row[0] for row in found]


def pool_size(options: Options, ask: Ask) -> object:
    """How many connections a process lends before it says that all are in use."""
    store = open_store(ask("postgresql_url"), options.replace(connect_timeout=0.2, auto_migrate=True))
    store.migrate()
    open_ones: list[Any] = []
    try:
        for _ in range(20):
            block = store.begin()
            block.__enter__()
            open_ones.append(block)
    except StoreUnavailable:
        pass
    finally:
        for block in reversed(open_ones):
            block.__exit__(None, None, None)
        store.close()
    return len(open_ones)


def connect_timeout(options: Options, ask: Ask) -> object:
    """Is a server given up that takes connections and says nothing?"""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = open_store(f"postgresql://u@127.0.0.1:{silent.getsockname()[1]}/x", options)
        found: list[object] = []
        asking = threading.Thread(target=lambda: found.append(_refusal(store)), daemon=True)
        asking.start()
        asking.join(5)
        return bool(found)


def _refusal(store: Any) -> str:
    with pytest.raises(StoreUnavailable) as refused:
        store.counts()
    return str(refused.value)


def statement_timeout(options: Options, ask: Ask) -> object:
    """What the server is told about the time of a statement."""
    store = open_store(ask("postgresql_url"), options)
    store.migrate()
    with store.begin() as connection:
        (value,) = connection.execute("SHOW statement_timeout").fetchone()
    store.close()
    return value


def sqlite_synchronous(options: Options, ask: Ask) -> object:
    """What the connection says (1: NORMAL, 2: FULL, 3: EXTRA)."""
    store = open_store(f"sqlite:///{ask('tmp_path')}/{options.sqlite_synchronous}.db", options)
    with store.begin() as connection:
        assert isinstance(connection, sqlite3.Connection)
        return connection.execute("PRAGMA synchronous").fetchone()[0]


def sqlite_busy_timeout(options: Options, ask: Ask) -> object:
    """Is another program that keeps the write lock given up within 5 s?"""
    path = f"{ask('tmp_path')}/{options.sqlite_busy_timeout}.db"
    store = open_store(f"sqlite:///{path}", options)
    store.migrate()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    found: list[object] = []

    def write() -> None:
        with suppress(StoreUnavailable), store.begin():
            pass
        found.append(True)

    asking = threading.Thread(target=write, daemon=True)
    asking.start()
    asking.join(3)
    gave_up = bool(found)
    other.execute("ROLLBACK")
    asking.join(30)
    return gave_up


CORES = os.cpu_count() or 1
