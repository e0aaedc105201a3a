"""
The inside of a scheduler: its store, its events, and the node that it runs.

`Core` is what the rooms below see of a scheduler (`Backend`). `LazyStore` and `Dispatcher` are the two
parts of it that exist only once they are used.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from ratchet.api.authorization import by_hand
from ratchet.api.event_loops import refuse_on_event_loop, warn_on_event_loop
from ratchet.api.listeners import Middleware
from ratchet.api.recurring import Recurrence
from ratchet.api.threads import in_thread
from ratchet.config import resolve_drain, resolve_url
from ratchet.defaults.guarded_tracers import guarded_tracers
from ratchet.model.clock import Clock, DatabaseClock
from ratchet.model.cluster import KeyLimit
from ratchet.model.composition import ScheduleSpec
from ratchet.model.decision import CanceledJob
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import ConfigurationError, RatchetError, SchemaOutOfDate, StoreError
from ratchet.model.events import Event, JobDeadLettered
from ratchet.model.identifiers import IdSource, new_id
from ratchet.model.job import JobResultRow, JobSpec
from ratchet.model.masking import Masking
from ratchet.model.options import Options
from ratchet.model.permissions import Permission
from ratchet.model.script import MAIN, importable_name
from ratchet.model.status import JobStatus, Priority
from ratchet.scheduler.acting import Acting
from ratchet.scheduler.importing import import_modules, module_names
from ratchet.scheduler.nodes import call_hooks, node_parts, nothing, store_recurrences
from ratchet.scheduler.parts import Parts
from ratchet.spi.cluster_coordinator import ClusterCoordinator
from ratchet.spi.codec_keys import has_keys
from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.invocation_resolver import InvocationResolver
from ratchet.spi.lifecycle_hook import LifecycleHook
from ratchet.spi.meters import Meters
from ratchet.spi.payload_codec import PayloadCodec
from ratchet.spi.shield import undisturbed
from ratchet.spi.store import JobStore, SendingStore
from ratchet.spi.store.audit import by_node
from ratchet.spi.surrounding_transaction import SurroundingTransaction
from ratchet.spi.tracer import Tracer

if TYPE_CHECKING:
    from ratchet.aio import AwaitableResults
    from ratchet.engine.assembly import NodeParts
    from ratchet.engine.events import EventBus
    from ratchet.engine.node import Node
    from ratchet.engine.service import Service
    from ratchet.engine.started_runs import StartedRuns
    from ratchet.scheduler.key_limits import KeyLimits

logger = logging.getLogger("ratchet")

#: Seconds after which a process that only submits asks for the database's time again.
RESAMPLE_AFTER = 600.0


class LazyStore:
    """Opens the store at the first use, and checks or makes its schema once."""

    def __init__(
        self, open_store: Callable[[], JobStore], clock: Clock, codec: PayloadCodec | None = None
    ) -> None:
        #: Makes the store; may be another one until the first use.
        self.open_store = open_store
        self._clock = clock
        self._codec = codec
        #: Show what is encrypted as such, though there is no codec; for processes that only look.
        self.shows_sealed = False
        self._lock = threading.RLock()
        self._sampled_at: float | None = None
        #: The store, if it was opened.
        self.opened: JobStore | None = None
        #: The store, if its schema was found right.
        self.checked: JobStore | None = None

    @property
    def raw(self) -> JobStore:
        """The store, whether or not its schema is right."""
        with self._lock:
            if self.opened is None:
                self.opened = self.open_store()
                if self._codec is not None or self.shows_sealed:
                    from ratchet.stores.sealed import sealed

                    self.opened = sealed(self.opened, self._codec)
            return self.opened

    def check(self, *, auto_migrate: bool) -> JobStore:
        """The store, with its schema checked (or made) when this is first called."""
        with self._lock:
            store = self.raw
            if self.checked is None:
                self._prepare(store, auto_migrate)
                self.checked = store
                self._sample(store)
        return store

    def _prepare(self, store: JobStore, auto_migrate: bool) -> None:
        # Checked first: a migration takes the write lock, which the caller of submit(within=…) may hold.
        try:
            store.check_schema()
        except SchemaOutOfDate:
            if not (auto_migrate or store.capabilities.migrates_itself):
                raise
            with by_node("upgrade", "schema"):
                store.migrate()

    def now(self) -> datetime:
        """The database's time, as last sampled; before the store is first used, this machine's."""
        if self._is_stale():
            self._sample(self.raw)
        return self._clock.now()

    def _is_stale(self) -> bool:
        return self._sampled_at is not None and self._clock.monotonic() - self._sampled_at > RESAMPLE_AFTER

    @property
    def sending(self) -> SendingStore | None:
        """The store, if it can be used without waiting: it must be open, checked, and its time be known."""
        store = self.checked
        if store is None or self._is_stale() or not store.capabilities.sends:
            return None
        return cast("SendingStore", store)

    def _sample(self, store: JobStore) -> None:
        if not isinstance(self._clock, DatabaseClock):
            return
        asked = self._clock.monotonic()
        self._sampled_at = asked
        try:
            told = store.database_time()
        except StoreError as error:
            logger.debug("the database's time could not be read: %s", error)
        else:
            self._clock.sample(told, self._clock.monotonic() - asked)


class Dispatcher:
    """
    The event bus of a scheduler, and a thread that delivers its events while no node does.

    Both are made when they are first needed: a process without listeners and events has neither.
    """

    def __init__(self, queue_size: int, executor: ExecutorProvider) -> None:
        #: How many events may wait; read when the bus is made.
        self.queue_size = queue_size
        self._executor = executor
        self._lock = threading.RLock()
        self._bus: EventBus | None = None
        self._delivering: Service | None = None

    @property
    def bus(self) -> EventBus:
        """Where events go."""
        with self._lock:
            if self._bus is None:
                from ratchet.engine.events import EventBus

                self._bus = EventBus(self.queue_size)
            return self._bus

    def hears(self, event: type[Event]) -> bool:
        """True if somebody listens for *event*."""
        return self._bus is not None and self._bus.wants(event)

    def wake(self) -> None:
        """Have queued events delivered by a thread, in a process that is not a node."""
        from ratchet.engine.service import Service

        with self._lock:
            if self._delivering is None:
                bus = self.bus

                def deliver() -> float:
                    bus.run_once()
                    return 60.0  # `wake` ends the rest

                service = Service("events", deliver, self._executor)
                try:
                    service.start()
                except RuntimeError as error:  # no more threads, or the interpreter is ending
                    # What the event tells of has happened: its caller must not see a failure.
                    logger.warning("listeners hear of this later: %s", error)
                    return
                self._delivering = service
            delivering = self._delivering
        delivering.wake()

    def flush(self) -> None:
        """Deliver what is queued, here and now."""
        if self._bus is not None:
            self._bus.flush()

    def quiet(self) -> None:
        """End that thread, and deliver what is queued."""
        with self._lock:
            delivering, self._delivering = self._delivering, None
        if delivering is not None:
            delivering.stop()
        self.flush()


class Core(Acting):
    """
    Implements `Backend` over the engine; made by `Scheduler`.

    Nothing is opened and nothing of the engine is imported before the first use: modules that
    declare jobs must be cheap to import.
    """

    #: True if jobs run when the caller says so, and no node has to be alive.
    driven_by_hand = False
    #: Finds the framework's transaction around the caller; None: there is no such framework.
    surrounding: SurroundingTransaction | None = None

    def __init__(
        self,
        *,
        open_store: Callable[[], JobStore] | None,
        options: Options,
        parts: Parts,
        clock: Clock | None = None,
        ids: IdSource = new_id,
        alert: Callable[[JobDeadLettered], None] | None = None,
    ) -> None:
        #: Where the store is; None if it was passed as an object, or not named yet. It may hold credentials: never print it.
        self.url: str | None = None
        #: Set before `start` if another process beats for this node too (``ratchet worker``).
        self.supervised = False
        #: What is done when somebody asks this node to stop, from afar.
        self.on_stop_request: Callable[[], None] = self._stop_soon
        self.started_runs: StartedRuns | None = None
        #: Modules that are imported before this process becomes a node.
        self.imports: tuple[str, ...] = ()
        #: The options in force.
        self.options = options
        self.parts = parts
        #: Names targets and finds them again.
        self.targets: InvocationResolver = parts.targets
        #: What people do not see of the jobs of any target.
        self.masking: Masking | None = parts.masking
        #: Whether values of these keys can be read here.
        self.has_keys: Callable[[Iterable[str]], bool] = partial(has_keys, parts.codec)
        self.caller = nobody if parts.principal is None else parts.principal.current
        self.authorizer = parts.authorizer
        self.quotas = parts.quotas
        if clock is not None and not (
            callable(getattr(clock, "now", None)) and callable(getattr(clock, "monotonic", None))
        ):
            raise ConfigurationError(f"clock has the methods now() and monotonic(); {clock!r:.100} has not")
        self.clock: Clock = clock if clock is not None else DatabaseClock()
        #: Seconds since an arbitrary point.
        self.monotonic: Callable[[], float] = self.clock.monotonic
        self._lazy = LazyStore(open_store or self._open_default, self.clock, parts.codec)
        #: The database's time, as last sampled; before the store is first used, this machine's.
        self.now: Callable[[], datetime] = self._lazy.now
        #: Makes job ids.
        self.ids = ids
        self._alert = alert
        self.middleware: list[Middleware] = []
        #: Where the measurements of the next node go.
        self.meters: list[Meters] = list(parts.meters)
        #: Who follows what is submitted, and the runs of the next node; None: nobody.
        self.tracer: Tracer | None = parts.tracer
        self.recurrences: list[Recurrence] = []
        self._events = Dispatcher(options.event_queue_size, parts.executor)
        #: Whether somebody listens for a kind of event.
        self.hears: Callable[[type[Event]], bool] = self._events.hears
        self._lock = threading.RLock()
        self._life = threading.RLock()  # one start or stop at a time; their hooks may use the scheduler
        self._key_limits: KeyLimits | None = None
        self._waiter: AwaitableResults | None = None
        self._node: Node | None = None
        self._started_in = 0  # the process that was started as a node
        self._still_running: Node | None = None  # stopped, but some code of its jobs has not ended
        self._cluster: ClusterCoordinator | None = None
        self._drain: timedelta | None = None  # what the environment says, read at the start

    # --- the store ---

    def use_store(self, url: str, options: Options) -> None:
        """Name the store, before anything has used it."""
        from ratchet.stores import open_store

        opened = open_store(url, options)
        with self._lock:
            if self._lazy.opened is not None or self.running:
                raise ConfigurationError(
                    f"this scheduler has used its store already ({self.store_name}); configure it before anything is "
                    f"submitted, asked or started"
                )
            self.url, self.options = url, options
            self._events.queue_size = options.event_queue_size
            self.parts.follow(options)
            self._lazy.open_store = lambda: opened

    def _open_default(self) -> JobStore:
        """Nobody has named the store until its first use."""
        from ratchet.stores import open_store

        self.url = resolve_url()
        return open_store(self.url, self.options)

    @property
    def store_name(self) -> str:
        """What kind of store it is, for people; nothing is opened for it."""
        opened = self._lazy.opened
        if opened is None and self.url is None:
            return "no store yet"
        return self.raw_store.name if opened is None else opened.name

    @property
    def raw_store(self) -> JobStore:
        """The store, whether or not its schema is right."""
        return self._lazy.raw

    @property
    def store(self) -> JobStore:
        """The store, with its schema checked (or made) when it is first used."""
        # `on_event_loop`, spelled out: every submission comes by here
        events = sys.modules.get("asyncio.events")
        if events is not None and events._get_running_loop() is not None and not self.driven_by_hand:
            warn_on_event_loop()
        checked = self._lazy.checked
        return checked if checked is not None else self._lazy.check(auto_migrate=self.options.auto_migrate)

    @property
    def sending(self) -> SendingStore | None:
        """The store, if a job can be sent to it now without waiting; else None. An authorizer and quotas may take their time."""
        return self._lazy.sending if self.authorizer is None and self.quotas is None else None

    def show_sealed(self) -> None:
        """Show what is encrypted as such, though this scheduler has no codec; before the store is first used."""
        self._lazy.shows_sealed = True

    def migrate(self) -> list[str]:
        """Create or upgrade the schema; the scripts that were applied."""
        with by_hand(self, Permission.SCHEMA, "upgrade", about="schema", store=self.raw_store):
            return self.raw_store.migrate()

    # --- Backend ---

    def rest(self, seconds: float) -> None:
        """Wait before a submission is sent again."""
        time.sleep(seconds)

    def allow_type(self, module: str, qualname: str) -> bool:
        """True if a stored value of this class may be restored here."""
        allows = self.parts.policy.allows
        if allows(f"{module}:{qualname}"):
            return True
        # a script may be allowed under its own name or as __main__, as for targets
        return module == importable_name(MAIN) and allows(f"{MAIN}:{qualname}")

    def sanitized(self, text: str) -> str:
        """*text* without secrets, as it may be stored."""
        return self.parts.sanitizer.sanitize_text(text)

    def wait_for(
        self, job_id: UUID, timeout: float | None, *, uncommitted: bool = False
    ) -> JobResultRow | None:
        """The row of a job once it has ended; None if it has not after *timeout* seconds, `JobNotFound` if it is gone."""
        if timeout is None or timeout > 0:
            refuse_on_event_loop()
        try:
            return self.waiter.wait(job_id, timeout, uncommitted=uncommitted)
        except TimeoutError:
            return None

    async def await_end(
        self, job_id: UUID, timeout: float | None, *, uncommitted: bool = False
    ) -> JobResultRow | None:
        """The same, and it blocks neither the event loop nor a thread."""
        waiter = self._waiter if self._waiter is not None else await in_thread(lambda: self.waiter)
        return await waiter.ended(job_id, timeout, uncommitted=uncommitted)

    def submitted(self, specs: Sequence[JobSpec], *, due: bool, priority: Priority) -> None:
        """Jobs were committed; if one is *due*, pollers here and elsewhere are woken."""
        if not due:
            return
        node = self._node
        if node is not None:
            node.wake(specs[0].stream.lane if specs else None)
        cluster = self.cluster
        if cluster is None or not self.options.notify:
            return
        if cluster is self.parts.cluster or not self.raw_store.capabilities.commit_wakes:
            cluster.notify_new_work(priority)

    def ensure_limit(self, name: str, limit: KeyLimit, *, joined: bool) -> None:
        """Store the limit of a key, if this process has not done so within the last hour."""
        if self._key_limits is None:
            from ratchet.scheduler.key_limits import KeyLimits

            self._key_limits = KeyLimits(self)
        self._key_limits.ensure(name, limit, joined=joined)

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
        """How other processes are woken; None if the store has no way and the user gave none."""
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

    def also_import(self, modules: Iterable[str]) -> None:
        """Name more modules to import before `start`."""
        self.imports = module_names([*self.imports, *module_names(modules)])

    def reconfigure(self, **changes: Any) -> None:
        """Change options before `start`; the command line uses it, since its options win over the code."""
        with self._lock:
            if self._node is not None:
                raise RatchetError(
                    "this scheduler is already running; stop() it before its options are changed"
                )
            self.options = self.options.replace(**changes)
            self._events.queue_size = self.options.event_queue_size

    def node_parts(self) -> NodeParts:
        """What a node of this scheduler is made of."""
        return node_parts(self, alert=self._alert, notice=self._notice)

    def _notice(self, job_ids: Sequence[UUID]) -> None:
        if self._waiter is not None:
            self._waiter.notice(job_ids)

    def add_tracer(self, tracer: Tracer) -> None:
        """Let *tracer* follow too what is submitted from now on, and the runs of nodes that start from now on."""
        self.tracer = guarded_tracers(self.tracer, tracer)

    def import_modules(self) -> None:
        """Import what declares the jobs that a node of this scheduler runs."""
        import_modules(self.imports)

    def start(self) -> None:
        """Become a node; `RatchetError` if it is one already. What a start that fails has begun is undone."""
        with self._life:
            if self._node is not None:
                raise RatchetError(
                    "this scheduler is already running; stop() it before it is started again"
                    if self._started_in == os.getpid()
                    else f"this process was forked from process {self._started_in}, in which this scheduler runs, and cannot "
                    f"run it too; start it after the fork, or make another Scheduler here"
                )
            self._started_in = os.getpid()
            self._drain = resolve_drain()
            self.parts.registry.is_closed = False
            self.import_modules()
            self.parts.require_something_allowed()
            begun: list[LifecycleHook] = []
            try:
                for hook in self.parts.hooks:
                    getattr(hook, "before_start", nothing)()
                    begun.append(hook)
                self._node = self._started_node()
            except BaseException:
                call_hooks("after_stop", begun[::-1])
                raise
            call_hooks("after_start", self.parts.hooks)

    def _started_node(self) -> Node:
        from ratchet.engine.node import Node

        node = Node(self.node_parts())
        store_recurrences(self)
        self._events.quiet()
        node.start()
        return node

    @property
    def drain_time(self) -> timedelta:
        """How long running jobs get to finish, if a stop does not say."""
        return self.options.drain_timeout if self._drain is None else self._drain

    def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """Stop being a node; True if every run has ended. Pending events are delivered first."""
        limit = self.drain_time if timeout is None else to_timedelta(timeout, "the timeout")
        with self._life:
            node, ended = self._node, True
            if node is not None:
                call_hooks("before_stop", tuple(reversed(self.parts.hooks)))
                ended = node.stop(drain=drain, timeout=limit)
                self._node = None
                self._still_running = None if ended else node
                call_hooks("after_stop", tuple(reversed(self.parts.hooks)))
            self._events.quiet()
        return ended

    def _stop_soon(self) -> None:
        """Stop from another thread: the one that has learned of the request is one of those that a stop ends."""
        threading.Thread(target=self.stop, name="ratchet-stop", daemon=True).start()

    def close(self) -> None:
        """Stop, and free every connection; the next use opens them again."""
        self.stop()
        self.parts.registry.is_closed = True
        with self._lock:
            store, self._waiter = self._lazy.opened, None
            cluster, self._cluster = self._cluster, None
            still_running, self._still_running = self._still_running, None
        if cluster is not None:
            cluster.stop()
        if store is not None:
            store.close()
            if still_running is not None:
                # It beats until that code ends, and so opens the store again.
                still_running.when_ended(store.close)


def nobody() -> str | None:
    """The caller of a job where no `PrincipalProvider` was given."""
    return None
