"""
Sending: a `Submission` is stored in one transaction and announced after its commit.

`send` is for one job, or a few that belong together; `bulk` divides many among transactions.

A submission whose answer was lost is sent again with the same ids. The store recognizes them, so no
job is lost and none is stored twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar
from uuid import UUID

from ratchet.api.backend import Backend
from ratchet.api.context import enlisted_connection
from ratchet.api.submit.steps import Submission
from ratchet.api.submit.tracing import producing_graph
from ratchet.model.composition import Edge
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy, CommitUnknown, InvalidJob, StoreError, StoreUnavailable
from ratchet.model.events import JobCanceled, JobSubmitted, facts_of
from ratchet.model.job import Insertion, JobSpec
from ratchet.model.status import Busy, JobStatus, Priority
from ratchet.spi.shield import call_undisturbed, current_shield

T = TypeVar("T")

logger = logging.getLogger("ratchet")

#: A poller may sleep this long, so a job that is due sooner wakes it.
WAKE_AHEAD = timedelta(seconds=60)
#: Seconds for which a submission is repeated while the store cannot be reached,
RETRY_FOR = 5.0
#: and the pauses in between.
PAUSES = (0.1, 0.5, 1.5)


def send(
    backend: Backend,
    submission: Submission,
    now: datetime,
    *,
    within: object | None = None,
    traced: bool = False,
    admitted: bool = False,
) -> list[Insertion]:
    """
    Store *submission*; one `Insertion` per spec.

    *within* is the caller's transaction, or else that of the ``ctx.transaction()`` block around the
    caller, or else the one that the application's framework has open. The commit is theirs then, so nothing is repeated and
    nobody is woken here; a framework says when it has committed. *traced*: the jobs have their trace already.
    *admitted*: the quotas have been asked about them.
    """
    if backend.tracer is not None and not traced:
        return _send_traced(backend, submission, now, within, admitted)
    if submission.edges:
        require_shallow(submission.edges, backend.options.chain_depth_limit)
    store = backend.store
    in_job = current_shield.get() is not None  # only then can there be a ctx.transaction() block
    joined = enlisted_connection(store) if within is None and in_job else within
    around = backend.surrounding if joined is None else None
    if around is not None:
        joined = around.current()
    if backend.authorizer is not None:
        from ratchet.api.authorization import require_submission

        require_submission(backend, submission.specs, joined)
    if backend.quotas is not None and not admitted:
        backend.quotas.admit(store, submission.specs, now)
    for name, limit in submission.limits.items():
        backend.ensure_limit(name, limit, joined=joined is not None)
    insert: Callable[[], list[Insertion]] = partial(
        store.insert,
        submission.specs,
        now=now,
        edges=submission.edges,
        batch=submission.batch,
        within=joined,
    )
    if in_job:  # it may be canceled at any moment, but not in the middle of this
        insert = partial(call_undisturbed, insert)
    if joined is not None:
        submission.uncommitted = True
        insertions = insert()
        if around is not None:
            around.on_commit(partial(announce, backend, submission.specs, insertions, now))
        return insertions
    try:
        insertions = with_retries(backend, insert)
    except BusinessKeyBusy as busy:
        _stop_superseded(backend, submission, busy)
        raise
    announce(backend, submission.specs, insertions, now)
    return insertions


def _send_traced(
    backend: Backend, submission: Submission, now: datetime, within: object | None, admitted: bool
) -> list[Insertion]:
    assert backend.tracer is not None
    with producing_graph(backend.tracer, submission, now):
        return send(backend, submission, now, within=within, traced=True, admitted=admitted)


def joined_transaction(backend: Backend, within: object | None) -> object | None:
    """What a submission joins: *within*, else the transaction around the caller; None: it commits by itself."""
    if within is not None:
        return within
    enlisted = enlisted_connection(backend.store)
    if enlisted is not None or backend.surrounding is None:
        return enlisted
    return backend.surrounding.current()


def require_shallow(edges: Sequence[Edge], limit: int) -> None:
    """`InvalidJob` for a graph in which a job waits for itself, or more than *limit* wait for one another."""
    children: dict[UUID, list[UUID]] = {}
    open_edges: dict[UUID, int] = {}
    for edge in edges:
        children.setdefault(edge.parent_id, []).append(edge.child_id)
        open_edges[edge.child_id] = open_edges.get(edge.child_id, 0) + 1
    level = [parent for parent in children if parent not in open_edges]
    depth = 1
    while level:
        below: list[UUID] = []
        for child in (child for parent in level for child in children.get(parent, ())):
            open_edges[child] -= 1
            if not open_edges[child]:
                del open_edges[child]
                below.append(child)
        level = below
        depth += bool(below)
    if open_edges:
        raise InvalidJob(f"job {next(iter(open_edges))} waits for itself: the graph has a cycle")
    if depth > limit:
        raise InvalidJob(
            f"{depth} jobs of the graph wait for one another, Options.chain_depth_limit is {limit}; "
            f"let the last step submit what follows"
        )


def with_retries(backend: Backend, write: Callable[[], T]) -> T:
    """
    What *write* returns; it is repeated for a few seconds while the store cannot be reached.

    After an unknown commit it is always repeated once more: the same ids give the true answer.
    """
    started, pauses = backend.monotonic(), 0
    while True:
        try:
            return write()
        except StoreUnavailable as error:
            late = backend.monotonic() - started > RETRY_FOR
            if pauses == len(PAUSES) or (late and not isinstance(error, CommitUnknown)):
                raise
            backend.rest(PAUSES[pauses])
            pauses += 1


def announce(
    backend: Backend, specs: Sequence[JobSpec], insertions: Sequence[Insertion], now: datetime
) -> None:
    """Wake pollers and tell listeners about jobs that were committed."""
    created: list[JobSpec] = []
    replaced: list[UUID] = []
    highest: Priority | None = None
    soon, pending = now + WAKE_AHEAD, JobStatus.PENDING
    for spec, insertion in zip(specs, insertions, strict=True):
        if insertion.created:
            created.append(spec)
            if spec.status is pending and spec.scheduled_at <= soon:
                highest = spec.priority if highest is None else max(highest, spec.priority)
        if insertion.replaced is not None:
            replaced.append(insertion.replaced)
    if created:
        backend.submitted(
            created, due=highest is not None, priority=Priority.NORMAL if highest is None else highest
        )
        if backend.hears(JobSubmitted):
            for spec in created:
                backend.publish(_submitted(spec, now))
    if replaced and backend.hears(JobCanceled):
        for job_id in replaced:
            _publish_canceled(backend, job_id, now)


def _submitted(spec: JobSpec, now: datetime) -> JobSubmitted:
    return JobSubmitted(
        job_id=spec.job_id,
        target=spec.target,
        status=spec.status,
        attempt=0,
        priority=spec.priority,
        business_key=spec.business_key,
        node_id=None,
        at=now,
        type=spec.type,
        schedule=spec.schedule,
    )


def wake(backend: Backend) -> None:
    """Wake pollers here and elsewhere: jobs that were stored before may start now."""
    backend.submitted((), due=True, priority=Priority.NORMAL)


def announce_canceled(backend: Backend, canceled: Sequence[CanceledJob], now: datetime) -> None:
    """Stop runs of this process that were canceled, and tell waiters and listeners."""
    if canceled:
        backend.canceled(canceled)
    if backend.hears(JobCanceled):
        for job in canceled:
            _publish_canceled(backend, job.job_id, now, job.previous)


def _publish_canceled(
    backend: Backend, job_id: UUID, now: datetime, previous: JobStatus = JobStatus.PENDING
) -> None:
    """Tell listeners that a job is CANCELED, with what the store knows about it."""
    try:
        record = backend.store.get(job_id)
    except StoreError as error:
        # What the caller asked for is stored: it must not look as if it had failed.
        logger.warning("nobody is told that job %s was canceled: %s", job_id, error)
        return
    if record is None:
        return
    backend.publish(
        JobCanceled(
            **facts_of(record, JobStatus.CANCELED, now),
            previous=previous,
            reason=record.canceled_reason or "superseded",
        )
    )


def _stop_superseded(backend: Backend, submission: Submission, busy: BusinessKeyBusy) -> None:
    """Stop the RUNNING holder of the key, which Busy.REPLACE has canceled: it may run in this process."""
    if not any(spec.business_key == busy.key and spec.busy is Busy.REPLACE for spec in submission.specs):
        return
    holder = CanceledJob(job_id=busy.holder, target="", previous=JobStatus.RUNNING, reason="superseded")
    row = backend.store.results([busy.holder]).get(busy.holder)
    if row is not None and row.status is JobStatus.CANCELED:
        backend.canceled([holder])
