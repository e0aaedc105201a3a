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

_TYPES = {kind.value: kind for kind in JobType}
_PRIORITIES = {int(priority): priority for priority in Priority}
_BACKOFFS = {policy.value: policy for policy in BackoffPolicy}
_NO_DELAY = timedelta()
_NAMES = msgspec.json.Decoder(tuple[str, ...])


class SqlClaims(SqlPart, JobClaimStore):
    """Takes due jobs for one node, atomically."""

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        """Up to ``request.limit`` due jobs with their bodies, RUNNING under ``request.claim_id``, in claim order."""
        if request.limit <= 0:
            return []
        return [
            ClaimedJob(claim=_claim(row, request, now), body=self._body(row[0], row[1], row[_CLAIM_WIDTH:]))
            for row in self.database.dialect.claim_plan.claim(self.database, request, now)
        ]

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
        if rows is not None and not any(stream.limits for stream in streams_of(rows)):
            return openings_of(requests, rows, Limits({}))

        def look(session: Session) -> list[datetime | None]:
            rows = plan.look(session, requests, now)
            return openings_of(requests, rows, Limits.seen(session, streams_of(rows), now, requests[0].ahead))

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


def _claim(row: Row, request: ClaimRequest, now: datetime) -> JobClaim:
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
        start_at=row[_ROW_WIDTH] if len(row) > _ROW_WIDTH else None,
    )
