"""Graphs and batches as they were submitted, and a pure evaluation of how each of their jobs ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ratchet.model.composition import Condition, EdgeKind
from ratchet.model.status import JobStatus


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
