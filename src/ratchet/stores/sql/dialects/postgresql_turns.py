"""
The claim on PostgreSQL where open streams have fairness keys: look, share out, take.

Two statements. The first finds the branches that have work, and as many heads of each as its party's share
can be; then it is decided here who gives how many. The second locks so many of each branch. It goes by
numbers, not by the ids that were seen: claims at the same moment step over each other's rows, and come
back full. Where streams with work have limits, both happen in one transaction, around the counting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import BREAKER_GATE
from ratchet.stores.sql.claim_order import Branch, choose, owners
from ratchet.stores.sql.claims import BODY_COLUMNS, CLAIM_COLUMNS
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.sql.gates import OPEN_STREAM, Place, choose_gated, stream_params
from ratchet.stores.turns import Rank, in_turns

#: Sends a statement and brings its rows.
Ask = Callable[[str, Mapping[str, object]], list[Row]]

# Never a join with the queue: whatever the statistics say, it is a look into the claim index with a LIMIT.
_LOOK = """
               SELECT q.scheduled_time, q.job_id FROM scheduler_job_queue q
                WHERE q.stream_id = b.stream_id AND q.priority = b.priority AND q.status = 'PENDING'
                  AND q.scheduled_time <= :now"""
_GATED = f"""COALESCE(s.resource, s.limit_key, s.breaker) IS NOT NULL AND EXISTS (
                   SELECT 1 FROM scheduler_resource_limit l
                    WHERE l.resource IN (s.resource, s.limit_key, '{BREAKER_GATE}' || s.breaker))"""

# `depth`: an even share for each party that has work; if some have less, what the others can give is read later.
FIND = f"""
    WITH opened AS MATERIALIZED (
        SELECT s.stream_id, COALESCE(s.fairness_key, '') AS party, {_GATED} AS gated
          FROM scheduler_stream s
         WHERE {OPEN_STREAM}
    ), live AS MATERIALIZED (
        SELECT b.stream_id, b.priority, b.party, b.gated
          FROM (SELECT o.stream_id, o.party, o.gated, p.priority
                  FROM opened o CROSS JOIN (VALUES (4), (3), (2), (1), (0)) p (priority)
                 WHERE EXISTS (SELECT 1 FROM opened WHERE party <> '')) b
         CROSS JOIN LATERAL ({_LOOK}
                ORDER BY q.scheduled_time, q.job_id LIMIT 1) h
    ), depth AS MATERIALIZED (
        SELECT CASE WHEN COALESCE(bool_or(gated), false) THEN 0
                    ELSE ceil(CAST(:most AS float8) / GREATEST(count(DISTINCT party), 1)) END AS jobs
          FROM live
    )
    SELECT EXISTS (SELECT 1 FROM opened WHERE party <> '') AS has_keys, (SELECT jobs FROM depth) AS depth,
           h.stream_id, h.priority, h.party, h.scheduled_time, h.job_id
      FROM (SELECT 1) one LEFT JOIN (
               SELECT b.stream_id, b.priority, b.party, h.scheduled_time, h.job_id
                 FROM live b LEFT JOIN LATERAL ({_LOOK}
                        ORDER BY q.scheduled_time, q.job_id LIMIT (SELECT jobs FROM depth)) h ON true) h ON true
"""
FIND_MORE = f"""
    SELECT b.stream_id, b.priority, h.scheduled_time, h.job_id
      FROM {{rows b (stream_id, priority, scheduled_time, job_id, wanted int)}} CROSS JOIN LATERAL ({_LOOK}
                  AND (q.scheduled_time, q.job_id) > (b.scheduled_time, b.job_id)
                ORDER BY q.scheduled_time, q.job_id LIMIT b.wanted) h
"""

_SHARES = "SELECT c.stream_id, c.priority, c.jobs FROM {rows c (stream_id, priority, jobs int)}"
# a gate that was closed between the two statements is closed
_OPEN_SHARES = f"""{_SHARES} JOIN scheduler_stream s ON s.stream_id = c.stream_id
         WHERE {OPEN_STREAM} AND NOT ({_GATED})"""
_TAKE = f"""
    WITH shares AS MATERIALIZED (
        <shares>
    ), locked AS MATERIALIZED (
        SELECT h.job_id
          FROM shares b CROSS JOIN LATERAL ({_LOOK}
                ORDER BY q.scheduled_time, q.job_id LIMIT b.jobs FOR UPDATE SKIP LOCKED) h
    ), claimed AS MATERIALIZED (
        UPDATE scheduler_job_queue q
           SET status = 'RUNNING', picked_by = :node_id, picked_at = :now, claim_id = :claim_id, held_claim_id = NULL
         WHERE q.job_id = ANY (ARRAY(SELECT job_id FROM locked))
     RETURNING {CLAIM_COLUMNS}
    )
    SELECT <columns> FROM claimed q <bodies>
"""
_BODIES = "LEFT JOIN LATERAL (SELECT * FROM scheduler_job j WHERE j.job_id = q.job_id LIMIT 1) j ON true"
_PARTS = {True: (f"{CLAIM_COLUMNS}, {BODY_COLUMNS}", _BODIES), False: (CLAIM_COLUMNS, "")}

#: By whether the shares are checked against the gates once more, and whether bodies are read.
TAKE = {
    (checked, bodies): _TAKE.replace("<shares>", _OPEN_SHARES if checked else _SHARES)
    .replace("<columns>", columns)
    .replace("<bodies>", join)
    for checked in (True, False)
    for bodies, (columns, join) in _PARTS.items()
}

_BEFORE_ALL = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


class PostgresqlTurns:
    """Claims of keys that take turns; remembers for which requests there are such keys."""

    def __init__(self) -> None:
        self._expected: set[Any] = set()

    def expect(self, request: ClaimRequest) -> None:
        """Some open streams of such requests have keys: from now on they are claimed here."""
        self._expected.add(_kind(request))

    def claim(
        self, database: Database, request: ClaimRequest, now: datetime, *, bodies: bool
    ) -> list[Row] | None:
        """The claimed jobs, in turns; None: no open stream has a key, as far as is known."""
        if _kind(request) not in self._expected:
            return None

        def ask(sql: str, params: Mapping[str, object]) -> list[Row]:
            rows = database.run_alone(sql, params, claiming=True)
            if rows is None:
                rows = database.run(lambda session: session.rows(sql, params), claiming=True)
            return rows

        found = ask(FIND, {**stream_params(request, now), "most": request.limit})
        has_keys, depth = found[0][:2]
        if not has_keys:
            self._expected.discard(_kind(request))
            return None
        live = [row[2:] for row in found if row[2] is not None]
        if live and depth == 0:
            due = {(stream_id, priority) for stream_id, priority, *_ in live}
            return database.run(
                lambda session: _claim_gated(session, request, now, due, bodies=bodies), claiming=True
            )
        return _claim_free(ask, request, now, _branches(live, int(depth), request, now), bodies=bodies)


def _kind(request: ClaimRequest) -> Any:
    return request.lane, request.suspects, request.queues, request.parked_targets


def _branches(live: Sequence[Row], depth: int, request: ClaimRequest, now: datetime) -> list[Branch]:
    found: dict[Place, Branch] = {}
    for stream_id, priority, party, due_at, job_id in live:
        branch = found.get((stream_id, priority))
        if branch is None:
            branch = found[stream_id, priority] = Branch(stream_id, priority, party=party)
        if job_id is not None:
            branch.ranks.append(_rank(request, now, priority, due_at, job_id))
    for branch in found.values():
        branch.ranks.sort()  # no order is promised for the whole of a join
        branch.ended = len(branch.ranks) < depth
    return list(found.values())


def _claim_free(
    ask: Ask, request: ClaimRequest, now: datetime, branches: Sequence[Branch], *, bodies: bool
) -> list[Row]:
    def read(wanted: Sequence[tuple[Branch, int]]) -> None:
        _read(ask, wanted, request, now)

    ranks = choose(branches, request.limit, {}, read, request.after)
    if not ranks:
        return []
    rows = _take(ask, branches, ranks, request, now, checked=True, bodies=bodies)
    party = {branch.stream_id: branch.party for branch in branches}
    return in_turns(_sorted(rows, request, now), lambda row: party[row[1]], request.after)


def _claim_gated(
    session: Session, request: ClaimRequest, now: datetime, due: set[Place], *, bodies: bool
) -> list[Row]:
    def read(wanted: Sequence[tuple[Branch, int]]) -> None:
        _read(session.rows, wanted, request, now)

    choice = choose_gated(session, request, now, read, due)
    if not choice.ranks:
        return []
    rows = _take(session.rows, choice.branches, choice.ranks, request, now, checked=False, bodies=bodies)
    rows = choice.in_turns(request, _sorted(rows, request, now))
    return choice.permitted(session, request, rows, now)


def _take(
    ask: Ask,
    branches: Sequence[Branch],
    ranks: Sequence[Rank],
    request: ClaimRequest,
    now: datetime,
    *,
    checked: bool,
    bodies: bool,
) -> list[Row]:
    """Lock and mark as many jobs of each branch as were chosen of it."""
    owner = owners(branches)
    shares = Counter((owner[rank[2]].stream_id, owner[rank[2]].priority) for rank in ranks)
    params = {
        **stream_params(request, now),
        "node_id": request.node_id,
        "claim_id": request.claim_id,
        "c": [(*place, jobs) for place, jobs in sorted(shares.items())],
    }
    return ask(TAKE[checked, bodies], params)


def _read(ask: Ask, wanted: Sequence[tuple[Branch, int]], request: ClaimRequest, now: datetime) -> None:
    """Read on in each branch, after the last job that was read."""
    asked = {(branch.stream_id, branch.priority): (branch, count) for branch, count in wanted}
    if not asked:
        return
    after = [
        (*place, *(branch.ranks[-1][1:] if branch.ranks else _BEFORE_ALL), count)
        for place, (branch, count) in asked.items()
    ]
    before = {place: len(branch.ranks) for place, (branch, _) in asked.items()}
    for stream_id, priority, due_at, job_id in ask(FIND_MORE, {"b": after, "now": now}):
        asked[stream_id, priority][0].ranks.append(_rank(request, now, priority, due_at, job_id))
    for place, (branch, count) in asked.items():
        branch.ranks.sort()
        branch.ended = len(branch.ranks) - before[place] < count


def _rank(request: ClaimRequest, now: datetime, priority: int, due_at: datetime, job_id: UUID) -> Rank:
    boost = request.boost_interval
    return -(priority + ((now - due_at) // boost if boost else 0)), due_at, job_id


def _sorted(rows: Sequence[Row], request: ClaimRequest, now: datetime) -> list[Row]:
    """Rows of CLAIM_COLUMNS in claim order."""
    return sorted(rows, key=lambda row: _rank(request, now, row[2], row[8], row[0]))
