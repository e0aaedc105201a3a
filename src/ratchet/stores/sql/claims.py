"""Claims in SQL: which jobs are due, in which order, and whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from ratchet.model.claim import ClaimedJob, ClaimRequest, JobBody, JobClaim
from ratchet.model.reasons import Reason
from ratchet.model.status import BackoffPolicy, JobType, Priority
from ratchet.spi.store.claims import JobClaimStore
from ratchet.stores.sql.claiming.gates import Limits, openings_of, streams_of
from ratchet.stores.sql.claiming.plan import BODY_COLUMNS
from ratchet.stores.sql.claiming.reasons import reasons
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.unreadable import (
    NO_TIME,
    Column,
    Count,
    Micros,
    Shape,
    Share,
    Time,
    claim_made,
    passed_by,
    unreadable,
)

_TABLE = "scheduler_job_queue"
_CLAIM_WIDTH = 9  # columns
_ROW_WIDTH = _CLAIM_WIDTH + 20  # and those of the body; a start time may follow

# Each row of *held* looks up its own claim, so that an old and a new claim of one job do not mix.
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

# In a RUNNING row ``held_claim_id`` has no other meaning: the row waits for nobody's code.
MARK_STARTED = """
    UPDATE scheduler_job_queue
       SET held_claim_id = claim_id
     WHERE job_id {in ids uuid} AND status = 'RUNNING'
       AND /* fence */ ((job_id, claim_id) IN (SELECT run.job_id, run.claim_id
                                                 FROM {rows run (job_id, claim_id)})) IS TRUE /* end fence */
"""

_NO_DELAY = timedelta()
_NAMES = msgspec.json.Decoder(tuple[str, ...])

_BODY = (
    Column("target", str, ""),
    Column("payload", str, ""),
    Column("created_at", Time, NO_TIME),
    Column("root_id", UUID | None),
    Column("params", str | None),
    Column("backoff", BackoffPolicy, BackoffPolicy.NONE),
    Column("backoff_base_us", Micros, 0),
    Column("jitter", Share, 0.0),
    Column("no_retry_for", str | None, parse=_NAMES.decode),
    Column("business_key", str | None),
    Column("batch_id", UUID | None),
    Column("parent_id", UUID | None),
    Column("schedule", str | None),
    Column("on_success", str | None),
    Column("on_failure", str | None),
    Column("expires_at", Time | None),
    Column("state", str | None),
    Column("signal", str | None),
    Column("caller", str | None),
    Column("has_conditions", bool, False),
)
_CLAIM = (
    Column("job_id", UUID),
    Column("stream_id", int, 0),
    Column("priority", Priority, Priority.NORMAL),
    Column("job_type", JobType, JobType.SINGLE),
    Column("attempts", Count, 0),
    Column("crashes", Count, 0),
    Column("max_retries", int, 0),
    Column("timeout_us", Micros | None),
    Column("scheduled_time", Time, NO_TIME),
)
_CLAIMED = Shape(*_CLAIM, *_BODY)
_PLANNED = Shape(*_CLAIM, *_BODY, Column("start_at", Time | None))
_BODIES = Shape(Column("job_id", UUID), Column("stream_id", int, 0), *_BODY)


class SqlClaims(SqlPart, JobClaimStore):
    """Takes due jobs for one node, atomically."""

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        """Up to ``request.limit`` due jobs with their bodies, RUNNING under ``request.claim_id``, in claim order."""
        if request.limit <= 0:
            return []
        rows = self.database.dialect.claim_plan.claim(self.database, request, now)
        if not rows:
            return []
        shape = _PLANNED if len(rows[0]) > _ROW_WIDTH else _CLAIMED
        with claim_made():  # a stream that this process does not know is read now
            try:
                return [
                    ClaimedJob(
                        claim=_claim(row, request, now), body=self._body(row[0], row[1], row[_CLAIM_WIDTH:])
                    )
                    for row in shape.all(rows)
                ]
            except (ValueError, TypeError, OverflowError, RecursionError):
                return self._salvaged(shape, rows, request, now)

    def _salvaged(
        self, shape: Shape, rows: Sequence[Row], request: ClaimRequest, now: datetime
    ) -> list[ClaimedJob]:
        """The claimed jobs, whatever stands in their rows; without an id there is no fence, and nothing to be done."""
        found: list[ClaimedJob] = []
        for row in rows:
            values, bad, newer = shape.salvage(row)
            if values[0] is None:
                passed_by(_TABLE, row[0], ValueError("its id is no UUID"))
                continue
            body = self._body(values[0], values[1], values[_CLAIM_WIDTH:])
            why = unreadable(bad, newer=newer)
            found.append(ClaimedJob(claim=_claim(values, request, now), body=body, unreadable=why))
        return found

    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, JobBody]:
        """The bodies of claimed jobs; a job that its claim no longer holds is left out."""
        held = [(claim.job_id, claim.claim_id) for claim in claims]
        rows = self.database.read(lambda session: session.rows(FIND_BODIES, {"held": held})) if held else []
        found = [_BODIES.salvage(row)[0] for row in rows]
        return {row[0]: self._body(row[0], row[1], row[2:]) for row in found}

    def mark_started(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        """Remember that these runs of claims ahead have started; how many are still held."""
        if not claims:
            return 0
        runs = [(claim.job_id, claim.claim_id) for claim in claims]
        values = {"ids": [claim.job_id for claim in claims], "run": runs}
        return self.database.run(lambda session: session.execute(MARK_STARTED, values))

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
        if rows is not None and not any(stream.limits for stream in streams_of(rows)):
            return openings_of(requests, rows, Limits({}))

        def look(session: Session) -> list[datetime | None]:
            rows = plan.look(session, requests, now)
            limits = Limits.seen(session, streams_of(rows), now, requests[0].ahead)
            return openings_of(requests, rows, limits, now)

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
            backoff=backoff,
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


def _claim(row: Row, request: ClaimRequest, now: datetime) -> JobClaim:
    job_id, stream_id, priority, job_type, attempts, crashes, max_retries, timeout_us, scheduled_at = row[
        :_CLAIM_WIDTH
    ]
    return JobClaim(
        job_id=job_id,
        claim_id=request.claim_id,
        node_id=request.node_id,
        stream_id=stream_id,
        type=job_type,
        priority=priority,
        scheduled_at=scheduled_at,
        claimed_at=now,
        attempts=attempts,
        crashes=crashes,
        max_retries=max_retries,
        timeout=None if timeout_us is None else timedelta(microseconds=timeout_us),
        start_at=row[_ROW_WIDTH] if len(row) > _ROW_WIDTH else None,
    )
