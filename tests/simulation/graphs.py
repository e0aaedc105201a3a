"""
Random graphs and batches in the crashing world, and what a pure evaluation says of them.

What a job does is fixed when it is submitted: it fails so many times, then returns a number. So the
end of every job of a graph is known before anything runs, whoever crashes when; `evaluate` says it.
People interfere too: jobs are canceled and retried by hand, submitters die between two chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from ratchet.api.batches.open_batches import lease_name
from ratchet.api.context import JobContext
from ratchet.model.composition import BatchSpec, Edge, EdgeKind
from ratchet.model.errors import CommitUnknown, StoreUnavailable
from ratchet.model.job import JobSpec
from ratchet.model.payload import RESULT, encode
from ratchet.model.status import JobStatus, JobType
from ratchet.stores.memory import MemoryStore
from ratchet.testing.faults import FaultyStore
from tests.simulation.audit import Audit
from tests.simulation.evaluation import BatchPlan, Link, Plan, Step, condition, evaluate
from tests.simulation.targets import GraphTargets, Targets
from tests.simulation.world import SimulatedNode, Violation, World

#: How long a submitter may be silent; short, so that some that are only slow lose their batch as well.
LEASE = timedelta(seconds=10)


class GraphWorld(World):
    """A world of graphs and batches instead of single jobs."""

    def __init__(self, seed: int, *, nodes: int = 3, store_class: Callable[..., Any] = MemoryStore) -> None:
        self.graphs: list[Plan] = []
        self.batches: list[BatchPlan] = []
        self.hand_canceled: set[UUID] = set()
        self.mended: set[UUID] = set()
        self.retries: Counter[UUID] = Counter()
        self.audit = Audit(self)
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
        self.audit.check_graphs(first)
        self.audit.check_batches()
        self._mend()
        self._heal()
        self.audit.check_graphs(
            [
                evaluate(plan, self.hand_canceled, self.mended, before)
                for plan, before in zip(self.graphs, first, strict=True)
            ]
        )
        self.audit.check_batches()
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
            batch.canceled = batch.canceled or self.audit.status(batch.batch_id) is JobStatus.CANCELED
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
                failed = [s.job_id for s in batch.items if self.audit.status(s.job_id) is JobStatus.FAILED]
                self.mended.update(failed)
                if self.store.retry_failed(batch.batch_id, now=self.clock.now()) != len(failed):
                    raise Violation(self.seed, f"not all of {failed} were retried")
                self.retries.update(failed)
                batch.reopened += bool(failed)

    def _check(self) -> None:
        if isinstance(self.store, MemoryStore):
            super()._check()
