"""The inline lane: jobs run on the calling thread, one step at a time; for tests and the simulator."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ratchet.api.context import entered
from ratchet.engine.run import Run, Stop
from ratchet.engine.task import Completing, JobTask, Prepared
from ratchet.model.clock import Clock
from ratchet.model.decision import Outcome, TimedOut
from ratchet.model.status import Lane


class InlineLane:
    """Accepts runs and performs them when `step` is called."""

    def __init__(
        self,
        lane: Lane,
        *,
        slots: int,
        task: JobTask,
        completer: Completing,
        clock: Clock,
        on_started: Callable[[Run], None] = lambda run: None,
    ) -> None:
        self.lane = lane
        self.slots = slots
        self._task = task
        self._completer = completer
        self._clock = clock
        self._on_started = on_started
        self._waiting: deque[Run] = deque()
        self._performing: Run | None = None

    def start(self) -> None:
        """Nothing to prepare."""

    def accept(self, runs: Sequence[Run]) -> None:
        self._waiting.extend(runs)

    def accept_planned(self, run: Run) -> None:
        self._waiting.append(run)

    def wanted(self) -> int:
        return max(0, self.slots - len(self._waiting))

    def free(self) -> int:
        return self.slots - len(self._waiting)

    def withdraw(self, before: float) -> list[Run]:
        older = [run for run in self._waiting if run.accepted < before]
        self._waiting = deque(run for run in self._waiting if run.accepted >= before)
        return older

    def running(self) -> list[Run]:
        return [] if self._performing is None else [self._performing]

    def holding(self) -> list[Run]:
        return [*self._waiting, *self.running()]

    def interrupt(self, run: Run, reason: Stop) -> None:
        run.request_stop(reason)

    def replace(self, run: Run) -> None:
        """Never needed: the one thread there is runs the job."""

    @property
    def down(self) -> str | None:
        return None

    @property
    def stuck(self) -> int:
        return 0

    def stop(self, timeout: float) -> None:
        """Nothing to end."""

    def step(self) -> bool:
        """Perform the next run; False if there is none."""
        if not self._waiting:
            return False
        run = self._performing = self._waiting.popleft()
        try:
            outcome = self._perform(run)
        finally:
            self._performing = None
        if run.finish():
            self._completer.put(run, outcome)
        return True

    def _perform(self, run: Run) -> Outcome:
        with entered(run):
            prepared = self._task.prepare(run)
            if not isinstance(prepared, Prepared):
                return prepared
            self._on_started(run)
            if prepared.invocation.is_coroutine:
                outcome = asyncio.run(self._task.invoke_async(run, prepared))
            else:
                outcome = self._task.invoke(run, prepared)
        timeout = run.job.claim.timeout
        # Time passes only when the job moves a manual clock: then its timeout counts all the same.
        if timeout is not None and run.committed is None and run.elapsed(self._clock.monotonic()) > timeout:
            return TimedOut(timeout)
        return outcome
