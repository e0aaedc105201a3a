"""The scheduler's inside: what the api floor sees of it, and the node it runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ratchet.api.listeners import Middleware
from ratchet.api.recurring import Recurrence
from ratchet.model.breaker import Breaker, BreakerState
from ratchet.model.clock import Clock, DatabaseClock
from ratchet.model.composition import ScheduleSpec
from ratchet.model.decision import CanceledJob
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import InvalidJob, RatchetError
from ratchet.model.events import BreakerClosed, BreakerOpened, Event, JobDeadLettered
from ratchet.model.identifiers import IdSource, new_id
from ratchet.model.job import JobResultRow, JobSpec
from ratchet.model.options import Options
from ratchet.model.status import JobStatus, Priority
from ratchet.scheduler.dispatcher import Dispatcher
from ratchet.scheduler.lazy_store import LazyStore
from ratchet.scheduler.parts import Parts
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.shield import undisturbed
from ratchet.spi.store import JobStore, SendingStore

if TYPE_CHECKING:
    from ratchet.aio import AwaitableResults
    from ratchet.engine.assembly import NodeParts
    from ratchet.engine.events import EventBus
    from ratchet.engine.node import Node

logger = logging.getLogger("ratchet")


class Core:
    """
    Implements `Backend` over the engine; made by `Scheduler`.

    Nothing is opened and nothing of the engine is imported before the first use: modules that
    declare jobs must be cheap to import.
    """

    def __init__(
        self,
        *,
        open_store: Callable[[], JobStore],
        options: Options,
        parts: Parts,
        clock: Clock | None = None,
        ids: IdSource = new_id,
        alert: Callable[[JobDeadLettered], None] | None = None,
        url: str | None = None,
    ) -> None:
        #: Where the store is; None where it was passed as an object. It may hold credentials: never print it.
        self.url = url
        #: Set before `start` where another process beats for this node as well (``ratchet worker``).
        self.supervised = False
        #: The options in force.
        self.options = options
        self.parts = parts
        #: Names targets and finds them again.
        self.targets: InvocationResolver = parts.targets
        #: On whose behalf the calling code submits.
        self.caller: Callable[[], str | None] = parts.principal.current
        self.clock: Clock = clock if clock is not None else DatabaseClock()
        #: Seconds since an arbitrary point.
        self.monotonic: Callable[[], float] = self.clock.monotonic
        self._lazy = LazyStore(open_store, self.clock)
        #: The database's time, as last sampled; before the store is first used, this machine's.
        self.now: Callable[[], datetime] = self._lazy.now
        #: Makes job ids.
        self.ids = ids
        self._alert = alert
        self.middleware: list[Middleware] = []
        self.recurrences: list[Recurrence] = []
        self._events = Dispatcher(options.event_queue_size, parts.executor)
        #: Whether somebody listens for a kind of event.
        self.hears: Callable[[type[Event]], bool] = self._events.hears
        self._lock = threading.RLock()
        self._life = threading.RLock()  # one start or stop at a time; their hooks may use the scheduler
        self._limits: dict[str, int] = {}
        self._waiter: AwaitableResults | None = None
        self._node: Node | None = None
        self._lingering: Node | None = None
        self._cluster: ClusterCoordinator | None = None

    # --- the store ---

    @property
    def raw_store(self) -> JobStore:
        """The store, whether or not its schema is right."""
        return self._lazy.raw

    @property
    def store(self) -> JobStore:
        """The store, with its schema checked (or made) when it is first used."""
        checked = self._lazy.checked
        return checked if checked is not None else self._lazy.check(auto_migrate=self.options.auto_migrate)

    @property
    def sending(self) -> SendingStore | None:
        """The store, where a job can be sent to it without waiting, now."""
        return self._lazy.sending

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; the scripts that were applied."""
        return self.raw_store.migrate()

    # --- Backend ---

    def rest(self, seconds: float) -> None:
        """Wait before a submission is sent again."""
        time.sleep(seconds)

    def allow_type(self, module: str, qualname: str) -> bool:
        """True if a stored value of this class may be restored here."""
        return self.parts.policy.allows(f"{module}:{qualname}")

    def wait_for(self, job_id: UUID, timeout: float | None) -> JobResultRow | None:
        """The row of a job once it has ended; None when *timeout* seconds are over first."""
        try:
            return self.waiter.wait(job_id, timeout)
        except TimeoutError:
            return None

    async def await_end(self, job_id: UUID, timeout: float | None) -> JobResultRow | None:
        """The same without blocking the event loop, or a thread."""
        return await self.waiter.ended(job_id, timeout)

    def submitted(self, specs: Sequence[JobSpec], *, due: bool, priority: Priority) -> None:
        """Jobs were committed; where one is *due*, pollers here and elsewhere are told."""
        if not due:
            return
        node = self._node
        if node is not None:
            node.wake(specs[0].stream.lane if specs else None)
        cluster = self.cluster
        if cluster is not None and self.options.notify:
            cluster.notify_new_work(priority)

    def ensure_limit(self, name: str, concurrent: int, *, joined: bool) -> None:
        """A concurrency key was used with this limit; it is stored when this process first sees it."""
        if self._limits.get(name) == concurrent:
            return
        if joined and not self.store.capabilities.concurrent_writers:
            # Writing it would wait for the very transaction that is being joined.
            if not any(
                limit.name == name and limit.concurrent == concurrent for limit in self.store.limits()
            ):
                raise InvalidJob(
                    f"the limit of the concurrency key {name!r} is not stored yet, and {self.store.name} has one writer "
                    f"at a time: call scheduler.limits.set({name!r}, concurrent={concurrent}) before your transaction begins"
                )
        else:
            self.store.set_limit(name, concurrent=concurrent, now=self.now())
        self._limits[name] = concurrent

    def canceled(self, jobs: Sequence[CanceledJob]) -> None:
        """Jobs were canceled: runs in this process are stopped now, waiters told."""
        with undisturbed():
            if self._node is not None:
                for job in jobs:
                    if job.previous is JobStatus.RUNNING:
                        self._node.cancel_local(job.job_id)
            if self._waiter is not None:
                self._waiter.notice([job.job_id for job in jobs])

    def fire_times(self, spec: ScheduleSpec, after: datetime, anchor: datetime) -> Iterator[datetime]:
        """The fire times of a schedule after *after*."""
        from ratchet.engine.timetable import fire_times

        return iter(fire_times(spec, after, anchor))

    def run_of(self, spec: ScheduleSpec, fire_at: datetime) -> JobSpec:
        """The job that one fire time of a schedule becomes."""
        from ratchet.engine.recurring import run_spec

        return run_spec(spec, fire_at, self.ids)

    # --- events ---

    @property
    def bus(self) -> EventBus:
        """Where events go."""
        return self._events.bus

    def publish(self, event: Event) -> None:
        """Tell the listeners of this process, on the dispatcher thread."""
        with undisturbed():
            self.bus.publish(event)
            if self._node is None:
                self._events.wake()

    # --- waiting ---

    @property
    def waiter(self) -> AwaitableResults:
        """The one waiter of this process."""
        store = self.store
        with self._lock:
            if self._waiter is None:
                from ratchet.aio import AwaitableResults

                self._waiter = AwaitableResults(store, self.clock, self.parts.executor)
            return self._waiter

    # --- the node ---

    @property
    def cluster(self) -> ClusterCoordinator | None:
        """How other processes are woken; None where the store has no way and none was given."""
        known = self._cluster
        if known is not None:
            return known
        with self._lock:
            if self._cluster is None:
                self._cluster = self.parts.cluster or self.raw_store.coordinator()
            return self._cluster

    @property
    def running(self) -> bool:
        """True while this process is a node."""
        return self._node is not None

    @property
    def node(self) -> Node | None:
        """The node that this process is, while it runs."""
        return self._node

    def reconfigure(self, **changes: Any) -> None:
        """Change options before `start`: what an operator says on the command line wins over the code."""
        with self._lock:
            if self._node is not None:
                raise RatchetError(
                    "this scheduler is already running; stop() it before its options are changed"
                )
            self.options = self.options.replace(**changes)
            self._events.queue_size = self.options.event_queue_size

    def node_parts(self) -> NodeParts:
        """What a node of this scheduler is made of."""
        from ratchet.engine.assembly import NodeParts

        parts = self.parts
        return NodeParts(
            store=self.store,
            options=self.options,
            clock=self.clock,
            ids=self.ids,
            bus=self.bus,
            invocations=parts.targets,
            instances=parts.instances,
            sanitizer=parts.sanitizer,
            retry_policy=parts.retry_policy,
            resilience=parts.resilience(self.store, self.clock, self._breaker_moved),
            executor=parts.executor,
            polling=parts.polling,
            cluster=self.cluster,
            middleware=self.middleware,
            allow_type=self.allow_type,
            version=_version(),
            notice=lambda job_ids: None if self._waiter is None else self._waiter.notice(job_ids),
            alert=self._alert,
            supervised=self.supervised,
        )

    def _breaker_moved(self, service: str, before: Breaker, after: Breaker) -> None:
        """Tell listeners; jobs behind a breaker that has closed should not wait for the next poll, on any node."""
        if after.state is BreakerState.OPEN:
            self.publish(BreakerOpened(service=service, at=self.clock.now(), until=after.until))
        elif after.state is BreakerState.CLOSED:
            self.publish(BreakerClosed(service=service, at=self.clock.now()))
            self.submitted((), due=True, priority=Priority.NORMAL)

    def start(self) -> None:
        """Become a node; `RatchetError` if it is one already."""
        from ratchet.engine.node import Node

        with self._life:
            if self._node is not None:
                raise RatchetError("this scheduler is already running; stop() it before it is started again")
            self.parts.require_something_allowed()
            for hook in self.parts.hooks:
                hook.before_start()
            node = Node(self.node_parts())
            self.store_recurrences()
            self._events.quiet()
            node.start()
            self._node = node
            self._call_hooks("after_start", self.parts.hooks)

    def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """Stop being a node; True if every run has ended. Pending events are delivered first."""
        limit = None if timeout is None else to_timedelta(timeout, "the timeout").total_seconds()
        with self._life:
            node, ended = self._node, True
            if node is not None:
                self._call_hooks("before_stop", tuple(reversed(self.parts.hooks)))
                ended = node.stop(drain=drain, timeout=limit)
                self._node = None
                self._lingering = None if ended else node
                self._call_hooks("after_stop", tuple(reversed(self.parts.hooks)))
            self._events.quiet()
        return ended

    def close(self) -> None:
        """Stop, and free every connection; the next use opens them again."""
        self.stop()
        with self._lock:
            store, self._waiter = self._lazy.opened, None
            cluster, self._cluster = self._cluster, None
            lingering, self._lingering = self._lingering, None
        if cluster is not None:
            cluster.stop()
        if store is not None:
            store.close()
            if lingering is not None:
                # It goes on beating for code that does not end, and so opens the store again.
                lingering.when_ended(store.close)

    def store_recurrences(self) -> None:
        """Store the schedules that were declared; by option, remove those that are declared no more."""
        declared = {recurrence.store(self).name for recurrence in self.recurrences}
        if not self.options.remove_undeclared:
            return
        for record in self.store.schedules():
            if record.spec.declared and record.spec.name not in declared:
                logger.info("schedule %s is not in the code any more and is removed", record.spec.name)
                self.store.remove_schedule(record.spec.name)

    def _call_hooks(self, name: str, hooks: Sequence[Any]) -> None:
        for hook in hooks:
            try:
                getattr(hook, name)()
            except Exception:
                logger.exception("the lifecycle hook %r raised in %s", hook, name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ratchet-jobs")
    except PackageNotFoundError:  # a source tree on the path
        return "0"
