"""
Submitted specs as rows: the cold row of each, and the queue row of each that is PENDING.

Columns that carry nothing but their default in the whole call are left out, so that a plain job sends
ten values, not thirty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from typing import Any
from uuid import UUID

from msgspec import json

from ratchet.model.job import JobSpec, StreamKey
from ratchet.model.status import BackoffPolicy, JobStatus, JobType
from ratchet.stores.sql.database import Session
from ratchet.stores.sql.rows.backdating import tell_backdated_specs

_MICROSECOND = timedelta(microseconds=1)

# Portable: the insert leaves rows alone that are there already, and so does the second statement, for
# a job is PENDING in the cold table exactly while it has a queue row.
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

_FUSED = """
    WITH cold AS (
        INSERT INTO scheduler_job ({columns})
        {source}
            ON CONFLICT (job_id) DO NOTHING
        RETURNING job_id, stream_id, priority, status, job_type, max_retries, timeout_us, scheduled_at
    ), hot AS (
        INSERT INTO scheduler_job_queue
               (job_id, stream_id, priority, status, job_type, max_retries, timeout_us, scheduled_time)
        SELECT job_id, stream_id, priority, status, job_type, max_retries, timeout_us, scheduled_at
          FROM cold
         WHERE status = 'PENDING'
    )
    SELECT job_id FROM cold
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

#: The optional columns: what is stored of a spec, and the column's default.
_OPTIONAL: tuple[tuple[str, Callable[[JobSpec], Any], Any], ...] = (
    ("params", lambda spec: spec.params, None),
    ("expires_at", lambda spec: spec.expires_at, None),
    ("expiry_due_at", lambda spec: spec.expires_at, None),
    ("max_retries", lambda spec: spec.max_retries, 0),
    ("backoff", lambda spec: spec.backoff.value, BackoffPolicy.NONE.value),
    ("backoff_base_us", lambda spec: spec.backoff_base // _MICROSECOND, 0),
    ("jitter", lambda spec: spec.jitter, 0.0),
    ("timeout_us", lambda spec: None if spec.timeout is None else spec.timeout // _MICROSECOND, None),
    (
        "no_retry_for",
        lambda spec: json.encode(spec.no_retry_for).decode() if spec.no_retry_for else None,
        None,
    ),
    ("idempotency_key", lambda spec: spec.idempotency_key, None),
    ("business_key", lambda spec: spec.business_key, None),
    ("on_success", lambda spec: spec.on_success, None),
    ("on_failure", lambda spec: spec.on_failure, None),
    ("parent_id", lambda spec: spec.parent_id, None),
    ("batch_id", lambda spec: spec.batch_id, None),
    ("schedule", lambda spec: spec.schedule, None),
    ("caller", lambda spec: spec.caller, None),
    ("needs", lambda spec: spec.needs, 0),
    ("signal_key", lambda spec: None if spec.signal is None else spec.signal.key, None),
    ("signal_due_at", lambda spec: None if spec.signal is None else spec.signal.deadline, None),
)


#: The field of a spec that an optional column comes from, where they are named differently.
_FIELD_OF = {
    "expiry_due_at": "expires_at",
    "backoff_base_us": "backoff_base",
    "timeout_us": "timeout",
    "signal_key": "signal",
    "signal_due_at": "signal",
}
_UNSET = dict(
    zip(
        JobSpec.__struct_fields__[-len(JobSpec.__struct_defaults__) :],
        JobSpec.__struct_defaults__,
        strict=True,
    )
)
#: Each such field, how it is read, and its value where nobody set it.
_FIELDS = tuple(
    (name, attrgetter(name), _UNSET[name])
    for name in dict.fromkeys(_FIELD_OF.get(column, column) for column, _, _ in _OPTIONAL)
)
_LOOK_FROM = 16

#: The columns of the queue, and the cold columns that they repeat.
_HOT = (
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


def store_specs(
    session: Session,
    specs: Sequence[JobSpec],
    stream_ids: Mapping[StreamKey, int],
    *,
    now: datetime,
    flags: Flags | None = None,
) -> set[UUID]:
    """
    Store jobs with their queue rows; the ids of those that were not there before.

    One statement where the product can change two tables in one; two, and a look, elsewhere.
    """
    columns, rows = _table(specs, stream_ids, now, flags)
    tell_backdated_specs(session, specs, stream_ids, now)
    if session.dialect.fuses_writes:
        if len(rows) == 1:
            found = session.rows(_insert_one(columns), dict(zip(columns, rows[0], strict=True)))
        else:
            found = session.rows(_insert_many(columns), {"spec": rows})
        return {job_id for (job_id,) in found}
    ids = [spec.job_id for spec in specs]
    known = {job_id for (job_id,) in session.rows(FIND_STORED, {"ids": ids})}
    session.insert_rows("scheduler_job", columns, rows, on_conflict_do_nothing=True)
    session.execute(ENQUEUE_STORED, {"ids": ids})
    return set(ids) - known


def find_known(session: Session, job_ids: Iterable[UUID]) -> set[UUID]:
    """Those of these jobs that were stored before, and may be in the archive."""
    ids = sorted(job_ids)
    return {job_id for (job_id,) in session.rows(FIND_KNOWN, {"ids": ids})} if ids else set()


def lone_values(spec: JobSpec, stream_id: int, now: datetime, *, bare: bool = False) -> dict[str, object]:
    """
    What is stored of a PENDING job without keys, tags, edges and signal: the values for `lone_insert` or `insert_apart`.

    Both fail where the job is there already: looking for it first, as ON CONFLICT does, is work for the server
    and bytes in its log, and only a submission whose answer was lost comes twice. *bare*: nothing but defaults
    is in the spec (`has_only_defaults`).
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
        for name, value_of, default in _OPTIONAL:
            if (value := value_of(spec)) != default:
                values[name] = value
    return values


def lone_insert(values: Mapping[str, object]) -> str:
    """The one statement that stores such a job, where the product can fuse writes."""
    return _insert_alone(tuple(values))[0]


def insert_apart(session: Session, values: Mapping[str, object]) -> None:
    """Store such a job where it takes two statements; `ConstraintViolated` where it is there already."""
    for statement in _insert_alone(tuple(values))[1:]:
        session.execute(statement, values)


def copy_specs(
    session: Session,
    specs: Sequence[JobSpec],
    stream_ids: Mapping[StreamKey, int],
    *,
    now: datetime,
    bare: bool = False,
) -> None:
    """
    Store plain jobs in the product's fastest way; `ConstraintViolated` where one of them is there already.

    *bare*: none has anything but defaults (`has_only_defaults`).
    """
    begun = time.monotonic()
    names, columns = _columns(specs, stream_ids, now, None, bare=bare)
    session.insert_columns("scheduler_job", names, columns)
    known = dict(zip(names, columns, strict=True))
    hot = [(column, known[source]) for column, source in _HOT if source in known]
    if known["status"].count(JobStatus.PENDING.value) != len(specs):
        pending = [status == JobStatus.PENDING.value for status in known["status"]]
        hot = [(column, [*compress(values, pending)]) for column, values in hot]
    if hot[0][1]:
        session.insert_columns(
            "scheduler_job_queue", [name for name, _ in hot], [values for _, values in hot]
        )
    # many jobs take long enough to be late when they become visible
    tell_backdated_specs(session, specs, stream_ids, now + timedelta(seconds=time.monotonic() - begun))


def _table(
    specs: Sequence[JobSpec], stream_ids: Mapping[StreamKey, int], now: datetime, flags: Flags | None
) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    names, columns = _columns(specs, stream_ids, now, flags)
    return names, list(zip(*columns, strict=True))


def _columns(
    specs: Sequence[JobSpec],
    stream_ids: Mapping[StreamKey, int],
    now: datetime,
    flags: Flags | None,
    *,
    bare: bool = False,
) -> tuple[tuple[str, ...], list[Sequence[object]]]:
    ids = [spec.job_id for spec in specs]
    rooted = [spec.root_id for spec in specs].count(None) != len(specs)
    statuses = [spec.status for spec in specs]
    names = list(_REQUIRED)
    columns: list[Sequence[object]] = [
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
    optional = () if bare else _OPTIONAL
    if len(specs) > _LOOK_FROM and not bare:
        # what every spec leaves at its default is found at C speed, and not looked at a second time
        used = {name for name, read, unset in _FIELDS if list(map(read, specs)).count(unset) != len(specs)}
        optional = tuple(one for one in _OPTIONAL if _FIELD_OF.get(one[0], one[0]) in used)
    for name, value_of, default in optional:
        values = [value_of(spec) for spec in specs]
        if values.count(default) != len(values):
            names.append(name)
            columns.append(values)
    if statuses.count(JobStatus.WAITING):
        names.append("held_at")
        columns.append([now if status is JobStatus.WAITING else None for status in statuses])
    if flags is not None and flags.dependants:
        names += ["has_dependants", "has_conditions"]
        columns.append([spec.job_id in flags.dependants for spec in specs])
        columns.append([spec.job_id in flags.conditions for spec in specs])
    return tuple(names), columns


def _words(members: Sequence[JobStatus] | Sequence[JobType]) -> list[str]:
    first = members[0]
    if members.count(first) == len(members):  # reading the value of a member is a call, comparing it is not
        return [first.value] * len(members)
    return [member.value for member in members]


def _stream_ids(specs: Sequence[JobSpec], stream_ids: Mapping[StreamKey, int]) -> list[int]:
    # by identity: the specs of a bulk share their key, and hashing it a thousand times takes time
    known = {id(key): stream_ids[key] for key in {id(spec.stream): spec.stream for spec in specs}.values()}
    return [known[id(spec.stream)] for spec in specs]


@lru_cache(maxsize=256)
def _insert_one(columns: tuple[str, ...]) -> str:
    binds = ", ".join(f":{column}" for column in columns)
    return _FUSED.format(columns=", ".join(columns), source=f"VALUES ({binds})")


@lru_cache(maxsize=256)
def _insert_alone(given: tuple[str, ...]) -> tuple[str, str, str]:
    """Both rows in one statement; the cold one, and the hot one."""
    # what two columns have in common is sent once
    binds = {"root_id": ":job_id", "created_at": ":scheduled_at", "status": "'PENDING'"}
    binds |= {column: f":{column}" for column in given}
    hot = {column: binds[source] for column, source in _HOT if source in binds}
    cold = _COLD.format(cold=", ".join(binds), cold_values=", ".join(binds.values()))
    queued = _QUEUED.format(hot=", ".join(hot), hot_values=", ".join(hot.values()))
    return f"WITH cold AS ({cold}) {queued}", cold, queued


@lru_cache(maxsize=256)
def _insert_many(columns: tuple[str, ...]) -> str:
    names = ", ".join(columns)
    return _FUSED.format(columns=names, source=f"SELECT {names} FROM {{rows spec ({names})}}")
