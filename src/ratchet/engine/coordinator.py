"""The coordinator: knows every claim this node holds, and which lane has it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from ratchet.engine.lanes.lane import JobLane
from ratchet.engine.planned_starts import PlannedStarts
from ratchet.engine.run import Run, Stop
from ratchet.engine.start_check import TRUSTED
from ratchet.engine.task import TaskTools
from ratchet.model.claim import ClaimedJob
from ratchet.model.clock import Clock
from ratchet.model.status import Lane

#: How long after an unanswered claim the store may still make it.
LOST_CLAIM_WATCH = 60.0
#: A run that may start later is not handed back while it waits for that; but for so many seconds at most.
LONGEST_DELAY = 1.0


class Coordinator:
    """
    Dispatches claimed jobs to lanes and keeps count of what is held.

    A run is held from its claim until the store has answered its completion, so that a beat can
    tell a claim whose answer was lost from one that is merely being written.
    """

    def __init__(
        self,
        lanes: Mapping[Lane, JobLane],
        tools: TaskTools,
        clock: Clock,
        unwritten: Callable[[], int] = lambda: 0,
        most_unwritten: int = 2_000,
    ) -> None:
        self.lanes = dict(lanes)
        self.unwritten = unwritten  # how many runs have ended here and are not written to the store yet
        self._most_unwritten = most_unwritten
        self._is_behind = False
        self._tools = tools
        self._clock = clock
        # By the number of the job's id: UUID hashes and compares in Python code.
        self._held: dict[int, Run] = {}
        self._asking: set[UUID] = set()
        self._still_running: dict[UUID, Run] = {}  # by claim: ended for the store, but their code still runs
        self._lost: dict[UUID, float] = {}  # claims without an answer: the store may still make them
        self._lock = threading.Lock()
        self.planned_starts = PlannedStarts(
            lambda lane, run: self.lanes[lane].accept_planned(run), clock.monotonic
        )

    # --- claiming ---

    def wanted(self, lane: Lane) -> int:
        """
        How many more jobs to claim for a lane. Runs whose start is planned count: they will need a slot.

        None while runs end faster than the store takes their outcomes. What has ended here and is not written
        there would run again after a crash, and without this limit that could be any number of jobs.
        """
        if self.unwritten() > self._most_unwritten:
            self._is_behind = (
                True  # set before the next look: whoever writes the rest sees it (`has_caught_up`)
            )
        if self._is_behind and not self.has_caught_up():
            return 0
        wanted = self.lanes[lane].wanted()
        return wanted - self.planned_starts.count(lane) if self.planned_starts.waiting else wanted

    def is_ahead(self, lane: Lane, limit: int) -> bool:
        """True if a claim of *limit* jobs takes more than can start at once."""
        return limit > self.lanes[lane].free()

    def has_planned_start(self, lane: Lane) -> bool:
        """True while a run of this lane waits for its planned start."""
        return bool(self.planned_starts.waiting) and self.planned_starts.count(lane) > 0

    def has_caught_up(self) -> bool:
        """True once, when enough has been written to claim jobs again."""
        if self._is_behind and self.unwritten() <= self._most_unwritten // 2:
            self._is_behind = False
            return True
        return False

    def asking(self, claim_id: UUID) -> None:
        """A claim under this token is on its way to the store."""
        with self._lock:
            self._asking.add(claim_id)

    def answered(self, claim_id: UUID) -> None:
        """That claim's answer arrived."""
        with self._lock:
            self._asking.discard(claim_id)

    def unanswered(self, claim_id: UUID) -> None:
        """That claim failed; whether it was made is unknown."""
        with self._lock:
            self._asking.discard(claim_id)
            self._lost[claim_id] = self._clock.monotonic()

    def has_lost_claims(self) -> bool:
        """True after a claim or a hand-back without an answer: the store must be searched for what it left."""
        return bool(self._lost)

    def looked_for_lost_claims(self) -> None:
        """The store was searched; tokens that can no longer turn up are forgotten."""
        at = self._clock.monotonic()
        with self._lock:
            self._lost = {
                token: since for token, since in self._lost.items() if at - since < LOST_CLAIM_WATCH
            }

    def accept(self, lane: Lane, jobs: Sequence[ClaimedJob], asked_at: float | None = None) -> None:
        """Take over claimed jobs, in claim order; the store was asked for them at *asked_at* (monotonic)."""
        now = self._clock.monotonic()
        trusted_until = (now if asked_at is None else asked_at) + TRUSTED
        runs = [Run(job, self._tools, now, trusted_until) for job in jobs]
        with self._lock:
            for run in runs:
                self._held[run.job_id.int] = run
        self.lanes[lane].accept([run for run in runs if run.job.claim.start_at is None])
        for run in runs:
            if run.job.claim.start_at is not None:
                # Its wait for a slot begins with its start; but a clock that was put back must not hold it for long.
                delay = (run.job.claim.start_at - self._clock.now()).total_seconds()
                run.accepted += min(max(delay, 0.0), LONGEST_DELAY)
                self.planned_starts.add(lane, run, run.job.claim.start_at)

    def release(self, run: Run, *, still_running: bool = False) -> None:
        """The store has answered: this run is no longer ours, but for its key while its code is *still_running*."""
        with self._lock:
            if self._held.get(number := run.job_id.int) is run:
                del self._held[number]
            if still_running:
                self._still_running[run.job.claim.claim_id] = run
                return
            if self._still_running:
                self._still_running.pop(run.job.claim.claim_id, None)
        run.forget_context()

    # --- asking ---

    def tokens(self) -> list[UUID]:
        """Every claim token under which the store may rightly hold something for this node."""
        with self._lock:
            held = {run.job.claim.claim_id for run in self._held.values()}
            return list(held | self._asking | self._still_running.keys())

    def held(self) -> list[Run]:
        """Every run whose end the store has not answered yet."""
        with self._lock:
            return list(self._held.values())

    def running(self) -> list[Run]:
        """Every run whose target is being called."""
        return [run for lane in self.lanes.values() for run in lane.running()]

    def holds(self, job_id: UUID) -> bool:
        """True from the claim of this job until the store has answered its end."""
        return job_id.int in self._held

    @property
    def is_quiet(self) -> bool:
        """True if nothing is held and no code of ended runs goes on: what starts now runs alone."""
        return not self._held and not self._still_running

    @property
    def has_stubborn_code(self) -> bool:
        """True while code that ignores its interruption goes on; nobody knows for how long."""
        return bool(self._still_running)

    @property
    def stubborn(self) -> int:
        """How many runs have ended for the store while their code goes on."""
        return len(self._still_running)

    @property
    def idle(self) -> bool:
        """True if nothing is held."""
        return not self._held

    @property
    def utilization(self) -> float:
        """The busy share of all slots, 0 to 1."""
        slots = sum(lane.slots for lane in self.lanes.values())
        return min(1.0, len(self.running()) / slots) if slots else 0.0

    @property
    def stuck(self) -> int:
        """Threads that ignore their interruption."""
        return sum(lane.stuck for lane in self.lanes.values())

    # --- stopping ---

    def interrupt(self, run: Run, reason: Stop) -> None:
        """Stop one run, or keep it from starting."""
        for lane in self.lanes.values():
            if any(other is run for other in lane.holding()):
                lane.interrupt(run, reason)
                return
        run.request_stop(reason)

    def cancel(self, job_id: UUID) -> bool:
        """A job of this node was canceled; True if it was here."""
        with self._lock:
            run = self._held.get(job_id.int)
        if run is None:
            return False
        self.interrupt(run, Stop.CANCELED)
        return True

    def reconcile(self, claims: Mapping[UUID, UUID], known_before: Sequence[Run]) -> list[Run]:
        """
        Interrupt what the store no longer gives to this node; what that was.

        Only runs that were held before the store was asked: a newer claim is not in its answer yet.
        """
        lost = [
            run
            for run in known_before
            if not run.finished and claims.get(run.job_id) != run.job.claim.claim_id and run.committed is None
        ]
        for run in lost:
            self.interrupt(run, Stop.CANCELED if run.job_id not in claims else Stop.LOST)
        return lost

    def withdraw(self, before: float) -> list[Run]:
        """Unstarted runs that were accepted before *before*; they are no longer held."""
        runs = self.planned_starts.withdraw(before)
        runs += [run for lane in self.lanes.values() for run in lane.withdraw(before)]
        for run in runs:
            self.release(run)
        return runs

    def abandon(self, reason: Stop) -> int:
        """Everything this node held belongs to others now."""
        dropped = self.withdraw(float("inf"))
        held = self.held()
        for run in held:
            self.interrupt(run, reason)
        return len(dropped) + len(held)
