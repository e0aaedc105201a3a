"""
The child side of the process lane: performs one call after the other, sent over a pipe.

The pipe is multiprocessing's, between a parent and the child it started; what travels on it was
decoded, and its target allowed, by the parent. Nothing from the database is unpickled.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeVar
from uuid import UUID

from ratchet.api.context import JobContext, JobTransaction, current_run, entered
from ratchet.api.listeners import as_middleware
from ratchet.model.composition import Signal
from ratchet.model.errors import JobInterrupted, RatchetError, RetryLater

T = TypeVar("T")

parts = logging.getLogger("ratchet.parts")


@dataclass(slots=True)
class Call:
    """One job, as it is sent to the child."""

    module: str
    qualname: str
    method: str | None
    is_coroutine: bool
    arguments: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    job_id: UUID
    attempt: int
    node_id: str
    target: str
    batch_id: UUID | None = None
    caller: str | None = None
    parent_id: UUID | None = None
    params: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    around: tuple[tuple[str, str], ...] = ()  # middleware, outermost first: module and qualified name
    scopes: tuple[tuple[str, str, dict[str, str]], ...] = ()  # of tracers: module, name, and what it is given


class RemoteRun:
    """A run as the child sees it: everything that is stored goes through the parent."""

    def __init__(self, call: Call, ask: Callable[[str, Any], Any]) -> None:
        self._call = call
        self._ask = ask
        self.job_id = call.job_id
        self.attempt = call.attempt
        self.node_id = call.node_id
        self.target = call.target
        self.batch_id = call.batch_id
        self.caller = call.caller
        self.parent_id = call.parent_id
        self.context = JobContext(self)

    def params(self) -> dict[str, Any]:
        """The job's params."""
        return self._call.params

    def signal(self) -> Signal | None:
        """The signal that released the job."""
        released_by: Signal | None = self._ask("signal", None)
        return released_by

    def load_state(self) -> dict[str, Any]:
        """The checkpoint of an earlier attempt."""
        return self._call.state

    def save_state(self, state: dict[str, Any]) -> None:
        """Store the checkpoint, under the claim's fence."""
        self._ask("state", dict(state))

    def save_progress(self, fraction: float, message: str | None) -> None:
        """Store progress, under the claim's fence."""
        self._ask("progress", (fraction, message))

    def interruption(self) -> str | None:
        """Why the run should stop; the parent kills the child soon after anyway."""
        reason: str | None = self._ask("interruption", None)
        return reason

    def transaction(self, within: object | None) -> AbstractContextManager[JobTransaction]:
        """Refused: the node's connection cannot be shared with another process."""
        raise RatchetError(
            "ctx.transaction() is not available in the process lane: the job's success is committed by the "
            "node, in another process. Run the job in the thread or async lane, or make its writes idempotent"
        )

    def shielded(self) -> AbstractContextManager[None]:
        """Nothing is raised into a process: it is killed."""
        return nullcontext()

    def around(self, block: AbstractContextManager[T]) -> AbstractContextManager[T]:
        """The same."""
        return block


class PipeHandler(logging.Handler):
    """Sends log records to the parent, which keeps them with the job."""

    def __init__(self, ask: Callable[[str, Any], Any]) -> None:
        super().__init__()
        self._ask = ask

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        if current_run() is not None:
            self._ask("log", (record.name, record.levelno, self.format(record)))


def serve(pipe: Connection) -> None:
    """Perform calls until the parent closes the pipe."""
    # Ctrl-C, or a service manager's SIGTERM, reaches the whole group: the parent decides what becomes of
    # its children, and ends them with SIGKILL.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(
        target=_end_with_parent, args=(os.getppid(),), name="ratchet-parent", daemon=True
    ).start()

    def ask(kind: str, content: Any) -> Any:
        pipe.send((kind, content))
        succeeded, answer = pipe.recv()
        if not succeeded:
            raise answer
        return answer

    handler = PipeHandler(ask)
    logging.getLogger().addHandler(handler)
    logging.getLogger("ratchet.job").setLevel(logging.INFO)
    try:
        while True:
            _send(pipe, _perform(pipe.recv(), ask))
    except (EOFError, OSError):
        os._exit(0)


def _end_with_parent(parent: int) -> None:
    """End this process soon after its parent is gone: its result could not be stored."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _perform(call: Call, ask: Callable[[str, Any], Any]) -> tuple[str, Any]:
    run = RemoteRun(call, ask)
    value = None  # what is returned if middleware swallows an exception
    with entered(run):
        try:
            # Middleware is imported first: its module may set up what the target's module needs.
            around = [as_middleware(_found(module, qualname)) for module, qualname in call.around]
            function = _target(call)
            with ExitStack() as stack:
                for scope in call.scopes:
                    stack.enter_context(_TracerScope(*scope))
                for middleware in around:
                    stack.enter_context(middleware(run.context))
                value = function(*call.args, **call.kwargs)
                if call.is_coroutine:
                    value = asyncio.run(value)
        except RetryLater as later:
            return "postponed", (later.delay, later.count, later.reason)
        except JobInterrupted as error:
            return "interrupted", str(error)
        except BaseException as error:
            return "raised", error
    return "returned", (value, run.context.touched_state)


class _TracerScope:
    """Surrounds the code with what a tracer wants there; what goes wrong with that is logged and no failure of the job."""

    def __init__(self, module: str, name: str, facts: dict[str, str]) -> None:
        self._where = (module, name)
        self._facts = facts
        self._scope: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        try:
            scope = _found(*self._where)(self._facts)
            scope.__enter__()
            self._scope = scope
        except Exception:
            parts.warning("%s of a tracer could not be entered", self._where, exc_info=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._scope is None:
            return
        try:
            self._scope.__exit__(kind, error, trace)
        except Exception as raised:
            if raised is not error:
                parts.warning("%s of a tracer could not be left", self._where, exc_info=True)


def _target(call: Call) -> Callable[..., Any]:
    found: Any = _found(call.module, call.qualname)
    if call.method is not None:
        found = getattr(found(), call.method)
    function: Callable[..., Any] = found
    return function


def _found(module: str, qualname: str) -> Any:
    found: Any = importlib.import_module(module)
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _send(pipe: Connection, answer: tuple[str, Any]) -> None:
    try:
        pipe.send(answer)
    except (EOFError, OSError):
        raise
    except BaseException as error:
        # A result or an exception that cannot travel is a failure of the attempt, not of the child.
        kind, content = answer
        text = _described(content) if kind == "raised" else f"the result cannot be sent: {error}"
        pipe.send(("raised", RuntimeError(text)))


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # whatever its __str__ raises
        return type(error).__name__
