"""Services: what drives one passive part in the background, on a thread of its own or on those of a crew."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ratchet.engine.crew import Crew, Member
from ratchet.model.errors import Conflict, RatchetError, StoreUnavailable
from ratchet.spi.executor_provider import ExecutorProvider
from ratchet.spi.fault_log import FaultLog

logger = logging.getLogger("ratchet.engine")

#: After an error a service rests this long, doubling up to the second value.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
#: While its database is away, a service says so every so many seconds.
COMPLAIN_EVERY = 60.0


class Service:
    """
    Calls *step* again and again on a thread of its own until stopped.

    *step* returns how long to rest, in seconds; `wake` ends a rest, also the one of *after* seconds before
    the first step. An error is logged and followed by a growing pause. It never ends the thread: a worker that
    stops silently is worse than one that complains.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        executor: ExecutorProvider,
        longest_pause: float = LONGEST_PAUSE,
        monotonic: Callable[[], float] = time.monotonic,
        after: float = 0.0,
    ) -> None:
        self.name = name
        self._after = after
        self._monotonic = monotonic
        self._complain_at = float("-inf")
        self._longest_pause = longest_pause
        self._faults = FaultLog(logger, monotonic=monotonic)
        self._step = step
        self._executor = executor
        self._wakeup = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._pause = FIRST_PAUSE
        self.failures = 0
        self.last_step_at: float | None = None

    def start(self) -> None:
        """Begin; a second call does nothing."""
        self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            self._stopping = False
            self._wakeup.clear()
            thread = self._executor.thread(self._run, name=f"ratchet-{self.name}")
            thread.start()
            self._thread = thread

    def wake(self) -> None:
        """End the current rest."""
        self._wakeup.set()

    def stop(self, timeout: float = 10.0) -> bool:
        """End after the current step; True if the thread has ended. Safe to call from the step itself."""
        with self._lock:
            thread = self._thread
            self._stopping = True
            self._wakeup.set()
        if thread is None:
            return True
        if thread is threading.current_thread():
            return False
        thread.join(timeout)
        with self._lock:
            if not thread.is_alive() and self._thread is thread:
                self._thread = None
        return not thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """True while the thread runs."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    def turn(self) -> float:
        """One step; how many seconds to rest then. An error is logged and never raised."""
        try:
            rest = self._step()
            self._pause = FIRST_PAUSE
            self.failures = 0
        except BaseException as error:
            self.failures += 1
            self._complain(error)
            rest, self._pause = self._pause, min(self._longest_pause, self._pause * 2)
        self.last_step_at = time.monotonic()
        return rest

    def _run(self) -> None:
        self._pause = FIRST_PAUSE
        if self._after:
            self._wakeup.wait(self._after)
        while not self._stopping:
            self._wakeup.clear()
            rest = self.turn()
            if rest > 0 and not self._stopping:
                self._wakeup.wait(min(rest, threading.TIMEOUT_MAX))

    def _complain(self, error: BaseException) -> None:
        """Log the error; of a database that is away, or takes no writes, once and then once a minute, without a traceback."""
        if isinstance(error, StoreUnavailable):
            now = self._monotonic()
            if self.failures == 1 or now >= self._complain_at:
                self._complain_at = now + COMPLAIN_EVERY
                logger.warning("%s: %s (will go on trying)", self.name, error)
        elif isinstance(error, Conflict):
            # Nothing was written, and the next try mostly succeeds.
            level = logging.WARNING if self.failures % 20 == 0 else logging.INFO
            logger.log(level, "%s: %s (will try again)", self.name, error)
        elif isinstance(error, RatchetError):
            self._faults.note(f"{self.name}: {type(error).__name__}", where=str(error))
        else:
            self._faults.note(f"{self.name} failed", error)


class CrewService(Service):
    """
    A service without a thread of its own: a crew calls its step.

    For what has little to do. *prompt*: the steps of others never make it wait. *after*: seconds until its first step.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        executor: ExecutorProvider,
        crew: Crew,
        *,
        prompt: bool = False,
        after: float = 0.0,
    ) -> None:
        super().__init__(name, step, executor, after=after)
        self._crew = crew
        self._member = Member(self.turn, prompt=prompt)

    def _begin(self) -> None:
        self._crew.join(self._member, self._after)

    def wake(self) -> None:
        """End the current rest."""
        self._crew.wake(self._member)

    def hasten(self, within: float) -> None:
        """Step within so many seconds from now, however long the current rest is."""
        self._crew.hasten(self._member, within)

    def stop(self, timeout: float = 10.0) -> bool:
        """End after the current step; True if it has ended. Safe to call from the step itself."""
        return self._crew.leave(self._member, timeout)

    @property
    def is_alive(self) -> bool:
        """True while the crew calls it."""
        return self._crew.calls(self._member)
