"""Claims in SQL: which jobs are due, in which order, and whose they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

import msgspec

from ratchet.model.claim import ClaimedJob, ClaimRequest, JobBody, JobClaim
from ratchet.model.reasons import Reason
from ratchet.model.status import BackoffPolicy, JobType, Priority
from ratchet.stores.sql.claiming.claim_order import Branch
from ratchet.stores.sql.claiming.gates import (
    RUNNABLE_QUEUE,
    Limits,
    OpenStream,
    Place,
    open_stream,
    stream_params,
)
from ratchet.stores.sql.claiming.reasons import reasons
from ratchet.stores.sql.database import Database, Row, Session, SqlPart

CLAIM_COLUMNS = """
    q.job_id, q.stream_id, q.priority, q.job_type, q.attempts, q.crashes, q.max_retries, q.timeout_us, q.scheduled_time
"""
# most jobs are their own root, and a UUID costs more to read than anything else in the row
BODY_COLUMNS = """
    j.target, j.payload, j.created_at, CASE WHEN j.root_id <> j.job_id THEN j.root_id END AS root_id, j.params,
    j.backoff, j.backoff_base_us, j.jitter, j.no_retry_for, j.business_key, j.batch_id, j.parent_id, j.schedule, j.on_success, j.on_failure, j.expires_at, j.state, j.signal,
    j.caller, j.has_conditions
"""
_CLAIM_WIDTH, _BODY_WIDTH = 9, 20

# The rows drive the statement: each looks up its own claim, so that an old and a new claim of one job do not mix.
FIND_BODIES = f"""
    SELECT q.job_id, q.stream_id, {BODY_COLUMNS}
      FROM {{rows held (job_id, claim_id)}}
      JOIN scheduler_job_queue q ON q.job_id = held.job_id AND q.claim_id = held.claim_id
      JOIN scheduler_job j ON j.job_id = q.job_id
     WHERE q.status = 'RUNNING'
"""
FIND_CLAIMS_OF_NODE = """
    SELECT job_id, claim_id FROM scheduler_job_queue WHERE picked_by = :node_id AND status = 'RUNNING'
"""
#: The due time of the first job of a place; where the look starts at something remembered, with a *bound*.
FIRST_DUE = """(SELECT q.scheduled_time FROM scheduler_job_queue q
             WHERE q.stream_id = s.stream_id AND q.priority = p.column1 AND q.status = 'PENDING' <bound>
             ORDER BY q.scheduled_time LIMIT 1)"""
_HEADS = f"""
    SELECT s.stream_id, s.resource, s.limit_key, s.breaker,
           <first> AS scheduled_time,
           (SELECT b.open_until FROM scheduler_circuit_breaker b
             WHERE b.service = s.breaker AND b.state = 'OPEN' AND b.open_until > :now) AS open_until,
           p.column1 AS priority, s.lane, s.suspect
      FROM <places>
     WHERE s.lane {{in lanes text}} AND (:mixed OR s.suspect = :suspects) AND {RUNNABLE_QUEUE}
       AND NOT EXISTS (SELECT 1 FROM scheduler_circuit_breaker b
                        WHERE b.service = s.breaker AND b.state = 'OPEN' AND b.open_until IS NULL)
"""


def find_heads(places: str, first: str = FIRST_DUE.replace("<bound>", "")) -> str:
    """
    The oldest job of each stream and priority.

    *places* is where these come from: streams as *s*, priorities as *p.column1*. Most streams of a store with many
    keys have no jobs, and a look that went through all of them would cost more from day to day.
    """
    return _HEADS.replace("<places>", places).replace("<first>", first)


def heads_params(requests: Sequence[ClaimRequest], now: datetime) -> dict[str, object]:
    """The binds of `find_heads`."""
    lanes = sorted({request.lane.value for request in requests})
    mixed = len({request.suspects for request in requests}) > 1
    return {**stream_params(requests[0], now), "lanes": lanes, "mixed": mixed}


def _nobody(answer: Sequence[Row]) -> None:
    """Nobody wants to know the answer besides the one who asks."""


class Question(NamedTuple):
    """SQL text and its binds, and who is to be told of the rows."""

    text: str
    params: Mapping[str, object]
    tell: Callable[[Sequence[Row]], None] = _nobody

    def ask(self, session: Session) -> list[Row]:
        """The answer; it is told."""
        rows = session.rows(self.text, self.params)
        self.tell(rows)
        return rows


_TYPES = {kind.value: kind for kind in JobType}
_PRIORITIES = {int(priority): priority for priority in Priority}
_BACKOFFS = {policy.value: policy for policy in BackoffPolicy}
_NO_DELAY = timedelta()
_NAMES = msgspec.json.Decoder(tuple[str, ...])


class ClaimPlan(Protocol):
    """How one product finds, locks and marks the next jobs."""

    def claim(self, database: Database, request: ClaimRequest, now: datetime, *, bodies: bool) -> list[Row]:
        """
        The claimed jobs in claim order: CLAIM_COLUMNS, followed by BODY_COLUMNS if asked for; perhaps by when the
        job may start, or None: at once.

        RUNNING under the request's token when this returns. Nothing is written where nothing is due.
        """
        ...

    def read(
        self, session: Session, wanted: Sequence[tuple[Branch, int]], request: ClaimRequest, now: datetime
    ) -> None:
        """Read on in each branch, as `claim_order.Read`, without locks."""
        ...

    def heads(self, requests: Sequence[ClaimRequest], now: datetime) -> Question:
        """`find_heads`, where one statement is enough; what it finds is to be told."""
        ...

    def look(self, session: Session, requests: Sequence[ClaimRequest], now: datetime) -> list[Row]:
        """The rows of `find_heads`: a head of each place with waiting jobs, and perhaps places without any."""
        ...


class SqlClaims(SqlPart):
    """Takes due jobs for one node, atomically."""

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        """Up to ``request.limit`` due jobs with their bodies, RUNNING under ``request.claim_id``, in claim order."""
        return [
            ClaimedJob(
                claim=_claim(row, request, now, _CLAIM_WIDTH + _BODY_WIDTH),
                body=self._body(row[0], row[1], row[_CLAIM_WIDTH:]),
            )
            for row in self._claim(request, now, bodies=True)
        ]

    def claim_next_batch_optimized(self, request: ClaimRequest, *, now: datetime) -> list[JobClaim]:
        """The same claim without reading bodies; load them with `bodies`."""
        return [_claim(row, request, now, _CLAIM_WIDTH) for row in self._claim(request, now, bodies=False)]

    def _claim(self, request: ClaimRequest, now: datetime, *, bodies: bool) -> list[Row]:
        if request.limit <= 0:
            return []
        return self.database.dialect.claim_plan.claim(self.database, request, now, bodies=bodies)

    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, JobBody]:
        """The bodies of claimed jobs; a job that its claim no longer holds is left out."""
        held = [(claim.job_id, claim.claim_id) for claim in claims]
        rows = self.database.read(lambda session: session.rows(FIND_BODIES, {"held": held})) if held else []
        return {row[0]: self._body(row[0], row[1], row[2:]) for row in rows}

    def next_due_at(self, request: ClaimRequest, *, now: datetime) -> datetime | None:
        """When the earliest PENDING job of the request's open streams is (or was) due; None: there is none."""
        return self.next_due_of([request], now=now)[0]

    def next_due_of(self, requests: Sequence[ClaimRequest], *, now: datetime) -> list[datetime | None]:
        """`next_due_at` of each request: one statement, and one more where there are limits."""
        if not requests:
            return []
        plan = self.database.dialect.claim_plan
        question = plan.heads(requests, now)
        rows = self.database.autocommit(question.text, question.params, harmless=True)
        if rows is not None:
            question.tell(rows)
        if rows is not None and not any(stream.limits for stream in _streams(rows)):
            return _openings_of(requests, rows, Limits({}))

        def look(session: Session) -> list[datetime | None]:
            rows = plan.look(session, requests, now)
            return _openings_of(requests, rows, Limits.seen(session, _streams(rows), now, requests[0].ahead))

        return self.database.read(look)

    def claims_of(self, node_id: str) -> dict[UUID, UUID]:
        """Job id to claim id of everything RUNNING under *node_id*."""
        return dict(
            self.database.read(lambda session: session.rows(FIND_CLAIMS_OF_NODE, {"node_id": node_id}))
        )

    def explain(self, job_id: UUID, *, now: datetime) -> list[Reason]:
        """Why a claim at *now* by a node that takes every lane and queue would not return this job."""
        return self.database.read(lambda session: reasons(session, job_id, now))

    def _body(self, job_id: UUID, stream_id: int, row: Row) -> JobBody:
        stream = self.stream_registry.recorded_key(stream_id)
        target, payload, created_at, root_id, params, backoff, backoff_base_us, jitter, no_retry_for = row[:9]
        return JobBody(
            job_id=job_id,
            target=target,
            payload=payload,
            created_at=created_at,
            root_id=job_id if root_id is None else root_id,
            queue=stream.queue,
            params=params,
            backoff=_BACKOFFS[backoff],
            backoff_base=timedelta(0, 0, backoff_base_us) if backoff_base_us else _NO_DELAY,
            jitter=jitter,
            no_retry_for=_NAMES.decode(no_retry_for) if no_retry_for is not None else (),
            business_key=row[9],
            batch_id=row[10],
            parent_id=row[11],
            schedule=row[12],
            on_success=row[13],
            on_failure=row[14],
            resource=stream.resource,
            limit_key=stream.limit_key,
            breaker=stream.breaker,
            fairness_key=stream.fairness_key,
            expires_at=row[15],
            state=row[16],
            signal=row[17],
            caller=row[18],
            has_conditions=row[19],
        )


def next_opening(
    session: Session, request: ClaimRequest, now: datetime
) -> tuple[datetime | None, set[Place]]:
    """
    The earliest time at which a stream has a due job that its breaker and limits let through; None: unknown.

    And the places that have jobs which are due now.
    """
    rows = session.dialect.claim_plan.look(session, [request], now)
    limits = Limits.seen(session, _streams(rows), now, request.ahead)
    due = {(row[0], row[6]) for row in rows if _is_for(request, row) and row[4] is not None and row[4] <= now}
    return _openings_of([request], rows, limits)[0], due


def _openings_of(
    requests: Sequence[ClaimRequest], rows: Sequence[Row], limits: Limits
) -> list[datetime | None]:
    """The earliest of the openings that are for each request, among the *rows* of `find_heads`."""
    waiting = [row for row in rows if row[4] is not None]
    return [
        min(_openings([_head(row) for row in waiting if _is_for(request, row)], limits), default=None)
        for request in requests
    ]


def _streams(rows: Sequence[Row]) -> list[OpenStream]:
    """The streams that have a waiting job, of the *rows* of `find_heads`."""
    return [open_stream(*row[:4]) for row in rows if row[4] is not None]


def _is_for(request: ClaimRequest, row: Row) -> bool:
    return bool(row[7] == request.lane.value and row[8] == request.suspects)


def _head(row: Row) -> tuple[OpenStream, datetime]:
    """A stream, and when its first job is due or its breaker lets it through."""
    return open_stream(*row[:4]), row[4] if row[5] is None else max(row[4], row[5])


def _openings(heads: Sequence[tuple[OpenStream, datetime]], limits: Limits) -> Iterator[datetime]:
    for stream, due_at in heads:
        opens = [limit.next_start_at for limit in limits.of(stream)]
        if any(limit.concurrent is not None and limit.concurrent <= 0 for limit in limits.of(stream)):
            continue  # opens when a permit is freed, and nobody knows when
        yield max([due_at, *(at for at in opens if at is not None)])


def _claim(row: Row, request: ClaimRequest, now: datetime, width: int) -> JobClaim:
    job_id, stream_id, priority, job_type, attempts, crashes, max_retries, timeout_us, scheduled_at = row[
        :_CLAIM_WIDTH
    ]
    return JobClaim(
        job_id=job_id,
        claim_id=request.claim_id,
        node_id=request.node_id,
        stream_id=stream_id,
        type=_TYPES[job_type],
        priority=_PRIORITIES[priority],
        scheduled_at=scheduled_at,
        claimed_at=now,
        attempts=attempts,
        crashes=crashes,
        max_retries=max_retries,
        timeout=None if timeout_us is None else timedelta(microseconds=timeout_us),
        start_at=row[width] if len(row) > width else None,
    )
