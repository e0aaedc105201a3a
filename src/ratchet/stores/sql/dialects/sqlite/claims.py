"""The claim on SQLite: look first without a lock, then take in one write transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from ratchet.model.claim import ClaimRequest
from ratchet.stores.levels import Level
from ratchet.stores.next_parties import NextParties, Turns
from ratchet.stores.sql.claiming.gates import (
    Choice,
    LevelKey,
    choose_gated,
    heads_params,
    next_opening,
    stream_params,
)
from ratchet.stores.sql.claiming.plan import BODY_COLUMNS, CLAIM_COLUMNS, Question, find_heads
from ratchet.stores.sql.claiming.turns import SqlRegistry, parties_of, walks
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.sql.dialects.sqlite.session import json_list, micros

# From each stream with waiting jobs to the next, in the claim index: streams without any are not met.
_NEXT = """(SELECT q.stream_id FROM scheduler_job_queue q
                WHERE q.status = 'PENDING' AND q.stream_id > {} ORDER BY q.stream_id LIMIT 1)"""
FIND_HEADS = f"""
    WITH RECURSIVE busy (stream_id) AS (
        SELECT {_NEXT.format("0")}
        UNION ALL
        SELECT {_NEXT.format("w.stream_id")} FROM busy w WHERE w.stream_id IS NOT NULL
    )
    {find_heads("busy w CROSS JOIN scheduler_stream s ON s.stream_id = w.stream_id CROSS JOIN {priorities}")}
"""

# Reads only index entries, in the order of the index, and no more of them than are fetched.
PEEK = """
    SELECT -(:priority + (:now - scheduled_time) / :boost), scheduled_time, job_id
      FROM scheduler_job_queue
     WHERE stream_id = :stream_id AND priority = :priority AND status = 'PENDING' AND scheduled_time <= :now
     ORDER BY scheduled_time, job_id
"""
PEEK_ON = PEEK.replace("ORDER BY", "AND (scheduled_time, job_id) > (:last_time, :last_id)\n     ORDER BY")
TAKE = """
    UPDATE scheduler_job_queue
       SET status = 'RUNNING', picked_by = :node_id, picked_at = :now, claim_id = :claim_id, held_claim_id = NULL
     WHERE job_id {in job_ids uuid} AND status = 'PENDING'
"""
# the id twice: once as the text to put the rows in order by
FIND_CLAIMED = f"""
    SELECT q.job_id AS text, {CLAIM_COLUMNS}, {BODY_COLUMNS}
      FROM scheduler_job_queue q JOIN scheduler_job j ON j.job_id = q.job_id
     WHERE q.job_id {{in job_ids uuid}} AND q.claim_id = :claim_id AND q.status = 'RUNNING'
"""
WALKS = walks()
#: Longer than any wait: no job ever rises.
_NO_BOOST = 2**62


class SqliteClaimPlan:
    """Peeks into the levels of the claim index, merges them here, and marks what was chosen by its id."""

    def __init__(self) -> None:
        self.parties = NextParties()

    def claim(self, database: Database, request: ClaimRequest, now: datetime) -> list[Row]:
        if self.parties.steps and self.parties.are_many(request):
            rows = self._claim_in_turns(database, request, now)
            if rows is not None:
                return rows
        # an idle node must not write, and BEGIN IMMEDIATE would stop those who do
        opening, due = database.read(lambda session: next_opening(session, request, now))
        if opening is None or opening > now:
            return []
        return database.run(lambda session: self._take(session, request, now, due))

    def _claim_in_turns(self, database: Database, request: ClaimRequest, now: datetime) -> list[Row] | None:
        """What the next parties give; None: look at all of them."""
        turns = database.read(lambda session: self._next_parties(session, request, now))
        if turns is None or not turns.levels:
            return None if turns is None else []
        return database.run(lambda session: self._take_in_turns(session, request, now, turns))

    def _take_in_turns(
        self, session: Session, request: ClaimRequest, now: datetime, turns: Turns
    ) -> list[Row] | None:
        choice = self._choose(session, request, now, turns.levels)
        if not turns.suffice(parties_of(choice), request.limit):
            # another process has taken some of it since; here nobody else can
            found = self._next_parties(session, request, now)
            if found is None:
                return None
            choice = self._choose(session, request, now, found.levels)
            if not found.suffice(parties_of(choice), request.limit):
                self.parties.forget(request)
                return None
        return self._mark(session, request, now, choice)

    def heads(self, requests: Sequence[ClaimRequest], now: datetime) -> Question:
        return Question(FIND_HEADS, heads_params(requests, now))

    def look(self, session: Session, requests: Sequence[ClaimRequest], now: datetime) -> list[Row]:
        return session.rows(FIND_HEADS, heads_params(requests, now))

    def read(
        self, session: Session, wanted: Sequence[tuple[Level, int]], request: ClaimRequest, now: datetime
    ) -> None:
        """Read on in each level, after the last job that was read."""
        binds: dict[str, Any] = {"now": micros(now), "boost": _boost(request.boost_interval)}
        for level, count in wanted:
            binds["stream_id"], binds["priority"] = level.stream_id, level.priority
            if level.ranks:
                _, binds["last_time"], binds["last_id"] = level.ranks[-1]
            # not left open for more: a statement that is in use would be compiled anew for the next level
            with closing(session.connection.execute(PEEK_ON if level.ranks else PEEK, binds)) as cursor:
                ranks = cursor.fetchmany(count)
            level.ranks += ranks
            if len(ranks) < count:
                level.ended = True

    def _take(
        self, session: Session, request: ClaimRequest, now: datetime, due: Collection[LevelKey]
    ) -> list[Row]:
        choice = self._choose(session, request, now, due)
        if len(choice.streams) > 1 and choice.has_keys:
            self.parties.saw(request, choice.streams, lambda: parties_of(choice))
        return self._mark(session, request, now, choice)

    def _mark(self, session: Session, request: ClaimRequest, now: datetime, choice: Choice) -> list[Row]:
        if not choice.ranks:
            return []
        # the ids stay text, as the index gave them
        ids = [rank[2] for rank in choice.ranks]
        token: dict[str, Any] = {"job_ids": json_list(ids), "claim_id": request.claim_id}
        session.execute(TAKE, {**token, "node_id": request.node_id, "now": now})
        found = {row[0]: row[1:] for row in session.rows(FIND_CLAIMED, token)}
        rows = [found[job_id] for job_id in ids if job_id in found]
        return choice.permitted(session, request, rows, now)

    def _next_parties(self, session: Session, request: ClaimRequest, now: datetime) -> Turns | None:
        registry = SqlRegistry(session.rows, WALKS, stream_params(request, now))
        return self.parties.find(registry, request)

    def _choose(
        self, session: Session, request: ClaimRequest, now: datetime, due: Collection[LevelKey]
    ) -> Choice:
        return choose_gated(
            session, request, now, lambda wanted: self.read(session, wanted, request, now), due
        )


def _boost(interval: timedelta | None) -> int:
    return _NO_BOOST if not interval else max(interval // timedelta(microseconds=1), 1)
