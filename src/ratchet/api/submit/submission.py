"""
From what was described to what is stored: specs and edges, sent once and announced after the commit.

A submission whose answer was lost is sent again with the same ids, which the store recognizes: the
job is neither lost nor doubled.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from ratchet.api.backend import Backend
from ratchet.api.context import enlisted_connection
from ratchet.api.submit.steps import PLACEHOLDER, Step, parameter_types, require_no_placeholders
from ratchet.model.composition import BatchSpec, Edge
from ratchet.model.decision import CanceledJob
from ratchet.model.errors import BusinessKeyBusy, CommitUnknown, InvalidJob, StoreUnavailable
from ratchet.model.events import JobCanceled, JobSubmitted
from ratchet.model.identifiers import many_ids
from ratchet.model.job import Insertion, JobSpec
from ratchet.model.payload import encode_many
from ratchet.model.status import Busy, JobStatus, Priority
from ratchet.spi.shield import call_undisturbed

T = TypeVar("T")

#: A poller may rest this long: jobs that are due sooner wake it, so that it learns of their time.
WAKE_AHEAD = timedelta(seconds=60)
#: How long a submission is repeated while the store cannot be reached, and the rests in between.
PATIENCE = 5.0
RESTS = (0.1, 0.5, 1.5)
#: Jobs per transaction of a bulk submission, and into how many transactions a large one is divided before they get larger.
CHUNK = 1000
PARTS = 8
#: From so many round trips on, a second thread helps.
HELPED_FROM = 4


@dataclass(slots=True)
class Submission:
    """Everything that one ``submit()`` stores, all or none."""

    specs: list[JobSpec] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    batch: BatchSpec | None = None
    limits: dict[str, int] = field(default_factory=dict)

    def add(self, other: Submission) -> None:
        """Take over what *other* would store."""
        self.specs += other.specs
        self.edges += other.edges
        self.limits |= other.limits


def send(
    backend: Backend, submission: Submission, now: datetime, *, within: object | None = None
) -> list[Insertion]:
    """
    Store *submission*; one `Insertion` per spec.

    *within* is the caller's transaction: the commit is the caller's, so nothing is repeated and
    nobody is woken here. Inside ``ctx.transaction()`` that block's transaction is taken.
    """
    if submission.edges:
        require_shallow(submission.edges, backend.options.chain_depth_limit)
    store = backend.store
    joined = within if within is not None else enlisted_connection(store)
    for name, limit in submission.limits.items():
        backend.ensure_limit(name, limit, joined=joined is not None)

    def insert() -> list[Insertion]:
        return call_undisturbed(  # also in a job, which may be canceled at any moment
            store.insert,
            submission.specs,
            now=now,
            edges=submission.edges,
            batch=submission.batch,
            within=joined,
        )

    if joined is not None:
        return insert()
    try:
        insertions = persisted(backend, insert)
    except BusinessKeyBusy as busy:
        _stop_superseded(backend, submission, busy)
        raise
    announce(backend, submission.specs, insertions, now)
    return insertions


def send_one(backend: Backend, spec: JobSpec, now: datetime) -> None:
    """`send` for a job with nothing around it: no keys, edges, batch and limits."""
    store = backend.store
    if enlisted_connection(store) is not None:
        send(backend, Submission([spec]), now)
        return
    specs = [spec]
    insertions = persisted(backend, lambda: call_undisturbed(store.insert, specs, now=now))
    announce(backend, specs, insertions, now)


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


def persisted(backend: Backend, write: Callable[[], T]) -> T:
    """
    What *write* returns, repeated while the store cannot be reached, for a few seconds.

    An unknown commit is always asked about once more: the same ids give the true answer.
    """
    started, rests = backend.monotonic(), 0
    while True:
        try:
            return write()
        except StoreUnavailable as error:
            late = backend.monotonic() - started > PATIENCE
            if rests == len(RESTS) or (late and not isinstance(error, CommitUnknown)):
                raise
            backend.rest(RESTS[rests])
            rests += 1


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
            publish_canceled(backend, job_id, now)


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
    )


def publish_canceled(
    backend: Backend, job_id: UUID, now: datetime, previous: JobStatus = JobStatus.PENDING
) -> None:
    """Tell listeners that a job is CANCELED, with the facts the store has of it."""
    record = backend.store.get(job_id)
    if record is None:
        return
    backend.publish(
        JobCanceled(
            job_id=job_id,
            target=record.target,
            status=JobStatus.CANCELED,
            attempt=record.attempts,
            priority=record.priority,
            business_key=record.business_key,
            node_id=record.node_id,
            at=now,
            previous=previous,
            reason=record.canceled_reason or "superseded",
        )
    )


def _stop_superseded(backend: Backend, submission: Submission, busy: BusinessKeyBusy) -> None:
    """Busy.REPLACE canceled a RUNNING holder: its run may be in this process."""
    if not any(spec.business_key == busy.key and spec.busy is Busy.REPLACE for spec in submission.specs):
        return
    holder = CanceledJob(job_id=busy.holder, target="", previous=JobStatus.RUNNING, reason="superseded")
    row = backend.store.results([busy.holder]).get(busy.holder)
    if row is not None and row.status is JobStatus.CANCELED:
        backend.canceled([holder])


# --- many jobs of one target ----------------------------------------------------------------------


def send_many(
    backend: Backend, step: Step, arguments: Iterable[Any], *, within: object | None = None
) -> list[JobSpec]:
    """Store one job per argument tuple; all are checked before the first is stored."""
    now = backend.now()
    items = list(arguments)
    if not items:
        return []
    specs = specs_for(backend, step, items, now)
    send_in_chunks(backend, Submission(specs=specs, limits=dict(step.limits)), within=within)
    return specs


def send_in_chunks(
    backend: Backend, submission: Submission, *, within: object | None = None
) -> list[Insertion]:
    """
    `send` for many independent jobs: a transaction per thousand, or more where the store likes them larger.

    Each part is sent with the time at which it is sent: a store has to know which jobs come late into the queue.

    Where the store can write two transactions at once, a second thread helps: one encodes while the
    other waits for the database.
    """
    jobs = submission.specs
    size = min(max(CHUNK, -(-len(jobs) // PARTS)), backend.store.capabilities.bulk)
    parts = [
        Submission(specs=jobs[start : start + size], limits=submission.limits)
        for start in range(0, len(jobs), size)
    ]
    joined = within is not None or enlisted_connection(backend.store) is not None
    if joined or len(parts) < HELPED_FROM or not backend.store.capabilities.concurrent_writers:
        return [answer for part in parts for answer in send(backend, part, backend.now(), within=within)]
    return _send_with_help(backend, parts)


def _send_with_help(backend: Backend, parts: Sequence[Submission]) -> list[Insertion]:
    """Both threads take the next part until there is none, or one of them fails; its error is raised."""
    answers: dict[int, list[Insertion]] = {}
    errors: list[BaseException] = []
    left = iter(enumerate(parts))
    turn = threading.Lock()

    def work() -> None:
        while not errors:
            with turn:
                number, part = next(left, (-1, None))
            if part is None:
                return
            try:
                answers[number] = send(backend, part, backend.now())
            except BaseException as error:
                errors.append(error)

    context = contextvars.copy_context()
    helper = threading.Thread(target=context.run, args=(work,), name="ratchet-bulk", daemon=True)
    helper.start()
    work()
    helper.join()
    if errors:
        raise errors[0]
    return [answer for number in range(len(parts)) for answer in answers[number]]


def specs_for(
    backend: Backend, step: Step, items: Sequence[Any], now: datetime, **given: Any
) -> list[JobSpec]:
    """One spec per argument tuple, all configured like *step*; written for a hundred thousand of them."""
    function, _, _ = step.call()
    first = Step(function, arguments_of(items[0]), {})
    first.given, first.tags, first.params, first.limits = step.given, step.tags, step.params, step.limits
    prepared = first.prepare(backend)
    prepared.require_no_placeholders()
    calls = [item if type(item) is tuple else arguments_of(item) for item in items]
    # whether positional arguments fit a signature depends on their number alone
    for args in {len(args): args for args in reversed(calls)}.values():
        backend.targets.describe(function, args, {})
    payloads = encode_many(
        calls,
        limit=backend.options.payload_limit,
        types=parameter_types(function),
        allow_type=backend.allow_type,
    )
    for args, payload in zip(calls, payloads, strict=True):
        if PLACEHOLDER in payload:
            require_no_placeholders(prepared.stored.target, args)
    ids = many_ids(backend.ids, len(calls))
    pattern = prepared.spec(ids[0], now, caller=backend.caller(), **given)
    return [
        replace(pattern, job_id=job_id, payload=payload)
        for job_id, payload in zip(ids, payloads, strict=True)
    ]


def arguments_of(item: Any) -> tuple[Any, ...]:
    """One entry of a bulk submission as positional arguments."""
    if isinstance(item, tuple):
        return item
    if isinstance(item, list):
        return tuple(item)
    raise InvalidJob(
        f"each entry must be a tuple of arguments, not {item!r}; for one argument write ({item!r},)"
    )
