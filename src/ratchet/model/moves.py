"""
What is moved from one store to another: kinds of rows, each in a form that belongs to no product.

A neutral row is a dict of Python values by field. One line of an export is such a row as JSON, with its kind. A store that can be
moved reads and writes neutral rows (`ratchet.spi.movable`), and both sides of a move are compared by them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct, field

from ratchet.model.errors import RatchetError
from ratchet.model.job import StreamKey
from ratchet.model.status import JobStatus, Lane

#: One neutral row.
NeutralRow = dict[str, Any]


class RowKind(StrEnum):
    """The kinds, in the order in which they are moved. What nodes leave behind (nodes, locks, permits) is not moved."""

    QUEUE = "queue"
    LIMIT = "limit"
    BREAKER = "breaker"
    SCHEDULE = "schedule"
    FIRE = "fire"
    BATCH = "batch"
    BATCH_COST = "batch_cost"
    SIGNAL = "signal"
    EDGE = "edge"
    BUSINESS_KEY = "business_key"
    IDEMPOTENCY_KEY = "idempotency_key"
    ARCHIVED_JOB = "archived_job"
    RUN = "run"
    LOG = "log"
    ALERT = "alert"
    FLOW = "flow"
    AUDIT = "audit"
    JOB = "job"  # last: what may run is complete


class Field(NamedTuple):
    """One field of a kind. ``extra``: only some products store it; it is passed on between those, and not compared."""

    name: str
    type: str  # uuid text time int real bool texts stream
    key: bool = False
    extra: bool = False


def _fields(text: str) -> tuple[Field, ...]:
    """``name*:uuid`` is part of the key, ``name?:time`` an extra."""
    found = []
    for word in text.split():
        name, _, kind = word.partition(":")
        found.append(Field(name.rstrip("*?"), kind or "text", name.endswith("*"), name.endswith("?")))
    return tuple(found)


_JOB = """
    job_id*:uuid root_id:uuid target payload params job_type priority:int stream:stream current:stream status created_at:time
    scheduled_at:time expires_at:time max_retries:int backoff backoff_base_us:int jitter:real timeout_us:int no_retry_for:texts
    idempotency_key business_key on_success on_failure parent_id:uuid batch_id:uuid schedule caller needs:int
    has_dependants:bool has_conditions:bool signal_key signal attempts:int crashes:int started_at:time finished_at:time
    node_id error error_type result result_truncated:bool progress:real progress_message state paused_from
    superseded_by:uuid canceled_reason canceled_by:uuid dead_letter_reason dead_lettered_at:time expiry_due_at:time
    signal_due_at:time tags:texts held_at?:time signal_deadline?:time
"""

FIELDS: Final[dict[RowKind, tuple[Field, ...]]] = {
    RowKind.QUEUE: _fields("queue* paused:bool paused_at:time paused_until:time paused_until_of:time"),
    RowKind.LIMIT: _fields(
        """resource* max_concurrent:int rate:int period_us:int tokens:real refilled_at:time updated_at?:time
        asked_at?:time"""
    ),
    RowKind.BREAKER: _fields("service* state open_until:time document version:int updated_at?:time"),
    RowKind.SCHEDULE: _fields(
        """name* expression zone target template misfire overlap starts_at:time ends_at:time jitter_us:int declared:bool
        paused:bool next_fire_at:time last_fire_at:time created_at:time updated_at:time"""
    ),
    RowKind.FIRE: _fields("schedule* fire_at*:time outcome job_id:uuid reason recorded_at:time"),
    RowKind.BATCH: _fields(
        """batch_id*:uuid name parent_id:uuid total:int completed:int failed:int canceled:int sealed:bool progress_target
        created_at:time finished_at:time"""
    ),
    RowKind.BATCH_COST: _fields("batch_id*:uuid runs:int run_time_us:int started_at:time finished_at?:time"),
    RowKind.SIGNAL: _fields(
        "signal_id*:uuid key job_id:uuid payload rejected sent_at:time keep_until:time consumed_by:uuid"
    ),
    RowKind.EDGE: _fields(
        """parent_id*:uuid child_id*:uuid kind position:int state condition_kind predicate argument eval_order:int
        description"""
    ),
    RowKind.BUSINESS_KEY: _fields("business_key* job_id:uuid reserved_at:time"),
    RowKind.IDEMPOTENCY_KEY: _fields("idempotency_key* job_id:uuid created_at?:time"),
    RowKind.ARCHIVED_JOB: _fields(f"{_JOB} archived_at:time"),
    RowKind.RUN: _fields(
        """job_id*:uuid claim_id*:uuid attempt:int node_id queue_wait_us:int started_at:time finished_at:time status
        counted:bool error error_type traceback scheduled_at?:time"""
    ),
    RowKind.LOG: _fields(
        "job_id*:uuid claim_id*:uuid sequence*:int attempt:int at:time level logger message"
    ),
    RowKind.ALERT: _fields(
        "alert_id*:uuid job_id:uuid target error_hash error reason created_at:time suppressed:int"
    ),
    RowKind.FLOW: _fields("seconds*:int begins_at*:time source* document"),
    RowKind.AUDIT: _fields(
        """audit_id*:uuid audited_at:time principal source verb job_id:uuid object criteria affected:int reason
        outcome"""
    ),
    RowKind.JOB: _fields(_JOB),
}

_KEYS: Final = {kind: tuple(one.name for one in fields if one.key) for kind, fields in FIELDS.items()}
_COMPARED: Final = {
    kind: tuple(one.name for one in fields if not one.extra) for kind, fields in FIELDS.items()
}


def key_fields(kind: RowKind) -> tuple[str, ...]:
    """The fields that make the key of a kind, in the order by which it is read."""
    return _KEYS[kind]


def key_of(kind: RowKind, row: NeutralRow) -> tuple[Any, ...]:
    """The key of a row."""
    return tuple(row[name] for name in _KEYS[kind])


def has_ended(row: NeutralRow) -> bool:
    """True for a job that has ended, also where it was paused after that."""
    status = row["status"]
    return status in _ENDED or (status == JobStatus.PAUSED and row["paused_from"] == JobStatus.FAILED)


_ENDED: Final = frozenset({JobStatus.SUCCEEDED.value, JobStatus.FAILED.value, JobStatus.CANCELED.value})


# --- the gate of a job ---------------------------------------------------------------------------


def plain_stream(key: StreamKey) -> dict[str, Any]:
    """A stream key by field; what is not given is left out. Its number belongs to one store and is not moved."""
    found = msgspec.structs.asdict(key) | {"lane": key.lane.value}
    return {name: value for name, value in found.items() if value is not None and value is not False}


def stream_of(plain: Mapping[str, Any]) -> StreamKey:
    """The stream key of `plain_stream`."""
    return StreamKey(**{**plain, "lane": Lane(plain["lane"])})


# --- lines ---------------------------------------------------------------------------------------

_DECODERS: Final[dict[str, Any]] = {
    "uuid": UUID,
    "time": lambda text: datetime.fromisoformat(text).astimezone(UTC),
    "text": str,
    "int": int,
    "real": float,
    "bool": bool,
    "texts": lambda found: [str(one) for one in found],
    "stream": dict,
}
_TYPES: Final = {kind: {one.name: one.type for one in fields} for kind, fields in FIELDS.items()}
_encoder = msgspec.json.Encoder()


def line_of(kind: RowKind, row: NeutralRow) -> bytes:
    """One line of an export, without its end; what is null is left out."""
    return _encoder.encode(
        {"kind": kind.value, **{_shown(name): value for name, value in row.items() if value is not None}}
    )


def row_of(line: Mapping[str, Any]) -> tuple[RowKind, NeutralRow]:
    """The row of a decoded line; ValueError or KeyError where it is none."""
    kind = RowKind(line["kind"])
    types = _TYPES[kind]
    row: NeutralRow = dict.fromkeys(_COMPARED[kind])
    for shown, value in line.items():
        name = _stored(shown)
        if name is not None and value is not None:
            row[name] = _DECODERS[types[name]](value)
    if missing := [name for name in _KEYS[kind] if row[name] is None]:
        raise ValueError(f"{kind} without {', '.join(missing)}")
    return kind, row


def _shown(name: str) -> str:
    """An edge has a kind of its own; its line is of the kind edge."""
    return "edge_kind" if name == "kind" else name


def _stored(shown: str) -> str | None:
    return None if shown == "kind" else "kind" if shown == "edge_kind" else shown


def plain_key(kind: RowKind, row: NeutralRow) -> list[Any]:
    """The key of a row as a checkpoint stores it."""
    found: list[Any] = msgspec.json.decode(_encoder.encode(key_of(kind, row)))
    return found


def key_from(kind: RowKind, plain: Iterable[Any]) -> tuple[Any, ...]:
    """The key that `plain_key` has made."""
    types = _TYPES[kind]
    return tuple(_DECODERS[types[name]](value) for name, value in zip(_KEYS[kind], plain, strict=True))


# --- comparing -----------------------------------------------------------------------------------

_MODULUS: Final = 1 << 128


class Tally(Struct, frozen=True):
    """
    How many rows of a kind there are, and the sum of their checksums.

    A sum does not depend on the order, which is another one in each product; and the tally of some rows can be added to that of others.
    """

    count: int = 0
    checksum: str = "0"

    def plus(self, other: Tally) -> Tally:
        """The tally of both."""
        total = (int(self.checksum, 16) + int(other.checksum, 16)) % _MODULUS
        return Tally(self.count + other.count, f"{total:x}")


def tally(kind: RowKind, rows: Iterable[NeutralRow]) -> Tally:
    """The tally of these rows; extras do not count."""
    names, count, total = _COMPARED[kind], 0, 0
    for row in rows:
        text = _encoder.encode([row[name] for name in names])
        total += int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
        count += 1
    return Tally(count, f"{total % _MODULUS:x}")


# --- what a move has come to ---------------------------------------------------------------------


class MoveState(StrEnum):
    """How far a move is, as each side has it written down."""

    DRAINING = "DRAINING"  # source: nothing is claimed any more
    FENCED = "FENCED"  # source: nothing is written any more
    FILLING = "FILLING"  # target: rows arrive, nobody else may write here
    ARRIVED = "ARRIVED"  # target of an import: it is whole, and about to be opened
    MOVED = "MOVED"  # source: its jobs are elsewhere, for good
    DONE = "DONE"  # target: open for work
    EXPORTING = "EXPORTING"  # source: as FENCED, and opened again at the end
    RESTORING = "RESTORING"  # restored from a backup: what was running then is being dealt with


class MoveRole(StrEnum):
    """Which side of a move a store is."""

    SOURCE = "SOURCE"
    TARGET = "TARGET"


class MoveRecord(Struct, frozen=True, kw_only=True):
    """
    A move as one side has it written down; a store is one side of at most one unfinished move.

    ``origin`` identifies the source: an installation, or an export. ``holder`` is the call that goes on with it: the latest one, and
    what another one still wants to write is refused. ``reached``: the key of the last row of each kind that has
    arrived; ``finished``: the kinds that have arrived whole; ``before``: what was there of a kind before.
    """

    move_id: str
    role: MoveRole
    state: MoveState
    other: str  # the other side, for people; without a password
    origin: str
    begun_at: datetime
    holder: str = ""
    reached: dict[str, list[Any]] = field(default_factory=dict)
    finished: tuple[str, ...] = ()
    lines: int = 0  # of an import: how many have arrived
    before: dict[str, Tally] = field(default_factory=dict)


def same_move(one: MoveRecord | None, other: MoveRecord | None) -> bool:
    """True if both say the same move in the same state, in the hands of the same call; or if there is none."""
    if one is None or other is None:
        return one is other
    return _hands(one) == _hands(other)


def _hands(record: MoveRecord) -> tuple[str, str, str, str]:
    return record.move_id, record.role, record.state, record.holder


class Fence(StrEnum):
    """What a fenced store refuses."""

    CLAIMS = "CLAIMS"  # claims, and nodes that want to join
    WRITES = "WRITES"  # every change of a job and of what belongs to it
    FILLING = "FILLING"  # the same, except for the rows of a move that arrive here


class RunningJob(Struct, frozen=True, kw_only=True):
    """A claim that is held. ``ended``: the job has ended or waits, but the code of this run may still be running."""

    job_id: UUID
    claim_id: UUID
    node_id: str
    attempt: int = 0
    since: datetime | None = None
    ended: bool = False


class MoveRefused(RatchetError):
    """A move, an export or an import cannot begin or go on; the message says why, and what to do."""


class MoveOvertaken(MoveRefused):
    """Another call goes on with this move, has ended it or has given it up; nothing of this call was written since."""

    def __init__(self) -> None:
        super().__init__(
            "another call has taken this move over, has ended it or has given it up; this one has stopped. If nobody else is at it, "
            "run the command again"
        )
