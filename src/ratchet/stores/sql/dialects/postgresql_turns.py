"""
The claim on PostgreSQL where open streams have fairness keys: one statement that looks, shares out and takes.

It goes by numbers, not by the ids that were seen: claims at the same moment step over each other's rows, and come
back full. Where streams with work have limits, they are counted here instead, in one transaction, between a look
and a take.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import BREAKER_GATE
from ratchet.stores.sql.claim_order import Branch, owners
from ratchet.stores.sql.claims import BODY_COLUMNS, CLAIM_COLUMNS
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.sql.dialects.postgresql_floors import FLOORS, MOST_BRANCHES, Floor, Floors
from ratchet.stores.sql.dialects.postgresql_parts import BODIES, NO_ID, SEEN, TAKE_LOCKED, in_place_of
from ratchet.stores.sql.gates import OPEN_STREAM, Place, choose_gated, stream_params
from ratchet.stores.turns import Rank

# Never a join with the queue: whatever the statistics say, it is a look into the claim index with a LIMIT.
_DUE = """
               SELECT q.scheduled_time, q.job_id FROM scheduler_job_queue q
                WHERE q.stream_id = b.stream_id AND q.priority = b.priority AND q.status = 'PENDING'
                  AND q.scheduled_time <= :now"""
_LOOK = f"{_DUE} AND (q.scheduled_time, q.job_id) >= (b.floor_at, b.floor_id)"
_GATED = f"""COALESCE(s.resource, s.limit_key, s.breaker) IS NOT NULL AND EXISTS (
                   SELECT 1 FROM scheduler_resource_limit l
                    WHERE l.resource IN (s.resource, s.limit_key, '{BREAKER_GATE}' || s.breaker))"""

# 1. `heads`: the first job of every branch. 2. `parties`: who has work, in the order of their turns. 3. `peek`: an even
# share for each, which is enough where all have that much. 4. `deep`: where some have less, what the others can give
# instead. 5. `chosen`: the rounds. 6. `shares`, `locked`, `claimed`: take so many of each branch, in its order.
# After the jobs, which have no epoch: where the next claim begins to look (`Floor`); without a time, the places with
# due jobs, where limits have to be counted first; without a stream, that no open stream has a key.
_CLAIM = f"""
    WITH opened AS MATERIALIZED (
        SELECT s.stream_id, s.epoch, COALESCE(s.fairness_key, '') AS party, {_GATED} AS gated
          FROM scheduler_stream s
         WHERE {OPEN_STREAM}
    ), ready AS MATERIALIZED (
        SELECT o.stream_id, p.priority, o.epoch, o.party, o.gated, COALESCE(f.at, '-infinity') AS floor_at,
               COALESCE(f.id, {NO_ID}) AS floor_id
          FROM opened o CROSS JOIN (VALUES (4), (3), (2), (1), (0)) p (priority)
          LEFT JOIN {FLOORS}
            ON f.stream_id = o.stream_id AND f.priority = p.priority AND f.epoch = o.epoch
         WHERE EXISTS (SELECT 1 FROM opened WHERE party <> '')
    ), heads AS MATERIALIZED (
        SELECT b.stream_id, b.priority, b.epoch, b.party, b.gated, h.scheduled_time, h.job_id
          FROM ready b LEFT JOIN LATERAL ({_LOOK}
                ORDER BY q.scheduled_time, q.job_id LIMIT 1) h ON true
    ), counted AS MATERIALIZED (
        SELECT COALESCE(bool_or(gated), false) AS first FROM heads WHERE job_id IS NOT NULL
    ), parties AS MATERIALIZED (
        SELECT party, row_number() OVER (
                   ORDER BY CAST(:after AS text) IS NOT NULL AND party COLLATE "C" <= CAST(:after AS text), party COLLATE "C") AS turn
          FROM (SELECT DISTINCT party FROM heads WHERE job_id IS NOT NULL) h
    ), live AS MATERIALIZED (
        SELECT h.stream_id, h.priority, h.scheduled_time AS floor_at, h.job_id AS floor_id, p.turn
          FROM heads h JOIN parties p ON p.party = h.party
         WHERE h.job_id IS NOT NULL AND NOT (SELECT first FROM counted)
    ), share AS MATERIALIZED (
        SELECT CAST(ceil(CAST(:most AS float8) / GREATEST(count(*), 1)) AS bigint) AS jobs FROM parties
    ), peek AS MATERIALIZED (
        SELECT b.turn, <effective b h> AS effective, h.scheduled_time, h.job_id, b.stream_id, b.priority
          FROM live b CROSS JOIN LATERAL ({_LOOK}
                ORDER BY q.scheduled_time, q.job_id LIMIT (SELECT jobs FROM share)) h
    ), missing AS MATERIALIZED (
        SELECT :most - COALESCE(sum(LEAST(n.jobs, s.jobs)), 0) AS jobs
          FROM share s LEFT JOIN (SELECT count(*) AS jobs FROM peek GROUP BY turn) n ON true
    ), deep AS MATERIALIZED (
        SELECT b.turn, <effective b h> AS effective, h.scheduled_time, h.job_id, b.stream_id, b.priority
          FROM (SELECT stream_id, priority FROM peek GROUP BY stream_id, priority
                HAVING count(*) = (SELECT jobs FROM share) AND (SELECT jobs FROM missing) > 0) more
          JOIN live b ON b.stream_id = more.stream_id AND b.priority = more.priority
         CROSS JOIN LATERAL ({_LOOK}
                ORDER BY q.scheduled_time, q.job_id
                LIMIT (SELECT m.jobs + s.jobs FROM missing m CROSS JOIN share s)) h
    ), known AS MATERIALIZED (
        SELECT turn, effective, scheduled_time, job_id, stream_id, priority FROM deep
     UNION ALL
        SELECT p.turn, p.effective, p.scheduled_time, p.job_id, p.stream_id, p.priority FROM peek p
         WHERE NOT EXISTS (SELECT 1 FROM deep d WHERE d.stream_id = p.stream_id AND d.priority = p.priority)
    ), chosen AS MATERIALIZED (
        SELECT k.stream_id, k.priority
          FROM (SELECT row_number() OVER (PARTITION BY turn ORDER BY effective DESC, scheduled_time, job_id) AS round,
                       turn, stream_id, priority
                  FROM known) k
         ORDER BY k.round, k.turn LIMIT :most
    ), shares AS MATERIALIZED (
        SELECT b.stream_id, b.priority, b.floor_at, b.floor_id, n.jobs
          FROM (SELECT stream_id, priority, count(*) AS jobs FROM chosen GROUP BY stream_id, priority) n
          JOIN live b ON b.stream_id = n.stream_id AND b.priority = n.priority
    ), locked AS MATERIALIZED (
        SELECT h.job_id
          FROM shares b CROSS JOIN LATERAL ({_LOOK}
                ORDER BY q.scheduled_time, q.job_id LIMIT b.jobs FOR UPDATE SKIP LOCKED) h
    ), claimed AS MATERIALIZED (
        {TAKE_LOCKED}
     RETURNING <effective q q> AS effective, {CLAIM_COLUMNS}
    ), given AS MATERIALIZED (
        SELECT row_number() OVER (
                   PARTITION BY l.turn ORDER BY c.effective DESC, c.scheduled_time, c.job_id) AS round, l.turn, c.*
          FROM claimed c JOIN (SELECT DISTINCT stream_id, turn FROM live) l ON l.stream_id = c.stream_id
    )
    (SELECT CAST(NULL AS bigint) AS epoch, <columns> FROM given q <bodies> ORDER BY q.round, q.turn)
     UNION ALL
    SELECT h.epoch, <seen> FROM heads h WHERE :tell AND (SELECT count(*) FROM ready) <= {MOST_BRANCHES}
     UNION ALL
    SELECT h.epoch, <places> FROM heads h WHERE h.job_id IS NOT NULL AND (SELECT first FROM counted)
     UNION ALL
    SELECT 0, <nobody> WHERE NOT EXISTS (SELECT 1 FROM opened WHERE party <> '')
"""
_PLACES = {"stream_id": "h.stream_id", "priority": "h.priority"}

# a whole number of microseconds, so that the division is exact
_EFFECTIVE = {
    True: """({priority}.priority
               + CAST(round(date_part('epoch', :now - {job}.scheduled_time) * 1000000) AS bigint) / :boost_us)""",
    False: "{priority}.priority",
}

FIND_MORE = f"""
    SELECT b.stream_id, b.priority, h.scheduled_time, h.job_id
      FROM {{rows b (stream_id, priority, scheduled_time, job_id, wanted int)}} CROSS JOIN LATERAL ({_DUE}
                  AND (q.scheduled_time, q.job_id) > (b.scheduled_time, b.job_id)
                ORDER BY q.scheduled_time, q.job_id LIMIT b.wanted) h
"""
_TAKE = f"""
    WITH shares AS MATERIALIZED (
        SELECT c.stream_id, c.priority, c.jobs FROM {{rows c (stream_id, priority, jobs int)}}
    ), locked AS MATERIALIZED (
        SELECT h.job_id
          FROM shares b CROSS JOIN LATERAL ({_DUE}
                ORDER BY q.scheduled_time, q.job_id LIMIT b.jobs FOR UPDATE SKIP LOCKED) h
    ), claimed AS MATERIALIZED (
        {TAKE_LOCKED}
     RETURNING {CLAIM_COLUMNS}
    )
    SELECT <columns> FROM claimed q <bodies>
"""


def _composed(text: str, *, boosted: bool, bodies: bool) -> str:
    columns = f"{CLAIM_COLUMNS}, {BODY_COLUMNS}" if bodies else CLAIM_COLUMNS
    parts = {
        "<effective b h>": _EFFECTIVE[boosted].format(priority="b", job="h"),
        "<effective q q>": _EFFECTIVE[boosted].format(priority="q", job="q"),
        "<columns>": columns,
        "<bodies>": BODIES if bodies else "",
        "<seen>": in_place_of(columns, SEEN),
        "<places>": in_place_of(columns, _PLACES),
        "<nobody>": in_place_of(columns, {}),
    }
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


#: By whether waiting raises priorities, and whether bodies are read.
CLAIM = {
    (boosted, bodies): _composed(_CLAIM, boosted=boosted, bodies=bodies)
    for boosted in (True, False)
    for bodies in (True, False)
}
TAKE = {bodies: _composed(_TAKE, boosted=False, bodies=bodies) for bodies in (True, False)}

_BEFORE_ALL = (datetime.min.replace(tzinfo=UTC), UUID(int=0))
_TIME = 5  # the place of the due time among CLAIM_COLUMNS, after the first three


class PostgresqlTurns:
    """Claims of keys that take turns; remembers for which requests there are such keys, and where they begin."""

    def __init__(self) -> None:
        self._expected: set[Any] = set()
        self._floors = Floors()

    def expect(self, request: ClaimRequest) -> None:
        """Some open streams of such requests have keys: from now on they are claimed here."""
        self._expected.add(_kind(request))

    def claim(
        self, database: Database, request: ClaimRequest, now: datetime, *, bodies: bool
    ) -> list[Row] | None:
        """The claimed jobs, in turns; None: no open stream has a key, as far as is known."""
        kind = _kind(request)
        if kind not in self._expected:
            return None
        begun, start = self._floors.monotonic(), self._floors.of(request)
        tell = self._floors.wants(request, start)
        sql = CLAIM[bool(request.boost_interval), bodies]
        params = {**claim_params(request, now), **self._floors.params(start), "tell": tell}
        answer = database.run_alone(sql, params, claiming=True)
        if answer is None:
            answer = database.run(lambda session: session.rows(sql, params), claiming=True)
        rows = [row[1:] for row in answer if row[0] is None]
        seen: list[Floor] = []
        due: set[Place] = set()
        for epoch, job_id, stream_id, priority, *row in answer[len(rows) :]:
            if stream_id is None:
                self._expected.discard(kind)
                return None
            if row[_TIME] is None:
                due.add((stream_id, priority))
            else:
                seen.append((stream_id, priority, epoch, row[_TIME], job_id))
        if tell:
            self._floors.learn(request, seen, swept_since=None if start else begun)
        if not due:
            return rows
        return database.run(
            lambda session: _counted(session, request, now, due, bodies=bodies), claiming=True
        )


def claim_params(request: ClaimRequest, now: datetime) -> dict[str, object]:
    """The binds of CLAIM, but for where it starts and what it tells."""
    return {
        **stream_params(request, now),
        "node_id": request.node_id,
        "claim_id": request.claim_id,
        "boost_us": max((request.boost_interval or timedelta()) // timedelta(microseconds=1), 1),
        "most": request.limit,
        "after": request.after,
    }


def _kind(request: ClaimRequest) -> Any:
    return request.lane, request.suspects, request.queues, request.parked_targets


def _counted(
    session: Session, request: ClaimRequest, now: datetime, due: set[Place], *, bodies: bool
) -> list[Row]:
    """The claim where limits have to be counted: look, count, share out here, take."""

    def read(wanted: Sequence[tuple[Branch, int]]) -> None:
        _read(session, wanted, request, now)

    choice = choose_gated(session, request, now, read, due)
    if not choice.ranks:
        return []
    owner = owners(choice.branches)
    shares = Counter((owner[rank[2]].stream_id, owner[rank[2]].priority) for rank in choice.ranks)
    params = {
        "now": now,
        "node_id": request.node_id,
        "claim_id": request.claim_id,
        "c": [(*place, jobs) for place, jobs in sorted(shares.items())],
    }
    rows = session.rows(TAKE[bodies], params)
    rows.sort(key=lambda row: _rank(request, now, row[2], row[8], row[0]))
    return choice.permitted(session, request, choice.in_turns(request, rows), now)


def _read(
    session: Session, wanted: Sequence[tuple[Branch, int]], request: ClaimRequest, now: datetime
) -> None:
    """Read on in each branch, after the last job that was read."""
    asked = {(branch.stream_id, branch.priority): (branch, count) for branch, count in wanted}
    if not asked:
        return
    after = [
        (*place, *(branch.ranks[-1][1:] if branch.ranks else _BEFORE_ALL), count)
        for place, (branch, count) in asked.items()
    ]
    before = {place: len(branch.ranks) for place, (branch, _) in asked.items()}
    for stream_id, priority, due_at, job_id in session.rows(FIND_MORE, {"b": after, "now": now}):
        asked[stream_id, priority][0].ranks.append(_rank(request, now, priority, due_at, job_id))
    for place, (branch, count) in asked.items():
        branch.ranks.sort()  # no order is promised for the whole of a join
        branch.ended = len(branch.ranks) - before[place] < count


def _rank(request: ClaimRequest, now: datetime, priority: int, due_at: datetime, job_id: UUID) -> Rank:
    boost = request.boost_interval
    return -(priority + ((now - due_at) // boost if boost else 0)), due_at, job_id
