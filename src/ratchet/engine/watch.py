"""The watch over running jobs: timeouts, code that does not stop, claims that wait too long."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from ratchet.engine.coordinator import Coordinator
from ratchet.engine.lanes.event_loop import EventLoopLane
from ratchet.engine.run import Run, Stop
from ratchet.engine.task import Completing
from ratchet.model.claim import is_ahead
from ratchet.model.clock import Clock
from ratchet.model.decision import Interrupted, Outcome, TimedOut
from ratchet.model.durations import format_duration
from ratchet.spi.store.claims import JobClaimStore
from ratchet.spi.store.transitions import JobStatusStore

logger = logging.getLogger("ratchet.engine")


#: A run of a claim ahead is marked as started when it has been running for so many seconds; most have ended by then.
MARK_AFTER = 0.2
#: Seconds between two such statements.
MARK_EVERY = 0.25
#: The part of its timeout after which a run is slow, where slow runs are logged.
MOST_OF_TIMEOUT = 0.8


class RunWatch:
    """Looks at every run of this node, many times a second while there are any."""

    def __init__(
        self,
        *,
        coordinator: Coordinator,
        completer: Completing,
        transitions: JobStatusStore,
        claims: JobClaimStore,
        clock: Clock,
        interrupt_grace: timedelta,
        hand_back_after: timedelta,
        slow_after: timedelta | None = None,
        on_timed_out: Callable[[Run], None] = lambda run: None,
        on_handed_back: Callable[[], None] = lambda: None,
    ) -> None:
        self._coordinator = coordinator
        self._completer = completer
        self._transitions = transitions
        self._claims = claims
        self._marked_at = float("-inf")
        self._clock = clock
        self._grace = interrupt_grace.total_seconds()
        self._hand_back_after = hand_back_after.total_seconds()
        self._slow_after = None if slow_after is None else slow_after.total_seconds()
        self._slow: dict[int, Run] = {}  # those that were logged and go on, by identity
        self._on_timed_out = on_timed_out
        self._on_handed_back = on_handed_back

    def run_once(self, now: datetime) -> int:
        """Stop what must stop; how many runs were touched."""
        at = self._clock.monotonic()
        touched = 0
        for lane in self._coordinator.lanes.values():
            if isinstance(lane, EventLoopLane):
                lane.watch(at)
            for run in lane.running():
                touched += self._look_at(run, at)
        if self._slow_after is not None:
            self._warn_of_slow(at, self._slow_after)
        touched += self.hand_back(at - self._hand_back_after, now)
        if at - self._marked_at >= MARK_EVERY:
            self._marked_at = at
            self._mark_started(at, now)
        return touched

    def _warn_of_slow(self, at: float, after: float) -> None:
        """One line for each run that takes long; nothing happens to it."""
        going_on: dict[int, Run] = {}
        for run in self._coordinator.running():
            if run.started is None or run.interrupted_at is not None:
                continue
            limit = run.job.claim.timeout
            bound = after if limit is None else min(after, limit.total_seconds() * MOST_OF_TIMEOUT)
            if at - run.started < bound:
                continue
            going_on[id(run)] = run
            if id(run) not in self._slow:
                logger.warning(
                    "job %s (%s) is slow: attempt %d has been running for %s%s",
                    run.job_id,
                    run.target,
                    run.attempt,
                    format_duration(timedelta(seconds=round(at - run.started, 1))),
                    "" if limit is None else f", and its timeout is {format_duration(limit)}",
                )
        self._slow = going_on

    def _mark_started(self, at: float, now: datetime) -> None:
        """Runs of claims ahead that have been running for a moment: the store learns that they have started."""
        runs = [
            run
            for run in self._coordinator.running()
            if not run.marked
            and run.started is not None
            and at - run.started >= MARK_AFTER
            and is_ahead(run.job.claim.claim_id)
        ]
        if runs:
            self._claims.mark_started([run.job.claim for run in runs], now=now)
            for run in runs:
                run.marked = True

    def hand_back(self, before: float, now: datetime) -> int:
        """Return claims that have not started; other nodes may be free."""
        runs = self._coordinator.withdraw(before)
        claims = [run.job.claim for run in runs]
        try:
            if claims and self._transitions.hand_back(claims, now=now) < len(claims):
                # Some were canceled while they waited: their keys are held for code that never started.
                self._transitions.settle(claims, now=now)
        except BaseException:
            for claim in claims:
                self._coordinator.unanswered(claim.claim_id)
            raise
        if claims:
            self._on_handed_back()
        return len(runs)

    def _look_at(self, run: Run, at: float) -> int:
        if run.interrupted_at is not None:
            # A node that shuts down keeps the claims of code that does not stop: no other node may run them meanwhile.
            if run.stop is Stop.DRAINED or at - run.interrupted_at < self._grace:
                return 0
            return self._give_up(run)
        if run.deadline is not None and at >= run.deadline:
            self._on_timed_out(run)
            self._coordinator.interrupt(run, Stop.TIMED_OUT)
            return 1
        return 0

    def _give_up(self, run: Run) -> int:
        """It does not stop: its attempt ends all the same, and its slot goes to another worker."""
        if run.committed is not None or not run.give_up():
            return 0
        logger.warning(
            "job %s (%s) did not stop when it was interrupted (%s); its slot is replaced",
            run.job_id,
            run.target,
            run.interruption(),
        )
        try:
            for lane in self._coordinator.lanes.values():
                if any(other is run for other in lane.running()):
                    lane.replace(run)
        finally:
            # Whatever becomes of the slot, nobody else can bring the end of this attempt any more.
            self._completer.put(run, self._outcome(run))
        return 1

    def _outcome(self, run: Run) -> Outcome:
        if run.stop is Stop.TIMED_OUT:
            return TimedOut(run.job.claim.timeout or timedelta(), stopped=False)
        return Interrupted(run.interruption() or "interrupted", stopped=False)
