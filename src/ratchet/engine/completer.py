"""
The completer: carries out decisions, many in one commit.

Runs that end while a commit is under way are taken together by the next one, so batches
grow with the load and an idle node commits at once. A completion that cannot be written is kept
and tried again; it never makes the job run again by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from ratchet.engine.run import Run, RunEnd
from ratchet.engine.task import JobTask
from ratchet.model.claim import JobClaim
from ratchet.model.clock import Clock
from ratchet.model.decision import (
    CanceledJob,
    Confirm,
    Expire,
    Fail,
    Outcome,
    Park,
    Raised,
    Settle,
    StoppedLate,
    Unstorable,
)
from ratchet.model.errors import Conflict, StoreError, StoreUnavailable, UnstorableData
from ratchet.model.places import key_place
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.store.transitions import JobStatusStore

if TYPE_CHECKING:
    from ratchet.engine.flow import CommittedRuns, EndedRun

logger = logging.getLogger("ratchet.engine")
faults = FaultLog(logger)

#: The store ends the longest overdue first: these are looked for together with what this node found.
EXPIRED_TOGETHER = 100


class Completer:
    """Collects ended runs, and carries out what was decided about them in batches."""

    def __init__(
        self,
        *,
        transitions: JobStatusStore,
        task: JobTask,
        clock: Clock,
        on_answer: Callable[[RunEnd], None],
        on_expired: Callable[[Sequence[CanceledJob]], None] = lambda canceled: None,
        before_flush: Callable[[datetime], object] = lambda now: None,
        batch: int = 500,
        alert_window: timedelta = timedelta(hours=1),
        on_ended: Sequence[Callable[[CommittedRuns], None]] = (),
    ) -> None:
        self._transitions = transitions
        self._task = task
        self._clock = clock
        self._on_answer = on_answer
        self._on_expired = on_expired
        self._before_flush = before_flush
        self._batch = batch
        self._alert_window = alert_window
        self._on_ended = on_ended  # whoever counts runs: `FlowRecorder`, `NodeMeters`
        self._inbox: SimpleQueue[RunEnd | None] = SimpleQueue()
        self._kept: list[RunEnd] = []

    def put(self, run: Run, outcome: Outcome) -> None:
        """Take over a run that has ended; what follows is decided here, on the worker's thread."""
        is_late = run.still_running and type(outcome) is StoppedLate
        if is_late and not run.code_ended_late():
            return  # whoever gave it up is about to bring the end of its attempt, and after it this one
        end = RunEnd(run, run.ended_with(outcome))
        try:
            self._decide(end)
        except (StoreUnavailable, Conflict):
            # The conditions on its branches could not be read. A lost connection must not cost an attempt:
            # `run_once` decides.
            pass
        if run.entry is not None:
            self._task.ended(run)
        self._inbox.put(end)
        if run.still_running and not is_late and run.attempt_ended():
            self.put(run, StoppedLate())

    def wake(self) -> None:
        """Let a blocked `wait` return."""
        self._inbox.put(None)

    def backlog(self) -> int:
        """How many ended runs wait to be written."""
        return self._inbox.qsize() + len(self._kept)

    def wait(self, timeout: float) -> None:
        """Return when a run has ended, or after *timeout* seconds."""
        if self._kept:
            return
        try:
            end = self._inbox.get(timeout=timeout)
        except Empty:
            return
        if end is not None:
            self._kept.append(end)

    def run_once(self, now: datetime) -> int:
        """Write one batch; how many runs it had. Raises `StoreUnavailable` and keeps them if it cannot."""
        self._take()
        if not self._kept:
            return 0
        self._before_flush(now)
        batch = self._kept[: self._batch]
        self._write(batch, now)
        del self._kept[: len(batch)]
        if self._on_ended:
            ended = _ended_runs(batch)
            for tell in self._on_ended:
                tell((now, ended))
        for end in batch:
            self._answer(end)
        return len(batch)

    def _answer(self, end: RunEnd) -> None:
        try:
            self._on_answer(end)
        except BaseException as error:
            # It is written, and the others of its batch must still be let go.
            faults.note("telling about the end of a run failed", error, where=f"job {end.run.job_id}")

    def _decide(self, end: RunEnd) -> None:
        try:
            self._task.decide(end)
        except (StoreUnavailable, Conflict):
            raise
        except BaseException as error:
            # Whatever goes wrong, the run must not be stranded, nor end the thread of the lane that it comes from.
            faults.note("deciding what follows from a run failed", error, where=f"job {end.run.job_id}")
            self._decide_failure(end, error)

    def _decide_failure(self, end: RunEnd, error: BaseException) -> None:
        end.outcome = Raised(error)
        try:
            self._task.decide(end)
        except (StoreUnavailable, Conflict):
            raise
        except BaseException as second:
            faults.note("deciding about that failure failed too", second, where=f"job {end.run.job_id}")
            end.outcome = Unstorable(error)
            self._task.decide(end)

    def _take(self) -> None:
        while len(self._kept) < self._batch:
            try:
                end = self._inbox.get_nowait()
            except Empty:
                return
            if end is not None:
                self._kept.append(end)

    def _write(self, batch: Sequence[RunEnd], now: datetime) -> None:
        for end in batch:
            if end.decision is None:
                self._decide(end)
        self._complete(
            [end for end in batch if end.completion is not None and not isinstance(end.decision, Confirm)],
            now,
        )
        for end in batch:
            if isinstance(end.decision, Park):
                place = key_place(end.decision.keys) if end.decision.keys else end.run.target
                self._transitions.park(end.run.job.claim, place, now=now)
        self._expire([end.run.job.claim for end in batch if isinstance(end.decision, Expire)], now)
        unsettled = [end.run.job.claim for end in batch if self._is_unsettled(end)]
        if unsettled:
            self._transitions.settle(unsettled, now=now)

    def _expire(self, claims: Sequence[JobClaim], now: datetime) -> None:
        """
        Give the claims up and let the store expire what is still unstarted.

        Handing back compares the claim: a job that was rescued from this node and started elsewhere is left alone.
        """
        if claims and self._transitions.hand_back(claims, now=now):
            self._on_expired(self._transitions.expire(now=now, limit=max(len(claims), EXPIRED_TOGETHER)))

    @staticmethod
    def _is_unsettled(end: RunEnd) -> bool:
        """True if its code has ended and a key or permit may still be waiting for that."""
        if end.answer is None:
            return isinstance(end.decision, Settle | Expire)
        # Canceled while it was finishing: nobody told this run, and its completion was refused.
        return not end.answer.won and not end.run.still_running

    def _complete(self, ends: Sequence[RunEnd], now: datetime) -> None:
        if not ends:
            return
        try:
            self._commit(ends, now)
        except StoreUnavailable:
            raise
        except UnstorableData as error:
            if len(ends) > 1:
                # Split until the one with the bad data is alone.
                half = len(ends) // 2
                self._complete(ends[:half], now)
                self._complete(ends[half:], now)
            else:
                self._complete_without_data(ends[0], error, now)

    def _commit(self, ends: Sequence[RunEnd], now: datetime) -> None:
        completions = [end.completion for end in ends if end.completion is not None]
        answers = self._transitions.complete(completions, now=now, alert_window=self._alert_window)
        for end, answer in zip(ends, answers, strict=True):
            end.answer = answer

    def _complete_without_data(self, end: RunEnd, error: StoreError, now: datetime) -> None:
        """The database refuses what this run left behind: it fails with that error, and without the data."""
        logger.error("job %s: the store refused its outcome: %s", end.run.job_id, error)
        if isinstance(end.decision, Fail):
            self._commit_as(Unstorable(error), end, now)
            return
        try:
            self._commit_as(Raised(error), end, now)
        except UnstorableData:
            self._commit_as(Unstorable(error), end, now)

    def _commit_as(self, outcome: Outcome, end: RunEnd, now: datetime) -> None:
        """Decide about *end* again, for what its commit has shown."""
        end.outcome = outcome
        self._decide(end)
        self._commit([end], now)


def _ended_runs(batch: Sequence[RunEnd]) -> list[EndedRun]:
    """One list for all who count. What stopped late is not in it: its attempt was counted when it was given up."""
    ended: list[EndedRun] = [
        (
            (body := end.run.job.body).target,
            body.queue,
            type(end.decision) if end.answer is None or end.answer.won else None,
            (claim := end.completion.claim).scheduled_at,
            end.completion.started_at,
            end.completion.finished_at,
            end.answer,
            claim.job_id,
        )
        for end in batch
        if end.completion is not None
    ]
    if len(ended) < len(batch):
        for end in batch:
            if end.completion is None and type(end.outcome) is not StoppedLate:
                body, claim = end.run.job.body, end.run.job.claim
                known = (body.target, body.queue, type(end.decision), claim.scheduled_at)
                ended.append((*known, None, None, None, claim.job_id))
    return ended
