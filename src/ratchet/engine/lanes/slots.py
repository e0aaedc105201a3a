"""`SlotLane`: what lanes with workers of their own have in common, whatever the workers are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Required, TypedDict

from ratchet.engine.lanes.buffer import Appetite, RunBuffer
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
    on_lingered: Callable[[Run], None]
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
        on_lingered: Callable[[Run], None] = lambda run: None,
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
        self._on_lingered = on_lingered
        self._buffer = RunBuffer()
        self._running: dict[int, Run] = {}
        self._appetite = Appetite(prefetch_window, max_prefetch)
        self._stuck = 0

    def wanted(self) -> int:
        return self._appetite.wanted(self._buffer, self.slots, len(self._running), self._clock.monotonic())

    def withdraw(self, before: float) -> list[Run]:
        return self._buffer.take_older(before)

    def running(self) -> list[Run]:
        return list(self._running.values())

    def holding(self) -> list[Run]:
        return [*self._buffer.runs(), *self._running.values()]

    @property
    def stuck(self) -> int:
        return self._stuck
