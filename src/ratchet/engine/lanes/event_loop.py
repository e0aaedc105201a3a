"""The async lane: coroutines on one event-loop thread, so that no worker thread waits for them."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Sequence
from typing import Unpack

from ratchet.api.context import entered
from ratchet.engine.lanes.slots import SlotLane, Wiring
from ratchet.engine.run import Run, Stop
from ratchet.engine.task import Prepared
from ratchet.model.decision import Outcome, StoppedLate
from ratchet.model.errors import RatchetError
from ratchet.model.status import Lane
from ratchet.spi.fault_log import FaultLog

logger = logging.getLogger("ratchet.engine")
faults = FaultLog(logger)

#: Seconds that the loop's thread has to begin.
START_LIMIT = 30.0

#: An event loop that does not answer for so many seconds counts as down.
BLOCKED_LIMIT = 10.0

#: How many coroutines are started in one turn of the loop. Short ones end before the next ones begin, so that few
#: exist at a time and the garbage collector is not triggered by them.
AT_ONCE = 25


class EventLoopLane(SlotLane):
    """
    Runs up to ``slots`` coroutines at once.

    A run is stopped by canceling its task. One that swallows the cancellation is given up: its
    attempt has failed, and its slot counts as free.
    """

    lane = Lane.ASYNC

    def __init__(self, **wiring: Unpack[Wiring]) -> None:
        super().__init__(**wiring)
        self._inbox: deque[Run] = deque()
        self._filling = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._beginning = threading.Lock()
        self._refused: str | None = None  # why there is no loop
        self._answered_at: float | None = None
        self._asked = False
        self._reported = False
        self._stopping = False

    def start(self) -> None:
        """Nothing yet: the loop and its thread come with the first job."""

    def _begin(self) -> asyncio.AbstractEventLoop | None:
        """The loop; None if there can be none: then what waits is handed back later, and `down` says why."""
        with self._beginning:
            if self._loop is None and self._thread is None:
                try:
                    self._begin_thread()
                    self._refused = None
                except Exception as error:
                    self._refused = str(error)
                    faults.note("the event loop for async jobs cannot be started", error)
            return self._loop

    def _begin_thread(self) -> None:
        ready = threading.Event()

        def run_loop() -> None:
            loop = asyncio.new_event_loop()
            if sys.version_info >= (3, 12):
                loop.set_task_factory(asyncio.eager_task_factory)
            asyncio.set_event_loop(loop)
            self._loop = loop
            loop.call_soon(ready.set)
            try:
                while not self._stopping:
                    self._run_until_it_stops(loop)
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.close()

        self._stopping = False
        thread = self._executor.thread(run_loop, name="ratchet-event-loop")
        thread.start()
        self._thread = thread
        if not ready.wait(START_LIMIT):
            raise RatchetError(
                f"the event loop's thread has not begun to run after {START_LIMIT:g} s; "
                f"the thread of an ExecutorProvider must call the function that it is given"
            )

    @staticmethod
    def _run_until_it_stops(loop: asyncio.AbstractEventLoop) -> None:
        """A job's code can end the loop: with ``loop.stop()``, or a task of its own that raises `SystemExit`."""
        try:
            loop.run_forever()
        except BaseException as error:
            faults.note(
                "a task that a job has started on the event loop ended with SystemExit or the like", error
            )

    def accept(self, runs: Sequence[Run]) -> None:
        self._prefetch.got(len(runs))
        for run in runs:
            self._buffer.add(run)
        self._inbox.extend(runs)
        self._ask_to_fill()

    def accept_planned(self, run: Run) -> None:
        self._buffer.add(run)
        self._inbox.append(run)
        self._ask_to_fill()

    def _ask_to_fill(self) -> None:
        loop = self._loop
        if loop is None and self._inbox:
            loop = self._begin()
        if loop is not None:
            loop.call_soon_threadsafe(self._fill)

    def interrupt(self, run: Run, reason: Stop) -> None:
        if not run.request_stop(reason):
            return
        run.interrupted_at = self._clock.monotonic()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def replace(self, run: Run) -> None:
        self._stuck += 1
        if self._running.pop(id(run), None) is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._fill)

    @property
    def down(self) -> str | None:
        thread = self._thread
        if thread is not None and not thread.is_alive():
            return "the thread of its event loop has ended"
        if self._refused is not None:
            return self._refused
        answered_at = self._answered_at
        if self._asked and answered_at is not None and self._clock.monotonic() - answered_at > BLOCKED_LIMIT:
            return f"its event loop has been blocked for over {BLOCKED_LIMIT:g} s; async jobs must not block"
        return None

    def stop(self, timeout: float) -> None:
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        self._stopping = True
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout)
        if not thread.is_alive():
            self._loop = self._thread = None

    def watch(self, now: float, limit: float = 0.5) -> None:
        """Log the frame that blocks the event loop, once per blockage; called now and then by the engine."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or thread.ident is None:
            return
        if not self._asked:
            self._asked, self._reported, self._answered_at = True, False, now
            loop.call_soon_threadsafe(self._answer)
        elif not self._reported and self._answered_at is not None and now - self._answered_at > limit:
            self._reported = True
            frame = sys._current_frames().get(thread.ident)
            stack = "".join(traceback.format_stack(frame)[-4:]) if frame is not None else "unknown"
            logger.warning(
                "the event loop has been blocked for over %.1f s; async jobs must not block. It is in:\n%s",
                limit,
                stack,
            )

    def _answer(self) -> None:
        self._asked = False

    def _fill(self) -> None:
        """Start what waits, as far as there are slots; on the loop."""
        assert self._loop is not None
        self._filling = False
        started = 0
        while self._inbox and len(self._running) < self.slots:
            if started == AT_ONCE:
                self._fill_soon()
                break
            run = self._inbox.popleft()
            if not self._buffer.take(run):
                continue
            started += 1
            self._running[id(run)] = run
            self._prefetch.rate.tick(self._clock.monotonic())
            # The run keeps its task alive. A loop only refers to tasks weakly, and a set of our own would cost
            # each of them a callback.
            task = self._loop.create_task(self._perform(run))
            if not task.done():
                run.handle = task
        if self._prefetch.should_ask(len(self._buffer)):
            self._on_room()

    def _fill_soon(self) -> None:
        """Fill once for all runs that end in this turn of the loop."""
        if not self._filling and self._loop is not None:
            self._filling = True
            self._loop.call_soon(self._fill)

    async def _perform(self, run: Run) -> None:
        if run.handle is None:  # an eager task begins before `create_task` returns it
            run.handle = asyncio.current_task()
        outcome = await self._outcome(run)
        if not run.finish():
            self._stuck -= 1
            self._completer.put(run, StoppedLate())
            return
        self._running.pop(id(run), None)
        if run.job.body.has_conditions and self._loop is not None:
            # Conditions are the user's code and may block: they do not run on this thread.
            await self._loop.run_in_executor(None, self._completer.put, run, outcome)
        else:
            self._completer.put(run, outcome)
        run.handle = None  # the run waits for its commit; its task can go
        if self._inbox:
            self._fill_soon()
        elif self._prefetch.should_ask(len(self._buffer)):
            self._on_room()

    async def _outcome(self, run: Run) -> Outcome:
        if self._clock.monotonic() > run.trusted_until:
            refused = await self._confirm(run)
            if refused is not None:
                return refused
        with entered(run):
            prepared = self._task.prepare(run)
            if not isinstance(prepared, Prepared):
                return prepared
            self._on_started(run)
            return await self._task.invoke_async(run, prepared)

    async def _confirm(self, run: Run) -> Outcome | None:
        """Ask the store about a run that has waited for long, without holding up the loop; None: it may start."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._task.confirm, run)
        except BaseException as error:  # interrupted meanwhile
            return self._task.outcome_of_error(run, error)

    def _cancel(self, run: Run) -> None:
        task = run.handle
        if isinstance(task, asyncio.Task) and not task.done():
            task.cancel()
