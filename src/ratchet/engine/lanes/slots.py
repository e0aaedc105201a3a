"""`SlotLane`: what lanes with workers of their own have in common, the runs that wait, and how many more to claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Required, TypedDict

from ratchet.engine.run import Run
from ratchet.engine.task import Completing, JobTask
from ratchet.model.clock import Clock
from ratchet.spi.executor_provider import ExecutorProvider


class Wiring(TypedDict, total=False):
    """What `SlotLane` takes, for the lanes that pass it on."""

    slots: Required[int]
    task: Required[JobTask]
    completer: Required[Completing]
    clock: Required[Clock]
    executor: Required[ExecutorProvider]
    on_started: Callable[[Run], None]
    on_room: Callable[[], None]
    max_prefetch: int
    prefetch_window: float


class SlotLane:
    """What the lane is connected to, the runs that wait for a slot, and those that have one."""

    def __init__(
        self,
        *,
        slots: int,
        task: JobTask,
        completer: Completing,
        clock: Clock,
        executor: ExecutorProvider,
        on_started: Callable[[Run], None] = lambda run: None,
        on_room: Callable[[], None] = lambda: None,
        max_prefetch: int = 500,
        prefetch_window: float = 0.1,
    ) -> None:
        self.slots = slots
        self._task = task
        self._completer = completer
        self._clock = clock
        self._executor = executor
        self._on_started = on_started
        self._on_room = on_room
        self._buffer = RunBuffer()
        self._running: dict[int, Run] = {}
        self._prefetch = Prefetch(prefetch_window, max_prefetch)
        self._stuck = 0

    def wanted(self) -> int:
        return self._prefetch.wanted(self._buffer, self.slots, len(self._running), self._clock.monotonic())

    def free(self) -> int:
        return self.slots - len(self._running) - len(self._buffer)

    def withdraw(self, before: float) -> list[Run]:
        return self._buffer.take_older(before)

    def running(self) -> list[Run]:
        return list(self._running.values())

    def holding(self) -> list[Run]:
        return [*self._buffer.runs(), *self._running.values()]

    @property
    def stuck(self) -> int:
        return self._stuck

    @property
    def down(self) -> str | None:
        return None


class RunBuffer:
    """
    Runs that wait for a slot, in the order in which they were accepted.

    A worker and `take_older` may both want a run. Each takes it by popping it; a dict's pop is atomic, so only one
    of them gets it.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, Run] = {}  # by the identity of the run

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: Run) -> None:
        """A run that waits for its slot."""
        self._waiting[id(run)] = run

    def take(self, run: Run) -> bool:
        """True if the run is still here, and now the caller's."""
        return self._waiting.pop(id(run), None) is not None

    def take_older(self, before: float) -> list[Run]:
        """Everything accepted before *before*."""
        older = [run for run in list(self._waiting.values()) if run.accepted < before]
        return [run for run in older if self.take(run)]

    def runs(self) -> list[Run]:
        """What waits, in order."""
        return list(self._waiting.values())


class Prefetch:
    """
    How many more runs a lane should have, and when it must ask for them by itself.

    It asks by itself once after each `wanted`, when at most half of what was planned still waits; and only if
    there may be more to have, because `wanted` had to answer 0, or because the claim brought all that it asked for.
    """

    __slots__ = ("_armed", "_asked", "_limit", "_low_water", "_window", "rate")

    def __init__(self, window: float, limit: int) -> None:
        self.rate = StartRate()
        self._window = window
        self._limit = limit
        self._low_water = 0
        self._asked = 0
        self._armed = True

    def wanted(self, buffer: RunBuffer, slots: int, running: int, now: float) -> int:
        """How many runs to claim now."""
        if not buffer and not running:
            self.rate.idle(now)
        ahead = min(self._limit, int(self.rate.per_second * self._window))
        # Armed before the buffer is read: a worker that takes a run from now on sees the new mark.
        self._low_water = ahead // 2
        self._armed = True
        self._asked = missing(slots - running, len(buffer), ahead)
        if self._asked:
            self._armed = False
        return self._asked

    def got(self, runs: int) -> None:
        """How many runs the claim brought; called before a worker can take them."""
        self._armed = runs >= self._asked

    def should_ask(self, waiting: int) -> bool:
        """True once after each `wanted`, when so few runs wait that the lane must ask for more by itself."""
        if self._armed and waiting <= self._low_water:
            self._armed = False
            return True
        return False


def missing(free: int, waiting: int, ahead: int) -> int:
    """
    Free slots plus what will start soon, less what waits; nothing while more than half of that is there.

    A claim of five jobs costs as much as one of fifty. A lane that claimed one job for each that it starts
    would make many small claims.
    """
    if waiting >= free and waiting > ahead // 2:
        return 0
    return max(0, free + ahead - waiting)


class StartRate:
    """Starts per second, measured over the recent past."""

    __slots__ = ("_count", "_since", "per_second")

    def __init__(self) -> None:
        self.per_second = 0.0  # 0 until measured
        self._count = 0
        self._since: float | None = None

    def tick(self, now: float) -> None:
        """One start at *now* (monotonic)."""
        if self._since is None:
            self._since = now
        self._count += 1
        elapsed = now - self._since
        if elapsed >= 0.02:
            measured = self._count / elapsed
            self.per_second = measured if not self.per_second else 0.5 * self.per_second + 0.5 * measured
            self._count, self._since = 0, now

    def idle(self, now: float) -> None:
        """Nothing to start: a rate that was measured over a second ago is forgotten."""
        if self._since is not None and now - self._since > 1.0:
            self.per_second, self._count, self._since = 0.0, 0, None
