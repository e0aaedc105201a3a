"""One claimed job on this node, from the claim to the answer of its completion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from msgspec import Struct

from ratchet.api.context import JobContext, JobTransaction
from ratchet.engine.masks import hidden_in
from ratchet.model.callbacks import given_params
from ratchet.model.claim import ClaimedJob
from ratchet.model.composition import Signal
from ratchet.model.decision import (
    ClaimLost,
    Committed,
    Completion,
    CompletionAnswer,
    Expired,
    Outcome,
    RunDecision,
    StoppedLate,
    TargetMissing,
    TimedOut,
)
from ratchet.model.errors import JobInterrupted, StaleClaim
from ratchet.model.job import Progress
from ratchet.model.masking import hide
from ratchet.model.payload import decode_value, encode_value

if TYPE_CHECKING:
    from ratchet.engine.task import TaskTools

T = TypeVar("T")


class Stop(StrEnum):
    """Why a run is told to stop."""

    CANCELED = "canceled"
    TIMED_OUT = "timed out"
    LOST = "lost to another node"
    DRAINED = "the node is shutting down"
    EXPIRED = "expired"


class Run:
    """
    The state of one run, shared by the thread that runs it and those that may stop it.

    ``stop`` is set once, first reason wins. ``finished`` belongs to whoever hands the outcome on:
    the worker, or the watch that gave up waiting for it (`give_up`), never both.
    """

    __slots__ = (
        "_attempt_ended",
        "_code_ended",
        "_context",
        "_lock",
        "_tools",
        "accepted",
        "committed",
        "connection",
        "deadline",
        "entry",
        "finished",
        "handle",
        "hidden",
        "interrupted_at",
        "interruptible",
        "job",
        "log_lines",
        "marked",
        "started",
        "started_at",
        "still_running",
        "stop",
        "thread_id",
        "told",
        "trusted_until",
    )

    def __init__(
        self, job: ClaimedJob, tools: TaskTools, accepted: float, trusted_until: float = inf
    ) -> None:
        self.job = job
        self._tools = tools
        self._lock = threading.Lock()
        self.accepted = accepted  # monotonic
        self.trusted_until = trusted_until  # monotonic; from then on the store is asked before the start
        self.started: float | None = None  # monotonic
        self.started_at: datetime | None = None
        self.deadline: float | None = None
        self.stop: Stop | None = None
        self.interrupted_at: float | None = None
        self.finished = False
        self.still_running = False  # its code goes on although its attempt has ended (`give_up`)
        self._attempt_ended = self._code_ended = False  # of such a run: what the completer has been told
        self.interruptible = False
        self.told = False  # an interruption was sent to the thread, or raised in it
        self.thread_id: int | None = None
        self.handle: Any = None  # what the lane needs to stop it: a task, a process
        self.connection: object | None = None  # inside ctx.transaction()
        self.committed: tuple[Completion, CompletionAnswer] | None = None
        self.log_lines = 0
        self.hidden: tuple[str, ...] | None = None  # in its messages; None: nobody has asked yet
        self.marked = False  # the store knows that it has started (`JobClaimStore.mark_started`)
        self.entry: int | None = None  # in `StartedRuns`
        self._context: JobContext | None = None

    def belongs_to(self, tools: TaskTools) -> bool:
        """True if the node with these tools claimed the job; a process may have several nodes."""
        return self._tools is tools

    # --- as seen by the job (api.context.RunBackend) ---

    @property
    def job_id(self) -> UUID:
        return self.job.claim.job_id

    @property
    def attempt(self) -> int:
        return self.job.claim.attempts + 1

    @property
    def node_id(self) -> str:
        return self.job.claim.node_id

    @property
    def target(self) -> str:
        return self.job.body.target

    @property
    def batch_id(self) -> UUID | None:
        return self.job.body.batch_id

    @property
    def caller(self) -> str | None:
        return self.job.body.caller

    @property
    def parent_id(self) -> UUID | None:
        return self.job.body.parent_id

    @property
    def context(self) -> JobContext:
        # Made on demand, and forgotten in the end (`forget_context`): run and context refer to each other, so only
        # the garbage collector would free them. Most jobs never ask for it.
        if self._context is None:
            with self._lock:
                if self._context is None:
                    self._context = JobContext(self)
        return self._context

    def params(self) -> dict[str, Any]:
        text = self.job.body.params
        if text is None:
            return {}
        return given_params(self._decoded(text, "params"))

    def signal(self) -> Signal | None:
        text = self.job.body.signal
        if text is None:
            return None
        stored = decode_value(text, name="signal")
        payload = stored.get("payload")
        return Signal(
            key=stored["key"],
            payload=None if payload is None else decode_value(payload, name="signal payload", strict=False),
            approved=stored.get("rejected") is None,
            reason=stored.get("rejected"),
            delivered_at=datetime.fromisoformat(stored["delivered_at"]),
        )

    def load_state(self) -> dict[str, Any]:
        text = self.job.body.state
        return {} if text is None else self._decoded(text, "state")

    def _decoded(self, text: str, name: str) -> Any:
        return decode_value(text, name=name, allow_type=self._tools.allow_type, limit=self._tools.read_limit)

    @property
    def touched_state(self) -> dict[str, Any] | None:
        """The checkpoint, if the job has looked at it."""
        return None if self._context is None else self._context.touched_state

    def encoded_state(self) -> str | None:
        """The checkpoint to store with the completion; None if the job never looked at it."""
        state = self.touched_state
        return None if state is None else encode_value(state, name="state", limit=self._tools.state_limit)

    def save_state(self, state: dict[str, Any]) -> None:
        text = encode_value(state, name="state", limit=self._tools.state_limit)
        with self.shielded():
            self._require(
                self._tools.transitions.save_state(self.job.claim, text, now=self._tools.clock.now())
            )

    def save_progress(self, fraction: float, message: str | None) -> None:
        if message is not None:
            message = self.masked(self._tools.sanitizer.sanitize_text(message))[:500]
        progress = Progress(fraction=fraction, message=message)
        with self.shielded():
            self._require(
                self._tools.transitions.save_progress(
                    self.job.claim, progress, now=self._tools.clock.now(), within=self.connection
                )
            )

    def masked(self, text: str) -> str:
        """*text* without the values of the job that people do not see."""
        if self.job.body.params is None:
            return text
        if self.hidden is None:
            self.hidden = hidden_in(self.job)
        return hide(text, self.hidden) if self.hidden else text

    def _require(self, held: bool) -> None:
        if not held:
            self.request_stop(Stop.LOST)
            self.told = True
            raise JobInterrupted(Stop.LOST.value) from StaleClaim(
                f"job {self.job_id} is no longer held by this run: it was canceled, rescued or finished elsewhere"
            )

    def interruption(self) -> str | None:
        return None if self.stop is None else self.stop.value

    def transaction(self, within: object | None) -> AbstractContextManager[JobTransaction]:
        return self._tools.transaction(self, within)

    # --- as seen by the engine ---

    def begin(self, started: float, started_at: datetime) -> None:
        """The target is about to be called."""
        self.started = started
        self.started_at = started_at
        timeout = self.job.claim.timeout
        if timeout is not None:
            self.deadline = started + timeout.total_seconds()

    def request_stop(self, reason: Stop) -> bool:
        """Record why the run should stop; False if another reason came first."""
        with self._lock:
            if self.stop is not None or self.finished:
                return False
            self.stop = reason
            return True

    def finish(self) -> bool:
        """Take the right to hand on the outcome; False if it was taken."""
        with self._lock:
            if self.finished:
                return False
            self.finished = True
            return True

    def give_up(self) -> bool:
        """Take that right away from code that does not stop; when it ends at last, that is a `StoppedLate`."""
        with self._lock:
            if self.finished:
                return False
            self.finished = True
            self.still_running = True
            return True

    def attempt_ended(self) -> bool:
        """The end of the attempt of a run that was given up is on its way to the store; True if its code has ended before."""
        with self._lock:
            self._attempt_ended = True
            return self._code_ended

    def code_ended_late(self) -> bool:
        """The code of a run that was given up has ended; True if the end of its attempt is on its way to the store."""
        with self._lock:
            self._code_ended = True
            return self._attempt_ended

    def ended_with(self, outcome: Outcome) -> Outcome:
        """
        What happened, all in all, to a run whose code ended with *outcome*.

        A job's own commit counts, whatever its code did after it. So does losing the claim: the store would
        refuse any other outcome.
        """
        if self.stop is None and self.committed is None:
            return outcome
        if isinstance(outcome, TargetMissing | StoppedLate):
            return outcome
        if self.committed is not None:
            return Committed(*self.committed)
        if self.stop is Stop.EXPIRED:
            return Expired()
        if self.stop in (Stop.CANCELED, Stop.LOST) and not isinstance(outcome, TimedOut):
            return ClaimLost(stopped=not self.still_running)
        return outcome

    def guarded(self, action: Callable[[], None]) -> bool:
        """Run *action* only while the target's code runs; the worker cannot leave it meanwhile."""
        with self._lock:
            if not self.interruptible or self.finished or self.told:
                return False
            self.told = True
            action()
            return True

    def enter(self, thread_id: int) -> None:
        """From here on the thread may be interrupted."""
        with self._lock:
            self.thread_id = thread_id
            self.interruptible = True

    def leave(self) -> None:
        """From here on no interruption is sent any more."""
        with self._lock:
            self.interruptible = False

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """
        Keep interruptions out of the engine's own code on the job's thread.

        One that arrives between taking a connection or a lock and noting that it was taken would
        leave it taken forever. It is raised here instead, before the block or after it.
        """
        exposed = self._hide()
        try:
            if exposed:
                self._raise_if_stopped()
            yield
        finally:
            if exposed:
                self._set_interruptible(True)
        if exposed:
            self._raise_if_stopped()

    @contextmanager
    def around(self, block: AbstractContextManager[T]) -> Iterator[T]:
        """Shield the beginning and the end of *block*; the user's code in it can be interrupted as before."""
        exposed = self._hide()
        try:
            if exposed:
                self._raise_if_stopped()
            with block as value, self.exposed() if exposed else nullcontext():
                yield value
        finally:
            if exposed:
                self._set_interruptible(True)
        if exposed:
            self._raise_if_stopped()

    @contextmanager
    def exposed(self) -> Iterator[None]:
        """The user's code inside a shielded block may be interrupted, where the lane does that at all."""
        if self.thread_id is None:
            yield
            return
        self._set_interruptible(True)
        try:
            self._raise_if_stopped()
            yield
        finally:
            self._set_interruptible(False)
            self._raise_if_stopped()  # also in place of an error: no interruption may come later

    def _hide(self) -> bool:
        """True if the calling thread is the job's own and could be interrupted until now. Other threads never can."""
        return self.thread_id == threading.get_ident() and self._set_interruptible(False)

    def _set_interruptible(self, value: bool) -> bool:
        """What it was before."""
        with self._lock:
            before, self.interruptible = self.interruptible, value
            return before

    def _raise_if_stopped(self) -> None:
        """
        Raise what was held back while the thread was hidden.

        An interruption that was sent before may not have been raised in this thread yet: then it is raised here. If
        none comes, it was raised earlier, and the code that runs now handles it (a job that cleans up, a breaker
        that counts) and is left alone.
        """
        if self.stop is None:
            return
        with self._lock:
            told, self.told = self.told, True
        if not told:
            raise JobInterrupted(self.stop.value)
        for _ in range(100):  # Python raises it at a turn of a loop
            pass

    def forget_context(self) -> None:
        """The store has its outcome, and its code has ended: let go of what refers to the run."""
        self._context = None

    def elapsed(self, now: float) -> timedelta:
        """How long the target has been running."""
        return timedelta(seconds=max(0.0, now - (self.started if self.started is not None else now)))


class RunEnd(Struct):
    """
    A run that has ended: what happened, what follows from it, and what the store is told and has answered.

    ``decision`` is None until it is decided. ``completion`` and ``answer`` are None where the job is not completed.
    """

    run: Run
    outcome: Outcome
    decision: RunDecision | None = None
    completion: Completion | None = None
    answer: CompletionAnswer | None = None
