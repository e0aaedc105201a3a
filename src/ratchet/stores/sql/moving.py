"""A SQL store as one side of a move: its rows in neutral form, the record of the move, and the fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import json

from ratchet.model.moves import (
    Fence,
    MoveOvertaken,
    MoveRecord,
    NeutralRow,
    RowKind,
    RunningJob,
    same_move,
)
from ratchet.stores.sql.database import INSTALLED, Session, SqlPart
from ratchet.stores.sql.dialect import Refusal
from ratchet.stores.sql.migrations import SchemaMigrator
from ratchet.stores.sql.rows.neutral import (
    CONDITIONS,
    EDGES,
    JOBS,
    QUEUE,
    TABLES,
    read_edges,
    read_jobs,
    read_table,
    streams_of,
    write_edges,
    write_jobs,
    write_table,
)

FIND_MOVE = "SELECT document FROM scheduler_move"
LOCK_MOVE = "SELECT document FROM scheduler_move {for update}"
FORGET_MOVE = "DELETE FROM scheduler_move"
CHANGE_MOVE = "UPDATE scheduler_move SET document = :document"
#: The key of the one row, so that of two that come at once the second waits for the first, and then is none.
_THE_MOVE: Final = "move"

# by the index of what runs or is held back
FIND_HELD_CLAIMS = """
    SELECT job_id, coalesce(claim_id, held_claim_id) AS claim_id, picked_by, attempts, picked_at, status
      FROM scheduler_job_queue
     WHERE picked_by IS NOT NULL
     ORDER BY job_id
     LIMIT :most
"""
FIND_HELD_KEYS = """
    SELECT job_id, claim_id, node_id FROM scheduler_business_key_reservation WHERE node_id IS NOT NULL LIMIT :most
"""
FIND_HELD_PERMITS = (
    "SELECT job_id, claim_id, node_id FROM scheduler_resource_permit ORDER BY job_id LIMIT :most"
)

#: A claim is the one change that makes a job RUNNING, or gives it another token.
_CLAIM = "NEW.status = 'RUNNING' AND (OLD.status <> 'RUNNING' OR NEW.claim_id <> OLD.claim_id)"

#: The tables that nobody writes while a fence holds all writes back; a test compares them with the schema.
HELD_BACK: Final = (
    *JOBS.values(),
    QUEUE,
    "scheduler_job_tag",
    EDGES,
    CONDITIONS,
    *(copied.table for copied in TABLES.values()),
)


def refusals(fence: Fence, reason: str) -> list[Refusal]:
    """The changes that a fence refuses. The claim comes first, where each trigger is a transaction of its own."""
    claims = [
        Refusal(QUEUE, "UPDATE", _CLAIM if fence is Fence.CLAIMS else "", reason),
        Refusal("scheduler_node", "INSERT", "", reason),
    ]
    if fence is Fence.CLAIMS:
        return claims
    events, passable = ("INSERT", "UPDATE", "DELETE"), fence is Fence.FILLING
    writes = [Refusal(table, event, "", reason, passable) for table in HELD_BACK for event in events]
    return claims + [one for one in writes if one.name != claims[0].name]


class SqlMoving(SqlPart):
    """Reads and writes neutral rows, and fences the store off."""

    migrator: SchemaMigrator

    def neutral_rows(
        self, kind: RowKind, *, after: tuple[Any, ...] | None = None, limit: int
    ) -> list[NeutralRow]:
        """The next rows of a kind."""

        def read(session: Session) -> list[NeutralRow]:
            if kind in JOBS:
                return read_jobs(session, self.stream_registry, kind, after, limit)
            if kind is RowKind.EDGE:
                return read_edges(session, after, limit)
            return read_table(session, kind, after, limit)

        return self.database.read(read)

    def put_rows(
        self, kind: RowKind, rows: Sequence[NeutralRow], *, record: MoveRecord | None = None
    ) -> None:
        """Store rows and how far the move has come, in one transaction, if the move is still this one."""
        keys = streams_of(rows) if kind in JOBS else {}
        # in a transaction of its own: SQLite has no other way to see them from the next one
        ids = dict(self.stream_registry.ids_of(None, keys.values())) if keys else {}

        def write(session: Session) -> None:
            if not rows:
                return
            if kind in JOBS:
                write_jobs(session, kind, rows, keys, ids)
            elif kind is RowKind.EDGE:
                write_edges(session, rows)
            else:
                write_table(session, kind, rows)

        def put(session: Session) -> None:
            if record is None:
                write(session)
                return
            # First, and under its lock: who takes the move over waits for this portion, or this portion comes too late.
            if not same_move(_locked(session), record):
                raise MoveOvertaken
            with session.dialect.past_fence(session):
                write(session)
            session.execute(CHANGE_MOVE, {"document": _text(record)})

        self.database.run(put)

    def move_record(self) -> MoveRecord | None:
        """The move that this store is a side of."""
        found = self.database.read(lambda session: session.value(FIND_MOVE))
        return None if found is None else json.decode(found, type=MoveRecord)

    def save_move(self, record: MoveRecord | None, *, was: MoveRecord | None) -> bool:
        """Write down a move in place of *was*."""

        def save(session: Session) -> bool:
            if not same_move(_locked(session), was):
                return False
            if record is None:
                session.execute(FORGET_MOVE)
            elif was is not None:
                session.execute(CHANGE_MOVE, {"document": _text(record)})
            else:
                row = [(_THE_MOVE, _text(record))]
                session.insert_rows(
                    "scheduler_move", ("move_id", "document"), row, on_conflict_do_nothing=True
                )
                return same_move(_locked(session), record)  # there was no row to lock
            return True

        return self.database.run(save)

    def fence_off(self, fence: Fence, reason: str) -> None:
        """Make the triggers that refuse; while a table is in use, try again."""
        # Making a trigger waits for every transaction that has written to the table, so none of them is open when it is there.
        self.migrator.insist(lambda: self._refuse(refusals(fence, reason)))

    def lift_fence(self) -> None:
        """Remove the triggers."""
        self.migrator.insist(self._allow)

    def _refuse(self, wanted: Sequence[Refusal]) -> None:
        dialect = self.database.dialect
        with dialect.migrating() as session:
            for refusal in wanted:
                dialect.refuse(session, refusal)

    def _allow(self) -> None:
        dialect = self.database.dialect
        with dialect.migrating() as session:
            for refusal in reversed(refusals(Fence.WRITES, "")):
                dialect.allow(session, refusal)

    def held_claims(self, *, limit: int) -> list[RunningJob]:
        """Claims that are held."""

        def read(session: Session) -> list[RunningJob]:
            found = {
                (job_id, claim_id): RunningJob(
                    job_id=job_id,
                    claim_id=claim_id,
                    node_id=node_id,
                    attempt=attempts + 1,
                    since=at,
                    ended=status != "RUNNING",
                )
                for job_id, claim_id, node_id, attempts, at, status in session.rows(
                    FIND_HELD_CLAIMS, {"most": limit}
                )
            }
            for sql in (FIND_HELD_KEYS, FIND_HELD_PERMITS):
                for job_id, claim_id, node_id in session.rows(sql, {"most": limit}):
                    found.setdefault(
                        (job_id, claim_id),
                        RunningJob(job_id=job_id, claim_id=claim_id, node_id=node_id, ended=True),
                    )
            return list(found.values())[:limit]

        return self.database.read(read)

    def origin(self) -> str:
        """The product and the moment of the first migration; both are stored, so an address does not matter."""
        installed = self.database.read(lambda session: session.value(INSTALLED))
        return f"{self.database.dialect.name} {installed}"


def _locked(session: Session) -> MoveRecord | None:
    """The move that is written down, locked until the end of the transaction."""
    found = session.value(LOCK_MOVE)
    return None if found is None else json.decode(found, type=MoveRecord)


def _text(record: MoveRecord) -> str:
    return json.encode(record).decode()
