"""
The claim on MySQL: look without locks, lock what was chosen by its id, check again, take.

InnoDB locks every row that it reads before a sort, so nothing is ever sorted under a lock, and the candidates
are read as a UNION ALL of the levels that have jobs, one SELECT for each stream and priority. A named lock lets one
claim through at a time: two that look at the same moment choose the same jobs, and one of them would come back empty.
Measured with two claimers: without the lock 18 of 40 claims were not full, and together they took 8 % fewer jobs a second.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.stores.levels import Level
from ratchet.stores.next_parties import NextParties
from ratchet.stores.sql.claiming.gates import (
    OPEN_STREAM,
    Choice,
    LevelKey,
    choose_gated,
    heads_params,
    owners,
    stream_params,
)
from ratchet.stores.sql.claiming.plan import BODY_COLUMNS, CLAIM_COLUMNS, Question, find_heads
from ratchet.stores.sql.claiming.turns import SqlRegistry, parties_of, walks
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.sql.dialects.mysql.many_streams import COUNT_STREAMS, COUNTED, BusyStreams
from ratchet.stores.sql.dialects.mysql.session import MysqlSession

#: FROM items, *s*, by whether streams are many: every stream, or those that have waiting jobs.
STREAMS = {
    False: "scheduler_stream s",
    True: "(SELECT * FROM scheduler_stream WHERE stream_id {in busy int}) s",
}
FIND_HEADS = {many: find_heads(f"{streams} CROSS JOIN {{priorities}}") for many, streams in STREAMS.items()}
#: The levels that have due jobs, and one more row: under a number that no stream has, how many streams there are.
FIND_DUE_LEVELS = {
    many: f"""
    SELECT s.stream_id, p.column1 AS priority
      FROM {streams} CROSS JOIN {{priorities}}
     WHERE {OPEN_STREAM}
       AND (SELECT q.scheduled_time FROM scheduler_job_queue q FORCE INDEX (idx_claim_executable)
             WHERE q.status = 'PENDING' AND q.stream_id = s.stream_id AND q.priority = p.column1
             ORDER BY q.scheduled_time LIMIT 1) <= :now
     UNION ALL {COUNT_STREAMS}
"""
    for many, streams in STREAMS.items()
}

# One part of the look, for one level; {0} is the number of the level among those that are asked for.
_LOOK = """(SELECT {0} AS branch, scheduled_time, job_id
  FROM scheduler_job_queue FORCE INDEX (idx_claim_executable)
 WHERE status = 'PENDING' AND stream_id = :s{0} AND priority = :p{0} AND scheduled_time <= :now{after}
 ORDER BY scheduled_time, job_id LIMIT :n{0})"""
_AFTER = " AND scheduled_time >= :t{0} AND (scheduled_time > :t{0} OR job_id > :j{0})"

LOCK_CHOSEN = f"""
    SELECT {CLAIM_COLUMNS} FROM scheduler_job_queue q FORCE INDEX (PRIMARY)
     WHERE q.job_id {{in job_ids uuid}} AND q.status = 'PENDING' AND q.scheduled_time <= :now
     ORDER BY q.job_id
    {{for update skip locked}}
"""
TAKE = """
    UPDATE scheduler_job_queue
       SET status = 'RUNNING', picked_by = :node_id, picked_at = :now, claim_id = :claim_id, held_claim_id = NULL
     WHERE job_id {in job_ids uuid}
"""
FIND_BODIES = f"SELECT j.job_id, {BODY_COLUMNS} FROM scheduler_job j WHERE j.job_id {{in job_ids uuid}}"

WALKS = walks(hint="FORCE INDEX (idx_claim_executable)")

#: Levels in one look: the server would take longer to parse a statement with thousands than to run it.
_LEVELS = 200
_LOCK_WAIT = 1  # seconds to wait for other claims
_DISTRUST = 5.0  # seconds without the lock, after it could not be had in time


class MysqlClaimPlan:
    """Looks into the levels of the claim index, merges them here, and locks the chosen jobs by their ids."""

    def __init__(self, lock: str) -> None:
        self.busy = BusyStreams()
        self.parties = NextParties()
        self._lock = lock
        self._unlocked_until = 0.0  # a claim that was stopped while it held the lock must not stop the others

    def claim(self, database: Database, request: ClaimRequest, now: datetime) -> list[Row]:
        return database.run(lambda session: self._claim(session, request, now), claiming=True)

    def _claim(self, session: Session, request: ClaimRequest, now: datetime) -> list[Row]:
        choice = self._choose_next_parties(session, request, now) if self.parties.steps else None
        choice = choice or self._choose(session, request, now)
        if choice is None or not choice.ranks:
            return []
        level_of = owners(choice.levels)
        rows = self._take(session, request, now, {rank[2]: level_of[rank[2]] for rank in choice.ranks})
        if rows:
            found = session.rows(FIND_BODIES, {"job_ids": [row[0] for row in rows]})
            body_of = {body[0]: body[1:] for body in found}
            rows = [row + body_of[row[0]] for row in rows]
        return choice.permitted(session, request, rows, now)

    def _choose(self, session: Session, request: ClaimRequest, now: datetime) -> Choice | None:
        """What to take of all streams with work; None: nothing is due."""
        due = self._find_due(session, request, now)
        if not due:
            return None
        self._lock_claims(session, request)
        choice = self._choose_among(session, request, now, due)
        if len(choice.streams) > 1 and choice.has_keys:
            self.parties.saw(request, choice.streams, lambda: parties_of(choice))
        return choice

    def _choose_next_parties(self, session: Session, request: ClaimRequest, now: datetime) -> Choice | None:
        """What to take of the parties whose turn is next; None: look at all of them."""
        if not self.parties.are_many(request):
            return None
        # before the look: another claim would take what this one has seen
        self._lock_claims(session, request)
        registry = SqlRegistry(session.rows, WALKS, stream_params(request, now))
        turns = self.parties.find(registry, request)
        if turns is None:
            return None
        choice = self._choose_among(session, request, now, turns.levels)
        if turns.suffice(parties_of(choice), request.limit):
            return choice
        self.parties.forget(request)
        return None

    def _choose_among(
        self, session: Session, request: ClaimRequest, now: datetime, due: Collection[LevelKey]
    ) -> Choice:
        # of many levels few have due jobs: the others are not looked at
        return choose_gated(
            session, request, now, lambda wanted: self.read(session, wanted, request, now), due
        )

    def heads(self, requests: Sequence[ClaimRequest], now: datetime) -> Question:
        return Question(FIND_HEADS[False], heads_params(requests, now))

    def look(self, session: Session, requests: Sequence[ClaimRequest], now: datetime) -> list[Row]:
        params = {**heads_params(requests, now), **self._busy(session)}
        return session.rows(FIND_HEADS["busy" in params], params)

    def _busy(self, session: Session) -> dict[str, object]:
        """The binds of STREAMS."""
        # a list is never empty: no stream has the number 0
        return {"busy": [0, *self.busy.find(session)]} if self.busy.are_many else {}

    def _find_due(self, session: Session, request: ClaimRequest, now: datetime) -> set[LevelKey]:
        """The levels of open streams that have due jobs."""
        params = {**stream_params(request, now), **self._busy(session)}
        due: set[LevelKey] = set()
        for stream_id, priority in session.rows(FIND_DUE_LEVELS["busy" in params], params):
            if stream_id == COUNTED:
                self.busy.counted(priority)
            else:
                due.add((stream_id, priority))
        return due

    def read(
        self, session: Session, wanted: Sequence[tuple[Level, int]], request: ClaimRequest, now: datetime
    ) -> None:
        """Read on in each level, after the last job that was read."""
        for start in range(0, len(wanted), _LEVELS):
            _read_on(session, wanted[start : start + _LEVELS], request.boost_interval, now)

    def _lock_claims(self, session: Session, request: ClaimRequest) -> None:
        assert isinstance(session, MysqlSession)
        if time.monotonic() < self._unlocked_until:
            return
        # a lock for each lane: jobs of one lane are never claimed for another
        name = f"{self._lock}.{request.lane.value.lower()}"
        if session.value("SELECT GET_LOCK(:name, :wait)", {"name": name, "wait": _LOCK_WAIT}) == 1:
            session.afterwards.append(f"DO RELEASE_LOCK('{name}')")
        else:
            self._unlocked_until = time.monotonic() + _DISTRUST

    def _take(
        self, session: Session, request: ClaimRequest, now: datetime, wanted: Mapping[UUID, Level]
    ) -> list[Row]:
        """Those of the wanted jobs that are still in the level where they were seen, RUNNING, in the order of *wanted*."""
        locked: dict[UUID, Row] = {}
        for row in session.rows(LOCK_CHOSEN, {"job_ids": list(wanted), "now": now}):
            level = wanted[row[0]]
            if (row[1], row[2]) == (level.stream_id, level.priority):
                locked[row[0]] = row
        if locked:
            claim = {"node_id": request.node_id, "claim_id": request.claim_id, "now": now}
            session.execute(TAKE, {"job_ids": list(locked), **claim})
        return [locked[job_id] for job_id in wanted if job_id in locked]


def _read_on(
    session: Session, wanted: Sequence[tuple[Level, int]], boost: timedelta | None, now: datetime
) -> None:
    if not wanted:
        return
    binds: dict[str, object] = {"now": now}
    for number, (level, count) in enumerate(wanted):
        binds |= {f"s{number}": level.stream_id, f"p{number}": level.priority, f"n{number}": count}
        if level.ranks:
            binds |= {f"t{number}": level.ranks[-1][1], f"j{number}": level.ranks[-1][2]}
    before = [len(level.ranks) for level, _ in wanted]
    look = _look(tuple(bool(level.ranks) for level, _ in wanted))
    for number, due_at, job_id in session.rows(look, binds):
        level = wanted[number][0]
        rise = (now - due_at) // boost if boost else 0
        level.ranks.append((-(level.priority + rise), due_at, job_id))
    for (level, count), known in zip(wanted, before, strict=True):
        level.ranks.sort()  # a union as a whole has no promised order
        level.ended = len(level.ranks) - known < count


@lru_cache(maxsize=512)
def _look(read_before: tuple[bool, ...]) -> str:
    return " UNION ALL ".join(
        _LOOK.replace("{after}", _AFTER if again else "").replace("{0}", str(number))
        for number, again in enumerate(read_before)
    )
