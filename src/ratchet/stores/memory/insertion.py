"""How a submission is stored: which specs are new, which keys they take, what they replace, what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.composition import BatchRecord, BatchSpec, Edge, EdgeState
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy, InvalidJob
from ratchet.model.job import Insertion, JobSpec, refuse_repeated_keys
from ratchet.model.status import AT_REST, Busy, JobStatus
from ratchet.stores.memory.changes import Effects, add_job, change, finish_batch
from ratchet.stores.memory.finish import EndedJob, cancel, cancel_row, settle_edges
from ratchet.stores.memory.signals import take_kept_signal
from ratchet.stores.memory.state import State
from ratchet.stores.memory.values import check, check_spec, in_utc
from ratchet.stores.validation import require_new


class RunningHolder(Exception):
    """Busy.REPLACE found a holder whose code is running: the holder is canceled, but its key is not free yet."""

    def __init__(self, key: str, holder: UUID) -> None:
        super().__init__(f"{key!r} is held by job {holder}, whose code runs")
        self.key = key
        self.holder = holder


class InsertCall:
    """One call of `insert`: what was stored by it (``new``), and the answer to each spec."""

    def __init__(self, state: State, effects: Effects, *, now: datetime) -> None:
        self.new: dict[UUID, None] = {}
        self._state = state
        self._effects = effects
        self._now = now
        self._answers: dict[UUID, Insertion] = {}
        self._replaced: list[EndedJob] = []

    def store(
        self, specs: Sequence[JobSpec], *, edges: Sequence[Edge] = (), batch: BatchSpec | None = None
    ) -> list[Insertion]:
        """Store *specs* as `JobCrudStore.insert` says; the caller undoes everything if this raises."""
        check((*edges, batch))
        everything = [*specs] if batch is None else [batch.parent, *specs]
        graphs: dict[UUID, list[JobSpec]] = {}
        for spec in everything:
            _check(spec)
            graphs.setdefault(spec.root_id or spec.job_id, []).append(spec)
        refuse_repeated_keys(everything)
        if batch is not None and batch.batch_id in self._state.batches:
            # The same submission again. Jobs of it that are missing were deleted since, and the batch does not expect new ones.
            again = [spec.job_id for spec in everything if spec.idempotency_key is None]
            self._answers.update({job_id: Insertion(job_id=job_id, created=True) for job_id in again})
        for graph in graphs.values():
            self._store_graph(graph)
        # only now: a key that is freed by what a replacement cancels is free for the next call
        settle_edges(self._state, self._replaced, now=self._now)
        if batch is not None and batch.parent.job_id in self.new:
            self._store_batch(batch, specs)
        self._store_edges(edges)
        for job_id in self.new:
            take_kept_signal(self._state, self._state.jobs[job_id], self._effects, now=self._now)
        return [self._answers[spec.job_id] for spec in specs]

    def _store_graph(self, graph: list[JobSpec]) -> None:
        """The jobs of one root: all of them, or none where a key names an older job."""
        for spec in graph:
            if spec.job_id in self._state.jobs:  # the same submission again, after a lost answer
                self._answers[spec.job_id] = Insertion(job_id=spec.job_id, created=True)
        fresh = [spec for spec in graph if spec.job_id not in self._answers]
        original = self._original_of(fresh)
        if original is None:
            _check_business_keys(fresh)
        for spec in fresh:
            if spec.job_id in self._answers:  # twice in one call
                continue
            if original is not None:
                self._answers[spec.job_id] = Insertion(job_id=original, created=False)
            else:
                self._store_spec(spec)

    def _original_of(self, graph: Sequence[JobSpec]) -> UUID | None:
        """The job that is the answer to a graph instead of a new one: a duplicate's original before a key's holder."""
        for spec in graph:
            if spec.idempotency_key is not None:
                entry = self._state.idempotency.get(spec.idempotency_key)
                if entry is not None:
                    return entry
        for spec in graph:
            if spec.business_key is not None and spec.busy is Busy.RETURN:
                held = self._state.reservations.get(spec.business_key)
                if held is not None:
                    return held.job_id
        return None

    def _store_spec(self, spec: JobSpec) -> None:
        replaced = self._make_room(spec)
        add_job(self._state, in_utc(spec), now=self._now)
        if spec.idempotency_key is not None:
            self._state.idempotency.put(spec.idempotency_key, spec.job_id)
        self.new[spec.job_id] = None
        self._answers[spec.job_id] = Insertion(job_id=spec.job_id, created=True, replaced=replaced)

    def _make_room(self, spec: JobSpec) -> UUID | None:
        """Free the business key as ``busy`` says; the job that was canceled for that."""
        held = self._state.reservations.get(spec.business_key) if spec.business_key is not None else None
        if held is None or spec.business_key is None:
            return None
        if held.job_id in self.new:  # the key stands twice in this call, and the first job is not stored yet
            raise BusinessKeyBusy(spec.business_key, held.job_id)
        holder = self._state.jobs.get(held.job_id)
        if spec.busy is not Busy.REPLACE or holder is None or held.claim_id is not None:
            raise BusinessKeyBusy(spec.business_key, held.job_id)
        if holder.status is JobStatus.RUNNING:
            raise RunningHolder(spec.business_key, held.job_id)
        cancel_row(
            self._state, holder, self._effects, reason="superseded", now=self._now, superseded_by=spec.job_id
        )
        self._replaced.append(EndedJob(holder.job_id, self._effects))
        if (
            spec.business_key in self._state.reservations
        ):  # the code of one of its earlier runs is still running
            raise RunningHolder(spec.business_key, held.job_id)
        return holder.job_id

    def _store_batch(self, batch: BatchSpec, specs: Sequence[JobSpec]) -> None:
        if batch.batch_id in self._state.batches:
            return
        children = sum(spec.batch_id == batch.batch_id and spec.job_id in self.new for spec in specs)
        dropped = sum(not self._answers[spec.job_id].created for spec in specs)
        record = BatchRecord(
            batch_id=batch.batch_id,
            name=batch.name,
            parent_id=batch.parent.job_id,
            total=max(batch.total - dropped, children),
            completed=0,
            failed=0,
            canceled=0,
            sealed=batch.sealed,
            created_at=self._now,
            progress_target=batch.progress_target,
        )
        self._state.batches.put(batch.batch_id, record)
        finish_batch(self._state, record, self._effects, now=self._now)  # an empty one is complete at once

    def _store_edges(self, edges: Sequence[Edge]) -> None:
        """Edges into new jobs; those from parents that have ended are settled at once."""
        parents: dict[UUID, None] = {}
        for edge in edges:
            if edge.child_id not in self.new:
                continue
            answer = self._answers.get(edge.parent_id)
            parent_id = edge.parent_id if answer is None else answer.job_id
            if parent_id not in self._state.jobs:
                raise InvalidJob(f"an edge comes from job {parent_id}, which does not exist or was deleted")
            if (parent_id, edge.child_id) not in self._state.edges:
                stored = replace(edge, parent_id=parent_id, state=EdgeState.OPEN)
                self._state.edges.put((parent_id, edge.child_id), stored)
                parents[parent_id] = None
        settle_edges(
            self._state, [EndedJob(parent_id, self._effects) for parent_id in parents], now=self._now
        )


def replace_job(state: State, job_id: UUID, spec: JobSpec, *, now: datetime) -> CanceledJob | None:
    """Cancel a job at rest and store *spec* in its place; None, and nothing changed, if it has started or ended."""
    effects = Effects()
    row = state.jobs.get(job_id)
    if row is None or row.status not in AT_REST:
        return None
    cancel(state, row, effects, reason="superseded", now=now)
    try:
        (answer,) = InsertCall(state, effects, now=now).store([spec])
    except RunningHolder as busy:
        raise BusinessKeyBusy(busy.key, busy.holder) from None
    require_new(job_id, spec, answer)
    change(state, state.jobs[job_id], effects, now=now, superseded_by=answer.job_id)
    return effects.canceled[0]


def supersede(state: State, job_id: UUID, *, now: datetime) -> None:
    """Ask the running holder of a key to make room; the one who wants the key comes again."""
    row = state.jobs.get(job_id)
    if row is not None and not row.status.is_terminal:
        cancel(state, row, Effects(), reason="superseded", now=now)


def _check_business_keys(graph: Iterable[JobSpec]) -> None:
    """Refuse a key that stands twice in one graph: one of its own jobs holds it."""
    reserved: dict[str, UUID] = {}
    for spec in graph:
        key = spec.business_key
        if key is not None and reserved.setdefault(key, spec.job_id) != spec.job_id:
            raise BusinessKeyBusy(key, reserved[key])


def _check(spec: JobSpec) -> None:
    if spec.status not in (JobStatus.PENDING, JobStatus.WAITING):
        raise InvalidJob(
            f"job {spec.job_id} cannot be submitted as {spec.status}; only as PENDING or WAITING"
        )
    check_spec(spec)
