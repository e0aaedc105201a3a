"""
The claim on PostgreSQL: one statement that looks, chooses, locks and takes.

Its shape fixes its plan, whatever the statistics say; on a queue table they are always wrong. Every access to the
queue is a LATERAL look into the claim index with a LIMIT, or a lookup of given ids.
Where an open stream has a limit, Python chooses, between a look and a take; where one has a fairness key, another
statement does (`fairness`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import BREAKER_GATE
from ratchet.stores.levels import PRIORITIES, Level
from ratchet.stores.sql.claiming.gates import (
    OPEN_STREAM,
    LevelKey,
    choose_gated,
    heads_params,
    owners,
    stream_params,
)
from ratchet.stores.sql.claiming.plan import BODY_COLUMNS, CLAIM_COLUMNS, Question
from ratchet.stores.sql.claiming.turns import parties_of
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.sql.dialects.postgresql.fairness import BODIES, TAKE_LOCKED, PostgresqlFairness
from ratchet.stores.sql.dialects.postgresql.many_streams import FEW, HEADS, ManyStreams, among
from ratchet.stores.sql.dialects.postgresql.scan_start import (
    BEGINNING,
    HORIZON,
    MOST_LEVELS,
    NO_ID,
    SEEN,
    START_INDEX,
    ScanStart,
    ScanStarts,
    in_place_of,
    start_at,
    start_id,
)
from ratchet.stores.unreadable import NO_TIME, Unread

_LEVEL = """
               SELECT q.scheduled_time, q.job_id FROM scheduler_job_queue q
                WHERE q.stream_id = b.stream_id AND q.priority = b.priority AND q.status = 'PENDING'"""
_LOOK = f"""{_LEVEL}
                  AND (q.scheduled_time, q.job_id) >= (b.floor_at, b.floor_id)
                  AND q.scheduled_time"""

# In the text a level is called a branch, and where its look starts a floor.
# 1. `heads`: the first job of every level. If only one level has jobs, it gives everything. 2. `peek`: a few jobs of each
# of the others. 3. `edge`: the n-th best of these; nothing worse can be among the best n. 4. `best`: every level again,
# down to what can still beat the edge. The jobs of a bulk share their due time, so their ids count too, in a query of
# their own: an id in a comparison of rows does not end an index scan, which would go through the whole bulk.
# 5. `shares`: how many of each level these are. 6. `locked`, `claimed`: take so many of each.
# Sort keys come first in the rows: to find them behind thirty columns took a fifth of the claim.
_LAST_ID = "CAST('ffffffff-ffff-ffff-ffff-ffffffffffff' AS uuid)"
_CHOICE = f"""
    WITH opened AS MATERIALIZED (
        SELECT <priorities of>s.stream_id, s.epoch, s.fairness_key IS NOT NULL OR COALESCE(s.resource, s.limit_key, s.breaker) IS NOT NULL AND EXISTS (
                   SELECT 1 FROM scheduler_resource_limit l
                    WHERE l.resource IN (s.resource, s.limit_key, '{BREAKER_GATE}' || s.breaker)) AS gated,
               {START_INDEX} AS place
          FROM <streams>
         WHERE {OPEN_STREAM}
    ), ready AS MATERIALIZED (
        SELECT o.stream_id, p.priority, o.epoch, {start_at("o.place", "p.priority")} AS floor_at,
               {start_id("o.place", "p.priority")} AS floor_id
          FROM opened o CROSS JOIN <priorities> p (priority)
         WHERE NOT EXISTS (SELECT 1 FROM opened WHERE gated)
    ), heads AS MATERIALIZED (
        SELECT b.stream_id, b.priority, b.epoch, h.scheduled_time, h.job_id
          FROM ready b LEFT JOIN LATERAL ({_LOOK} <= :now
                ORDER BY q.scheduled_time, q.job_id LIMIT 1) h ON true
    ), live AS MATERIALIZED (
        SELECT stream_id, priority, scheduled_time AS floor_at, job_id AS floor_id FROM heads WHERE job_id IS NOT NULL
    ), size AS MATERIALIZED (
        SELECT count(*) AS branches,
               LEAST(:most, GREATEST(4, :most / 50, ceil(3.0 * :most / GREATEST(count(*), 1)))) AS jobs
          FROM live
    ), peek AS MATERIALIZED (
        SELECT <effective b h> AS effective, h.scheduled_time, h.job_id
          FROM live b CROSS JOIN LATERAL ({_LOOK} <= :now
                ORDER BY q.scheduled_time, q.job_id LIMIT (SELECT jobs FROM size)) h
         WHERE (SELECT branches FROM size) > 1
    ), edge AS MATERIALIZED (
        SELECT effective, scheduled_time, job_id FROM peek
         ORDER BY effective DESC, scheduled_time, job_id OFFSET :most - 1 LIMIT 1
    ), bounds AS MATERIALIZED (
        SELECT r.stream_id, r.priority, r.floor_at, r.floor_id, LEAST(:now, <bound>) AS latest,
               CASE WHEN <effective r e> = e.effective THEN e.scheduled_time END AS edge_at, e.job_id AS edge_id
          FROM live r LEFT JOIN edge e ON true
         WHERE (SELECT branches FROM size) > 1
    ), best AS MATERIALIZED (
        SELECT <effective b h> AS effective, h.scheduled_time, h.job_id, b.stream_id, b.priority
          FROM bounds b CROSS JOIN LATERAL (({_LOOK} < b.latest
                ORDER BY q.scheduled_time, q.job_id LIMIT :most)
             UNION ALL ({_LEVEL} AND q.scheduled_time = b.latest
                  AND q.job_id >= CASE WHEN b.floor_at = b.latest THEN b.floor_id ELSE {NO_ID} END
                  AND q.job_id <= CASE WHEN b.edge_at = b.latest THEN b.edge_id ELSE {_LAST_ID} END
                ORDER BY q.job_id LIMIT :most)) h
         ORDER BY effective DESC, h.scheduled_time, h.job_id LIMIT :most
    ), shares AS MATERIALIZED (
        SELECT b.stream_id, b.priority, b.floor_at, b.floor_id, n.jobs
          FROM (SELECT stream_id, priority, count(*) AS jobs FROM best GROUP BY stream_id, priority) n
          JOIN live b ON b.stream_id = n.stream_id AND b.priority = n.priority
     UNION ALL
        SELECT b.stream_id, b.priority, b.floor_at, b.floor_id, CAST(:most AS bigint)
          FROM live b WHERE (SELECT branches FROM size) = 1
    )"""

# Each level locks its own share in index order, so that two claims at once skip each other's rows and both come back
# full. When the chosen ids were locked instead, half of the claims came back empty.
_TAKING = f""", locked AS MATERIALIZED (
        SELECT h.job_id
          FROM shares b CROSS JOIN LATERAL ({_LOOK} <= :now
                ORDER BY q.scheduled_time, q.job_id LIMIT b.jobs FOR UPDATE SKIP LOCKED) h
    ), claimed AS MATERIALIZED (
        {TAKE_LOCKED}
     RETURNING <effective q q> AS effective, {CLAIM_COLUMNS}
    )"""

# The jobs, which have no epoch, are followed by what was seen: a `ScanStart` for each level, unless there are so many
# that telling costs more than it saves; or, where limits have to be counted first, a row without a priority for each
# open stream.
_OPENED = {"stream_id": "o.stream_id", "scheduled_time": HORIZON}

_UNGATED = f"""
    (SELECT <columns>, CAST(NULL AS bigint) AS epoch FROM claimed q <bodies>
      ORDER BY q.effective DESC, q.scheduled_time, q.job_id)
     UNION ALL
    SELECT <seen>, h.epoch FROM heads h WHERE :tell AND (SELECT count(*) FROM ready) <= {MOST_LEVELS}
     UNION ALL
    SELECT <opened>, o.epoch FROM opened o WHERE EXISTS (SELECT 1 FROM opened WHERE gated)"""
_CHOSEN = """
    WITH shares AS MATERIALIZED (
        SELECT c.stream_id, c.priority, c.scheduled_time AS floor_at, c.job_id AS floor_id, c.jobs
          FROM {rows c (stream_id, priority, jobs int, scheduled_time, job_id)}
    )"""
_GATED = """
    SELECT <columns> FROM claimed q <bodies>
     ORDER BY q.effective DESC, q.scheduled_time, q.job_id"""

_PEEK = f"""
    SELECT b.stream_id, b.priority, -(<effective b h>) AS rank, h.scheduled_time, h.job_id
      FROM (SELECT c.stream_id, c.priority, c.scheduled_time AS floor_at, c.job_id AS floor_id, c.wanted
              FROM {{rows c (stream_id, priority, scheduled_time, job_id, wanted int)}}) b CROSS JOIN LATERAL ({_LOOK} <= :now
                ORDER BY q.scheduled_time, q.job_id LIMIT b.wanted) h
     ORDER BY b.stream_id, b.priority, h.scheduled_time, h.job_id
"""


class _Statements:
    """The statements for one kind of order: boosted by waiting, or strictly by priority."""

    def __init__(self, effective: str, bound: str) -> None:
        self._effective = effective
        self._bound = bound
        self.peek = self._composed(_PEEK)
        claim = _CHOICE + _TAKING + _UNGATED
        #: By whether there are many streams.
        self.claim = {many: self._composed(among(claim, many=many)) for many in (True, False)}
        self.take = self._composed(_CHOSEN + _TAKING + _GATED)

    def _composed(self, text: str) -> str:
        for where in ("b h", "q q", "r e"):
            priority, job = where.split()
            text = text.replace(f"<effective {where}>", self._effective.format(priority=priority, job=job))
        columns = f"{CLAIM_COLUMNS}, {BODY_COLUMNS}"
        parts = {
            "<bound>": self._bound,
            "<columns>": columns,
            "<bodies>": BODIES,
            "<seen>": in_place_of(columns, SEEN),
            "<opened>": in_place_of(columns, _OPENED),
        }
        for mark, part in parts.items():
            text = text.replace(mark, part)
        return text


BOOSTED = _Statements(
    # GREATEST, because the difference to -infinity would be an error, and the claim would find nothing for anybody;
    # a whole number of microseconds, so that the division is exact; a double holds those of 285 years, and takes a
    # fifth of the time of the numeric that extract() gives
    effective="""({priority}.priority
                  + CAST(round(date_part('epoch', :now - GREATEST({job}.scheduled_time, '0001-01-01 00:00+00')) * 1000000) AS bigint) / :boost_us)""",
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
    """
    Claims in one statement, and without a pooler in one round trip; where an open stream has a limit, in a few.

    One for each store: it remembers where the next claim starts to look.
    """

    def __init__(self) -> None:
        self.starts = ScanStarts()
        self.streams = ManyStreams()
        self.fairness = PostgresqlFairness(self.streams, self.starts)

    def claim(self, database: Database, request: ClaimRequest, now: datetime) -> list[Row]:
        if self.streams.in_doubt or self.streams.are_many:
            self.streams.count(database)
        if self.fairness.parties.steps and self.fairness.parties.are_many(request):
            taken = self.fairness.claim_next_parties(database, request, now)
            if taken is not None:
                return taken
        if self.fairness.expected and (taken := self.fairness.claim(database, request, now)) is not None:
            return taken
        look = _Look(self.starts, request, self.streams)
        answer = database.autocommit(look.statement(), look.params(now))
        if answer is not None:
            rows = look.learn(answer)
            if not look.gated:
                return rows
            return database.run(lambda session: self._claim_gated(session, look, now), claiming=True)
        return database.run(lambda session: self._claim(session, request, now), claiming=True)

    def _claim(self, session: Session, request: ClaimRequest, now: datetime) -> list[Row]:
        look = _Look(self.starts, request, self.streams)
        rows = look.learn(session.rows(look.statement(), look.params(now)))
        return self._claim_gated(session, look, now) if look.gated else rows

    def _claim_gated(self, session: Session, look: _Look, now: datetime) -> list[Row]:
        request = look.request

        def read(wanted: Sequence[tuple[Level, int]]) -> None:
            _read(session, wanted, request, now, look.start_of)

        choice = choose_gated(session, request, now, read, look.level_keys())
        look.learn_levels(choice.levels)
        if choice.has_keys and len(choice.streams) > 1:
            self.fairness.parties.saw(request, choice.streams, lambda: parties_of(choice))
        if choice.has_keys:
            self.fairness.expect(request)
        if not choice.ranks:
            return []
        level_of = owners(choice.levels)
        shares = Counter((level_of[rank[2]].stream_id, level_of[rank[2]].priority) for rank in choice.ranks)
        params = {
            **_claim_params(request, now),
            "c": [(*key, jobs, *look.start_of(*key)) for key, jobs in shares.items()],
        }
        rows = session.rows(_statements(request).take, params)
        rows = choice.in_turns(request, rows) if choice.has_keys else rows
        return choice.permitted(session, request, rows, now)

    def read(
        self, session: Session, wanted: Sequence[tuple[Level, int]], request: ClaimRequest, now: datetime
    ) -> None:
        """Read on in each level, after the last job that was read."""
        _read(session, wanted, request, now, lambda stream_id, priority: BEGINNING)

    def heads(self, requests: Sequence[ClaimRequest], now: datetime) -> Question:
        starts, swept = self.starts.of_look(requests)
        begun = self.starts.monotonic()

        def tell(rows: Sequence[Row]) -> None:
            self.starts.looked(
                swept,
                {(row[0], row[6]): row[4] for row in rows if not isinstance(row[4], Unread)},
                since=begun,
            )

        params = {**heads_params(requests, now), **self.starts.params(starts)}
        return Question(HEADS[self.streams.are_many], params, tell)

    def look(self, session: Session, requests: Sequence[ClaimRequest], now: datetime) -> list[Row]:
        return self.heads(requests, now).ask(session)


class _Look:
    """One claim: where it starts to look, and what it tells the next one."""

    def __init__(self, starts: ScanStarts, request: ClaimRequest, streams: ManyStreams) -> None:
        self.request = request
        self.gated = False
        self._streams = streams
        self._starts = starts
        self._begun = starts.monotonic()
        self._start = starts.of(request)
        self._tell = starts.wants(request, self._start)
        # epoch and horizon of the open streams, where limits have to be counted
        self._opened: dict[int, tuple[int, datetime]] = {}
        self._from: dict[LevelKey, tuple[datetime, UUID]] = {}

    def statement(self) -> str:
        """The claim."""
        return _statements(self.request).claim[self._streams.are_many]

    def params(self, now: datetime) -> dict[str, object]:
        """The binds of the claim."""
        request = self.request
        return {
            **stream_params(request, now),
            **_claim_params(request, now),
            **self._starts.params(self._start),
            "most": request.limit,
            "tell": self._tell,
        }

    def learn(self, answer: Sequence[Row]) -> list[Row]:
        """The claimed rows of the claim's answer; what the others say is kept."""
        rows = [row for row in answer if row[-1] is None]
        seen: list[ScanStart] = []
        for job_id, stream_id, priority, *row, epoch in answer[len(rows) :]:
            if priority is None:
                self._opened[stream_id] = (epoch, row[_DUE])
            elif isinstance(row[_DUE], datetime):  # else it cannot be said where to start
                seen.append((stream_id, priority, epoch, row[_DUE], job_id))
        self.gated = bool(self._opened)
        if (self.gated or self._tell) and (len(self._opened) or len(seen) // len(PRIORITIES)) not in FEW:
            self._streams.in_doubt = True
        if self.gated:
            self._from = {
                (stream_id, priority): (due_at, job_id)
                for stream_id, priority, epoch, due_at, job_id in self._start
                if self._opened.get(stream_id, _NEVER)[0] == epoch
            }
        elif self._tell:
            self._keep(seen)
        return rows

    def level_keys(self) -> set[LevelKey] | None:
        """The levels of the open streams, where there are many streams; None: all that there are."""
        if not self._streams.are_many:
            return None
        return {(stream_id, priority) for stream_id in self._opened for priority in PRIORITIES}

    def start_of(self, stream_id: int, priority: int) -> tuple[datetime, UUID]:
        """Where the look into a level starts."""
        return self._from.get((stream_id, priority), BEGINNING)

    def learn_levels(self, levels: Sequence[Level]) -> None:
        """Keep what was seen of the levels of streams with limits; a level that was not read stays as it was."""
        seen = {start[:2]: start for start in self._start if start[:2] in self._from}
        for level in levels:
            if level.stream_id not in self._opened or not (level.ranks or level.ended):
                continue
            epoch, horizon = self._opened[level.stream_id]
            first = level.ranks[0][1:] if level.ranks else (horizon, BEGINNING[1])
            at, job_id = min(first, (horizon, BEGINNING[1]))
            seen[level.stream_id, level.priority] = (level.stream_id, level.priority, epoch, at, job_id)
        self._keep(list(seen.values()))

    def _keep(self, seen: Sequence[ScanStart]) -> None:
        self._starts.learn(self.request, seen, swept_since=None if self._start else self._begun)


_DUE = 5  # the index of the due time among CLAIM_COLUMNS, after the first three
_NEVER = (-1, BEGINNING[0])


def _read(
    session: Session,
    wanted: Sequence[tuple[Level, int]],
    request: ClaimRequest,
    now: datetime,
    start_of: Callable[[int, int], tuple[datetime, UUID]],
) -> None:
    asked = {(level.stream_id, level.priority): (level, count) for level, count in wanted}
    if not asked:
        return
    after = [
        (*key, *(_after(level) if level.ranks else start_of(*key)), count)
        for key, (level, count) in asked.items()
    ]
    found: Counter[tuple[int, int]] = Counter()
    for stream_id, priority, rank, due_at, job_id in session.rows(
        _statements(request).peek, {**_claim_params(request, now), "c": after}
    ):
        found[stream_id, priority] += 1
        if isinstance(due_at, Unread):
            due_at = NO_TIME
        asked[stream_id, priority][0].ranks.append((rank, due_at, job_id))
    for key, (level, count) in asked.items():
        level.ended = found[key] < count


def _after(level: Level) -> tuple[datetime, UUID]:
    """Where the look goes on after what was read."""
    _, due_at, job_id = level.ranks[-1]
    return due_at, UUID(int=job_id.int + 1)


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
