"""`Composition`: a job with what follows it, as a description that becomes a `Submission`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.checks import after
from ratchet.api.submit.conditions import Condition
from ratchet.api.submit.steps import Prepared, Step
from ratchet.api.submit.submission import Submission
from ratchet.model.composition import Edge, EdgeKind
from ratchet.model.job import JobSpec, SignalWait
from ratchet.model.status import Busy, JobStatus, JobType


@dataclass(slots=True)
class Branch:
    """A step that follows another one under a condition."""

    parent: Step
    step: Step
    condition: Condition
    order: int = 0
    description: str | None = None
    type: JobType = JobType.WORKFLOW_BRANCH

    def spec(self, backend: Backend, now: datetime, *, root: UUID, caller: str | None) -> JobSpec:
        """The job that waits for the step before it."""
        prepared = self.step.prepare(backend)
        return prepared.spec(
            self.step.identified(backend),
            now,
            status=JobStatus.WAITING,
            type=self.type,
            root_id=root,
            parent_id=self.parent.identified(backend),
            needs=1,
            caller=caller,
        )

    def edge(self, backend: Backend, position: int) -> Edge:
        """The edge to it; *position* counts what follows the same step."""
        return Edge(
            parent_id=self.parent.identified(backend),
            child_id=self.step.identified(backend),
            kind=self.condition.edge,
            position=position,
            condition=self.condition.stored(backend, order=self.order, description=self.description),
        )


class Composition:
    """
    A first step with the chain and the branches that follow it, and what holds for the whole.

    The whole's due time, keys and signal are those of its first job. Compiled again, after a
    `StoreUnavailable`, its jobs have the same ids.
    """

    __slots__ = (
        "_backend",
        "_branches",
        "_needs",
        "_parents",
        "business_key",
        "busy",
        "delay",
        "due",
        "idempotency_key",
        "signal",
        "trunk",
    )

    def __init__(
        self, backend: Backend, first: Step, parents: Sequence[UUID | Composition] = (), needs: int = 0
    ) -> None:
        self._backend = backend
        #: Jobs, stored or stored with it, of which so many must succeed before the first step runs.
        self._parents = parents
        self._needs = needs
        #: The first step and the chain after it.
        self.trunk = [first]
        self._branches: list[Branch] = []  # the chain's steps too, in the order in which all were named
        self.delay: timedelta | None = None
        self.due: datetime | None = None
        self.idempotency_key: str | None = None
        self.business_key: str | None = None
        self.busy = Busy.RAISE
        self.signal: tuple[str, timedelta | None] | None = None

    # --- described ---

    @property
    def first(self) -> Step:
        """The step that follows none."""
        return self.trunk[0]

    @property
    def last(self) -> Step:
        """The end of the chain, which branches hang on."""
        return self.trunk[-1]

    @property
    def steps(self) -> list[Step]:
        """All steps, in the order in which they were named."""
        return [self.first, *(branch.step for branch in self._branches)]

    @property
    def single(self) -> bool:
        """True while there is only the first step."""
        return not self._branches

    @property
    def joins(self) -> bool:
        """True if the first step waits for other jobs."""
        return bool(self._parents)

    def chain(self, step: Step) -> None:
        """Run *step* when the last one of the chain has succeeded."""
        self._branches.append(Branch(self.last, step, Condition.success(), type=JobType.CHAIN_STEP))
        self.trunk.append(step)

    def branch(self, condition: Condition, step: Step, order: int, description: str | None) -> None:
        """Run *step* when *condition* holds for the last one of the chain."""
        self._branches.append(Branch(self.last, step, condition, order, description))

    # --- compiled ---

    def compile(self, now: datetime, root: UUID | None = None) -> Submission:
        """Specs and edges, in the order the steps were named; *root* where it is part of a larger graph."""
        if root is None and self.single and not self._parents:
            spec = self._first_spec(now, caller=self._backend.caller())
            return Submission([spec], limits=dict(self.first.limits))
        submission = Submission()
        first = self.first.identified(self._backend)
        root = root or first
        for parent in self._parents:
            if isinstance(parent, Composition):
                submission.add(parent.compile(now, root))
        caller = self._backend.caller()
        given: dict[str, Any] = {"caller": caller}
        if not self.single or root != first:
            given["root_id"] = root
        submission.specs.append(self._first_spec(now, **given))
        for branch in self._branches:
            submission.specs.append(branch.spec(self._backend, now, root=root, caller=caller))
        for step in self.steps:
            submission.limits |= step.limits
        submission.edges += self._edges()
        return submission

    def _first_spec(self, now: datetime, **given: Any) -> JobSpec:
        prepared = self.first.prepare(self._backend)
        job_id = self.first.identified(self._backend)
        return prepared.spec(job_id, now, **given, **self._terms(prepared, now))

    def _terms(self, prepared: Prepared, now: datetime) -> dict[str, Any]:
        """What holds for the whole, as its first job has it."""
        given: dict[str, Any] = {"scheduled_at": self._due_at(now)}
        if self.idempotency_key is not None:
            given["idempotency_key"] = self.idempotency_key
        if self.business_key is not None:
            given |= {"business_key": self.business_key, "busy": self.busy}
        if len(self.trunk) > 1:
            given["type"] = JobType.CHAIN_STEP
        if self._parents:
            given |= {"type": JobType.WORKFLOW_JOIN, "status": JobStatus.WAITING, "needs": self._needs}
            return given
        prepared.require_no_placeholders()
        if self.signal is not None:
            key, limit = self.signal
            deadline = None if limit is None else after(now, limit, "the signal's timeout")
            given |= {"status": JobStatus.WAITING, "signal": SignalWait(key=key, deadline=deadline)}
        return given

    def _due_at(self, now: datetime) -> datetime:
        if self.due is not None:
            return self.due
        return now if self.delay is None else after(now, self.delay, "the delay")

    def _edges(self) -> list[Edge]:
        """One edge per joined job, in the order in which RESULTS lists them, then one per branch."""
        edges = [
            Edge(
                parent_id=parent if isinstance(parent, UUID) else parent.last.identified(self._backend),
                child_id=self.first.identified(self._backend),
                kind=EdgeKind.SUCCESS,
                position=position,
            )
            for position, parent in enumerate(self._parents)
        ]
        places: dict[Step, int] = {}
        for branch in self._branches:
            place = places[branch.parent] = places.get(branch.parent, -1) + 1
            edges.append(branch.edge(self._backend, place))
        return edges
