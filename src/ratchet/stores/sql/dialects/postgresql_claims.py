"""
The claim on PostgreSQL: one statement that looks, chooses, locks and takes.

Its shape keeps its plan whatever the statistics say, and they are always wrong on a queue table: every
access to the queue is a LATERAL look into the claim index with a LIMIT, or a lookup of given ids.
Where an open stream has a limit or a fairness key, the choosing is done here, between a look and a take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import BREAKER_GATE
from ratchet.stores.sql.claim_order import Branch, owners
from ratchet.stores.sql.claims import BODY_COLUMNS, CLAIM_COLUMNS
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.sql.dialects.postgresql_turns import PostgresqlTurns
from ratchet.stores.sql.gates import OPEN_STREAM, choose_gated, stream_params

_LOOK = """
               SELECT q.scheduled_time, q.job_id FROM scheduler_job_queue q
                WHERE q.stream_id = b.stream_id AND q.priority = b.priority AND q.status = 'PENDING'
                  AND q.scheduled_time <="""

# 1. `peek`: a few heads of every branch. 2. `edge`: the n-th best of them; nothing worse can be among the
# best n. 3. `best`: every branch again, down to the due time that can still beat the edge. 4. `shares`: how
# many of each branch these are. 5. `locked`, `claimed`: take so many of each.
_CHOICE = f"""
    WITH opened AS MATERIALIZED (
        SELECT s.stream_id, s.fairness_key IS NOT NULL OR COALESCE(s.resource, s.limit_key, s.breaker) IS NOT NULL AND EXISTS (
                   SELECT 1 FROM scheduler_resource_limit l
                    WHERE l.resource IN (s.resource, s.limit_key, '{BREAKER_GATE}' || s.breaker)) AS gated
          FROM scheduler_stream s
         WHERE {OPEN_STREAM}
    ), ready AS MATERIALIZED (
        SELECT o.stream_id, p.priority
          FROM opened o CROSS JOIN (VALUES (4), (3), (2), (1), (0)) p (priority)
         WHERE NOT EXISTS (SELECT 1 FROM opened WHERE gated)
    ), peek AS MATERIALIZED (
        SELECT <effective b h> AS effective, h.scheduled_time, h.job_id
          FROM ready b CROSS JOIN LATERAL ({_LOOK} :now
                ORDER BY q.scheduled_time, q.job_id
                LIMIT (SELECT LEAST(:most, GREATEST(4, :most / 50, ceil(3.0 * :most / GREATEST(count(*), 1))))
                         FROM ready)) h
    ), edge AS MATERIALIZED (
        SELECT effective, scheduled_time FROM peek
         ORDER BY effective DESC, scheduled_time, job_id OFFSET :most - 1 LIMIT 1
    ), bounds AS MATERIALIZED (
        SELECT r.stream_id, r.priority, LEAST(:now, <bound>) AS latest
          FROM ready r LEFT JOIN edge e ON true
    ), best AS MATERIALIZED (
        SELECT b.stream_id, b.priority
          FROM bounds b CROSS JOIN LATERAL ({_LOOK} b.latest
                ORDER BY q.scheduled_time, q.job_id LIMIT :most) h
         ORDER BY <effective b h> DESC, h.scheduled_time, h.job_id LIMIT :most
    ), shares AS MATERIALIZED (
        SELECT stream_id, priority, count(*) AS jobs FROM best GROUP BY stream_id, priority
    )"""

# Each branch locks its own share in index order, so that two claims at once step over each other's rows
# and both come back full; locking chosen ids left half of the claims empty. The update goes by an array:
# a join there invites a scan and a hash of the whole queue.
_TAKING = f""", locked AS MATERIALIZED (
        SELECT h.job_id
          FROM shares b CROSS JOIN LATERAL ({_LOOK} :now
                ORDER BY q.scheduled_time, q.job_id LIMIT b.jobs FOR UPDATE SKIP LOCKED) h
    ), claimed AS MATERIALIZED (
        UPDATE scheduler_job_queue q
           SET status = 'RUNNING', picked_by = :node_id, picked_at = :now, claim_id = :claim_id, held_claim_id = NULL
         WHERE q.job_id = ANY (ARRAY(SELECT job_id FROM locked))
     RETURNING {CLAIM_COLUMNS}
    )"""

_UNGATED = """
    SELECT EXISTS (SELECT 1 FROM opened WHERE gated) AS has_gates, <columns>
      FROM (SELECT 1) one LEFT JOIN claimed q ON true <bodies>
     ORDER BY <effective q q> DESC, q.scheduled_time, q.job_id"""
_CHOSEN = "WITH shares AS MATERIALIZED (SELECT * FROM {rows chosen (stream_id, priority, jobs int)})"
_GATED = """
    SELECT <columns> FROM claimed q <bodies>
     ORDER BY <effective q q> DESC, q.scheduled_time, q.job_id"""
_BODIES = "LEFT JOIN LATERAL (SELECT * FROM scheduler_job j WHERE j.job_id = q.job_id LIMIT 1) j ON true"

_PEEK = f"""
    SELECT b.stream_id, b.priority, -(<effective b h>) AS rank, h.scheduled_time, h.job_id
      FROM {{rows b (stream_id, priority, after_at, after_uuid, wanted int)}} CROSS JOIN LATERAL ({_LOOK} :now
                  AND (q.scheduled_time, q.job_id) > (b.after_at, b.after_uuid)
                ORDER BY q.scheduled_time, q.job_id LIMIT b.wanted) h
     ORDER BY b.stream_id, b.priority, h.scheduled_time, h.job_id
"""

_BEFORE_ALL = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


class _Statements:
    """The statements for one kind of order: boosted by waiting, or strictly by priority."""

    def __init__(self, effective: str, bound: str) -> None:
        self._effective = effective
        self._bound = bound
        self.peek = self._composed(_PEEK, bodies=False)
        self.claim = {
            bodies: self._composed(_CHOICE + _TAKING + _UNGATED, bodies=bodies) for bodies in (True, False)
        }
        self.take = {
            bodies: self._composed(_CHOSEN + _TAKING + _GATED, bodies=bodies) for bodies in (True, False)
        }

    def _composed(self, text: str, *, bodies: bool) -> str:
        for where in ("b h", "q q"):
            priority, job = where.split()
            text = text.replace(f"<effective {where}>", self._effective.format(priority=priority, job=job))
        columns = f"{CLAIM_COLUMNS}, {BODY_COLUMNS}" if bodies else CLAIM_COLUMNS
        parts = {"<bound>": self._bound, "<columns>": columns, "<bodies>": _BODIES if bodies else ""}
        for mark, part in parts.items():
            text = text.replace(mark, part)
        return text


BOOSTED = _Statements(
    # a whole number of microseconds, so that the division is exact; a double holds those of 285 years, and
    # costs a fifth of the numeric that extract() gives
    effective="""({priority}.priority
                  + CAST(round(date_part('epoch', :now - {job}.scheduled_time) * 1000000) AS bigint) / :boost_us)""",
    # a job that beats the edge's effective priority, or equals it and is older
    bound="""GREATEST(:now - (e.effective + 1 - r.priority) * CAST(:boost AS interval),
                      LEAST(:now - (e.effective - r.priority) * CAST(:boost AS interval), e.scheduled_time))""",
)
STRICT = _Statements(
    effective="{priority}.priority",
    bound="""CASE WHEN e.effective IS NULL OR r.priority > e.effective THEN :now
                  WHEN r.priority = e.effective THEN e.scheduled_time ELSE '-infinity' END""",
)


class PostgresqlClaimPlan:
    """Claims in one statement, and without a pooler in one round trip; where an open stream has a limit, in a few."""

    def __init__(self) -> None:
        self._turns = PostgresqlTurns()

    def claim(self, database: Database, request: ClaimRequest, now: datetime, *, bodies: bool) -> list[Row]:
        if (taken := self._turns.claim(database, request, now, bodies=bodies)) is not None:
            return taken
        params = {**stream_params(request, now), **_claim_params(request, now), "most": request.limit}
        rows = database.run_alone(_statements(request).claim[bodies], params, claiming=True)
        if rows is not None and not rows[0][0]:
            return _claimed(rows)
        claim = self._claim if rows is None else self._claim_gated
        return database.run(lambda session: claim(session, request, now, bodies=bodies), claiming=True)

    def _claim(self, session: Session, request: ClaimRequest, now: datetime, *, bodies: bool) -> list[Row]:
        params = {**stream_params(request, now), **_claim_params(request, now), "most": request.limit}
        rows = session.rows(_statements(request).claim[bodies], params)
        if rows[0][0]:
            return self._claim_gated(session, request, now, bodies=bodies)
        return _claimed(rows)

    def _claim_gated(
        self, session: Session, request: ClaimRequest, now: datetime, *, bodies: bool
    ) -> list[Row]:
        choice = choose_gated(session, request, now, lambda wanted: self.read(session, wanted, request, now))
        if choice.has_keys:
            self._turns.expect(request)
        if not choice.ranks:
            return []
        branch_of = owners(choice.branches)
        shares = Counter((branch_of[rank[2]].stream_id, branch_of[rank[2]].priority) for rank in choice.ranks)
        params = {
            **_claim_params(request, now),
            "chosen": [(*branch, jobs) for branch, jobs in shares.items()],
        }
        rows = session.rows(_statements(request).take[bodies], params)
        choice.permits(session, request, rows, now)
        return choice.in_turns(request, rows) if choice.has_keys else rows

    def read(
        self, session: Session, wanted: Sequence[tuple[Branch, int]], request: ClaimRequest, now: datetime
    ) -> None:
        """Read on in each branch, after the last job that was read."""
        asked = {(branch.stream_id, branch.priority): (branch, count) for branch, count in wanted}
        if not asked:
            return
        after = [
            (*key, *(branch.ranks[-1][1:] if branch.ranks else _BEFORE_ALL), count)
            for key, (branch, count) in asked.items()
        ]
        found: Counter[tuple[int, int]] = Counter()
        for stream_id, priority, rank, due_at, job_id in session.rows(
            _statements(request).peek, {**_claim_params(request, now), "b": after}
        ):
            found[stream_id, priority] += 1
            asked[stream_id, priority][0].ranks.append((rank, due_at, job_id))
        for key, (branch, count) in asked.items():
            branch.ended = found[key] < count


def _claimed(rows: Sequence[Row]) -> list[Row]:
    return [row[1:] for row in rows if row[1] is not None]


def _statements(request: ClaimRequest) -> _Statements:
    return BOOSTED if request.boost_interval else STRICT


def _claim_params(request: ClaimRequest, now: datetime) -> dict[str, object]:
    boost = request.boost_interval or timedelta(0)
    return {
        "now": now,
        "node_id": request.node_id,
        "claim_id": request.claim_id,
        "boost": boost,
        "boost_us": max(boost // timedelta(microseconds=1), 1),
    }
