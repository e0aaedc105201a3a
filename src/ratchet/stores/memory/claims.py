"""Claims in memory: which jobs are due, in which order, and whose they are."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model import reasons as why
from ratchet.model.claim import ClaimedJob, ClaimRequest, JobBody, JobClaim, party_of
from ratchet.model.cluster import PermitRecord
from ratchet.model.composition import EdgeState
from ratchet.model.job import StreamKey
from ratchet.model.places import all_keys, target_of
from ratchet.model.reasons import Reason
from ratchet.model.status import JobStatus
from ratchet.spi.store.claims import JobClaimStore
from ratchet.stores.fairness import take_turns
from ratchet.stores.memory.changes import Effects, change
from ratchet.stores.memory.completion import held_by
from ratchet.stores.memory.permits import Allowances, breaker_closes, opening_of
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import counted_resources_of
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.memory.tables import QueueEntry


class MemoryClaims(Part, JobClaimStore):
    """Claims."""

    @atomic
    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        claims = _claim(self._state, request, now)
        return [
            ClaimedJob(claim=claim, body=_body(self._state, self._state.jobs[claim.job_id]))
            for claim in claims
        ]

    @atomic
    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, JobBody]:
        rows = (held_by(self._state, claim) for claim in claims)
        return {row.job_id: _body(self._state, row) for row in rows if row is not None}

    @atomic
    def mark_started(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        held = [row for claim in claims if (row := held_by(self._state, claim)) is not None]
        for row in held:
            change(self._state, row, Effects(), now=now, held_claim_id=row.claim_id)
        return len(held)

    @atomic
    def next_due_at(self, request: ClaimRequest, *, now: datetime) -> datetime | None:
        allowances = Allowances(self._state, now=now, ahead=request.ahead)
        found: list[datetime] = []
        for stream_id, record in self._state.streams.items():
            opens_at = allowances.opens_at(record.key)
            if opens_at is None:
                if request.ask_again_after is None:
                    continue
                opens_at = now + request.ask_again_after
            if breaker_closes(self._state, record.key, now):
                opens_at = max(opening_of(self._state, record.key) or now, opens_at)
            queue = self._state.queues.get(record.key.queue)
            if queue is not None and queue.is_paused(now) and queue.paused_until is not None:
                opens_at = max(queue.paused_until, opens_at)
            if _is_open(self._state, record.key, request, opens_at):
                due = [level[0][0] for _, level in self._state.pending.levels(stream_id)]
                found += [max(due_at, opens_at) for due_at in due] if opens_at > now else due
        return min(found, default=None)

    @atomic
    def next_due_of(self, requests: Sequence[ClaimRequest], *, now: datetime) -> list[datetime | None]:
        return [self.next_due_at(request, now=now) for request in requests]

    @atomic
    def claims_of(self, node_id: str) -> dict[UUID, UUID]:
        rows = (self._state.jobs[job_id] for job_id in self._state.running_on.of(node_id))
        return {row.job_id: row.claim_id for row in rows if row.claim_id is not None}

    @atomic
    def explain(self, job_id: UUID, *, now: datetime) -> list[Reason]:
        row = self._state.jobs.get(job_id)
        if row is None:
            return [why.not_found(job_id)]
        if row.status is not JobStatus.PENDING:
            return _why_not_pending(self._state, row)
        return _why_not_claimed(self._state, row, now)


# --- the claim ----------------------------------------------------------------------------------


def _claim(state: State, request: ClaimRequest, now: datetime) -> list[JobClaim]:
    allowances = Allowances(state, now=now, ahead=request.ahead)
    chosen = _select(
        state,
        _open_streams(state, request, now),
        allowances,
        limit=request.limit,
        boost=request.boost_interval,
        now=now,
        after=request.after,
    )
    starts = allowances.spend([row.stream for row in chosen])
    return [_take(state, row, request, now, start) for row, start in zip(chosen, starts, strict=True)]


def _open_streams(state: State, request: ClaimRequest, now: datetime) -> list[int]:
    return [
        stream_id for stream_id, record in state.streams.items() if _is_open(state, record.key, request, now)
    ]


def _is_open(state: State, key: StreamKey, request: ClaimRequest, now: datetime) -> bool:
    queue = state.queues.get(key.queue)
    return (
        key.lane is request.lane
        and (request.queues is None or key.queue in request.queues)
        and key.suspect is request.suspects
        and (key.parked_target is None or key.parked_target in request.parked_targets)
        and not (queue is not None and queue.is_paused(now))
        and not breaker_closes(state, key, now)
    )


def _select(
    state: State,
    stream_ids: Iterable[int],
    allowances: Allowances,
    *,
    limit: int | None,
    boost: timedelta | None,
    now: datetime,
    after: str | None = None,
) -> list[Row]:
    """The due jobs of these streams, in turns where they have fairness keys, as far as limit and permits reach."""
    parties: dict[str, list[int]] = {}
    for stream_id in stream_ids:
        parties.setdefault(party_of(state.streams[stream_id].key.fairness_key), []).append(stream_id)
    lines = {
        party: _in_claim_order(state, streams, allowances, boost=boost, now=now)
        for party, streams in parties.items()
    }
    return [row for _, row in take_turns(lines, limit, after)[0]]


def _in_claim_order(
    state: State,
    stream_ids: Iterable[int],
    allowances: Allowances,
    *,
    boost: timedelta | None,
    now: datetime,
) -> Iterator[Row]:
    """
    The due jobs of one party in claim order; each takes its permits when it is asked for.

    Within a level the oldest job is always first, so it is enough to merge the levels.
    """
    first: list[tuple[int, datetime, int, int, int, int]] = []
    levels: dict[tuple[int, int], list[QueueEntry]] = {}

    def push(stream_id: int, priority: int, position: int) -> None:
        level = levels[stream_id, priority]
        if position < len(level) and level[position][0] <= now:
            due_at, number, _ = level[position]
            raised = (now - due_at) // boost if boost else 0
            heapq.heappush(first, (-(priority + raised), due_at, number, stream_id, priority, position))

    for stream_id in stream_ids:
        for priority, level in state.pending.levels(stream_id):
            levels[stream_id, priority] = level
            push(stream_id, priority, 0)

    while first:
        _, _, _, stream_id, priority, position = heapq.heappop(first)
        job_id = levels[stream_id, priority][position][2]
        if state.is_locked(state.jobs, job_id):
            push(stream_id, priority, position + 1)
        elif allowances.admit(state.streams[stream_id].key):
            allowances.take(state.streams[stream_id].key)
            yield state.jobs[job_id]
            push(stream_id, priority, position + 1)


def _take(
    state: State, row: Row, request: ClaimRequest, now: datetime, start_at: datetime | None
) -> JobClaim:
    spec = row.spec
    change(
        state,
        row,
        Effects(),
        now=now,
        status=JobStatus.RUNNING,
        claim_id=request.claim_id,
        claimed_at=now,
        node_id=request.node_id,
        held_claim_id=None,
    )
    for name in counted_resources_of(state, row):
        permit = PermitRecord(
            resource=name, job_id=row.job_id, claim_id=request.claim_id, node_id=request.node_id
        )
        state.permits.put((name, row.job_id, request.claim_id), permit)
    return JobClaim(
        job_id=row.job_id,
        claim_id=request.claim_id,
        node_id=request.node_id,
        stream_id=row.stream_id,
        type=spec.type,
        priority=spec.priority,
        scheduled_at=row.due_at,
        claimed_at=now,
        attempts=row.attempts,
        crashes=row.crashes,
        max_retries=spec.max_retries,
        timeout=spec.timeout,
        start_at=start_at,
    )


def _body(state: State, row: Row) -> JobBody:
    spec = row.spec
    return JobBody(
        job_id=row.job_id,
        target=spec.target,
        payload=spec.payload,
        created_at=row.created_at,
        root_id=row.root_id,
        queue=row.stream.queue,
        params=spec.params,
        backoff=spec.backoff,
        backoff_base=spec.backoff_base,
        jitter=spec.jitter,
        no_retry_for=spec.no_retry_for,
        business_key=spec.business_key,
        batch_id=spec.batch_id,
        parent_id=spec.parent_id,
        schedule=spec.schedule,
        on_success=spec.on_success,
        on_failure=spec.on_failure,
        resource=row.stream.resource,
        limit_key=row.stream.limit_key,
        breaker=row.stream.breaker,
        fairness_key=row.stream.fairness_key,
        expires_at=row.expiry_due_at,
        state=row.state,
        signal=row.signal,
        caller=spec.caller,
        has_conditions=any(state.edges[key].condition is not None for key in state.edges_out.of(row.job_id)),
    )


# --- explain ------------------------------------------------------------------------------------


def _why_not_pending(state: State, row: Row) -> list[Reason]:
    if row.status is JobStatus.RUNNING:
        return [why.running(row.node_id)]
    if row.status is JobStatus.PAUSED:
        return [why.paused()]
    if row.status is not JobStatus.WAITING:
        return [why.ended(row.status)]
    reasons: list[Reason] = []
    if row.spec.signal is not None and row.signal is None:
        reasons.append(why.waiting_signal(row.spec.signal.key, row.signal_due_at))
    edges = (state.edges[key] for key in state.edges_in.of(row.job_id))
    parents = [edge.parent_id for edge in edges if edge.state is EdgeState.OPEN]
    if parents or not reasons:
        reasons.append(why.waiting_parent(sorted(parents)))
    return reasons


def _why_not_claimed(state: State, row: Row, now: datetime) -> list[Reason]:
    key, reasons = row.stream, why.of_due_time(row.scheduled_at, row.held_until, now)
    queue = state.queues.get(key.queue)
    if queue is not None and queue.is_paused(now):
        reasons.append(why.queue_paused(key.queue, queue.paused_until))
    if (target := target_of(key.parked_target)) is not None:
        reasons.append(why.parked(target))
    if key.suspect:
        reasons.append(why.suspect())
    if key.breaker is not None and breaker_closes(state, key, now):
        reasons.append(why.breaker_open(key.breaker, state.breakers[key.breaker].until))
    reasons += Allowances(state, now=now).refusals(key)
    return reasons or _why_not_chosen(state, row, now)


def _why_not_chosen(state: State, row: Row, now: datetime) -> list[Reason]:
    """What keeps the job out of a claim of any size though its gates are open: those before it use them up."""
    place = all_keys(row.stream.parked_target)
    request = ClaimRequest(
        node_id="", claim_id=row.job_id, limit=0, lane=row.stream.lane, parked_targets=place
    )
    allowances = Allowances(state, now=now)
    chosen = _select(
        state,
        _open_streams(state, request, now),
        allowances,
        limit=None,
        boost=request.boost_interval,
        now=now,
    )
    if any(other.job_id == row.job_id for other in chosen):
        return []
    return allowances.refusals(row.stream) or [why.locked()]
