"""Submissions: specs, edges and a batch, stored together or not at all, inside an open transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.errors import BusinessKeyBusy, InvalidJob
from ratchet.model.identifiers import old_ids
from ratchet.model.job import Insertion, JobSpec
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.dependants.batch_counters import finish_batches
from ratchet.stores.sql.dependants.edges import EffectsByJob, EndedJob, settle_edges
from ratchet.stores.sql.dependants.releases import release_ready
from ratchet.stores.sql.rows.kept_signals import consume_kept_signals
from ratchet.stores.sql.rows.specs import Flags, find_known, store_specs
from ratchet.stores.sql.rows.stream_registry import StreamRegistry
from ratchet.stores.sql.submit.keys import Keys, drop_reservations, take_keys

LOCK_PARENTS = """
    SELECT job_id, status, paused_from, canceled_by
      FROM scheduler_job
     WHERE job_id {in ids uuid}
     ORDER BY job_id
    {for update}
"""

FIND_ARCHIVED_PARENTS = (
    "SELECT job_id, status FROM scheduler_job_archive WHERE job_id {in ids uuid} {current}"
)

FIND_BATCH = "SELECT batch_id FROM scheduler_batch WHERE batch_id = :batch_id"

MARK_PARENTS = """
    UPDATE scheduler_job
       SET has_dependants = true
     WHERE job_id {in ids uuid} AND NOT has_dependants
"""

MARK_CONDITIONS = """
    UPDATE scheduler_job
       SET has_conditions = true
     WHERE job_id {in ids uuid} AND NOT has_conditions
"""

STORE_SIGNALS = """
    UPDATE scheduler_job
       SET signal = sent.signal
      FROM {rows sent (job_id, signal)}
     WHERE scheduler_job.job_id = sent.job_id
"""


class SubmissionResult:
    """
    What a submission did: one `Insertion` per spec, what was really new, and what followed at once.

    ``busy``: nothing was stored, but RUNNING holders of business keys were canceled; raise it after the commit.
    """

    def __init__(self, insertions: list[Insertion]) -> None:
        self.insertions = insertions
        self.stored: set[UUID] = set()
        self.effects = EffectsByJob()
        self.busy: BusinessKeyBusy | None = None


def insert_specs(
    session: Session,
    streams: StreamRegistry,
    specs: Sequence[JobSpec],
    *,
    now: datetime,
    edges: Sequence[Edge] = (),
    batch: BatchSpec | None = None,
) -> SubmissionResult:
    """
    Store *specs*, their *edges* and *batch* in this transaction, as `JobCrudStore.insert` says.

    They have passed `validation.validate`. A thousand jobs take as many statements as one.
    """
    everything = [*specs, batch.parent] if batch is not None else list(specs)
    if not everything:
        return SubmissionResult([])
    known = _find_known(session, everything, batch)
    keys = take_keys(session, everything, known, now) if _have_keys(everything) else Keys(known)
    result = SubmissionResult([_insertion(spec, keys) for spec in specs])
    if keys.busy is not None:
        result.busy = keys.busy
        return result
    kept = [spec for spec in keys.kept(everything) if spec.job_id not in keys.known]
    edges = _kept_edges(edges, kept, keys)
    ended = _meet_parents(session, edges, {spec.job_id for spec in kept})
    if kept:
        stream_ids = streams.ids_of(session, {id(spec.stream): spec.stream for spec in kept}.values())
        result.stored = store_specs(session, kept, stream_ids, now=now, flags=_flags(edges))
    if unused := set(keys.reserved.values()) - result.stored:
        drop_reservations(session, unused)
    _write_tags(session, kept)
    _write_edges(session, edges)
    if batch is not None and keys.original_of(batch.parent) is None:
        _write_batch(session, batch, kept, dropped=len(specs) - len(keys.kept(specs)), now=now)
    if ended:
        result.effects = settle_edges(session, ended, now=now)
    # a job that its parent's end has canceled waits for nothing: the signal is kept for another
    waiting = result.stored.difference(job.job_id for job in result.effects.canceled)
    _deliver_kept_signals(session, kept, waiting, now)
    return result


def _find_known(session: Session, specs: Sequence[JobSpec], batch: BatchSpec | None) -> set[UUID]:
    """
    The jobs that were stored before; only ids that are old enough are looked up.

    If the batch is stored, all its jobs were: those that are gone were deleted since, and the batch expects no new ones.
    """
    old = old_ids([spec.job_id for spec in specs])
    if not old:
        return set()
    if batch is not None and session.row(FIND_BATCH, {"batch_id": batch.batch_id}) is not None:
        keyless = {spec.job_id for spec in specs if spec.idempotency_key is None}.intersection(old)
        return keyless | find_known(session, set(old) - keyless)
    return find_known(session, old)


def _have_keys(specs: Iterable[JobSpec]) -> bool:
    return any(spec.idempotency_key is not None or spec.business_key is not None for spec in specs)


def _insertion(spec: JobSpec, keys: Keys) -> Insertion:
    original = keys.original_of(spec)
    if original is not None and spec.job_id not in keys.known:
        return Insertion(job_id=original, created=False)
    return Insertion(job_id=spec.job_id, created=True, replaced=keys.replaced.get(spec.job_id))


def _kept_edges(edges: Sequence[Edge], kept: Sequence[JobSpec], keys: Keys) -> list[Edge]:
    """The edges of new children; the job that stands for a parent that was not stored takes its place."""
    if not edges or not (keys.originals or keys.known):
        return list(edges)
    ids = {spec.job_id for spec in kept}
    return [
        replace(edge, parent_id=keys.originals.get(edge.parent_id, edge.parent_id))
        for edge in edges
        if edge.child_id in ids
    ]


def _flags(edges: Iterable[Edge]) -> Flags:
    flags = Flags()
    for edge in edges:
        flags.dependants.add(edge.parent_id)
        if edge.condition is not None:
            flags.conditions.add(edge.parent_id)
    return flags


def _meet_parents(session: Session, edges: Sequence[Edge], own: set[UUID]) -> list[EndedJob]:
    """
    Lock the parents that were stored before, tell them of their dependants, and return those that have ended.

    Their completion updates the same rows: either it comes first and we see the end, or it waits for
    us and sees ``has_dependants``. A parent may have had dependants before, so that its row does not change.
    """
    parents = {edge.parent_id for edge in edges} - own
    if not parents:
        return []
    ended: dict[UUID, JobStatus] = {}
    causes: dict[
        UUID, UUID | None
    ] = {}  # the job whose retry would bring a parent back, and what waits for it
    live: set[UUID] = set()
    for job_id, status, paused_from, canceled_by in session.rows(LOCK_PARENTS, {"ids": sorted(parents)}):
        state = JobStatus(paused_from if status == "PAUSED" and paused_from == "FAILED" else status)
        if state.is_terminal:
            ended[job_id] = state
            causes[job_id] = canceled_by
        live.add(job_id)
    if missing := parents - live:
        ended.update(
            (job_id, JobStatus(s))
            for job_id, s in session.rows(FIND_ARCHIVED_PARENTS, {"ids": sorted(missing)})
        )
    if unknown := missing - ended.keys():
        raise InvalidJob(f"an edge comes from job {min(unknown)}, which does not exist or was deleted")
    if live:
        session.hold("scheduler_job", "job_id", live)
        session.execute(MARK_PARENTS, {"ids": sorted(live)})
        if asked := {edge.parent_id for edge in edges if edge.condition is not None} & live:
            session.execute(MARK_CONDITIONS, {"ids": sorted(asked)})
    return [
        EndedJob(job_id=job_id, status=status, cause=causes.get(job_id))
        for job_id, status in sorted(ended.items())
    ]


def _write_tags(session: Session, specs: Iterable[JobSpec]) -> None:
    rows = [(tag, spec.job_id) for spec in specs for tag in dict.fromkeys(spec.tags)]
    if rows:
        session.insert_rows("scheduler_job_tag", ("tag", "job_id"), rows, on_conflict_do_nothing=True)


def _write_edges(session: Session, edges: Sequence[Edge]) -> None:
    if not edges:
        return
    session.insert_rows(
        "scheduler_dependency",
        ("parent_id", "child_id", "kind", "position"),
        [(edge.parent_id, edge.child_id, edge.kind.value, edge.position) for edge in edges],
        on_conflict_do_nothing=True,
    )
    conditions = [
        (edge.parent_id, edge.child_id, c.kind, c.predicate, c.argument, c.order, c.description)
        for edge in edges
        if (c := edge.condition) is not None
    ]
    if conditions:
        session.insert_rows(
            "scheduler_workflow_condition",
            ("parent_id", "child_id", "kind", "predicate", "argument", "eval_order", "description"),
            conditions,
            on_conflict_do_nothing=True,
        )


def _write_batch(
    session: Session, batch: BatchSpec, children: Sequence[JobSpec], *, dropped: int, now: datetime
) -> None:
    counted = sum(child.batch_id == batch.batch_id for child in children)
    session.insert_rows(
        "scheduler_batch",
        ("batch_id", "name", "parent_id", "total", "sealed", "progress_target", "created_at"),
        [
            (
                batch.batch_id,
                batch.name,
                batch.parent.job_id,
                max(batch.total - dropped, counted),
                batch.sealed,
                batch.progress_target,
                now,
            )
        ],
        on_conflict_do_nothing=True,
    )
    if batch.sealed:  # an empty batch has no job whose end could finish it
        finish_batches(session, [batch.batch_id], now)


def _deliver_kept_signals(
    session: Session, specs: Iterable[JobSpec], stored: set[UUID], now: datetime
) -> None:
    waiters = [
        (spec.job_id, spec.signal.key) for spec in specs if spec.signal is not None and spec.job_id in stored
    ]
    if not waiters:
        return
    signals = consume_kept_signals(session, waiters, now=now)
    if signals:
        session.execute(STORE_SIGNALS, {"sent": sorted(signals.items())})
        release_ready(session, signals, now)
