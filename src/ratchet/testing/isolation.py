"""
Test mode for a scheduler that exists already: for a while it lives in memory, and nothing reaches its database.

Code under test imports the scheduler of the application, and may have made builders and handles before the test began. All of
them hold the scheduler's `Core`. So the core itself changes: its class becomes `IsolatedCore`, whose store, clock and
ids are those of the `World` of the test that is asking. What belongs to the real store stays in the core, out of reach, until
the last test has left.

Each test has a world of its own, found by a context variable, so that tests in several threads do not see each other's jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar
from unittest import TestCase

from ratchet.api.observe.queries import Jobs
from ratchet.engine.manual import ManualNode
from ratchet.model.clock import Clock, ManualClock
from ratchet.model.cluster import KeyLimit
from ratchet.model.durations import Duration
from ratchet.model.errors import RatchetError
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import Job
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core, LazyStore
from ratchet.scheduler.nodes import store_recurrences
from ratchet.stores.memory import MemoryStore
from ratchet.stores.memory.state import State, Transaction
from ratchet.testing.manual import Enqueued, ManualCore

T = TypeVar("T")

_lock = threading.RLock()


class IsolatedState(State):
    """Tables in memory that take any ``within=``."""

    def run(self, operation: Callable[[], T], *, within: object | None = None) -> T:
        """Carry out *operation*; a transaction of another database is left alone, and it is done at once."""
        return super().run(operation, within=within if isinstance(within, Transaction) else None)


class IsolatedStore(MemoryStore):
    """
    A store in memory that takes any ``within=``.

    What joins a transaction of the application's database is done at once: a test often rolls its transaction back at the
    end, and wants to see the job before.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock.now)
        self._state = IsolatedState(lock_wait=self._state.lock_wait, database_time=clock.now)


class World:
    """What one test sees of a scheduler instead of the real thing."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        store = IsolatedStore(clock)
        self.lazy = LazyStore(lambda: store, clock)
        self.now = self.lazy.now
        self.monotonic = clock.monotonic
        self.ids = IdFactory.seeded(clock, 0)
        self.limits: dict[str, KeyLimit] = {}
        self.manual: ManualNode | None = None
        self.running = False
        self.is_open = True


#: The worlds of this context, by the id of the core that they belong to.
_current: ContextVar[dict[int, World]] = ContextVar("ratchet_isolation", default={})  # noqa: B039 - never changed in place


def _of_world(name: str) -> Any:
    """An attribute of the core that is the world's while a test isolates it."""

    def read(core: IsolatedCore) -> Any:
        return getattr(core.world, name)

    def write(core: IsolatedCore, value: Any) -> None:
        setattr(core.world, name, value)

    return property(read, write)


class IsolatedCore(ManualCore):
    """A core whose store, clock and node are those of a test. It is never made: a real core becomes one."""

    # Data descriptors come before what the instance has: the real store and clock stay there untouched.
    clock = _of_world("clock")
    now = _of_world("now")
    monotonic = _of_world("monotonic")
    ids = _of_world("ids")
    _lazy = _of_world("lazy")
    _limits = _of_world("limits")
    _manual = _of_world("manual")

    @property
    def world(self) -> World:
        """The world of the test that is asking."""
        world = _current.get().get(id(self))
        if world is not None and world.is_open:
            return world
        with _lock:
            worlds = _worlds(self)
            if len(worlds) == 1:
                return worlds[0]
        raise RatchetError(
            f"{len(worlds)} tests isolate this scheduler at the same time, and this thread belongs to none of them; start "
            f"it with contextvars.copy_context().run"
        )

    #: What is stored in memory joins no transaction of the database. A property: it comes before what the real core has.
    surrounding: Any = property(lambda core: None)

    @property
    def cluster(self) -> None:
        """Nobody else is woken."""
        return

    @property
    def running(self) -> bool:
        """True between `start` and `stop`, though nothing runs by itself."""
        return self.world.running

    def start(self) -> None:
        """Store the schedules that code declares, as a real start does. No thread begins: ``drain()`` runs the jobs."""
        if self.world.running:
            raise RatchetError("this scheduler is already running; stop() it before it is started again")
        self.import_modules()
        store_recurrences(self)
        self.world.running = True

    def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> bool:
        """Deliver what events there are."""
        self.world.running = False
        return super().stop(drain=drain, timeout=timeout)

    def close(self) -> None:
        """There is no connection to free."""
        self.stop()


class Isolation(Enqueued):
    """
    What `isolated` gives: a clock, ``drain()`` and assertions for the schedulers of this test.

    With several schedulers, ``drain()`` runs the jobs of all of them, and the assertions are about the first one; ``of`` gives those of
    another.
    """

    def __init__(self, schedulers: Sequence[Scheduler], clock: Clock) -> None:
        self.clock = clock
        self.schedulers = tuple(schedulers)
        self.scheduler = schedulers[0]
        self._core = schedulers[0]._core

    @property
    def jobs(self) -> Jobs:
        """Reads the jobs of the first scheduler."""
        return self.scheduler.jobs

    def of(self, scheduler: Scheduler) -> Isolation:
        """The assertions about *scheduler*."""
        return Isolation([scheduler], self.clock)

    def drain(self, limit: int = 1_000_000) -> int:
        """
        Run everything that is due now and what follows from it, in order, here; how many runs that took.

        Retries, schedules, signals that timed out and expiry are included; what is due later is not.
        """
        total = 0
        while True:
            ran = sum(_isolated_core(scheduler).drain(limit) for scheduler in self.schedulers)
            total += ran
            if not ran or len(self.schedulers) == 1:
                return total

    def enqueued_jobs(self) -> list[Job]:
        """Every job of all schedulers of this test, in the order of their submission."""
        found = [job for scheduler in self.schedulers for job in self.of(scheduler).enqueued()]
        return sorted(found, key=lambda job: job.id)


@contextmanager
def isolated(*schedulers: Scheduler, clock: Clock | None = None) -> Iterator[Isolation]:
    """
    Let *schedulers* live in memory, on a clock that you move, while the block runs.

    Nothing reaches their databases meanwhile: neither submissions nor questions, also not from builders and handles
    that were made before. Listeners, middleware and declared jobs are the application's own. ``start()`` stores the schedules that are
    declared and starts no thread; ``drain()`` runs what is due. A scheduler that is running is refused: stop it first.
    """
    if not schedulers:
        raise RatchetError("isolated() takes the schedulers of your application: isolated(shop.scheduler)")
    for scheduler in schedulers:
        if not isinstance(scheduler, Scheduler):
            raise RatchetError(f"isolated() takes schedulers, not {scheduler!r}")
    own = clock if clock is not None else ManualClock()
    before = _current.get()
    worlds = [_enter(scheduler._core, own) for scheduler in schedulers]
    _current.set({**before, **{id(s._core): world for s, world in zip(schedulers, worlds, strict=True)}})
    try:
        yield Isolation(schedulers, own)
    finally:
        # Set, not reset: a fixture may be torn down in another context than it was set up in.
        _current.set(before)
        for scheduler, world in zip(schedulers, worlds, strict=True):
            _leave(scheduler._core, world)


class IsolatedTestCase(TestCase):
    """
    A `unittest.TestCase` whose tests isolate the schedulers that ``ratchet_schedulers`` names.

    Works as a mixin too: ``class TestCheckout(IsolatedTestCase, django.test.TestCase)``. ``self.ratchet`` is the `Isolation`.
    """

    ratchet_schedulers: Sequence[Scheduler] = ()

    def setUp(self) -> None:
        """Begin with an empty store in memory."""
        super().setUp()
        self.ratchet = self.enterContext(isolated(*self.ratchet_schedulers))


def _enter(core: Core, clock: Clock) -> World:
    with _lock:
        if isinstance(core, ManualCore) and not isinstance(core, IsolatedCore):
            raise RatchetError("a manual scheduler lives in memory already; it needs no isolation")
        if not isinstance(core, IsolatedCore):
            if core.running:
                raise RatchetError("this scheduler is running: stop() it before its tests isolate it")
            core.__dict__["_real_class"] = type(core)
            core.__dict__["_worlds"] = []
            core.__class__ = IsolatedCore
        world = World(clock)
        _worlds(core).append(world)
        return world


def _leave(core: Core, world: World) -> None:
    with _lock:
        if world.manual is not None:
            world.manual.close()
        world.is_open = False
        _worlds(core).remove(world)
        if not _worlds(core):
            core.__class__ = core.__dict__.pop("_real_class")
            del core.__dict__["_worlds"]


def _worlds(core: Core) -> list[World]:
    found: list[World] = core.__dict__["_worlds"]
    return found


def _isolated_core(scheduler: Scheduler) -> IsolatedCore:
    core = scheduler._core
    if not isinstance(core, IsolatedCore):
        raise RatchetError("this test is over: its scheduler is the real one again")
    return core
