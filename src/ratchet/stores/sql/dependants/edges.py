"""
What the end of jobs means for others: edges are settled, dependants released, canceled or failed, batches counted.

First the children of the ended jobs, then their children, and so on: each generation takes a fixed number of
statements, however many jobs end at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from ratchet.model.composition import EdgeKind, EdgeState
from ratchet.model.decision import CanceledJob, ErrorRecord, Verdict
from ratchet.model.edge_outcome import CONDITION_FAILED, CONDITION_FAILED_REASON, EdgeOutcome, edge_outcome
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.sql.dependants.batch_counters import BatchDeltas
from ratchet.stores.sql.dependants.releases import release, release_by_edges
from ratchet.stores.sql.rows.failures import Cancellation, Failure, write_alerts, write_canceled, write_failed
from ratchet.stores.sql.rows.locked import LockedJob, lock_waiting_jobs
from ratchet.stores.unreadable import passed_by, shown

#: Edges that the success of their parent satisfies, whatever it returned.
_PLAIN = (EdgeKind.SUCCESS.value, EdgeKind.END.value)

FIND_OPEN_EDGES = """
    SELECT parent_id, child_id, kind
      FROM scheduler_dependency
     WHERE parent_id {in ids uuid} AND state = 'OPEN'
     ORDER BY parent_id, position, child_id
    {current}
"""

# The same, and how many edges each child needs; NULL where it waits for a signal too. Neither changes after the
# submission. A sub-select, because the plan of a join would depend on statistics.
FIND_EDGES_AND_NEEDS = """
    SELECT d.parent_id, d.child_id, d.kind,
           (SELECT j.needs FROM scheduler_job j WHERE j.job_id = d.child_id AND j.signal_key IS NULL) AS needs
      FROM scheduler_dependency d
     WHERE d.parent_id {in ids uuid} AND d.state = 'OPEN'
     ORDER BY d.parent_id, d.position, d.child_id
"""

SETTLE_EDGES = """
    UPDATE scheduler_dependency
       SET state = edge.state
      FROM {rows edge (parent_id, child_id, state)}
     WHERE scheduler_dependency.parent_id = edge.parent_id AND scheduler_dependency.child_id = edge.child_id
"""

# For a planner that might read all the edges there are for this join.
SETTLE_EDGES_OF = f"{SETTLE_EDGES} AND scheduler_dependency.parent_id {{in ids uuid}}"

COUNT_EDGES = """
    SELECT child_id,
           sum(CASE WHEN state = 'SATISFIED' THEN 1 ELSE 0 END) AS satisfied,
           sum(CASE WHEN state = 'OPEN' THEN 1 ELSE 0 END) AS undecided
      FROM scheduler_dependency
     WHERE child_id {in ids uuid}
     GROUP BY child_id
    {current}
"""


class EndedJob(Struct, frozen=True, kw_only=True):
    """A job that this transaction has ended, locked."""

    job_id: UUID
    status: JobStatus  # SUCCEEDED, FAILED or CANCELED
    has_dependants: bool = True
    batch_id: UUID | None = None  # None where its end was counted before
    verdicts: tuple[Verdict, ...] = ()
    origin: UUID | None = None  # the job whose end started it all; None: itself
    cause: UUID | None = None  # the job whose retry would revive what this end cancels; None: itself

    @classmethod
    def of(cls, job: LockedJob, status: JobStatus) -> EndedJob:
        """The end of a job that was locked before."""
        return cls(job_id=job.job_id, status=status, has_dependants=job.has_dependants, batch_id=job.batch_id)


class Effects:
    """What the end of one job brought about elsewhere."""

    __slots__ = ("canceled", "finished_batches", "released")

    def __init__(self) -> None:
        self.released: list[UUID] = []
        self.canceled: list[CanceledJob] = []
        self.finished_batches: list[UUID] = []


class EffectsByJob:
    """What the ends of several jobs brought about: in total, and by the job whose end it followed from."""

    def __init__(self) -> None:
        # by the number of the id: Python hashes a UUID ten times slower
        self._effects: dict[int, Effects] = defaultdict(Effects)
        self._below: dict[int, list[CanceledJob]] = defaultdict(list)

    def find(self, job_id: UUID) -> Effects | None:
        """What followed from the end of this job; None: nothing."""
        return self._effects.get(job_id.int) if self._effects else None

    def of(self, job_id: UUID) -> Effects:
        """What followed from the end of this job."""
        return self._effects[job_id.int]

    @property
    def released(self) -> list[UUID]:
        """All jobs that became PENDING."""
        return [job_id for effects in self._effects.values() for job_id in effects.released]

    @property
    def canceled(self) -> list[CanceledJob]:
        """All jobs that were canceled (or failed by their condition), depth-first below each origin."""
        return [job for effects in self._effects.values() for job in effects.canceled]

    @property
    def finished_batches(self) -> list[UUID]:
        """All batches that were finished."""
        return [batch_id for effects in self._effects.values() for batch_id in effects.finished_batches]

    def note_released(self, origin: UUID, job_id: UUID) -> None:
        """A job was released."""
        self._effects[origin.int].released.append(job_id)

    def note_ended(self, parent_id: UUID, job: CanceledJob) -> None:
        """A job was canceled, or failed, because of this parent's end."""
        self._below[parent_id.int].append(job)

    def note_finished(self, origin: UUID, batch_id: UUID) -> None:
        """A batch was finished."""
        self._effects[origin.int].finished_batches.append(batch_id)

    def arrange(self, origins: Iterable[UUID]) -> None:
        """Put what ended into depth-first order."""
        if not self._below:
            return
        for origin in origins:
            stack = self._below.pop(origin.int, [])[::-1]
            while stack:
                job = stack.pop()
                self._effects[origin.int].canceled.append(job)
                stack.extend(reversed(self._below.pop(job.job_id.int, [])))


class _Child:
    """A waiting child, and what the ends of its parents in this generation say about it."""

    __slots__ = ("broken_by", "error", "job", "newly_satisfied", "origin")

    def __init__(self, job: LockedJob) -> None:
        self.job = job
        self.newly_satisfied = 0
        self.origin: UUID | None = None
        self.broken_by: tuple[EndedJob, str] | None = None
        self.error: tuple[EndedJob, ErrorRecord] | None = None

    @property
    def may_wait_on(self) -> bool:
        """True where these ends alone do not release it."""
        job = self.job
        return self.newly_satisfied < job.needs or (job.signal_key is not None and not job.is_signaled)


def settle_edges(
    session: Session, ended: Sequence[EndedJob], *, now: datetime, deltas: BatchDeltas | None = None
) -> EffectsByJob:
    """
    Everything that follows from the end of these locked jobs, in this transaction.

    Their outgoing edges are settled; WAITING children are released, canceled, or failed where their
    own condition raised, and so on below them; batches count their children, and those that are
    complete release their parent. *deltas*: batch changes of the caller's own, written with the others.
    """
    effects = EffectsByJob()
    deltas = deltas if deltas is not None else BatchDeltas()
    generation: Sequence[EndedJob] = ended
    while generation:
        for end in generation:
            if end.batch_id is not None:
                deltas.count_end(end.batch_id, end.status, end.origin or end.job_id)
        parents = [end for end in generation if end.has_dependants]
        generation = _end_children(session, parents, now, effects) if parents else ()
    for origin, batch_id, parent_id in deltas.apply(session, now):
        effects.note_finished(origin, batch_id)
        if parent_id is not None:
            effects.note_released(origin, parent_id)
    effects.arrange(end.job_id for end in ended)
    return effects


def _end_children(
    session: Session, ended: Sequence[EndedJob], now: datetime, effects: EffectsByJob
) -> list[EndedJob]:
    """Settle the edges of these ends, and do what follows for their children; the children that ended by it."""
    edge_writer, ids = session.dialect.edge_writer, [end.job_id for end in ended]
    edges = _known_edges(edge_writer.find(session, ids))
    if not edges or edge_writer.release(session, ended, edges, now, effects):
        return []
    parents = {end.job_id: end for end in ended}
    # Under the child's lock the states of all its edges are final: of two parents that end at once, the second
    # one to get the lock sees the first one's edge settled.
    children = {
        job.job_id: _Child(job) for job in lock_waiting_jobs(session, [edge[1] for edge in edges]).values()
    }
    states = [
        _settle_edge(parents[parent], child, kind, children.get(child)) for parent, child, kind, *_ in edges
    ]
    session.hold("scheduler_job", "job_id", _not_released(edges, children))
    settled = [(edge[0], edge[1], state.value) for edge, state in zip(edges, states, strict=True)]
    edge_writer.settle(session, settled, ids)
    # in the order of the edges, which is the order of definition
    ordered = [
        children[child_id] for child_id in dict.fromkeys(edge[1] for edge in edges) if child_id in children
    ]
    return _decide(session, ordered, now, effects)


def _not_released(edges: Sequence[Row], children: Mapping[UUID, _Child]) -> Iterator[UUID]:
    """The children that these ends may leave as they are: those that wait on, and those that are paused, say."""
    for _, child_id, *_ in edges:
        child = children.get(child_id)
        if child is None or child.may_wait_on:
            yield child_id


_KINDS = frozenset(kind.value for kind in EdgeKind)


def _known_edges(edges: list[Row]) -> list[Row]:
    """Without those that nobody can settle: they stay open, and the ends of these jobs are written all the same."""
    if all(edge[2] in _KINDS for edge in edges):
        return edges
    for edge in edges:
        if edge[2] not in _KINDS:
            passed_by("scheduler_dependency", edge[:2], ValueError(f"kind is {shown(edge[2])}"))
    return [edge for edge in edges if edge[2] in _KINDS]


class EdgeWriter:
    """What is sent to find and settle edges, on any product."""

    def find(self, session: Session, parents: Sequence[UUID]) -> list[Row]:
        """The open edges of *parents*: (parent, child, kind, …)."""
        return session.rows(FIND_OPEN_EDGES, {"ids": sorted(parents)})

    def release(
        self,
        session: Session,
        ended: Sequence[EndedJob],
        edges: Sequence[Row],
        now: datetime,
        effects: EffectsByJob,
    ) -> bool:
        """True if these ends only release their children, and this has done it."""
        return False

    def settle(self, session: Session, settled: Sequence[Row], parents: Sequence[UUID]) -> None:
        """Write the states of edges: (parent, child, state)."""
        session.execute(SETTLE_EDGES, {"edge": settled})


class FusedEdgeWriter(EdgeWriter):
    """The same, where one statement may change several tables."""

    def find(self, session: Session, parents: Sequence[UUID]) -> list[Row]:
        return session.rows(FIND_EDGES_AND_NEEDS, {"ids": parents})

    def release(
        self,
        session: Session,
        ended: Sequence[EndedJob],
        edges: Sequence[Row],
        now: datetime,
        effects: EffectsByJob,
    ) -> bool:
        if not _only_release(ended, edges):
            return False
        _release_all(session, edges, now, effects)
        return True

    def settle(self, session: Session, settled: Sequence[Row], parents: Sequence[UUID]) -> None:
        session.execute(SETTLE_EDGES_OF, {"edge": settled, "ids": parents})


def _only_release(ended: Sequence[EndedJob], edges: Sequence[Row]) -> bool:
    """True where these ends do nothing but release: they satisfy all edges, and no child needs more than these."""
    if any(end.status is not JobStatus.SUCCEEDED or end.origin is not None for end in ended):
        return False
    if any(needs is None or kind not in _PLAIN for _, _, kind, needs in edges):
        return False
    found = Counter(child_id.int for _, child_id, _, needs in edges if needs > 1)
    return all(needs <= 1 or found[child_id.int] >= needs for _, child_id, _, needs in edges)


def _release_all(session: Session, edges: Sequence[Row], now: datetime, effects: EffectsByJob) -> None:
    """Release all children in one statement: the usual end of a step of a chain."""
    freed = release_by_edges(session, [edge[:2] for edge in edges], now)
    # in the order of definition; of several parents the last one has released it
    last = {child_id.int: (parent_id, child_id) for parent_id, child_id, _, _ in edges}
    for number, (parent_id, child_id) in last.items():
        if number in freed:
            effects.note_released(parent_id, child_id)


def _settle_edge(parent: EndedJob, child_id: UUID, kind: str, child: _Child | None) -> EdgeState:
    state, reason, error = _outcome(parent, child_id, EdgeKind(kind))
    if child is not None:
        if child.origin is None or state is EdgeState.SATISFIED:
            child.origin = parent.origin or parent.job_id
        # of several causes in one generation, that of the parent with the lowest id: its edges come first
        if error is not None:
            child.error = child.error or (parent, error)
        elif state is EdgeState.SATISFIED:
            child.newly_satisfied += 1
        else:
            child.broken_by = child.broken_by or (parent, reason)
    return state


def _outcome(parent: EndedJob, child_id: UUID, kind: EdgeKind) -> EdgeOutcome:
    verdict = None
    if kind is EdgeKind.CONDITION:
        verdict = next((verdict for verdict in parent.verdicts if verdict.child_id == child_id), None)
    return edge_outcome(kind, parent.status, verdict)


def _decide(
    session: Session, children: Sequence[_Child], now: datetime, effects: EffectsByJob
) -> list[EndedJob]:
    counts = _count_edges(session, [child for child in children if child.newly_satisfied < child.job.needs])
    freed: list[UUID] = []
    cancellations: list[Cancellation] = []
    failures: list[Failure] = []
    ends: list[tuple[EndedJob, LockedJob, JobStatus, str]] = []
    for child in children:
        job = child.job
        satisfied, undecided = counts.get(job.job_id, (child.newly_satisfied, 0))
        if child.error is not None:
            parent, error = child.error
            failures.append(_condition_failure(job, error))
            ends.append((parent, job, JobStatus.FAILED, CONDITION_FAILED))
        elif satisfied >= job.needs:
            if job.signal_key is None or job.is_signaled:
                freed.append(job.job_id)
                assert child.origin is not None
                effects.note_released(child.origin, job.job_id)
        elif satisfied + undecided < job.needs and child.broken_by is not None:
            parent, reason = child.broken_by
            cancellations.append(Cancellation(job, reason, canceled_by=parent.cause or parent.job_id))
            ends.append((parent, job, JobStatus.CANCELED, reason))
    release(session, freed, now)
    write_canceled(session, cancellations, now)
    write_failed(session, failures, now)
    alerted = write_alerts(session, [one.note for one in failures], now)
    return [_note_end(*end, effects, alerted=end[1].job_id in alerted) for end in ends]


def _count_edges(session: Session, children: Sequence[_Child]) -> Mapping[UUID, tuple[int, int]]:
    if not children:
        return {}
    rows = session.rows(COUNT_EDGES, {"ids": sorted(child.job.job_id for child in children)})
    return {child_id: (int(satisfied), int(undecided)) for child_id, satisfied, undecided in rows}


def _condition_failure(job: LockedJob, error: ErrorRecord) -> Failure:
    return Failure(job, error, CONDITION_FAILED_REASON)


def _note_end(
    parent: EndedJob,
    job: LockedJob,
    status: JobStatus,
    reason: str,
    effects: EffectsByJob,
    *,
    alerted: bool,
) -> EndedJob:
    effects.note_ended(
        parent.job_id,
        CanceledJob(
            job_id=job.job_id,
            target=job.target,
            previous=job.status,
            reason=reason,
            status=status,
            alerted=alerted,
        ),
    )
    return EndedJob(
        job_id=job.job_id,
        status=status,
        has_dependants=job.has_dependants,
        batch_id=job.batch_id,
        origin=parent.origin or parent.job_id,
        cause=None if status is JobStatus.FAILED else (parent.cause or parent.job_id),
    )
