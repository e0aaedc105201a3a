"""
Submitted specs as rows: the cold row of each, and the queue row of each that is PENDING.

Columns that carry nothing but their default in the whole call are left out, so that a plain job sends
ten values, not thirty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import json
from msgspec.structs import astuple

from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.status import JobStatus, JobType
from ratchet.spi.store import Sent
from ratchet.stores.sql.database import Database, Session
from ratchet.stores.sql.errors import ConstraintViolated, LockTimeout
from ratchet.stores.validation import TARGET_LIMIT

if TYPE_CHECKING:
    from ratchet.stores.sql.rows.stream_registry import StreamRegistry

_MICROSECOND = timedelta(microseconds=1)

#: Jobs overdue by less than this count as on time: no claim starts to look so late.
LATE = timedelta(seconds=1)

# The insert skips rows that exist already, and so does this statement: a job is PENDING in the cold table exactly
# while it has a queue row.
ENQUEUE_STORED = """
    INSERT INTO scheduler_job_queue
           (job_id, stream_id, priority, status, job_type, max_retries, timeout_us, scheduled_time)
    SELECT job_id, stream_id, priority, 'PENDING', job_type, max_retries, timeout_us, scheduled_at
      FROM scheduler_job
     WHERE job_id {in ids uuid} AND status = 'PENDING'
        ON CONFLICT (job_id) DO NOTHING
"""

FIND_STORED = "SELECT job_id FROM scheduler_job WHERE job_id {in ids uuid}"

FIND_KNOWN = """
    SELECT job_id FROM scheduler_job WHERE job_id {in ids uuid}
     UNION ALL
    SELECT job_id FROM scheduler_job_archive WHERE job_id {in ids uuid}
"""

_COLD = "INSERT INTO scheduler_job ({cold}) VALUES ({cold_values})"
_QUEUED = "INSERT INTO scheduler_job_queue ({hot}) VALUES ({hot_values})"

_REQUIRED = (
    "job_id",
    "root_id",
    "target",
    "payload",
    "job_type",
    "priority",
    "stream_id",
    "status",
    "created_at",
    "scheduled_at",
)


def _micros(duration: timedelta) -> int:
    return duration // _MICROSECOND


_UNSET = dict(
    zip(
        JobSpec.__struct_fields__[-len(JobSpec.__struct_defaults__) :],
        JobSpec.__struct_defaults__,
        strict=True,
    )
)


def _option(
    column: str, field: str | None = None, stored: Callable[[Any], Any] | None = None
) -> tuple[str, Callable[[JobSpec], Any], Any, Callable[[Any], Any] | None]:
    field = field or column
    return column, attrgetter(field), _UNSET[field], stored


#: The optional columns: how the field of a spec is read, its default, and how another value is stored.
_OPTIONAL = (
    _option("params"),
    _option("expires_at"),
    _option("expiry_due_at", "expires_at"),
    _option("max_retries"),
    _option("backoff", stored=attrgetter("value")),
    _option("backoff_base_us", "backoff_base", _micros),
    _option("jitter"),
    _option("timeout_us", "timeout", lambda timeout: None if timeout is None else _micros(timeout)),
    _option("no_retry_for", stored=lambda names: json.encode(names).decode() if names else None),
    _option("idempotency_key"),
    _option("business_key"),
    _option("on_success"),
    _option("on_failure"),
    _option("parent_id"),
    _option("batch_id"),
    _option("schedule"),
    _option("caller"),
    _option("needs"),
    _option("signal_key", "signal", lambda signal: None if signal is None else signal.key),
    _option("signal_due_at", "signal", lambda signal: None if signal is None else signal.deadline),
)

_FIRST_OPTION = JobSpec.__struct_fields__.index("expires_at")
_NO_OPTIONS = JobSpec.__struct_defaults__[_FIRST_OPTION - len(JobSpec.__struct_fields__) :]

#: The columns of the queue, and the cold columns that they repeat.
HOT_COLUMNS = (
    ("job_id", "job_id"),
    ("stream_id", "stream_id"),
    ("priority", "priority"),
    ("status", "status"),
    ("job_type", "job_type"),
    ("max_retries", "max_retries"),
    ("timeout_us", "timeout_us"),
    ("scheduled_time", "scheduled_at"),
)


class Flags:
    """What the other parts of a submission say about the rows: who has dependants, who has conditions."""

    __slots__ = ("conditions", "dependants")

    def __init__(self) -> None:
        self.dependants: set[UUID] = set()
        self.conditions: set[UUID] = set()


def has_only_defaults(spec: JobSpec) -> bool:
    """True if a spec has no options, keys, tags, signal or batch: nothing beyond what, when and where it runs."""
    return astuple(spec)[_FIRST_OPTION:] == _NO_OPTIONS


def is_evident(spec: JobSpec, now: datetime) -> bool:
    """
    True for a job in which `validate` could refuse nothing but the stream; most jobs are like that.

    Submitting such a job to PostgreSQL takes 6 % less time than with the questions of `validate`.
    """
    return (
        spec.status is JobStatus.PENDING
        and has_only_defaults(spec)
        and spec.root_id is None
        and spec.scheduled_at.tzinfo is not None
        and now.tzinfo is not None
        and len(spec.target) <= TARGET_LIMIT
    )


def are_evident(specs: Sequence[JobSpec], now: datetime) -> bool:
    """`is_evident` for jobs that have only defaults, and share most of their values: each is looked at once."""
    due = {id(spec.scheduled_at): spec.scheduled_at for spec in specs}.values()
    return (
        now.tzinfo is not None
        and [spec.status for spec in specs].count(JobStatus.PENDING) == len(specs)
        and all(moment.tzinfo is not None for moment in due)
        and all(len(target) <= TARGET_LIMIT for target in {spec.target for spec in specs})
    )


def is_plain(spec: JobSpec) -> bool:
    """True for a job whose rows are all that a submission of it stores."""
    keys = (spec.idempotency_key, spec.business_key, spec.signal, spec.batch_id)
    return not spec.tags and all(key is None for key in keys)


class RowWriter:
    """
    Writes the rows of jobs in the way that every product understands.

    A dialect has one (`Dialect.row_writer`); a product that is faster in its own way overrides an operation.
    """

    def insert_one(self, database: Database, values: dict[str, object]) -> bool:
        """
        Store one plain job (`plain_values`) in a transaction of its own; False where it was refused.

        It fails where the job is stored already. Looking for it first, as ON CONFLICT does, is work for the server and
        bytes in its log, and only a submission whose answer was lost comes twice. On a SQLite file this takes a quarter
        less time than `insert_many` for one job.
        """
        cold, queued = insert_texts(tuple(values))

        def insert(session: Session) -> None:
            session.execute(cold, values)
            session.execute(queued, values)

        try:
            database.run(insert)
        except (ConstraintViolated, LockTimeout):
            return False
        return True

    def send_one(self, database: Database, values: dict[str, object]) -> Sent | None:
        """`insert_one` without waiting for the answer; None where that is not possible now, or never."""
        return None

    def insert_many(
        self, session: Session, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
    ) -> set[UUID]:
        """Store jobs (`store_specs`) whose id is the first column, and their queue rows; the ids of those that are new."""
        ids = [row[0] for row in rows]
        known = {job_id for (job_id,) in session.rows(FIND_STORED, {"ids": ids})}
        session.insert_rows("scheduler_job", columns, rows, on_conflict_do_nothing=True)
        session.execute(ENQUEUE_STORED, {"ids": ids})
        return set(ids) - known

    def copy(
        self, database: Database, streams: StreamRegistry, specs: Sequence[JobSpec], *, now: datetime
    ) -> bool:
        """Store many plain jobs in a transaction of their own; False where that is no faster, or was refused."""
        return False


def plain_values(spec: JobSpec, stream_id: int, now: datetime, *, bare: bool) -> dict[str, object]:
    """
    What is stored of a PENDING job without keys, tags, edges and signal, for `RowWriter.insert_one`.

    *bare*: the spec has only defaults (`has_only_defaults`).
    """
    values: dict[str, object] = {
        "job_id": spec.job_id,
        "target": spec.target,
        "payload": spec.payload,
        "job_type": "SINGLE" if spec.type is JobType.SINGLE else spec.type.value,  # `value` is code in Python
        "priority": spec.priority,
        "stream_id": stream_id,
        "scheduled_at": spec.scheduled_at,
    }
    if spec.root_id is not None:
        values["root_id"] = spec.root_id
    if spec.scheduled_at is not now:
        values["created_at"] = now
    if not bare:
        for column, read, default, stored in _OPTIONAL:
            if (value := read(spec)) != default:
                values[column] = value if stored is None else stored(value)
    return values


@lru_cache(maxsize=256)
def insert_texts(given: tuple[str, ...]) -> tuple[str, str]:
    """The statements that insert the cold row and the queue row of a job with these `plain_values`."""
    # what two columns have in common is sent once
    binds = {"root_id": ":job_id", "created_at": ":scheduled_at", "status": "'PENDING'"}
    binds |= {column: f":{column}" for column in given}
    hot = {column: binds[source] for column, source in HOT_COLUMNS if source in binds}
    cold = _COLD.format(cold=", ".join(binds), cold_values=", ".join(binds.values()))
    queued = _QUEUED.format(hot=", ".join(hot), hot_values=", ".join(hot.values()))
    return cold, queued


def store_specs(
    session: Session,
    specs: Sequence[JobSpec],
    stream_ids: Mapping[StreamKey, int],
    *,
    now: datetime,
    flags: Flags | None = None,
) -> set[UUID]:
    """Store jobs with their queue rows in an open transaction; the ids of those that were not there before."""
    names, columns = columns_of(specs, stream_ids, now, flags)
    tell_backdated_specs(session, specs, stream_ids, now)
    return session.dialect.row_writer.insert_many(session, names, list(zip(*columns, strict=True)))


def find_known(session: Session, job_ids: Iterable[UUID]) -> set[UUID]:
    """Those of these jobs that were stored before, and may be in the archive."""
    ids = sorted(job_ids)
    return {job_id for (job_id,) in session.rows(FIND_KNOWN, {"ids": ids})} if ids else set()


def tell_backdated(session: Session, jobs: Iterable[tuple[int, datetime]], now: datetime) -> None:
    """Jobs, as (stream, due time), came into the queue; `Session.backdated` for those that claims may have passed."""
    latest = now - LATE
    if streams := {stream_id for stream_id, due_at in jobs if due_at < latest}:
        session.backdated(streams)


def tell_backdated_specs(
    session: Session, specs: Sequence[JobSpec], stream_ids: Mapping[StreamKey, int], now: datetime
) -> None:
    """`tell_backdated` for submitted jobs."""
    if specs and min([spec.scheduled_at for spec in specs]) < now - LATE:
        tell_backdated(session, ((stream_ids[spec.stream], spec.scheduled_at) for spec in specs), now)


def columns_of(
    specs: Sequence[JobSpec],
    stream_ids: Mapping[StreamKey, int],
    now: datetime,
    flags: Flags | None = None,
    *,
    bare: bool = False,
) -> tuple[tuple[str, ...], list[Sequence[Any]]]:
    """
    The cold rows of *specs*, column by column: names and values.

    *bare*: no spec has anything but defaults (`has_only_defaults`).
    """
    ids = [spec.job_id for spec in specs]
    rooted = [spec.root_id for spec in specs].count(None) != len(specs)
    statuses = [spec.status for spec in specs]
    names = list(_REQUIRED)
    columns: list[Sequence[Any]] = [
        ids,
        [spec.root_id or spec.job_id for spec in specs] if rooted else ids,
        [spec.target for spec in specs],
        [spec.payload for spec in specs],
        _words([spec.type for spec in specs]),
        [int(spec.priority) for spec in specs],
        _stream_ids(specs, stream_ids),
        _words(statuses),
        [now] * len(specs),
        [spec.scheduled_at for spec in specs],
    ]
    if not bare:
        for column, values in _optional_columns(specs):
            names.append(column)
            columns.append(values)
    if statuses.count(JobStatus.WAITING):
        names.append("held_at")
        columns.append([now if status is JobStatus.WAITING else None for status in statuses])
    if flags is not None and flags.dependants:
        names += ["has_dependants", "has_conditions"]
        columns.append([spec.job_id in flags.dependants for spec in specs])
        columns.append([spec.job_id in flags.conditions for spec in specs])
    return tuple(names), columns


def _optional_columns(specs: Sequence[JobSpec]) -> Iterable[tuple[str, list[Any]]]:
    # the fields are read and compared at C speed; only those that somebody set are converted
    for column, read, default, stored in _OPTIONAL:
        values = list(map(read, specs))
        if values.count(default) == len(values):
            continue
        if stored is not None:
            values = list(map(stored, values))
            if values.count(None) == len(values):  # a signal without a deadline
                continue
        yield column, values


def _words(members: Sequence[JobStatus] | Sequence[JobType]) -> list[str]:
    first = members[0]
    if members.count(first) == len(members):  # reading the value of a member is a call, comparing it is not
        return [first.value] * len(members)
    return [member.value for member in members]


def _stream_ids(specs: Sequence[JobSpec], stream_ids: Mapping[StreamKey, int]) -> list[int]:
    # by identity: the specs of a bulk share their key, and hashing it a thousand times takes time
    known = {id(key): stream_ids[key] for key in {id(spec.stream): spec.stream for spec in specs}.values()}
    return [known[id(spec.stream)] for spec in specs]
