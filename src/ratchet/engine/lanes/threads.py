"""The thread lane: ordinary functions on worker threads."""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, wait
from queue import SimpleQueue
from typing import Unpack

from ratchet.api.context import entered
from ratchet.engine.lanes.slots import SlotLane, Wiring
from ratchet.engine.run import Run, Stop
from ratchet.engine.task import Prepared
from ratchet.model.decision import Interrupted, Outcome, StoppedLate
from ratchet.model.errors import ConfigurationError, JobInterrupted
from ratchet.model.status import Lane
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.shield import current_shield

faults = FaultLog(logging.getLogger("ratchet.engine"))

# Looked up twice: each lookup gives a function object with argument types of its own.
_raise_in_thread = ctypes.pythonapi["PyThreadState_SetAsyncExc"]
_raise_in_thread.argtypes = [ctypes.c_ulong, ctypes.py_object]
_withdraw_from_thread = ctypes.pythonapi["PyThreadState_SetAsyncExc"]
_withdraw_from_thread.argtypes = [ctypes.c_ulong, ctypes.c_void_p]


class _Nudge(BaseException):
    """Raised into the calling thread itself; see `_forget_pending`."""


def _forget_pending() -> None:
    """
    Take back the flag by which CPython remembers that an exception is to be raised into some thread.

    The thread sets it again when it runs. Until then the flag would stay, for ever if the exception was withdrawn, and in
    CPython 3.11 a thread that is traced or profiled (a debugger, coverage) waits in a loop for its end. Only a thread to
    which an exception was raised takes the flag back, so this one raises one into itself.
    """
    if sys.version_info >= (3, 12) or current_shield.get() is not None:
        return  # in a job the exception could take the place of one that stops the job
    try:
        _raise_in_thread(threading.get_ident(), _Nudge)
        while True:
            pass
    except _Nudge:
        pass


#: Seconds within which a pool must begin all calls of a node.
POOL_PATIENCE = 5.0


class _PooledThread:
    """A thread of somebody else's pool, for as long as it works for this lane."""

    def __init__(self, pool: Executor, work: Callable[[], None], begun: threading.Semaphore) -> None:
        self._thread: threading.Thread | None = None

        def call() -> None:
            self._thread = threading.current_thread()
            begun.release()
            work()

        self._call = pool.submit(call)

    def is_alive(self) -> bool:
        return not self._call.done()

    def join(self, timeout: float) -> None:
        if self._thread is not threading.current_thread():
            wait([self._call], timeout)

    def forget(self) -> None:
        """Take the call back if it has not begun."""
        self._call.cancel()


class ThreadLane(SlotLane):
    """
    Runs jobs on threads, its own or those of the application's pool, one for each slot.

    Its own come when runs have to wait for one, and stay. A run is stopped by raising `JobInterrupted` into its thread: at once in Python code, in a
    blocking call when it returns. A thread that does not stop is replaced.
    """

    lane = Lane.THREAD

    def __init__(self, **wiring: Unpack[Wiring]) -> None:
        super().__init__(**wiring)
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()
        self._threads: set[threading.Thread | _PooledThread] = set()
        self._lock = threading.Lock()
        self._number = 0
        self._workers = 0  # slots that have a thread
        self._is_growing = True  # some have none yet
        self._busy: set[int] = set()  # threads that have taken a run; kept while it grows
        self._refused: str | None = None  # why there is no further thread

    def start(self) -> None:
        """Take the slots' threads, if they come from a pool; others are started when there is work for them."""
        pool = self._executor.job_pool(self.slots)
        if pool is not None:
            self._begin_in(pool)

    def _grow(self) -> None:
        """Start threads until each run that waits for one has one, or every slot. Without one a run is handed back later."""
        with self._lock:
            while self._workers < min(self.slots, len(self._buffer) + len(self._busy)):
                try:
                    self._add_thread()
                except Exception as error:
                    self._refused = f"no thread can be started for them: {error}"
                    faults.note("no further thread for jobs can be started", error)
                    return
                self._refused = None
                self._workers += 1
            self._is_growing = self._workers < self.slots

    def _add_thread(self) -> None:
        self._number += 1
        thread = self._executor.thread(self._work, name=f"ratchet-worker-{self._number}")
        thread.start()
        self._threads.add(thread)

    def _begin_in(self, pool: Executor) -> None:
        """Take the slots' threads from *pool*. One that has no room for them would leave claimed jobs lying: that is refused."""
        begun = threading.Semaphore(0)
        calls = [_PooledThread(pool, self._work, begun) for _ in range(self.slots)]
        self._threads.update(calls)
        deadline = time.monotonic() + POOL_PATIENCE
        found = sum(begun.acquire(timeout=max(0.0, deadline - time.monotonic())) for _ in calls)
        if found == self.slots:
            self._workers, self._is_growing = self.slots, False
            return
        for call in calls:
            call.forget()
        self.stop(POOL_PATIENCE)
        raise ConfigurationError(
            f"the pool of ExecutorProvider.job_pool() has room for {found} of {self.slots} jobs; "
            f"give it more threads, or set the option concurrency to {max(1, found)}"
        )

    def accept(self, runs: Sequence[Run]) -> None:
        self._prefetch.got(len(runs))
        for run in runs:
            self._buffer.add(run)
            self._inbox.put(run)
        if self._is_growing:
            self._grow()

    def accept_planned(self, run: Run) -> None:
        self._buffer.add(run)
        self._inbox.put(run)
        if self._is_growing:
            self._grow()

    def interrupt(self, run: Run, reason: Stop) -> None:
        if not run.request_stop(reason):
            return
        run.interrupted_at = self._clock.monotonic()
        run.guarded(lambda: self._raise_into(run))

    @staticmethod
    def _raise_into(run: Run) -> None:
        if run.thread_id is not None:
            _raise_in_thread(run.thread_id, JobInterrupted)
            _forget_pending()

    def replace(self, run: Run) -> None:
        with self._lock:
            self._stuck += 1
            if self._running.pop(id(run), None) is not None:
                self._add_thread()

    @property
    def down(self) -> str | None:
        if any(thread.is_alive() for thread in list(self._threads)):
            return None
        return "its threads have ended" if self._threads else self._refused

    def stop(self, timeout: float) -> None:
        threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in threads:
            self._inbox.put(None)
        deadline = time.monotonic() + timeout
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self._threads = {thread for thread in threads if thread.is_alive()}

    def _work(self) -> None:
        me = threading.get_ident()
        while True:
            if self._is_growing:
                self._busy.discard(me)
            run = self._inbox.get()
            if run is None:
                return
            if not self._buffer.take(run):
                continue
            if self._is_growing:
                self._busy.add(me)
                if self._buffer:  # whoever brought the next run may have taken this thread for a free one
                    self._grow()
            self._running[id(run)] = run
            self._prefetch.rate.tick(self._clock.monotonic())
            outcome = self._perform(run, me)
            if run.interrupted_at is not None:
                _forget_pending()  # of one that was withdrawn
            if not run.finish():
                # Given up meanwhile: another thread has this slot, and this one ends.
                with self._lock:
                    self._stuck -= 1
                    self._busy.discard(me)
                self._completer.put(run, StoppedLate())
                return
            self._running.pop(id(run), None)
            self._completer.put(run, outcome)
            if self._prefetch.should_ask(len(self._buffer)):
                self._on_room()

    def _perform(self, run: Run, me: int) -> Outcome:
        with entered(run):
            prepared = self._task.prepare(run)
            if not isinstance(prepared, Prepared):
                return prepared
            self._on_started(run)
            return self._invoke(run, prepared, me)

    def _invoke(self, run: Run, call: Prepared, me: int) -> Outcome:
        """
        Make the call; an interruption that arrives late is caught here and nowhere else.

        At most one is ever sent (`Run.guarded` under `interruptible`). Once it was caught, or withdrawn
        after `leave`, the thread is safe again.
        """
        outcome: Outcome | None = None
        while True:
            try:
                if outcome is None:
                    run.enter(me)
                    outcome = self._task.invoke(run, call)
                run.leave()
                if run.interrupted_at is not None:
                    # Sent but perhaps not yet raised: withdraw it (a no-op if it was).
                    _withdraw_from_thread(me, None)
                return outcome
            except JobInterrupted:
                if outcome is None:
                    outcome = (
                        self._task.outcome_of_error(run, JobInterrupted())
                        if run.stop
                        else Interrupted("interrupted")
                    )
