"""
Random graphs and batches in the crashing world, and what a pure evaluation says of them.

What a job does is fixed when it is submitted: it fails so many times, then returns a number. So the
end of every job of a graph is known before anything runs, whoever crashes when; `evaluate` says it.
People interfere too: jobs are canceled and retried by hand, submitters die between two chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

from ratchet.api.context import JobContext
from ratchet.api.leases import lease_name
from ratchet.model.composition import BatchSpec, Condition, Edge, EdgeKind
from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.model.job import JobSpec
from ratchet.model.payload import RESULT, encode
from ratchet.model.results import BatchContext, JobResult
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.memory import MemoryStore
from tests.simulation.faults import FaultyStore
from tests.simulation.world import SimulatedNode, Targets, Violation, World

#: How long a submitter may be silent; short, so that some that are only slow lose their batch as well.
LEASE = timedelta(seconds=10)


# --- what was submitted -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One job: fails *fails* times, then returns *result*."""

    job_id: UUID
    fails: int = 0
    max_retries: int = 0
    result: int = 0

    @property
    def succeeds(self) -> bool:
        """True where its retries are enough."""
        return self.fails <= self.max_retries


@dataclass(frozen=True)
class Link:
    """An edge; *test* names what a CONDITION edge asks."""

    parent: UUID
    child: UUID
    kind: EdgeKind = EdgeKind.SUCCESS
    test: str = ""


@dataclass
class Plan:
    """A graph; *needs* has an entry for each job that waits for something, in order of definition."""

    steps: dict[UUID, Step] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    needs: dict[UUID, int] = field(default_factory=dict)


@dataclass
class BatchPlan:
    """A batch: its items, and under which condition each follower runs."""

    batch_id: UUID
    items: list[Step]
    followers: dict[UUID, str]
    unsent: list[list[Step]] = field(default_factory=list)  # chunks that its submitter has not stored yet
    token: UUID | None = None  # of the submitter's lease, while there is more to store
    canceled: bool = False  # by hand, or because the submitter went away
    reopened: int = 0


# --- the reference ------------------------------------------------------------------------------------


@dataclass
class Evaluation:
    """How everything ends: states, and the edges that let their child go."""

    states: dict[UUID, JobStatus] = field(default_factory=dict)
    satisfied: set[tuple[UUID, UUID]] = field(default_factory=set)
    failed_by_condition: set[UUID] = field(default_factory=set)


def evaluate(
    plan: Plan,
    canceled: Iterable[UUID] = (),
    mended: Iterable[UUID] = (),
    before: Evaluation | None = None,
) -> Evaluation:
    """
    The end of every job of *plan*. Jobs are in order of definition: parents come first.

    *canceled*: by hand. *mended*: failed, and succeeded when they were retried by hand after
    *before*, the evaluation up to then: what had been released stays released.
    """
    found = Evaluation()
    incoming: dict[UUID, list[Link]] = {}
    for link in plan.links:
        incoming.setdefault(link.child, []).append(link)
    for job_id, step in plan.steps.items():
        broken_condition = before is not None and job_id in before.failed_by_condition
        for link in incoming.get(job_id, []):
            if before is not None and (link.parent, job_id) in before.satisfied:
                found.satisfied.add((link.parent, job_id))
                continue
            match _lets_go(link, plan.steps[link.parent], found):
                case True:
                    found.satisfied.add((link.parent, job_id))
                case None:
                    broken_condition = True
        free = sum((link.parent, job_id) in found.satisfied for link in incoming.get(job_id, []))
        if job_id in canceled:
            state = JobStatus.CANCELED
        elif broken_condition:
            state = JobStatus.FAILED
            found.failed_by_condition.add(job_id)
        elif free < plan.needs.get(job_id, 0):
            state = JobStatus.CANCELED
        else:
            state = JobStatus.SUCCEEDED if step.succeeds or job_id in mended else JobStatus.FAILED
        found.states[job_id] = state
    return found


def _lets_go(link: Link, parent: Step, found: Evaluation) -> bool | None:
    """Whether an edge of an ended parent is satisfied; None: its condition raised."""
    ended = found.states[parent.job_id]
    if ended is JobStatus.CANCELED:
        return False
    succeeded = ended is JobStatus.SUCCEEDED
    match link.kind:
        case EdgeKind.SUCCESS:
            return succeeded
        case EdgeKind.FAILURE:
            return not succeeded
    if parent.job_id in found.failed_by_condition:
        return False  # it never ran, so nobody asked
    match link.test:
        case "odd":
            return succeeded and parent.result % 2 == 1
        case "well":
            return succeeded
        case "badly":
            return not succeeded
    return None


def follows(test: str, total: int, completed: int, failed: int) -> bool:
    """Whether a follower of a batch with these counters runs."""
    match test:
        case "batch_success":
            return completed == total
        case "batch_failure":
            return completed < total
        case "success_rate":
            return total == 0 or completed / total >= 0.5
        case "failure_count":
            return failed >= 2
    return total % 2 == 1


#: What each test is called in a stored condition: kind, predicate, argument.
CONDITIONS: Mapping[str, tuple[str, str | None, str | None]] = {
    "odd": ("result", "sim:is_odd", None),
    "well": ("job_result", "sim:is_well", None),
    "badly": ("job_result", "sim:is_bad", None),
    "raises": ("job_result", "sim:raises", None),
    "batch_success": ("batch_success", None, None),
    "batch_failure": ("batch_failure", None, None),
    "success_rate": ("success_rate", None, "0.5"),
    "failure_count": ("failure_count", None, "2"),
    "batch_predicate": ("batch_predicate", "sim:is_odd_batch", None),
}


def condition(test: str) -> Condition | None:
    """The stored form of a test."""
    if not test:
        return None
    kind, predicate, argument = CONDITIONS[test]
    return Condition(kind=kind, predicate=predicate, argument=argument)


class GraphTargets(Targets):
    """The targets and predicates of graphs."""

    def __init__(self, world: GraphWorld) -> None:
        super().__init__(world)
        self._known |= {
            "sim:step": world.step,
            "sim:is_odd": lambda result: result % 2 == 1,
            "sim:is_well": _is_well,
            "sim:is_bad": lambda ended: not _is_well(ended),
            "sim:raises": _raises,
            "sim:is_odd_batch": _is_odd_batch,
        }


def _is_well(ended: JobResult) -> bool:
    return ended.succeeded


def _raises(ended: JobResult) -> bool:
    raise KeyError("no such answer")


def _is_odd_batch(context: BatchContext) -> bool:
    return context.total_items % 2 == 1


# --- the world ------------------------------------------------------------------------------------------


class GraphWorld(World):
    """A world of graphs and batches instead of single jobs."""

    def __init__(self, seed: int, *, nodes: int = 3, store_class: Callable[..., Any] = MemoryStore) -> None:
        self.graphs: list[Plan] = []
        self.batches: list[BatchPlan] = []
        self.hand_canceled: set[UUID] = set()
        self.mended: set[UUID] = set()
        self.retries: Counter[UUID] = Counter()
        super().__init__(seed, nodes=nodes, store_class=store_class)

    def _targets(self) -> Targets:
        return GraphTargets(self)

    def step(self, fails: int, result: int, given: object = None, wanted: object = None) -> int:
        """What every job of a graph does; *given* is what RESULT became."""
        context = JobContext.current()
        if given != wanted:
            self.violations.append(
                Violation(self.seed, f"job {context.job_id} got {given} from its parent, not {wanted}")
            )
        if context.job_id not in self.mended and context.attempt <= fails:
            raise ValueError(f"attempt {context.attempt} of {fails} that fail")
        return result

    def run(self, steps: int = 140) -> None:
        """As in the plain world, then failed jobs are mended and retried, and everything is checked again."""
        for _ in range(steps):
            self._chaos_step()
        self._finish_streams()
        self._heal()
        first = [evaluate(plan, self.hand_canceled) for plan in self.graphs]
        self._check_graphs(first)
        self._check_batches()
        self._mend()
        self._heal()
        self._check_graphs(
            [
                evaluate(plan, self.hand_canceled, self.mended, before)
                for plan, before in zip(self.graphs, first, strict=True)
            ]
        )
        self._check_batches()
        self._check()

    def _chaos_step(self) -> None:
        action = self.dice.choices(
            (
                self._submit,
                self._node_step,
                self._let_time_pass,
                self._control,
                self._kill,
                self._freeze,
                self._stream_step,
            ),
            (6, 66, 12, 6, 2, 2, 6),
        )[0]
        action()

    def _one_step(self, simulated: SimulatedNode) -> None:
        if self.dice.random() < 0.05:
            self._recover(simulated)
        else:
            super()._one_step(simulated)

    def _everything(self, simulated: SimulatedNode) -> None:
        super()._everything(simulated)
        self._recover(simulated)

    def _recover(self, simulated: SimulatedNode) -> None:
        simulated.node.assembly.batch_recovery.run_once(self.clock.now())

    # --- submitting ---

    def _submit(self) -> None:
        if self.dice.random() < 0.6:
            plan = self._plan()
            if self._insert(self._specs(plan), self._edges(plan)):
                self.graphs.append(plan)
        else:
            self._submit_batch()

    def _insert(self, specs: list[JobSpec], edges: list[Edge], batch: BatchSpec | None = None) -> bool:
        store = self._submitter()
        for attempt in range(8):
            store.loss_rate = 0.0 if attempt == 7 else 0.1
            try:
                store.insert(specs, now=self.clock.now(), edges=edges, batch=batch)
            except StoreUnavailable:
                continue
            return True
        return False

    def _submitter(self) -> FaultyStore:
        store = FaultyStore(self.store, self.dice)
        store.loss_rate = 0.1
        return store

    def _step(self) -> Step:
        dice = self.dice
        return Step(self.ids(), dice.choice((0, 0, 0, 1, 2, 9)), dice.choice((0, 1, 2)), dice.randrange(10))

    def _plan(self) -> Plan:
        """A graph of a few jobs: chains, branches and joins in random proportion."""
        dice, plan = self.dice, Plan()
        first = self._step()
        plan.steps[first.job_id] = first
        for _ in range(dice.randrange(7)):
            step = self._step()
            earlier = list(plan.steps)
            if len(earlier) > 1 and dice.random() < 0.3:
                parents = dice.sample(earlier, dice.randint(2, min(4, len(earlier))))
                plan.links += [Link(parent, step.job_id) for parent in parents]
                plan.needs[step.job_id] = dice.choice((len(parents), dice.randint(1, len(parents))))
            else:
                plan.links.append(self._link(dice.choice((earlier[-1], dice.choice(earlier))), step.job_id))
                plan.needs[step.job_id] = 1
            plan.steps[step.job_id] = step
        return plan

    def _link(self, parent: UUID, child: UUID) -> Link:
        kind = self.dice.choice((EdgeKind.SUCCESS, EdgeKind.SUCCESS, EdgeKind.FAILURE, EdgeKind.CONDITION))
        test = self.dice.choice(("odd", "well", "badly", "raises")) if kind is EdgeKind.CONDITION else ""
        return Link(parent, child, kind, test)

    def _specs(self, plan: Plan) -> list[JobSpec]:
        root = next(iter(plan.steps))
        parents = Counter(link.child for link in plan.links)
        after = {
            link.child: plan.steps[link.parent]
            for link in plan.links
            if link.kind is EdgeKind.SUCCESS and parents[link.child] == 1
        }
        return [
            self._spec_of(
                step,
                after.get(step.job_id),
                root_id=root,
                status=JobStatus.WAITING if step.job_id in plan.needs else JobStatus.PENDING,
                needs=plan.needs.get(step.job_id, 0),
                type=JobType.CHAIN_STEP,
            )
            for step in plan.steps.values()
        ]

    def _edges(self, plan: Plan) -> list[Edge]:
        return [
            Edge(
                parent_id=link.parent,
                child_id=link.child,
                kind=link.kind,
                position=position,
                condition=condition(link.test),
            )
            for position, link in enumerate(plan.links)
        ]

    def _spec_of(self, step: Step, after: Step | None = None, **given: Any) -> JobSpec:
        more = () if after is None else (RESULT, after.result)
        return JobSpec(
            job_id=step.job_id,
            target="sim:step",
            payload=encode((step.fails, step.result, *more), {}),
            scheduled_at=self.clock.now(),
            max_retries=step.max_retries,
            **given,
        )

    # --- batches ---

    def _submit_batch(self) -> None:
        dice = self.dice
        items = [self._step() for _ in range(dice.choice((0, 1, 3, 5, 8)))]
        tests = dice.sample(
            ("batch_success", "batch_failure", "success_rate", "failure_count", "batch_predicate"), 3
        )
        batch = BatchPlan(self.ids(), items, {self.ids(): test for test in tests})
        if dice.random() < 0.5 and items:
            batch.token = self.ids()
            batch.unsent = [items[start : start + 2] for start in range(2, len(items), 2)]
            name = lease_name(batch.batch_id)
            self.store.acquire_lock(name, holder="sim", token=batch.token, ttl=LEASE, now=self.clock.now())
            batch.items = items[:2]
        if self._insert(*self._batch_specs(batch)):
            self.batches.append(batch)

    def _batch_specs(self, batch: BatchPlan) -> tuple[list[JobSpec], list[Edge], BatchSpec]:
        parent = JobSpec(
            job_id=batch.batch_id,
            target="ratchet:batch",
            payload=encode((), {}),
            scheduled_at=self.clock.now(),
            status=JobStatus.WAITING,
            type=JobType.BATCH_PARENT,
        )
        followers = [
            self._spec_of(
                Step(job_id),
                status=JobStatus.WAITING,
                type=JobType.WORKFLOW_BRANCH,
                root_id=batch.batch_id,
                needs=1,
            )
            for job_id in batch.followers
        ]
        edges = [
            Edge(
                parent_id=batch.batch_id,
                child_id=job_id,
                kind=EdgeKind.CONDITION,
                position=position,
                condition=condition(test),
            )
            for position, (job_id, test) in enumerate(batch.followers.items())
        ]
        spec = BatchSpec(
            batch_id=batch.batch_id,
            name="sim",
            parent=parent,
            total=len(batch.items),
            sealed=batch.token is None,
        )
        return [*followers, *self._items(batch, batch.items)], edges, spec

    def _items(self, batch: BatchPlan, items: list[Step]) -> list[JobSpec]:
        return [self._spec_of(step, type=JobType.BATCH_CHILD, batch_id=batch.batch_id) for step in items]

    def _stream_step(self) -> None:
        """A submitter stores its next chunk, seals its batch, or dies."""
        streams = [batch for batch in self.batches if batch.token is not None]
        if not streams:
            return
        batch = self.dice.choice(streams)
        if self.dice.random() < 0.1:
            batch.token = None  # died: whatever is there is left behind
            batch.canceled = True
        else:
            self._send_more(batch)

    def _finish_streams(self) -> None:
        for batch in self.batches:
            while batch.token is not None:
                self._send_more(batch)

    def _send_more(self, batch: BatchPlan) -> None:
        assert batch.token is not None
        now, name = self.clock.now(), lease_name(batch.batch_id)
        if not self.store.acquire_lock(name, holder="sim", token=batch.token, ttl=LEASE, now=now):
            batch.token, batch.canceled = None, True  # somebody gave it up meanwhile
        elif batch.unsent:
            chunk = batch.unsent[0]
            if self._told(lambda: self._append(batch, chunk)):
                batch.items += batch.unsent.pop(0)
            else:
                batch.token, batch.canceled = None, True
        else:
            self._told(lambda: self._submitter().seal(batch.batch_id, now=now))
            # As the API does: given up by a node that has released the lease again.
            batch.canceled = batch.canceled or self._status(batch.batch_id) is JobStatus.CANCELED
            self.store.release_lock(name, token=batch.token)
            batch.token = None

    def _append(self, batch: BatchPlan, chunk: list[Step]) -> bool:
        """As the API does: the same ids again, and a look whether they are there."""
        try:
            stored: bool = self._submitter().append_children(
                batch.batch_id, self._items(batch, chunk), now=self.clock.now()
            )
        except CommitUnknown:
            return chunk[-1].job_id in self.store.results([chunk[-1].job_id])
        return stored

    @staticmethod
    def _told(write: Callable[[], bool]) -> bool:
        while True:
            try:
                return write()
            except StoreUnavailable:
                continue

    # --- people ---

    def _control(self) -> None:
        """Somebody cancels a job or a batch, or retries a job that will fail again."""
        roll, now = self.dice.random(), self.clock.now()
        if roll < 0.15 and self.batches:
            batch = self.dice.choice(self.batches)
            parent = self.store.get(batch.batch_id)
            if parent is not None and not parent.status.is_terminal:
                self.store.cancel_batch(batch.batch_id, reason="by hand", now=now)
                batch.canceled = True
        elif roll < 0.3 and any(batch.items for batch in self.batches):
            batch = self.dice.choice([batch for batch in self.batches if batch.items])
            self._cancel(self.dice.choice(batch.items).job_id)
        elif self.graphs:
            job_id = self.dice.choice(list(self.dice.choice(self.graphs).steps))
            if self.dice.random() < 0.3:
                self._cancel(job_id)
            else:
                self._retry(job_id)

    def _cancel(self, job_id: UUID) -> None:
        if self.store.cancel(job_id, reason="by hand", now=self.clock.now()):
            self.hand_canceled.add(job_id)

    def _retry(self, job_id: UUID) -> None:
        record = self.store.get(job_id)
        # One whose condition raised never ran: its retry would run it, which the evaluation does not know.
        if record is not None and record.attempts and self.store.retry(job_id, now=self.clock.now()):
            self.retries[job_id] += 1

    def _mend(self) -> None:
        """Half of what failed gets repaired and retried; failed items with their whole batch."""
        for plan in self.graphs:
            for job_id in list(plan.steps):
                record = self.store.get(job_id)
                if record is None or record.status is not JobStatus.FAILED or not record.attempts:
                    continue
                if self.dice.random() < 0.5:
                    self.mended.add(job_id)
                    self._retry(job_id)
        for batch in self.batches:
            if self.dice.random() < 0.5:
                failed = [s.job_id for s in batch.items if self._status(s.job_id) is JobStatus.FAILED]
                self.mended.update(failed)
                if self.store.retry_failed(batch.batch_id, now=self.clock.now()) != len(failed):
                    raise Violation(self.seed, f"not all of {failed} were retried")
                self.retries.update(failed)
                batch.reopened += bool(failed)

    # --- the check ---

    def _status(self, job_id: UUID) -> JobStatus:
        record = self.store.get(job_id)
        if record is None:
            raise Violation(self.seed, f"acknowledged job {job_id} is lost")
        return record.status

    def _check_graphs(self, expected: list[Evaluation]) -> None:
        for plan, evaluation in zip(self.graphs, expected, strict=True):
            for job_id, state in evaluation.states.items():
                if self._status(job_id) is not state:
                    raise Violation(
                        self.seed, f"job {job_id} is {self._status(job_id)}, and should be {state} in {plan}"
                    )
                self._check_count(plan.steps[job_id], ran=state is not JobStatus.CANCELED)

    def _check_count(self, step: Step, *, ran: bool) -> None:
        """A job that ran to its end has exactly the runs that its behavior says: no step counts twice."""
        record = self.store.get(step.job_id)
        runs = self.store.executions(step.job_id)
        if sum(run.status == "SUCCEEDED" for run in runs) > 1:
            raise Violation(self.seed, f"job {step.job_id} succeeded twice")
        if record is None or not ran or not record.attempts or self.retries[step.job_id]:
            return
        wanted = step.fails + 1 if step.succeeds else step.max_retries + 1
        if not len(runs) == record.attempts == wanted:
            raise Violation(self.seed, f"job {step.job_id} has {len(runs)} counted runs, not {wanted}")

    def _check_batches(self) -> None:
        for batch in self.batches:
            self._check_batch(batch)

    def _check_batch(self, batch: BatchPlan) -> None:
        record = self.store.batch(batch.batch_id)
        if record is None:
            raise Violation(self.seed, f"batch {batch.batch_id} is lost")
        ends = Counter(self._status(step.job_id) for step in batch.items)
        counters = (record.completed, record.failed, record.canceled, record.total)
        counted = (*(ends[s] for s in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED)),)
        if counters != (*counted, len(batch.items)) or not record.sealed or record.finished_at is None:
            raise Violation(self.seed, f"batch {record} should count {counted} of {len(batch.items)}")
        if batch.canceled:
            states = {self._status(job_id) for job_id in (batch.batch_id, *batch.followers)}
            if states != {JobStatus.CANCELED}:
                raise Violation(self.seed, f"batch {batch.batch_id} was given up, and its jobs are {states}")
            return
        self._check_completion(batch, ends)

    def _check_completion(self, batch: BatchPlan, ends: Counter[JobStatus]) -> None:
        for step in batch.items:
            ended = self._status(step.job_id)
            self._check_count(step, ran=ended is not JobStatus.CANCELED)
            if ended is JobStatus.CANCELED and step.job_id not in self.hand_canceled:
                raise Violation(self.seed, f"item {step.job_id} of batch {batch.batch_id} was canceled")
        completions = [run for run in self.store.executions(batch.batch_id) if run.status == "SUCCEEDED"]
        if len(completions) != 1 + batch.reopened:
            raise Violation(
                self.seed,
                f"batch {batch.batch_id} completed {len(completions)} times, opened {batch.reopened} times",
            )
        for job_id, test in batch.followers.items():
            now = self._follows(test, batch, ends)
            # A follower of the first completion has run, whatever the second one says.
            before = batch.reopened and self._follows(test, batch, self._ends_before(batch))
            state = JobStatus.SUCCEEDED if now or before else JobStatus.CANCELED
            if self._status(job_id) is not state:
                raise Violation(
                    self.seed, f"follower {test} of {batch.batch_id} is {self._status(job_id)}, not {state}"
                )
            self._check_count(Step(job_id), ran=state is JobStatus.SUCCEEDED)

    @staticmethod
    def _follows(test: str, batch: BatchPlan, ends: Counter[JobStatus]) -> bool:
        return follows(test, len(batch.items), ends[JobStatus.SUCCEEDED], ends[JobStatus.FAILED])

    def _ends_before(self, batch: BatchPlan) -> Counter[JobStatus]:
        """How the items had ended before the failed ones were mended."""
        return Counter(
            JobStatus.CANCELED
            if step.job_id in self.hand_canceled
            else JobStatus.SUCCEEDED
            if step.succeeds
            else JobStatus.FAILED
            for step in batch.items
        )

    def _check(self) -> None:
        if isinstance(self.store, MemoryStore):
            super()._check()
