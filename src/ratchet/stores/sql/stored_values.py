"""The texts that a SQL store keeps, portion by portion, and others in their place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.job import StreamKey
from ratchet.model.places import with_keys
from ratchet.model.status import JobStatus
from ratchet.model.stored_values import Place, ValueChange, ValueRow
from ratchet.stores.sql.database import Session, SqlPart
from ratchet.stores.sql.rows.locked import lock_jobs


class _Texts(NamedTuple):
    """Where the texts of a place are: its table, the columns of its key, the texts, and what their context is made of."""

    table: str
    key: tuple[str, ...]
    texts: Mapping[str, str]  # column by field
    facts: Mapping[str, str]  # column by fact
    looked_up: Mapping[str, str] = {}  # expression by fact


_OF_JOB = {
    "payload": "payload",
    "params": "params",
    "state": "state",
    "signal": "signal",
    "result": "result",
    "error": "error",
    "progress": "progress_message",
}
_JOB = {"job_id": "job_id", "type": "job_type", "parent_id": "parent_id"}

_AT = {
    "place": "(SELECT s.parked_target FROM scheduler_stream s WHERE s.stream_id = t.stream_id)",
    "queued_at": """COALESCE(
           (SELECT COALESCE(s.parked_target, '') FROM scheduler_job_queue q JOIN scheduler_stream s ON s.stream_id = q.stream_id
             WHERE q.job_id = t.job_id),
           (SELECT s.parked_target FROM scheduler_stream s WHERE s.stream_id = t.stream_id))""",
}

FIND_STREAMS = "SELECT job_id, stream_id FROM scheduler_job WHERE job_id {in ids uuid}"
FIND_QUEUED_STREAMS = "SELECT job_id, stream_id FROM scheduler_job_queue WHERE job_id {in ids uuid}"
MOVE_JOBS = """
    UPDATE scheduler_job
       SET stream_id = again.stream_id
      FROM {rows again (job_id, stream_id)}
     WHERE scheduler_job.job_id = again.job_id
"""
MOVE_QUEUED = """
    UPDATE scheduler_job_queue
       SET stream_id = again.stream_id
      FROM {rows again (job_id, stream_id)}
     WHERE scheduler_job_queue.job_id = again.job_id AND status = 'PENDING'
"""

_PLACES = {
    Place.JOBS: _Texts("scheduler_job", ("job_id",), _OF_JOB, _JOB, _AT),
    Place.ARCHIVE: _Texts("scheduler_job_archive", ("job_id",), _OF_JOB, _JOB),
    Place.RUNS: _Texts(
        "scheduler_job_execution",
        ("job_id", "claim_id"),
        {"error": "error", "traceback": "traceback"},
        {"job_id": "job_id"},
    ),
    Place.LOGS: _Texts(
        "scheduler_job_log",
        ("job_id", "claim_id", "sequence"),
        {"message": "message"},
        {"job_id": "job_id", "attempt": "attempt", "at": "logged_at"},
    ),
    Place.ALERTS: _Texts("scheduler_dlq_alert", ("alert_id",), {"error": "error"}, {"job_id": "job_id"}),
    Place.AUDIT: _Texts("scheduler_audit", ("audit_id",), {"reason": "reason"}, {"id": "audit_id"}),
    Place.SIGNALS: _Texts(
        "scheduler_signal",
        ("signal_id",),
        {"payload": "payload", "rejected": "rejected"},
        {"key": "signal_key"},
    ),
    Place.CONDITIONS: _Texts(
        "scheduler_workflow_condition",
        ("parent_id", "child_id"),
        {"argument": "argument"},
        {"parent_id": "parent_id", "child_id": "child_id"},
    ),
    Place.SCHEDULES: _Texts("scheduler_recurring_job", ("name",), {"template": "template"}, {"name": "name"}),
}


class SqlStoredValues(SqlPart):
    """Reads and swaps stored texts."""

    def value_rows(self, place: Place, *, after: Any = None, limit: int) -> list[ValueRow]:
        """The next rows of *place*, as they are stored."""
        where = _PLACES[place]
        columns = [*where.key, *where.texts.values(), *where.facts.values()]
        # A name for each: some columns are part of the key and of the context.
        selected = ", ".join(
            [*(f"t.{column}" for column in dict.fromkeys(columns)), *where.looked_up.values()]
        )
        beyond = "" if after is None else f" WHERE {_beyond(where.key)}"
        order = ", ".join(f"t.{column}" for column in where.key)
        sql = f"SELECT {selected} FROM {where.table} t{beyond} ORDER BY {order} LIMIT :most"
        given: dict[str, object] = {"most": limit}
        if after is not None:
            given |= {f"after_{column}": value for column, value in zip(where.key, after, strict=True)}
        names = [*dict.fromkeys(columns), *where.looked_up]
        rows = self.database.read(lambda session: session.rows(sql, given))
        return [_row(where, dict(zip(names, row, strict=True))) for row in rows]

    def swap_values(self, place: Place, changes: Sequence[ValueChange]) -> int:
        """Put texts in the place of others that still stand there; how many rows that changed."""
        where = _PLACES[place]
        return self.change(lambda session: sum(_swap(session, where, change) for change in changes))

    def set_keys(self, keys: Mapping[UUID, Collection[str]]) -> int:
        """
        Move jobs to the places of these keys; how many were changed.

        Its own row and its queue row may be in two streams (parked, a suspect), so each is moved by itself. A queue row that
        runs stays: its claim names its stream. Jobs that others are changing at this moment are left to the next pass.
        """
        if not keys:
            return 0
        self.stream_registry.ids_of(None, self._wanted(keys))

        def work(session: Session) -> int:
            jobs = lock_jobs(session, keys, skip_locked=True)
            ids = list(jobs)
            own: dict[UUID, int] = dict(session.rows(FIND_STREAMS, {"ids": ids})) if ids else {}
            moved = self._moves(session, own, keys)
            waiting = {
                job_id: job.stream_id for job_id, job in jobs.items() if job.status is JobStatus.PENDING
            }
            queued = self._moves(session, waiting, keys)
            if moved:
                session.execute(MOVE_JOBS, {"again": moved})
            if queued:
                session.execute(MOVE_QUEUED, {"again": queued})
                session.backdated({stream_id for _, stream_id in queued})
            return len({job_id for job_id, _ in (*moved, *queued)})

        return self.database.run(work)  # the swap is what the audit log counts

    def _wanted(self, keys: Mapping[UUID, Collection[str]]) -> set[StreamKey]:
        """The streams that these jobs go to; made before the transaction, in which that takes a second connection."""
        ids = sorted(keys)

        def find(session: Session) -> set[tuple[UUID, int]]:
            given = {"ids": ids}
            return {*session.rows(FIND_STREAMS, given), *session.rows(FIND_QUEUED_STREAMS, given)}

        wanted: set[StreamKey] = set()
        for job_id, stream_id in self.database.read(find):
            try:
                wanted.add(_at_keys(self.stream_registry.key_of(stream_id), keys[job_id]))
            except KeyError:
                continue
        return wanted

    def _moves(
        self, session: Session, streams: Mapping[UUID, int], keys: Mapping[UUID, Collection[str]]
    ) -> list[tuple[UUID, int]]:
        """The jobs that go to another stream, and to which; one whose stream is gone stays, or it would lose its queue."""
        found: list[tuple[UUID, int]] = []
        for job_id, stream_id in sorted(streams.items()):
            try:
                key = self.stream_registry.key_of(stream_id, session)
            except KeyError:
                continue
            wanted = _at_keys(key, keys[job_id])
            if wanted != key:
                found.append((job_id, self.stream_registry.id_of(session, wanted)))
        return found


def _at_keys(stream: StreamKey, keys: Collection[str]) -> StreamKey:
    return replace(stream, parked_target=with_keys(stream.parked_target, keys))


def _row(where: _Texts, values: Mapping[str, Any]) -> ValueRow:
    return ValueRow(
        key=tuple(values[column] for column in where.key),
        texts={
            field: values[column] for field, column in where.texts.items() if isinstance(values[column], str)
        },
        facts={
            **{fact: values[column] for fact, column in where.facts.items()},
            **{fact: values[fact] for fact in where.looked_up},
        },
    )


def _beyond(key: Sequence[str]) -> str:
    """Rows after a key. The first part lets every product begin in the index; row values would not on MySQL."""
    first, *rest = key
    deeper = f"t.{first} > :after_{first}"
    if not rest:
        return deeper
    return f"t.{first} >= :after_{first} AND ({deeper} OR (t.{first} = :after_{first} AND {_beyond(rest)}))"


def _swap(session: Session, where: _Texts, change: ValueChange) -> int:
    given: dict[str, object] = {
        f"key_{column}": value for column, value in zip(where.key, change.key, strict=True)
    }
    for field, text in change.before.items():
        given[f"old_{where.texts[field]}"] = text
    for field, text in change.after.items():
        given[f"new_{where.texts[field]}"] = text
    columns = [where.texts[field] for field in change.after]
    compared = [where.texts[field] for field in change.before]
    texts = ", ".join(f"{column} = :new_{column}" for column in columns)
    conditions = [
        *(f"{column} = :key_{column}" for column in where.key),
        *(f"{column} = :old_{column}" for column in compared),
    ]
    return session.execute(f"UPDATE {where.table} SET {texts} WHERE {' AND '.join(conditions)}", given)
