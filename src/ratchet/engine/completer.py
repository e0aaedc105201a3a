"""
The completer: outcomes become commits, many at a time.

Outcomes that arrive while a commit is under way are taken together by the next one, so batches
grow with the load and an idle node commits at once. A completion that cannot be written is kept
and tried again; it never makes the job run again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from enum import Enum
from queue import Empty, SimpleQueue

from msgspec import Struct

from ratchet.engine.run import Run, Stop
from ratchet.engine.task import Absent, JobTask
from ratchet.model.clock import Clock
from ratchet.model.decision import (
    CanceledJob,
    Completion,
    CompletionAnswer,
    Fail,
    Interrupted,
    Outcome,
    Raised,
    TimedOut,
)
from ratchet.model.errors import Conflict, StoreError, StoreUnavailable, UnstorableData
from ratchet.spi.store.transitions import JobStatusStore

logger = logging.getLogger("ratchet.engine")


class Ending(Enum):
    """What is to be done about a run that has ended."""

    COMPLETE = "complete"
    COMMITTED = "committed"  # by the job itself, in ctx.transaction()
    PARK = "park"
    EXPIRE = "expire"
    SETTLE = "settle"  # canceled or lost: only its key and permit are left to free
    LINGER = "linger"  # canceled or lost, but its code has not ended: nothing may be freed yet


class Ended(Struct):
    """A run that has ended, and what the store is to be told."""

    run: Run
    ending: Ending
    outcome: Outcome
    completion: Completion | None = None


class Completer:
    """Collects ended runs and commits them in batches."""

    def __init__(
        self,
        *,
        transitions: JobStatusStore,
        task: JobTask,
        clock: Clock,
        on_answer: Callable[[Ended, CompletionAnswer | None], None],
        on_expired: Callable[[Sequence[CanceledJob]], None] = lambda canceled: None,
        before_flush: Callable[[datetime], object] = lambda now: None,
        batch: int = 500,
        alert_window: timedelta = timedelta(hours=1),
    ) -> None:
        self._transitions = transitions
        self._task = task
        self._clock = clock
        self._on_answer = on_answer
        self._on_expired = on_expired
        self._before_flush = before_flush
        self._batch = batch
        self._alert_window = alert_window
        self._inbox: SimpleQueue[Ended | None] = SimpleQueue()
        self._kept: list[Ended] = []

    def put(self, run: Run, outcome: Outcome) -> None:
        """Take over a run that has ended; decides here, on the worker, what follows from it."""
        self._inbox.put(self._ended(run, outcome))

    def settle(self, run: Run) -> None:
        """The code of a run that was given up has ended after all."""
        self._inbox.put(Ended(run, Ending.SETTLE, Interrupted(Stop.LOST.value)))

    def wake(self) -> None:
        """Let a blocked `wait` return."""
        self._inbox.put(None)

    @property
    def backlog(self) -> int:
        """How many endings wait to be written."""
        return self._inbox.qsize() + len(self._kept)

    def wait(self, timeout: float) -> None:
        """Return when something has ended, or after *timeout* seconds."""
        if self._kept:
            return
        try:
            ended = self._inbox.get(timeout=timeout)
        except Empty:
            return
        if ended is not None:
            self._kept.append(ended)

    def run_once(self, now: datetime) -> int:
        """Write one batch; how many endings it had. Raises `StoreUnavailable` and keeps them if it cannot."""
        self._take()
        if not self._kept:
            return 0
        self._before_flush(now)
        batch = self._kept[: self._batch]
        written = self._write(batch, now)
        del self._kept[: len(batch)]
        for ended, answer in written:
            self._on_answer(ended, answer)
        return len(batch)

    def _ended(self, run: Run, outcome: Outcome) -> Ended:
        if run.committed is not None:
            return Ended(run, Ending.COMMITTED, outcome, run.committed[0])
        if isinstance(outcome, Raised) and isinstance(outcome.error, Absent):
            return Ended(run, Ending.PARK, outcome)
        if run.stop is Stop.EXPIRED:
            return Ended(run, Ending.EXPIRE, outcome)
        if run.stop in (Stop.CANCELED, Stop.LOST) and not isinstance(outcome, TimedOut):
            return Ended(run, Ending.LINGER if run.lingering else Ending.SETTLE, outcome)
        try:
            return Ended(run, Ending.COMPLETE, outcome, self._finish(run, outcome))
        except (StoreUnavailable, Conflict):
            # The conditions that hang on it could not be read. The run has ended all the same, and a
            # lost connection must not cost an attempt: `run_once` decides.
            return Ended(run, Ending.COMPLETE, outcome)

    def _finish(self, run: Run, outcome: Outcome) -> Completion:
        try:
            return self._task.finish(run, outcome)
        except (StoreUnavailable, Conflict):
            raise
        except Exception as error:
            # A sanitizer that raises must not strand the run.
            logger.exception("job %s: deciding what follows failed", run.job_id)
            return self._task.finish(run, Raised(error))

    def _take(self) -> None:
        while len(self._kept) < self._batch:
            try:
                ended = self._inbox.get_nowait()
            except Empty:
                return
            if ended is not None:
                self._kept.append(ended)

    def _write(self, batch: Sequence[Ended], now: datetime) -> list[tuple[Ended, CompletionAnswer | None]]:
        completing = [ended for ended in batch if ended.ending is Ending.COMPLETE]
        for ended in completing:
            if ended.completion is None:
                ended.completion = self._finish(ended.run, ended.outcome)
        answers = dict(zip((id(e) for e in completing), self._complete(completing, now), strict=True))
        for ended in batch:
            if ended.ending is Ending.PARK:
                self._transitions.park(ended.run.job.claim, ended.run.target, now=now)
            elif ended.ending is Ending.EXPIRE:
                self._on_expired(self._transitions.cancel(ended.run.job_id, reason="expired", now=now))
        unsettled = [e.run.job.claim for e in batch if self._is_unsettled(e, answers.get(id(e)))]
        if unsettled:
            self._transitions.settle(unsettled, now=now)
        return [(ended, self._answer(ended, answers)) for ended in batch]

    @staticmethod
    def _is_unsettled(ended: Ended, answer: CompletionAnswer | None) -> bool:
        """True if its code has ended and a key or permit may still be waiting for that."""
        if ended.ending in (Ending.SETTLE, Ending.EXPIRE):
            return True
        # Canceled while it was finishing: nobody told this run, and its completion was refused.
        return answer is not None and not answer.won and not ended.run.lingering

    @staticmethod
    def _answer(ended: Ended, answers: dict[int, CompletionAnswer]) -> CompletionAnswer | None:
        if ended.ending is Ending.COMMITTED and ended.run.committed is not None:
            return ended.run.committed[1]
        return answers.get(id(ended))

    def _complete(self, batch: Sequence[Ended], now: datetime) -> list[CompletionAnswer]:
        completions = [ended.completion for ended in batch if ended.completion is not None]
        if not completions:
            return []
        try:
            return self._transitions.complete(completions, now=now, alert_window=self._alert_window)
        except StoreUnavailable:
            raise
        except UnstorableData as error:
            if len(batch) > 1:
                # Split until the one with the bad data is alone.
                half = len(batch) // 2
                return self._complete(batch[:half], now) + self._complete(batch[half:], now)
            return self._complete_without_data(batch[0], error, now)

    def _complete_without_data(
        self, ended: Ended, error: StoreError, now: datetime
    ) -> list[CompletionAnswer]:
        """The database refuses what this run left behind: it fails with that error, and without the data."""
        logger.error("job %s: the store refused its outcome: %s", ended.run.job_id, error)
        if isinstance(ended.completion and ended.completion.decision, Fail):
            ended.completion = self._task.plain_failure(ended.run, error)
        else:
            ended.completion = self._task.finish(ended.run, Raised(error))
        try:
            return self._transitions.complete([ended.completion], now=now, alert_window=self._alert_window)
        except UnstorableData:
            ended.completion = self._task.plain_failure(ended.run, error)
            return self._transitions.complete([ended.completion], now=now, alert_window=self._alert_window)
