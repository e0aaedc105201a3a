"""
Your own jobs, played again and again with crashes, lost connections and slow steps between any two of their effects.

`simulate` gives your workflow a small cluster in memory: two nodes, one clock, and a seed that decides everything. What your jobs
do to the outside world goes through `Simulation.effects`, so that a node can die, lose an answer or fall asleep there. Then the faults end,
everything runs to its end, and your invariants are checked. The same seed plays the same life again.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from ratchet.engine.lanes.inline import InlineLane
from ratchet.engine.manual import ManualNode
from ratchet.engine.run import Run
from ratchet.model.clock import ManualClock
from ratchet.model.errors import RatchetError, StoreUnavailable
from ratchet.model.identifiers import IdFactory
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler
from ratchet.scheduler.core import Core, LazyStore
from ratchet.testing.faults import Crash, FaultyStore
from ratchet.testing.isolation import IsolatedStore, _isolated_core, isolated
from ratchet.testing.manual import ManualScheduler

T = TypeVar("T")

#: Plays only this seed, so that a failure can be looked at without editing the test.
SEED_VARIABLE = "RATCHET_SIMULATE_SEED"
NODES = 2
#: Steps of the nodes during which faults happen.
STEPS = 80
#: What can happen at one side of an effect, and how likely each is.
EFFECT_FAULTS = {"crash": 0.1, "loss": 0.1, "slow": 0.1}
#: The same for a call of the store by the engine, by a checkpoint or by a submission. There are far more of these.
STORE_FAULTS = {"crash": 0.004, "loss": 0.004}
#: At most so many in one life. A job survives two deaths of its nodes (``max_crashes`` is 3), and should survive two failed attempts.
MOST_DEATHS = 2
MOST_LOSSES = 2
#: Beats and silence of the nodes, in seconds; a slow step takes longer than the silence.
BEAT, SILENCE, SLOW = 2, 5, 12
#: For so long everything may take to end, once there are no more faults.
HORIZON = timedelta(days=400)
_ENDED = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED)


class SimulationFailed(AssertionError):
    """An invariant did not hold; ``seed`` plays that life again, and the message tells it."""

    def __init__(self, workflow: str, seed: int, what: str, story: list[str]) -> None:
        told = "\n".join(f"  {line}" for line in story) or "  nothing"
        super().__init__(
            f"seed {seed}: {what}\n\nwhat happened:\n{told}\n\n"
            f"play it again: simulate({workflow}, seed={seed}), or set {SEED_VARIABLE}={seed}"
        )
        #: The seed of the life that failed.
        self.seed = seed
        #: The invariant that did not hold.
        self.what = what
        #: What happened in that life, a line each.
        self.story = story


@dataclass
class SimulationReport:
    """What was played: nothing is proven by lives without faults."""

    #: Lives.
    seeds: int = 0
    #: Runs of jobs.
    runs: int = 0
    #: Nodes that died at an effect or a store call.
    crashes: int = 0
    #: Effects and store calls that failed before they did anything, or whose answer was lost.
    losses: int = 0
    #: Effects that took so long that the node was declared dead meanwhile.
    slow_steps: int = 0


@dataclass
class _Node:
    """A node of the simulated cluster."""

    name: str
    store: FaultyStore
    manual: ManualNode


class _Store(FaultyStore):
    """What one node sees of the store."""

    def __init__(self, simulation: Simulation, store: Any) -> None:
        super().__init__(store, simulation.dice, simulation._saw)
        self._simulation = simulation

    def _fate(self, where: str, lost: type[StoreUnavailable]) -> None:
        if self.dead:
            raise Crash(where)
        match self._simulation._fault(STORE_FAULTS):
            case "crash":
                self._simulation._note(f"dies {where} in the store")
                self.dead = True
                raise Crash(where)
            case "loss":
                self._simulation._note(f"loses its connection to the store, {where}")
                raise lost(f"simulated: connection lost {where}")


class _ActingStore:
    """The store of the scheduler itself: code that runs on a node sees what that node sees."""

    def __init__(self, simulation: Simulation, store: Any) -> None:
        self._simulation = simulation
        self._store = store

    def __getattr__(self, name: str) -> Any:
        acting = self._simulation._acting
        return getattr(acting[-1].store if acting else self._store, name)


class _Effects:
    """Passes calls on to the outside world, unless fate intervenes."""

    def __init__(self, simulation: Simulation, target: Any, name: str, lost: type[Exception]) -> None:
        self._simulation, self._target, self._name, self._lost = simulation, target, name, lost

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._wrapped(f"{self._name}.{name}", found) if callable(found) else found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._wrapped(self._name, self._target)(*args, **kwargs)

    def _wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        simulation, lost = self._simulation, self._lost
        if inspect.iscoroutinefunction(call):

            async def effect_async(*args: Any, **kwargs: Any) -> Any:
                with simulation._effect(_shown(name, args, kwargs), lost):
                    return await call(*args, **kwargs)

            return effect_async

        def effect(*args: Any, **kwargs: Any) -> Any:
            with simulation._effect(_shown(name, args, kwargs), lost):
                return call(*args, **kwargs)

        return effect


@dataclass
class _Life:
    """What has happened so far in one life."""

    deaths: int = 0
    losses: int = 0
    story: list[str] = field(default_factory=list)
    labels: dict[UUID, str] = field(default_factory=dict)


class Simulation:
    """One life of a workflow: what `simulate` passes to it."""

    def __init__(self, seed: int, clock: ManualClock, report: SimulationReport) -> None:
        #: The seed of this life.
        self.seed = seed
        #: The clock of this life; it moves by itself.
        self.clock = clock
        #: Random numbers that are the same in a replay.
        self.dice = random.Random(seed)
        self.scheduler: Scheduler
        self._report = report
        self._life = _Life()
        self._began = clock.now()
        self._nodes: list[_Node] = []
        self._names = 0
        self._acting: list[_Node] = []
        self._calm = True
        self._always: list[tuple[str, Callable[[], Any]]] = []
        self._at_the_end: list[tuple[str, Callable[[], Any]]] = []
        self._broken: str | None = None

    # --- what a workflow says ---

    def effects(self, target: T, name: str | None = None, *, lost: type[Exception] = ConnectionError) -> T:
        """
        *target*, a fake of something in the outside world, such that every call of it can be struck by a fault.

        Before the call and after it, the node may die or be slow, or *lost* is raised: before, nothing was done; after, it was. *target*
        may be an object, whose methods are the effects, or a function. Give the result to your jobs, and keep *target* for the invariants.
        """
        known = name or getattr(target, "__name__", None) or type(target).__name__.lower()
        proxy: Any = _Effects(self, target, known, lost)
        found: T = proxy
        return found

    def always(self, what: str, holds: Callable[[], Any]) -> None:
        """After every step and every effect, *holds* must return something true (or None) and raise nothing; *what* says it in words."""
        self._always.append((what, holds))

    def at_the_end(self, what: str, holds: Callable[[], Any]) -> None:
        """The same, once every job has ended."""
        self._at_the_end.append((what, holds))

    # --- a life ---

    def _play(self, core: Core, store: Any) -> None:
        self._core, self._plain = core, store
        for _ in range(NODES):
            self._add_node()
        self._calm = False
        for _ in range(STEPS):
            self._step()
            if self._all_ended():
                break
        self._calm = True
        self._settle()
        self._check(self._always)
        self._check_ends()
        self._check(self._at_the_end)

    def _add_node(self) -> None:
        self._names += 1
        store = _Store(self, self._plain)
        parts = self._core.node_parts()
        options = parts.options.replace(heartbeat=BEAT, silence=SILENCE)
        before, self._calm = self._calm, True
        node = ManualNode(
            dataclasses.replace(parts, store=store, options=options, dice=self.dice, cluster=None), slots=2
        )
        node.register()
        self._calm = before
        added = _Node(f"node {self._names}", store, node)
        for lane in _lanes(node):
            self._watch_starts(lane)
        self._nodes.append(added)

    def _watch_starts(self, lane: InlineLane) -> None:
        told = lane._on_started

        def on_started(run: Run) -> None:
            self._report.runs += 1
            self._life.labels[run.job_id] = self._label(run)
            self._note(f"starts {self._life.labels[run.job_id]}, attempt {run.job.claim.attempt}")
            told(run)

        lane._on_started = on_started

    def _label(self, run: Run) -> str:
        acting, self._acting = self._acting, []
        try:
            job = self.scheduler.jobs.get(run.job_id)
        except RatchetError:
            return str(run.job_id)
        finally:
            self._acting = acting
        return _shown(job.target.rpartition(":")[2], job.args, job.kwargs)

    def _step(self) -> None:
        node = self.dice.choice(self._nodes)
        assembly = node.manual.assembly
        now = self.clock.now()
        steps: list[tuple[Callable[[], Any], int]] = [
            (lambda: self._poll(node), 20),
            (lambda: any(lane.step() for lane in _lanes(node.manual)), 30),
            (lambda: assembly.completer.run_once(now), 20),
            (lambda: assembly.orphans.run_once(now), 8),
            (lambda: self._sweep(node), 6),
        ]
        if self.dice.random() < 0.3:
            self.clock.advance(self.dice.choice((0.05, 0.5, 1.0)))
            for each in list(self._nodes):  # who is alive beats in time
                self._on(each, lambda each=each: each.manual.assembly.heartbeat.run_once(self.clock.now()))  # type: ignore[misc]
            if node not in self._nodes:
                return
        self._on(node, self.dice.choices([step for step, _ in steps], [weight for _, weight in steps])[0])

    def _on(self, node: _Node, action: Callable[[], Any]) -> None:
        """Let a node do something; it may not survive it."""
        self._acting.append(node)
        try:
            action()
        except (StoreUnavailable, Crash):
            pass  # a service would try again; the dead are buried below
        finally:
            self._acting.pop()
            self._core.bus.flush()
        if node.store.dead and node in self._nodes:
            self._nodes.remove(node)
            self._add_node()
        self._check(self._always)

    def _poll(self, node: _Node) -> None:
        node.manual.assembly.poller.woken()
        node.manual.assembly.poller.run_once(self.clock.now())

    def _sweep(self, node: _Node) -> None:
        now, assembly = self.clock.now(), node.manual.assembly
        assembly.watch.run_once(now)
        assembly.expiry.run_once(now)
        assembly.batch_recovery.run_once(now)
        assembly.recurring.run_once(now)

    def _everything(self, node: _Node) -> None:
        """One round of a healthy node."""
        assembly = node.manual.assembly
        assembly.heartbeat.run_once(self.clock.now())
        assembly.orphans.run_once(self.clock.now())
        self._sweep(node)
        self._poll(node)
        for lane in _lanes(node.manual):
            while lane.step():
                assembly.completer.run_once(self.clock.now())
        while assembly.completer.run_once(self.clock.now()):
            pass

    def _settle(self) -> None:
        """No more faults: everything runs until it has ended. Time goes faster while nothing does."""
        deadline = self.clock.now() + HORIZON
        rest, before = 1.0, self._report.runs
        while not self._all_ended() and self.clock.now() < deadline:
            for node in list(self._nodes):
                self._on(node, lambda node=node: self._everything(node))  # type: ignore[misc]
            # A node whose own beats have gaps declares nobody dead: the jobs of the dead come first.
            is_busy = self._report.runs != before or self._plain.counts()[JobStatus.RUNNING]
            rest = 1.0 if is_busy else min(rest * 1.5, 86_400.0)
            before = self._report.runs
            self.clock.advance(rest)
        for _ in range(2):  # a slow node hears that it was declared dead
            for node in list(self._nodes):
                self._on(node, lambda node=node: self._everything(node))  # type: ignore[misc]
            self.clock.advance(BEAT)

    def _all_ended(self) -> bool:
        counts = self._plain.counts()
        open_ones = sum(
            counts[status] for status in (JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING)
        )
        return not open_ones or not self._unended()

    def _unended(self) -> list[Any]:
        """Jobs that should have ended. Those of a schedule go on for ever, and a paused job waits for a person."""
        statuses = [JobStatus.PENDING, JobStatus.RUNNING, JobStatus.WAITING]
        found = self.scheduler.jobs.find(JobFilter(statuses=statuses), limit=1000)
        return [job for job in found if job.schedule is None]

    # --- faults ---

    def _fault(self, likely: dict[str, float]) -> str | None:
        """Which fault happens here and now, if any may."""
        roll = self.dice.random()
        if self._calm or not self._acting:
            return None
        for kind, likelihood in likely.items():
            if roll < likelihood:
                return self._allowed(kind)
            roll -= likelihood
        return None

    def _allowed(self, kind: str) -> str | None:
        life, report = self._life, self._report
        if kind == "loss":
            if life.losses >= MOST_LOSSES:
                return None
            life.losses += 1
            report.losses += 1
            return kind
        if life.deaths >= MOST_DEATHS:
            return None
        life.deaths += 1
        if kind == "crash":
            report.crashes += 1
        else:
            report.slow_steps += 1
        return kind

    @contextmanager
    def _effect(self, shown: str, lost: type[Exception]) -> Iterator[None]:
        if not self._acting:  # the workflow itself, or an invariant
            yield
            return
        node = self._acting[-1]
        self._strike(node, f"before {shown}", lost)
        yield
        self._note(f"did {shown}")
        self._check(self._always)
        self._strike(node, f"after {shown}", lost)

    def _strike(self, node: _Node, where: str, lost: type[Exception]) -> None:
        if node.store.dead:
            raise Crash(where)
        match self._fault(EFFECT_FAULTS):
            case "crash":
                self._note(f"dies {where}")
                node.store.dead = True
                raise Crash(where)
            case "loss":
                self._note(f"loses its connection {where}")
                raise lost(f"simulated: connection lost {where}")
            case "slow":
                self._note(f"is slow {where}")
                self._others_go_on()
                self._note(f"goes on {where}")

    def _others_go_on(self) -> None:
        """Time passes while this code stands still: the other nodes declare its node dead and take its work, in the middle of it."""
        acting = list(self._acting)
        failed: list[BaseException] = []

        def meanwhile() -> None:
            self._acting = []
            try:
                for _ in range(SLOW // BEAT):
                    self.clock.advance(BEAT)
                    for other in [node for node in self._nodes if node not in acting]:
                        self._on(other, lambda other=other: self._everything(other))  # type: ignore[misc]
            except BaseException as error:
                failed.append(error)

        # A thread of its own, which is waited for: it has no running event loop, and no job that is "current".
        thread = threading.Thread(target=meanwhile, name="ratchet-simulation")
        thread.start()
        thread.join()
        self._acting = acting
        if failed:
            raise failed[0]

    # --- what must hold ---

    def _check(self, invariants: list[tuple[str, Callable[[], Any]]]) -> None:
        acting, self._acting = self._acting, []
        try:
            for what, holds in invariants:
                if self._broken is None:
                    self._broken = _broken(what, holds)
        finally:
            self._acting = acting
        # Inside a job it would be taken for an error of that job: it is told when the node's step is over.
        if self._broken is not None and not acting:
            raise _Broken(self._broken)

    def _check_ends(self) -> None:
        for job in self._unended():
            reasons = "; ".join(reason.text for reason in self.scheduler.explain(job.id))
            shown = _shown(job.target.rpartition(":")[2], job.args, job.kwargs)
            raise _Broken(
                f"{shown} never ended: it is {job.status}{f', because {reasons}' if reasons else ''}"
            )

    def _saw(self, name: str, args: Any, answer: Any) -> None:
        """Tell which ends of runs were stored."""
        if name == "complete":
            for completion, each in zip(args[0], answer, strict=True):
                label = self._life.labels.get(completion.claim.job_id)
                if label is not None:
                    self._note(
                        f"stores the end of {label}"
                        if each.won
                        else f"may not store the end of {label}: it has lost it"
                    )

    def _note(self, what: str) -> None:
        if self._broken is not None:
            return  # what happened afterward explains nothing
        at = (self.clock.now() - self._began).total_seconds()
        who = self._acting[-1].name if self._acting else "cluster"
        self._life.story.append(f"{at:8.2f} s  {who} {what}")


class _Broken(Exception):
    """An invariant did not hold."""


def simulate(
    workflow: Callable[[Simulation], Any],
    seeds: int = 500,
    *,
    seed: int | None = None,
    scheduler: Scheduler | None = None,
) -> SimulationReport:
    """
    Play *workflow* once for each of *seeds* seeds, with faults between any two effects; what was played.

    *workflow* gets a `Simulation`. It makes its fakes of the outside world, says with ``always`` and ``at_the_end`` what must hold, and submits its jobs.
    *scheduler*: the one that your jobs were declared on; it lives in memory meanwhile, as with `isolated`. Without it, submit through
    ``simulation.scheduler``. `SimulationFailed` names the seed of the first life in which something did not hold; *seed* plays
    that one alone.
    """
    if not callable(workflow):
        raise RatchetError(f"simulate() takes a function of yours that gets a Simulation, not {workflow!r}")
    if seeds < 1:
        raise RatchetError(f"simulate() plays at least one seed, not {seeds!r}")
    if seed is None and os.environ.get(SEED_VARIABLE):
        seed = int(os.environ[SEED_VARIABLE])
    report = SimulationReport()
    before = random.getstate()
    log = logging.getLogger("ratchet")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)  # thousands of deaths, each of them intended
    try:
        for each in range(seeds) if seed is None else [seed]:
            _play(workflow, each, scheduler, report)
    finally:
        random.setstate(before)
        log.setLevel(level)
    return report


def _play(
    workflow: Callable[[Simulation], Any], seed: int, given: Scheduler | None, report: SimulationReport
) -> None:
    clock = ManualClock()
    simulation = Simulation(seed, clock, report)
    random.seed(seed)
    report.seeds += 1
    store = IsolatedStore(clock)
    acting: Any = _ActingStore(simulation, store)
    try:
        if given is None:
            simulation.scheduler = ManualScheduler(clock=clock, store=acting, seed=seed)
            workflow(simulation)
            simulation._play(simulation.scheduler._core, store)
            return
        with isolated(given, clock=clock):
            core = _isolated_core(given)
            core.world.lazy = LazyStore(lambda: acting, clock)
            core.world.now = core.world.lazy.now
            core.world.ids = IdFactory.seeded(clock, seed)
            simulation.scheduler = given
            workflow(simulation)
            simulation._play(core, store)
    except _Broken as broken:
        name = getattr(workflow, "__name__", "workflow")
        raise SimulationFailed(name, seed, str(broken), simulation._life.story) from None


def _lanes(node: ManualNode) -> list[InlineLane]:
    return [lane for lane in node.assembly.coordinator.lanes.values() if isinstance(lane, InlineLane)]


def _broken(what: str, holds: Callable[[], Any]) -> str | None:
    """Why an invariant does not hold; None if it does."""
    try:
        answer = holds()
    except Exception as error:
        return f"{what}: {type(error).__name__}: {error}" if str(error) else f"{what}: {type(error).__name__}"
    return None if answer is None or answer else what


def _shown(name: str, args: Any, kwargs: dict[str, Any]) -> str:
    given = [*(repr(each) for each in args), *(f"{key}={value!r}" for key, value in kwargs.items())]
    text = ", ".join(given)
    return f"{name}({text if len(text) <= 60 else text[:57] + '...'})"
