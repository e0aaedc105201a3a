"""The process lane: CPU-bound jobs in processes of their own, which can be killed."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, Unpack

from ratchet.api.context import entered
from ratchet.engine.lanes.process_child import Call, serve
from ratchet.engine.lanes.slots import Prefetch, SlotLane, Wiring
from ratchet.engine.run import Run, Stop
from ratchet.engine.task import Middleware, Prepared
from ratchet.model.decision import Crashed, Interrupted, Outcome, Postponed, Raised, Returned
from ratchet.model.errors import JobInterrupted
from ratchet.model.status import Lane
from ratchet.spi.executor_provider import ExecutorProvider

logger = logging.getLogger("ratchet.engine")


class ProcessLane(SlotLane):
    """
    Runs jobs in a few child processes, each led by a thread here.

    Children are spawned when the first job comes, never forked: a fork would inherit locks and
    connections in whatever state they were in. A run is stopped by killing its child; a child that
    dies without an outcome is a certain crash of that one job.
    """

    lane = Lane.PROCESS

    def __init__(self, **wiring: Unpack[Wiring]) -> None:
        super().__init__(**wiring)
        self._prefetch = Prefetch(window=0.0, limit=0)  # it claims only what it can start now
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()
        self._leaders: list[threading.Thread] = []
        self._lock = threading.Lock()

    def start(self) -> None:
        """Nothing yet: leaders and children come with the first job."""

    def accept(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._buffer.add(run)
            self._inbox.put(run)
        with self._lock:
            while len(self._leaders) < min(self.slots, len(self._buffer) + len(self._running)):
                leader = self._executor.thread(self._lead, name=f"ratchet-process-{len(self._leaders) + 1}")
                leader.start()
                self._leaders.append(leader)

    def accept_planned(self, run: Run) -> None:
        self.accept([run])

    def interrupt(self, run: Run, reason: Stop) -> None:
        if not run.request_stop(reason):
            return
        run.interrupted_at = self._clock.monotonic()
        child = run.handle
        if isinstance(child, Child):
            child.kill()

    def replace(self, run: Run) -> None:
        """Its child was killed: the leader notices and starts another."""

    @property
    def down(self) -> str | None:
        with self._lock:
            alive = any(leader.is_alive() for leader in self._leaders)
            return "the threads that lead its processes have ended" if self._leaders and not alive else None

    def stop(self, timeout: float) -> None:
        with self._lock:
            leaders, self._leaders = self._leaders, []
        for _ in leaders:
            self._inbox.put(None)
        deadline = time.monotonic() + timeout
        for leader in leaders:
            leader.join(max(0.0, deadline - time.monotonic()))

    def _lead(self) -> None:
        """One slot: takes runs and has them performed by the child of the moment."""
        child: Child | None = None
        try:
            while True:
                run = self._inbox.get()
                if run is None:
                    return
                if not self._buffer.take(run):
                    continue
                self._running[id(run)] = run
                try:
                    if child is None or not child.is_alive:
                        child = Child(self._executor)
                    outcome = self._perform(run, child)
                except BaseException as error:
                    outcome = Raised(error)  # there can be no process: the job fails, and this slot goes on
                self._running.pop(id(run), None)
                if run.finish():
                    self._completer.put(run, outcome)
                self._on_room()
        finally:
            if child is not None:
                child.kill()

    def _perform(self, run: Run, child: Child) -> Outcome:
        with entered(run):
            prepared = self._task.prepare(run)
            if not isinstance(prepared, Prepared):
                return prepared
            run.handle = child
            self._on_started(run)
            try:
                with self._task.scope(run):
                    return self._surrounded(run, prepared, child)
            finally:
                run.handle = None

    def _surrounded(self, run: Run, prepared: Prepared, child: Child) -> Outcome:
        """
        What the child did, inside the middleware that it cannot have.

        Middleware that is found by its name runs in the child, around the function. What has none, such as a closure
        or a method, runs here and sees what the function did as a result or an exception.
        """
        outcome: Outcome = Returned()
        ended = JobInterrupted("the run has ended without a result")
        try:
            with ExitStack() as stack:
                for middleware in self._task.middleware:
                    if name_of(middleware) is None:
                        stack.enter_context(middleware(run.context))
                outcome = self._guarded(run, prepared, child)
                if isinstance(outcome, Raised):
                    raise outcome.error
                if not isinstance(outcome, Returned):
                    raise ended
        except BaseException as error:
            if error is ended or (isinstance(outcome, Raised) and error is outcome.error):
                return outcome
            return self._task.outcome_of_error(run, error)
        # Middleware that swallows an exception has made a success of it, as in the other lanes; but no run that was
        # stopped or has died can be one.
        return Returned() if isinstance(outcome, Raised) else outcome

    def _guarded(self, run: Run, prepared: Prepared, child: Child) -> Outcome:
        """What the child did. The circuit breaker sees it as a result or an exception, as in the other lanes."""
        outcome: Outcome | None = None

        def perform() -> None:
            nonlocal outcome
            outcome = self._outcome(
                run, child.perform(self._call(run, prepared), lambda m: self._serve(run, m))
            )
            if isinstance(outcome, Raised):
                raise outcome.error
            if not isinstance(outcome, Returned):
                raise JobInterrupted

        try:
            self._task.guarded(run, prepared, perform)
        except BaseException as error:
            return outcome or self._task.outcome_of_error(run, error)
        return outcome or Returned()

    def _call(self, run: Run, prepared: Prepared) -> Call:
        invocation = prepared.invocation
        function = invocation.function
        return Call(
            module=function.__module__ if invocation.owner is None else invocation.owner.__module__,
            qualname=function.__qualname__ if invocation.owner is None else invocation.owner.__qualname__,
            method=invocation.method,
            is_coroutine=invocation.is_coroutine,
            arguments=run.job.body.payload,
            args=prepared.args,
            kwargs=prepared.kwargs,
            job_id=run.job_id,
            attempt=run.attempt,
            node_id=run.node_id,
            target=run.target,
            batch_id=run.batch_id,
            caller=run.caller,
            parent_id=run.parent_id,
            params=run.context.params,
            state=run.load_state(),
            around=tuple(name for each in self._task.middleware if (name := name_of(each)) is not None),
            scopes=tuple((one.module, one.name, one.facts) for one in self._task.remote_scopes(run)),
        )

    def _serve(self, run: Run, message: tuple[str, Any]) -> Any:
        """What the child asks of the node while it runs."""
        kind, content = message
        match kind:
            case "progress":
                run.context.progress(*content)
            case "state":
                run.context.state.clear()
                run.context.state.update(content)
                run.context.save()
            case "log":
                name, level, text = content
                logging.getLogger(name).log(level, "%s", text)
            case "signal":
                return run.signal()
            case "interruption":
                return run.interruption()
        return None

    def _outcome(self, run: Run, answer: tuple[str, Any]) -> Outcome:
        kind, content = answer
        if run.stop is not None:
            return self._task.outcome_of_error(run, JobInterrupted(run.stop.value))
        match kind:
            case "returned":
                value, state = content
                if state is not None:
                    run.context.state.clear()
                    run.context.state.update(state)
                return self._task.outcome_of_value(run, value)
            case "raised":
                return Raised(content)
            case "postponed":
                return Postponed(*content)
            case "interrupted":
                return Interrupted(content)
        return Crashed(str(content))


def name_of(middleware: Middleware) -> tuple[str, str] | None:
    """Module and qualified name by which another process finds this very function; None if it cannot."""
    function = getattr(middleware, "__wrapped__", middleware)  # as it was given to ``around``
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    found: Any = sys.modules.get(module)
    for name in qualname.split("."):
        found = getattr(found, name, None)
    return (module, qualname) if found is function else None


class Child:
    """One child process and the pipe to it."""

    def __init__(self, executor: ExecutorProvider) -> None:
        context = executor.process_context()
        ours, theirs = context.Pipe()
        self._pipe: Connection = ours
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has it
            target=serve, args=(theirs,), name="ratchet-job", daemon=True
        )
        self._process.start()
        theirs.close()
        # This runs before multiprocessing's own exit handler, which would send SIGTERM (which children ignore) and wait.
        atexit.register(self.kill)

    @property
    def is_alive(self) -> bool:
        """True while the child can take another job."""
        return self._process.is_alive() and not self._pipe.closed

    def perform(self, call: Call, serve_message: Callable[[tuple[str, Any]], Any]) -> tuple[str, Any]:
        """Send *call*, answer what the child asks, and return how it ended; ``crashed`` if it died."""
        try:
            self._pipe.send(call)
            while True:
                kind, content = self._pipe.recv()
                if kind in ("returned", "raised", "postponed", "interrupted"):
                    return kind, content
                self._pipe.send(self._answered(serve_message, (kind, content)))
        except (EOFError, OSError, BrokenPipeError):
            self._process.join(1.0)
            self._pipe.close()
            return "crashed", f"the process that ran the job died (exit code {self._process.exitcode})"

    @staticmethod
    def _answered(
        serve_message: Callable[[tuple[str, Any]], Any], message: tuple[str, Any]
    ) -> tuple[bool, Any]:
        try:
            return True, serve_message(message)
        except BaseException as error:
            return False, error if isinstance(error, JobInterrupted) else RuntimeError(str(error))

    def kill(self) -> None:
        """End the child now, whatever it is doing."""
        if self._process.is_alive():
            self._process.kill()
        # Joined here, so that no zombie is left.
        self._process.join(2.0)
        atexit.unregister(self.kill)
