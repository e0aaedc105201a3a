"""
Rows of tables as neutral rows (`ratchet.model.moves`), and back.

Most kinds are one table whose columns are named here, field by field; a test compares the names with the schema, so that a column
that a migration adds cannot be forgotten. A job is put together from its cold row, its queue row and its tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from msgspec import json

from ratchet.model.identifiers import timestamp_of
from ratchet.model.job import StreamKey
from ratchet.model.moves import FIELDS, NeutralRow, RowKind, has_ended, key_fields, plain_stream, stream_of
from ratchet.model.status import JobStatus
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.rows.stream_registry import StreamRegistry

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Rows = list[NeutralRow]


def _same(row: NeutralRow) -> NeutralRow:
    return row


@dataclass(frozen=True)
class Copied:
    """One table as rows of a kind: the column of each field that has another name, and what differs beyond names."""

    table: str
    renamed: Mapping[str, str]  # column by field
    where: str = "true"
    computed: tuple[str, ...] = ()  # fields that are no column
    outward: Callable[[NeutralRow], NeutralRow] = _same
    inward: Callable[[NeutralRow], NeutralRow] = _same

    def columns(self, kind: RowKind) -> dict[str, str]:
        """Column by field."""
        names = (one.name for one in FIELDS[kind])
        return {name: self.renamed.get(name, name) for name in names if name not in self.computed}


# --- what differs --------------------------------------------------------------------------------


def _waited(row: NeutralRow) -> NeutralRow:
    """A run with how long it waited; its job's due time is an extra."""
    start = row["started_at"]
    wait = None if start is None else max(start - row["scheduled_at"], timedelta()) // _MICROSECOND
    return {**row, "queue_wait_us": wait}


def _due(row: NeutralRow) -> NeutralRow:
    due, start, wait = row.get("scheduled_at"), row["started_at"], row["queue_wait_us"]
    if due is None and start is not None:
        due = start - (wait or 0) * _MICROSECOND
    return {**row, "scheduled_at": due or row["finished_at"] or _EPOCH}


def _dated(row: NeutralRow) -> NeutralRow:
    return {**row, "updated_at": row.get("updated_at") or datetime.now(UTC)}


def _metered(row: NeutralRow) -> NeutralRow:
    asked_at = row["asked_at"] if row["asked_at"] == row["updated_at"] else None
    return {**row, "tokens": None if row["rate"] is None else row["tokens"], "asked_at": asked_at}


def _asked(row: NeutralRow) -> NeutralRow:
    """A limit that was made for a key stays one: the time counts only while it is that of the last change."""
    asked_at = row.get("asked_at")
    return {**_dated(row), "asked_at": asked_at, **({} if asked_at is None else {"updated_at": asked_at})}


def _created(row: NeutralRow) -> NeutralRow:
    return {**row, "created_at": row.get("created_at") or timestamp_of(row["job_id"])}


TABLES: Final[dict[RowKind, Copied]] = {
    RowKind.QUEUE: Copied("scheduler_queue", {}),
    RowKind.LIMIT: Copied("scheduler_resource_limit", {}, outward=_metered, inward=_asked),
    RowKind.BREAKER: Copied("scheduler_circuit_breaker", {}, inward=_dated),
    RowKind.SCHEDULE: Copied("scheduler_recurring_job", {"zone": "zone_id"}),
    RowKind.FIRE: Copied("scheduler_recurring_fire", {"schedule": "name"}),
    RowKind.BATCH: Copied("scheduler_batch", {}),
    RowKind.BATCH_COST: Copied("scheduler_batch_metrics", {}),
    # a row whose id consumes it is the lock of a key
    RowKind.SIGNAL: Copied(
        "scheduler_signal",
        {"key": "signal_key"},
        where="(t.consumed_by IS NULL OR t.consumed_by <> t.signal_id)",
    ),
    RowKind.BUSINESS_KEY: Copied("scheduler_business_key_reservation", {}),
    RowKind.IDEMPOTENCY_KEY: Copied("scheduler_idempotency_key", {}, inward=_created),
    RowKind.RUN: Copied(
        "scheduler_job_execution", {}, computed=("queue_wait_us",), outward=_waited, inward=_due
    ),
    RowKind.LOG: Copied("scheduler_job_log", {"at": "logged_at"}),
    RowKind.ALERT: Copied("scheduler_dlq_alert", {}),
    RowKind.FLOW: Copied("scheduler_flow", {}),
    RowKind.AUDIT: Copied("scheduler_audit", {"object": "object_name"}),
}

# --- edges ---------------------------------------------------------------------------------------

EDGES: Final = "scheduler_dependency"
CONDITIONS: Final = "scheduler_workflow_condition"
EDGE_COLUMNS: Final = ("parent_id", "child_id", "kind", "position", "state")
#: Column by field.
CONDITION_COLUMNS: Final = {
    "parent_id": "parent_id",
    "child_id": "child_id",
    "condition_kind": "kind",
    "predicate": "predicate",
    "argument": "argument",
    "eval_order": "eval_order",
    "description": "description",
}

# --- jobs ----------------------------------------------------------------------------------------

JOBS: Final = {RowKind.JOB: "scheduler_job", RowKind.ARCHIVED_JOB: "scheduler_job_archive"}
QUEUE: Final = "scheduler_job_queue"
#: What a job row does not hold itself, and what only one product has.
_NOT_COLUMNS: Final = ("stream", "current", "tags", "signal_deadline")
#: The column of the queue that counts while there is a queue row, by field.
_HOT: Final = {
    "status": "status",
    "priority": "priority",
    "attempts": "attempts",
    "crashes": "crashes",
    "scheduled_at": "scheduled_time",
    "max_retries": "max_retries",
    "timeout_us": "timeout_us",
    "job_type": "job_type",
    "stream_id": "stream_id",
}
#: Of a claim, which is not moved: there is none where nothing runs.
QUEUE_OF_CLAIM: Final = ("picked_by", "picked_at", "claim_id", "held_claim_id")
FIND_TAGS: Final = "SELECT job_id, tag FROM scheduler_job_tag WHERE job_id {in ids uuid} ORDER BY job_id, tag"


def job_columns(kind: RowKind) -> tuple[str, ...]:
    """The columns of a job's row that are moved; the number of its stream stands for its key."""
    names = tuple(one.name for one in FIELDS[kind] if one.name not in _NOT_COLUMNS)
    return (*names, "stream_id")


def queue_columns() -> tuple[str, ...]:
    """The columns of a queue row that are moved."""
    return ("job_id", *_HOT.values())


def read_table(session: Session, kind: RowKind, after: tuple[Any, ...] | None, limit: int) -> Rows:
    """The next rows of a kind that is one table."""
    copied = TABLES[kind]
    columns = copied.columns(kind)
    key = [columns[name] for name in key_fields(kind)]
    rows = _select(session, copied.table, list(columns.values()), key, copied.where, after, limit)
    return [copied.outward(dict(zip(columns, row, strict=True))) for row in rows]


def write_table(session: Session, kind: RowKind, rows: Sequence[NeutralRow]) -> None:
    """Store rows of a kind that is one table."""
    copied = TABLES[kind]
    columns = copied.columns(kind)
    values = [[row.get(name) for name in columns] for row in map(copied.inward, rows)]
    session.insert_rows(copied.table, list(columns.values()), values, on_conflict_do_nothing=True)


def read_edges(session: Session, after: tuple[Any, ...] | None, limit: int) -> Rows:
    """The next edges, each with its condition."""
    key = ("parent_id", "child_id")
    found = _select(session, EDGES, EDGE_COLUMNS, key, "true", after, limit)
    sql = f"SELECT {', '.join(CONDITION_COLUMNS.values())} FROM {CONDITIONS} WHERE parent_id {{in ids uuid}}"
    parents = sorted({row[0] for row in found})
    conditions = {(row[0], row[1]): row for row in session.rows(sql, {"ids": parents})} if parents else {}
    names = ("condition_kind", "predicate", "argument", "eval_order", "description")
    rows = []
    for row in found:
        condition = conditions.get((row[0], row[1]), (None,) * 7)
        rows.append(
            {**dict(zip(EDGE_COLUMNS, row, strict=True)), **dict(zip(names, condition[2:], strict=True))}
        )
    return rows


def write_edges(session: Session, rows: Sequence[NeutralRow]) -> None:
    """Store edges and their conditions."""
    edges = [[row[name] for name in EDGE_COLUMNS] for row in rows]
    session.insert_rows(EDGES, EDGE_COLUMNS, edges, on_conflict_do_nothing=True)
    conditions = [
        [row[name] for name in CONDITION_COLUMNS] for row in rows if row["condition_kind"] is not None
    ]
    if conditions:
        columns = list(CONDITION_COLUMNS.values())
        session.insert_rows(CONDITIONS, columns, conditions, on_conflict_do_nothing=True)


def read_jobs(
    session: Session, streams: StreamRegistry, kind: RowKind, after: tuple[Any, ...] | None, limit: int
) -> Rows:
    """The next jobs, as they stand in the queue if they are there, with their tags."""
    columns = job_columns(kind)
    found = _select(session, JOBS[kind], columns, ("job_id",), "true", after, limit)
    ids = [row[0] for row in found]
    if not ids:
        return []
    tags: dict[UUID, list[str]] = {}
    for job_id, tag in session.rows(FIND_TAGS, {"ids": ids}):
        tags.setdefault(job_id, []).append(tag)
    queued: dict[UUID, dict[str, Any]] = {}
    if kind is RowKind.JOB:
        sql = f"SELECT {', '.join(queue_columns())} FROM {QUEUE} WHERE job_id {{in ids uuid}}"
        queued = {row[0]: dict(zip(_HOT, row[1:], strict=True)) for row in session.rows(sql, {"ids": ids})}
    shown = _Streams(streams, session)
    rows = []
    for values in found:
        row = dict(zip(columns, values, strict=True))
        home = row.pop("stream_id")
        hot = queued.get(row["job_id"])
        current = home
        if hot is not None:
            current = hot.pop("stream_id")
            row.update(hot)
        names = row["no_retry_for"]
        row["no_retry_for"] = json.decode(names) if names else None
        row["stream"] = shown.of(home)
        row["current"] = None if current == home else shown.of(current)
        row["tags"] = sorted(tags.get(row["job_id"], ()))
        if not has_ended(row):
            row["node_id"] = None
        if row["status"] == JobStatus.RUNNING:
            row["status"] = JobStatus.PENDING.value
        rows.append(row)
    return rows


class _Streams:
    """Stream keys as plain fields, each made once in a portion."""

    def __init__(self, streams: StreamRegistry, session: Session) -> None:
        self._streams = streams
        self._session = session
        self._found: dict[int, dict[str, Any]] = {}

    def of(self, stream_id: int) -> dict[str, Any]:
        found = self._found.get(stream_id)
        if found is None:
            key = self._streams.recorded_key(stream_id, self._session)
            found = self._found[stream_id] = plain_stream(key)
        return found


def streams_of(rows: Iterable[NeutralRow]) -> dict[int, StreamKey]:
    """The stream keys that these jobs need, by the identity of the plain ones."""
    found: dict[int, StreamKey] = {}
    for row in rows:
        for plain in (row["stream"], row["current"]):
            if plain is not None and id(plain) not in found:
                found[id(plain)] = stream_of(plain)
    return found


def write_jobs(
    session: Session,
    kind: RowKind,
    rows: Sequence[NeutralRow],
    keys: Mapping[int, StreamKey],
    ids: Mapping[StreamKey, int],
) -> None:
    """Store jobs with their queue rows and tags; *keys* and *ids* lead from their streams to the numbers of these here."""
    columns = job_columns(kind)
    cold: list[list[Any]] = []
    hot: list[list[Any]] = []
    tags: list[tuple[str, UUID]] = []
    names = [name for name in _HOT if name != "stream_id"]
    for row in rows:
        home = ids[keys[id(row["stream"])]]
        job_id = row["job_id"]
        values = {
            **row,
            "stream_id": home,
            "no_retry_for": json.encode(row["no_retry_for"]).decode() if row["no_retry_for"] else None,
            "held_at": row.get("held_at") or _held_at(row),
        }
        cold.append([values[name] for name in columns])
        tags.extend((tag, job_id) for tag in row["tags"] or ())
        if kind is RowKind.JOB and row["status"] == JobStatus.PENDING:
            current = home if row["current"] is None else ids[keys[id(row["current"])]]
            hot.append([job_id, *(row[name] for name in names), current])
    session.insert_rows(JOBS[kind], columns, cold, on_conflict_do_nothing=True)
    if tags:
        session.insert_rows("scheduler_job_tag", ("tag", "job_id"), tags, on_conflict_do_nothing=True)
    if hot:
        session.insert_rows(QUEUE, queue_columns(), hot, on_conflict_do_nothing=True)
        session.backdated({row[-1] for row in hot})


def _held_at(row: NeutralRow) -> datetime | None:
    """A job that is held back has a time; which one, only its place in an index depends on."""
    held = row["status"] in (JobStatus.PAUSED, JobStatus.WAITING)
    found: datetime | None = row["created_at"] if held else None
    return found


def _select(
    session: Session,
    table: str,
    columns: Sequence[str],
    key: Sequence[str],
    where: str,
    after: tuple[Any, ...] | None,
    limit: int,
) -> list[tuple[Any, ...]]:
    selected = ", ".join(f"t.{column}" for column in columns)
    given: dict[str, object] = {"most": limit}
    beyond = where
    if after is not None:
        beyond = f"{where} AND {_beyond(key)}"
        given |= {f"after_{column}": value for column, value in zip(key, after, strict=True)}
    order = ", ".join(f"t.{column}" for column in key)
    return session.rows(
        f"SELECT {selected} FROM {table} t WHERE {beyond} ORDER BY {order} LIMIT :most", given
    )


def _beyond(key: Sequence[str]) -> str:
    """Rows after a key. The first part lets every product begin in the index; row values would not on MySQL."""
    first, *rest = key
    deeper = f"t.{first} > :after_{first}"
    if not rest:
        return deeper
    return f"t.{first} >= :after_{first} AND ({deeper} OR (t.{first} = :after_{first} AND {_beyond(rest)}))"
