"""
A small world: several nodes in one process, one store, one clock, and a seed that decides everything.

Nodes take their steps in a random order; between any two store calls a node may die or lose its
connection; frozen nodes wake up late. Afterwards the world heals, everything runs to its end, and
the history is checked. The same seed replays the same history.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from ratchet.defaults.error_sanitizer import DefaultErrorSanitizer
from ratchet.defaults.executor_provider import DefaultExecutorProvider
from ratchet.defaults.instance_resolver import DefaultInstanceResolver
from ratchet.defaults.polling_strategy import AdaptivePollingStrategy
from ratchet.defaults.resilience import NoOpResilience
from ratchet.defaults.retry_policy import DefaultRetryPolicy
from ratchet.engine.assembly import NodeParts
from ratchet.engine.events import EventBus
from ratchet.engine.lanes.inline import InlineLane
from ratchet.engine.lanes.lane import JobLane
from ratchet.engine.manual import ManualNode
from ratchet.engine.run import Run
from ratchet.engine.started_runs import run_number
from ratchet.model.claim import DOUBTFUL, LONGEST_DOUBT, is_ahead
from ratchet.model.clock import ManualClock
from ratchet.model.cluster import Rescue
from ratchet.model.errors import BusinessKeyBusy, RetryLater, StoreError, StoreUnavailable
from ratchet.model.events import JobCompleted
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import JobFilter, JobSpec, StreamKey
from ratchet.model.options import Options
from ratchet.model.payload import encode
from ratchet.model.status import BackoffPolicy, JobStatus, Priority
from ratchet.stores.memory import MemoryStore
from ratchet.testing.faults import Crash, FaultyStore
from tests.simulation.targets import Targets

#: What a supervisor says of a process that has ended.
SEEN = "was killed by SIGKILL"


@dataclass
class Violation(AssertionError):
    """A promise was broken; the message holds the seed that replays it."""

    seed: int
    what: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}"


@dataclass
class Acknowledged:
    """A submission that was answered: it must not be lost."""

    job_id: UUID
    target: str
    canceled: bool = False


@dataclass
class SimulatedNode:
    """One node and the faulty store it sees."""

    store: FaultyStore
    node: ManualNode
    frozen: bool = False


class World:
    """Everything there is, driven by one seed."""

    def __init__(self, seed: int, *, nodes: int = 3, store_class: type[MemoryStore] = MemoryStore) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        self.ids = IdFactory.seeded(self.clock, seed)
        self.store = store_class(self.clock.now, lock_wait=timedelta())
        self.acknowledged: dict[UUID, Acknowledged] = {}
        self.started: set[tuple[UUID, UUID]] = set()  # runs (job, claim) whose code was called
        self.charges = Counter[str]()  # what rescues did, by what they went by
        self._watched: list[str] = []  # dead nodes whose supervisor has seen what ran
        self.violations: list[Violation] = []
        self.options = Options(heartbeat=2, silence=5, max_crashes=10_000)
        self.nodes: list[SimulatedNode] = []
        self._keys = [f"key-{n}" for n in range(4)]
        self._count = nodes
        for _ in range(nodes):
            self._add_node()

    # --- what jobs do ---

    def flaky(self) -> str:
        """Fails half of the time."""
        if self.dice.random() < 0.5:
            raise RuntimeError("bad luck")
        return "lucky"

    def later(self) -> str:
        """Sometimes asks for another time."""
        if self.dice.random() < 0.4:
            raise RetryLater(timedelta(seconds=1), count=False)
        return "in time"

    # --- the run ---

    def run(self, steps: int = 300) -> None:
        """Chaos for *steps* steps, then peace until everything has ended, then the check."""
        for _ in range(steps):
            self._chaos_step()
        self._heal()
        self._check()

    def _chaos_step(self) -> None:
        action = self.dice.choices(
            (self._submit, self._node_step, self._let_time_pass, self._control, self._kill, self._freeze),
            (12, 60, 12, 6, 2, 2),
        )[0]
        action()

    def _submit(self) -> None:
        spec = self._spec()
        # As the API does: the same ids again after a lost answer.
        submitter = FaultyStore(self.store, self.dice)
        submitter.loss_rate = 0.1
        for _ in range(3):
            try:
                insertion = submitter.insert([spec], now=self.clock.now())[0]
            except StoreUnavailable:
                continue
            except BusinessKeyBusy:
                return
            self.acknowledged.setdefault(insertion.job_id, Acknowledged(insertion.job_id, spec.target))
            return

    def _spec(self) -> JobSpec:
        dice = self.dice
        target = dice.choice(("sim:succeed", "sim:fail", "sim:flaky", "sim:later", "sim:progress"))
        return JobSpec(
            job_id=self.ids(),
            target=target,
            payload=encode((), {}),
            scheduled_at=self.clock.now() + timedelta(seconds=dice.choice((0, 0, 0, 3))),
            priority=dice.choice(list(Priority)),
            max_retries=dice.choice((0, 2, 5)),
            backoff=dice.choice(list(BackoffPolicy)),
            backoff_base=timedelta(seconds=1),
            business_key=dice.choice((None, None, None, *self._keys)),
            idempotency_key=dice.choice((None, None, None, f"once-{dice.randrange(20)}")),
            on_success="sim:record" if dice.random() < 0.1 else None,
            stream=StreamKey(resource=dice.choice((None, None, "gateway"))),
        )

    def _node_step(self) -> None:
        awake = [each for each in self.nodes if not each.frozen]
        if not awake:
            return
        self._guarded(self.dice.choice(awake), self._one_step)

    def _one_step(self, simulated: SimulatedNode) -> None:
        assembly = simulated.node.assembly
        now = self.clock.now()
        step = self.dice.choices(
            ("poll", "work", "complete", "beat", "orphans", "watch", "sweep", "told"),
            (20, 30, 20, 12, 8, 6, 4, 4),
        )[0]
        match step:
            case "poll":
                assembly.poller.run_once(now)
            case "work":
                self._work(simulated)
            case "complete":
                assembly.completer.run_once(now)
            case "beat":
                assembly.heartbeat.run_once(now)
            case "orphans":
                assembly.orphans.run_once(now)
            case "watch":
                assembly.watch.run_once(now)
            case "sweep":
                assembly.expiry.run_once(now)
            case "told" if self._watched:
                # A supervisor has seen the end of a process, and what ran there.
                started = {run_number(job_id, claim_id) for job_id, claim_id in self.started}
                assembly.orphans.rescue_ended(self._watched.pop(), now, seen=SEEN, started=started)

    def _work(self, simulated: SimulatedNode) -> None:
        for lane in simulated.node.assembly.coordinator.lanes.values():
            assert isinstance(lane, InlineLane)
            if lane.step():
                return

    def _guarded(self, simulated: SimulatedNode, action: Callable[[SimulatedNode], None]) -> None:
        try:
            action(simulated)
        except StoreUnavailable:
            pass  # a service would try again
        except Crash:
            self._bury(simulated)
        finally:
            simulated.node.assembly.parts.bus.flush()
        if self.violations:
            raise self.violations[0]

    def _let_time_pass(self) -> None:
        self.clock.advance(self.dice.choice((0.05, 0.5, 1.0, 2.0)))

    def _control(self) -> None:
        if not self.acknowledged:
            return
        job = self.dice.choice(list(self.acknowledged.values()))
        verb = self.dice.choice(("cancel", "pause", "resume", "retry"))
        now = self.clock.now()
        with suppress(BusinessKeyBusy):
            if verb == "cancel" and self.dice.random() < 0.3:
                job.canceled = bool(self.store.cancel(job.job_id, reason="by hand", now=now)) or job.canceled
            elif verb == "pause":
                self.store.pause(job.job_id, now=now)
            elif verb == "resume":
                self.store.resume(job.job_id, now=now)
            elif verb == "retry":
                self.store.retry(job.job_id, now=now)

    def _kill(self) -> None:
        victim = self.dice.choice(self.nodes)
        victim.store.dead = True
        self._bury(victim)

    def _freeze(self) -> None:
        sleeper = self.dice.choice(self.nodes)
        sleeper.frozen = not sleeper.frozen

    def _bury(self, simulated: SimulatedNode) -> None:
        simulated.store.dead = True
        if self.dice.random() < 0.5:
            self._watched.append(simulated.node.node_id)
        if simulated in self.nodes:
            self.nodes.remove(simulated)
        self._add_node()

    def _add_node(self) -> None:
        store = FaultyStore(self.store, self.dice, self._witness)
        bus = EventBus()
        parts = NodeParts(
            store=store,  # type: ignore[arg-type]  # passes every call on
            options=self.options,
            clock=self.clock,
            ids=self.ids,
            bus=bus,
            invocations=self._targets(),
            instances=DefaultInstanceResolver(),
            sanitizer=DefaultErrorSanitizer(),
            retry_policy=DefaultRetryPolicy(),
            resilience=NoOpResilience(),
            executor=DefaultExecutorProvider(),
            polling=AdaptivePollingStrategy,
            dice=self.dice,
        )
        simulated = SimulatedNode(store, ManualNode(parts, slots=3))
        for lane in simulated.node.assembly.coordinator.lanes.values():
            self._claim_ahead(lane)
        bus.subscribe(JobCompleted, lambda event: self._heard_completed(event))
        simulated.node.register()
        store.crash_rate, store.loss_rate = 0.004, 0.02
        self.nodes.append(simulated)

    def _claim_ahead(self, lane: JobLane) -> None:
        """Let the lane claim more than it can start, now and then, and note what it starts."""
        assert isinstance(lane, InlineLane)
        wanted, told = lane.wanted, lane._on_started
        lane.wanted = lambda: wanted() + (3 if wanted() and self.dice.random() < 0.5 else 0)  # type: ignore[method-assign]

        def on_started(run: Run) -> None:
            self.started.add((run.job_id, run.job.claim.claim_id))
            told(run)

        lane._on_started = on_started

    def _targets(self) -> Targets:
        return Targets(self)

    def _witness(self, name: str, args: Any, answer: Any) -> None:
        """Whatever a completion changed, it changed for its own run and for no other. A rescue charges by the rules."""
        if name == "rescue" and answer is not None:
            self._check_charges(answer)
        if name != "complete":
            return
        for completion, each in zip(args[0], answer, strict=True):
            claim = completion.claim
            runs = self.store.executions(claim.job_id, uncounted=True)
            own = [run for run in runs if run.claim_id == claim.claim_id]
            if each.won and completion.started_at is not None and not own:
                raise Violation(
                    self.seed, f"claim {claim.claim_id} of job {claim.job_id} finished another run"
                )

    def _check_charges(self, rescue: Rescue) -> None:
        """What is charged ran, or may have; what goes back uncharged did not, or was claimed ahead and nobody saw it run."""
        for job_id in (*rescue.requeued, *rescue.suspects, *rescue.dead_lettered):
            runs = self.store.executions(job_id, uncounted=True)
            run = next(run for run in reversed(runs) if run.status == "CRASHED")
            doubts = sum(one.error_type == DOUBTFUL for one in runs)
            was_seen = SEEN in (run.error or "")
            self.charges["seen" if was_seen else "by its claim"] += 1
            if was_seen and (job_id, run.claim_id) not in self.started:
                raise Violation(self.seed, f"job {job_id} was charged and had not started")
            if not was_seen and is_ahead(run.claim_id) and doubts < LONGEST_DOUBT:
                raise Violation(
                    self.seed, f"job {job_id} was claimed ahead, charged, and not known to have started"
                )
        for job_id in rescue.handed_back:
            runs = self.store.executions(job_id, uncounted=True)
            doubtful = [run for run in runs if run.error_type == DOUBTFUL and run.node_id == rescue.node_id]
            self.charges["in doubt" if doubtful else "not started"] += 1
            if any(not is_ahead(run.claim_id) for run in doubtful):
                raise Violation(self.seed, f"job {job_id} was claimed for a free slot and not charged")

    def _heard_completed(self, event: JobCompleted) -> None:
        record = self.store.get(event.job_id)
        if record is None or record.status is not JobStatus.SUCCEEDED:
            status = None if record is None else record.status
            # Kept, not raised: a listener's exception does not disturb the engine.
            self.violations.append(
                Violation(self.seed, f"job {event.job_id} was reported as completed while it is {status}")
            )

    # --- peace ---

    def _heal(self) -> None:
        for simulated in self.nodes:
            simulated.store.crash_rate = simulated.store.loss_rate = 0.0
            simulated.frozen = False
        for job_id in list(self.acknowledged):
            self.store.resume(job_id, now=self.clock.now())
        for _ in range(400):
            for simulated in list(self.nodes):
                self._guarded(simulated, self._everything)
            self.clock.advance(1.0)
            for job_id in list(self.acknowledged):
                self.store.resume(job_id, now=self.clock.now())
            if self._all_ended():
                break
        # One more round of beats: what still runs is settled now or never.
        for _ in range(4):
            for simulated in list(self.nodes):
                self._guarded(simulated, self._everything)
            self.clock.advance(2.0)

    def _everything(self, simulated: SimulatedNode) -> None:
        assembly = simulated.node.assembly
        now = self.clock.now()
        assembly.heartbeat.run_once(now)
        assembly.orphans.run_once(now)
        assembly.poller.run_once(now)
        for lane in assembly.coordinator.lanes.values():
            assert isinstance(lane, InlineLane)
            while lane.step():
                pass
        while assembly.completer.run_once(now):
            pass
        assembly.watch.run_once(now)

    def _all_ended(self) -> bool:
        counts = self.store.counts()
        return all(counts[status] == 0 for status in JobStatus if not status.is_terminal)

    # --- the check ---

    def _check(self) -> None:
        with self._blamed():
            self.store.check_invariants()
        for job in self.acknowledged.values():
            record = self.store.get(job.job_id)
            if record is None:
                raise Violation(self.seed, f"acknowledged job {job.job_id} is lost")
            if not record.status.is_terminal:
                raise Violation(self.seed, f"job {job.job_id} never ended: {record.status}")
            self._check_runs(job.job_id, record.status, record.attempts)
        self._check_leaks()

    def _check_runs(self, job_id: UUID, status: JobStatus, attempts: int) -> None:
        counted = self.store.executions(job_id)
        successes = [run for run in counted if run.status == "SUCCEEDED"]
        if len(successes) > 1:
            raise Violation(self.seed, f"job {job_id} succeeded {len(successes)} times")
        if (status is JobStatus.SUCCEEDED) != bool(successes):
            raise Violation(self.seed, f"job {job_id} is {status} with {len(successes)} successful runs")
        if len(counted) < attempts:
            raise Violation(
                self.seed, f"job {job_id} has {attempts} attempts but {len(counted)} counted runs"
            )

    def _check_leaks(self) -> None:
        """Every key can be taken by a new job: nothing is held by the dead."""
        for key in self._keys:
            spec = JobSpec(
                job_id=self.ids(),
                target="sim:succeed",
                payload=encode((), {}),
                scheduled_at=self.clock.now() + timedelta(days=1),
                business_key=key,
            )
            try:
                self.store.insert([spec], now=self.clock.now())
            except BusinessKeyBusy as error:
                raise Violation(self.seed, f"{key} leaked: {error}") from error
        running = self.store.count(JobFilter(statuses=[JobStatus.RUNNING]))
        if running:
            raise Violation(self.seed, f"{running} jobs are still RUNNING")

    def _blamed(self) -> Any:
        world = self

        class Blame:
            def __enter__(self) -> None: ...

            def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
                if isinstance(error, AssertionError | StoreError) and not isinstance(error, Violation):
                    raise Violation(world.seed, f"invariant broken: {error}") from error

        return Blame()
