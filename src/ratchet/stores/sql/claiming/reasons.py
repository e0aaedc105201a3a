"""Why a job is not running: the claim's own predicates, asked about one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from ratchet.model import reasons as why
from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import BREAKER_GATE
from ratchet.model.places import all_keys, target_of
from ratchet.model.reasons import NAMED_HOLDERS, NAMED_PARENTS, Reason
from ratchet.model.status import Lane
from ratchet.stores.sql.claiming.gates import (
    BREAKER_OPEN,
    PAUSED_UNTIL,
    QUEUE_PAUSED,
    Limit,
    Limits,
    OpenStream,
    choose,
    find_holders,
    gated_levels,
    open_stream,
    owners,
    waiting_streams,
)
from ratchet.stores.sql.claiming.unreachable import bad_columns
from ratchet.stores.sql.database import Session
from ratchet.stores.unreadable import columns_text

FIND_STANDING = f"""
    SELECT j.status AS cold_status,
           EXISTS (SELECT 1 FROM scheduler_dependency d WHERE d.child_id = j.job_id AND d.state = 'OPEN') AS awaits_parent,
           j.signal_key, j.signal, j.signal_due_at,
           q.status AS hot_status, q.scheduled_time, q.picked_by, q.held_claim_id, j.scheduled_at,
           s.stream_id, s.resource, s.limit_key, s.queue, s.lane, s.breaker, s.suspect, s.parked_target,
           s.fairness_key,
           {QUEUE_PAUSED} AS is_queue_paused,
           {BREAKER_OPEN} AS is_breaker_open,
           (SELECT b.open_until FROM scheduler_circuit_breaker b WHERE b.service = s.breaker) AS open_until,
           (SELECT u.paused_until FROM scheduler_queue u WHERE u.queue = s.queue AND {PAUSED_UNTIL}) AS paused_until
      FROM scheduler_job j
      LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id
      LEFT JOIN scheduler_stream s ON s.stream_id = COALESCE(q.stream_id, j.stream_id)
     WHERE j.job_id = :job_id
"""
_STANDING = """
    cold_status awaits_parent signal_key signal signal_due_at hot_status scheduled_time picked_by held_claim_id scheduled_at
    stream_id resource limit_key queue lane breaker suspect parked_target fairness_key is_queue_paused is_breaker_open
    open_until paused_until
""".split()  # noqa: SIM905 - a row of names reads better than a list of strings
FIND_OPEN_PARENTS = """
    SELECT d.parent_id FROM scheduler_dependency d
     WHERE d.child_id = :job_id AND d.state = 'OPEN' ORDER BY d.parent_id LIMIT :limit
"""
FIND_ARCHIVED = "SELECT status FROM scheduler_job_archive WHERE job_id = :job_id"

#: The node that the question is about: any, with nothing running.
_ASKING = UUID(int=0)


def reasons(session: Session, job_id: UUID, now: datetime) -> list[Reason]:
    """Everything that keeps a claim at *now* from returning this job; empty: it would."""
    row = session.row(FIND_STANDING, {"job_id": job_id, "now": now})
    if row is None:
        archived = session.value(FIND_ARCHIVED, {"job_id": job_id})
        return [why.ended(archived)] if archived else [why.not_found(job_id)]
    job = dict(zip(_STANDING, row, strict=True))
    if job["hot_status"] is not None and (bad := bad_columns(session, job_id)):
        return [why.unreadable(columns_text(bad))]
    if job["hot_status"] == "RUNNING":
        return [why.running(job["picked_by"])]
    if job["hot_status"] is None:
        return list(_of_cold(session, job, job_id))
    found = list(_of_stream(job, now))
    stream = open_stream(
        job["stream_id"], job["resource"], job["limit_key"], job["breaker"], job["fairness_key"]
    )
    if stream.limits:
        found += _of_limits(session, job, stream, job_id, now, may_have_its_turn=not found)
    return found


def _of_cold(session: Session, job: dict[str, Any], job_id: UUID) -> Iterator[Reason]:
    if job["cold_status"] == "PAUSED":
        yield why.paused()
    elif job["cold_status"] != "WAITING":
        yield why.ended(job["cold_status"])
    else:
        waits_for_signal = job["signal_key"] is not None and job["signal"] is None
        if waits_for_signal:
            yield why.waiting_signal(job["signal_key"], job["signal_due_at"])
        if job["awaits_parent"] or not waits_for_signal:
            values = {"job_id": job_id, "limit": NAMED_PARENTS}
            yield why.waiting_parent([parent for (parent,) in session.rows(FIND_OPEN_PARENTS, values)])


def _of_stream(job: dict[str, Any], now: datetime) -> Iterator[Reason]:
    if job["held_claim_id"] is None:
        yield from why.of_due_time(job["scheduled_time"], None, now)
    else:  # meanwhile the job's own row has its own due time
        yield from why.of_due_time(job["scheduled_at"], job["scheduled_time"], now)
    if job["is_queue_paused"]:
        yield why.queue_paused(job["queue"], job["paused_until"])
    if (target := target_of(job["parked_target"])) is not None:
        yield why.parked(target)
    if job["suspect"]:
        yield why.suspect()
    if job["is_breaker_open"]:
        yield why.breaker_open(job["breaker"], job["open_until"])


def _of_limits(
    session: Session,
    job: dict[str, Any],
    stream: OpenStream,
    job_id: UUID,
    now: datetime,
    *,
    may_have_its_turn: bool,
) -> Iterator[Reason]:
    asking = ClaimRequest(
        node_id="",
        claim_id=_ASKING,
        limit=1,
        lane=Lane(job["lane"]),
        suspects=job["suspect"],
        parked_targets=all_keys(job["parked_target"]),
    )
    rivals = [rival for rival in waiting_streams(session, asking, now) if rival.limits]
    limits = Limits.seen(session, [*rivals, stream], now)
    closed = [reason for limit in limits.of(stream) for reason in _of_limit(session, limit)]
    yield from closed
    if closed or not limits.of(stream) or not may_have_its_turn:
        return
    # open, but perhaps for fewer jobs than wait: does its turn come?
    branches = [branch for branch in gated_levels(rivals, limits) if branch.gates]
    plan = session.dialect.claim_plan
    most = sum(branch.most or 0 for branch in branches)
    chosen = choose(
        branches, most, limits.allowances(), lambda wanted: plan.read(session, wanted, asking, now)
    )
    if str(job_id) not in {str(rank[2]) for rank in chosen}:
        gates = owners(branches)
        taken = Counter(name for rank in chosen for name in gates[rank[2]].gates)
        for limit in limits.of(stream):
            yield from _of_limit(session, limit, taken[limit.name])


def _of_limit(session: Session, limit: Limit, taken: int = 0) -> Iterator[Reason]:
    """Why a limit lets nothing through, when so many before it have *taken* of it."""
    meter = limit.meter
    until = None if meter is None or meter.starts > taken else meter.opens_at(taken)
    if limit.name.startswith(BREAKER_GATE):
        if until is not None:
            yield why.breaker_probing(limit.name.removeprefix(BREAKER_GATE), until)
        return
    if limit.concurrent is not None and limit.concurrent <= taken:
        yield why.no_permit(limit.name, find_holders(session, limit.name, NAMED_HOLDERS + 1))
    if until is not None:
        yield why.rate_limited(limit.name, until)
