"""
Values as documents, and back.

Times and durations are whole microseconds (a BSON date has only milliseconds), ids are UUIDs, and what
has its default value is left out: a plain job is a small document, and the partial indexes stay small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from bson.int64 import Int64
from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from ratchet.model.cluster import BreakerRecord, LockRecord, NodeRecord, PermitRecord, own_time
from ratchet.model.composition import BatchRecord, Edge, ScheduleRecord
from ratchet.model.job import Alert, Execution
from ratchet.stores.memory.rows import Cost, FireRow, Limit, Reservation, SignalRow

S = TypeVar("S", bound=Struct)

Document = dict[str, Any]
Coder = Callable[[Any], Any]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000


def micros(at: datetime) -> int:
    """Microseconds since 1970."""
    since = at - EPOCH
    return since.days * _DAY + since.seconds * _SECOND + since.microseconds


def time_of(value: int) -> datetime:
    """The time, in UTC, of a number of `micros`."""
    return EPOCH + timedelta(0, 0, value)


def length(duration: timedelta) -> int:
    """A duration in microseconds."""
    return duration.days * _DAY + duration.seconds * _SECOND + duration.microseconds


def duration_of(value: int) -> timedelta:
    """The duration of a number of microseconds."""
    return timedelta(0, 0, value)


class Codec(Generic[S]):
    """
    Stores the values of one class, field by field under the fields' names.

    *identity* names the fields that make ``_id``: one of them, or several as a small document.
    """

    def __init__(self, cls: type[S], *identity: str) -> None:
        hints = get_type_hints(cls)
        self._cls = cls
        self._identity = identity
        self._coders: dict[str, tuple[Coder | None, Coder | None]] = {}
        self._defaults: dict[str, Any] = {}
        for field in fields(cls):
            self._coders[field.name] = _coders(hints[field.name])
            self._defaults[field.name] = None if field.default is NODEFAULT else field.default

    def document(self, value: S) -> Document:
        """*value* as a document."""
        found: Document = {}
        if len(self._identity) == 1:
            found["_id"] = self._encode(self._identity[0], getattr(value, self._identity[0]))
        elif self._identity:
            found["_id"] = {name: self._encode(name, getattr(value, name)) for name in self._identity}
        for name in self._coders:
            if name not in self._identity:
                field = getattr(value, name)
                if field is not None and field != self._defaults[name]:
                    found[name] = self._encode(name, field)
        return found

    def value(self, document: Mapping[str, Any]) -> S:
        """The value of a document."""
        found: dict[str, Any] = {}
        if len(self._identity) == 1:
            found[self._identity[0]] = self._decode(self._identity[0], document["_id"])
        elif self._identity:
            for name in self._identity:
                found[name] = self._decode(name, document["_id"][name])
        for name, default in self._defaults.items():
            if name not in self._identity:
                stored = document.get(name)
                found[name] = default if stored is None else self._decode(name, stored)
        return self._cls(**found)

    def _encode(self, name: str, value: Any) -> Any:
        encode = self._coders[name][0]
        return value if encode is None or value is None else encode(value)

    def _decode(self, name: str, value: Any) -> Any:
        decode = self._coders[name][1]
        return value if decode is None or value is None else decode(value)


#: What stands for each simple type in a document.
_KINDS: Final[dict[Any, tuple[type, ...]]] = {
    str: (str,),
    int: (int, Int64),
    float: (float, int, Int64),
    bool: (bool,),
    UUID: (UUID,),
}


def _of_kind(kinds: tuple[type, ...]) -> Coder:
    """A reader that takes a value of these types as it is, and no other."""

    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{type(value).__name__} instead of {kinds[0].__name__}")
        return value

    return read


def _coders(hint: Any) -> tuple[Coder | None, Coder | None]:
    """How a value of this type is stored and read back; None: as it is."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
        return _coders(hint)
    if origin is tuple:
        encode, decode = _coders(get_args(hint)[0])
        return (
            lambda values: [value if encode is None else encode(value) for value in values],
            lambda values: tuple(value if decode is None else decode(value) for value in values),
        )
    if hint is datetime:
        return micros, time_of
    if hint is timedelta:
        return length, duration_of
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: value.value, hint
    if isinstance(hint, type) and issubclass(hint, Struct):
        codec = Codec(hint)
        return codec.document, codec.value
    if hint in _KINDS:
        return None, _of_kind(_KINDS[hint])
    raise TypeError(f"no way to store a {hint!r}")


# --- the codec of each kind of record ------------------------------------------------------------

EDGES = Codec(Edge, "parent_id", "child_id")
RUNS = Codec(Execution, "job_id", "claim_id")
ALERTS = Codec(Alert, "alert_id")
RESERVATIONS = Codec(Reservation)
PERMITS = Codec(PermitRecord, "resource", "job_id", "claim_id")
LIMITS = Codec(Limit, "name")
BREAKERS = Codec(BreakerRecord, "service")
NODES = Codec(NodeRecord, "node_id")
LOCKS = Codec(LockRecord)
BATCHES = Codec(BatchRecord, "batch_id")
COSTS = Codec(Cost)
SCHEDULES = Codec(ScheduleRecord)
FIRES = Codec(FireRow)
SIGNALS = Codec(SignalRow)


def fire_identity(key: tuple[str, datetime]) -> Document:
    """The ``_id`` of a fire time."""
    return {"schedule": key[0], "fire_at": micros(key[1])}


def run_identity(run: tuple[UUID, UUID]) -> Document:
    """The ``_id`` of a run: its job and its claim."""
    return {"job_id": run[0], "claim_id": run[1]}


def time_or_none(value: object) -> datetime | None:
    """A time; None where there is none, or none that can be read."""
    try:
        return time_of(value) if isinstance(value, int) else None
    except OverflowError:
        return None


def pause_end(queue: Document) -> datetime | None:
    """When the pause of a queue ends by itself; None: when somebody ends it."""
    return own_time(
        *(time_or_none(queue.get(name)) for name in ("paused_until", "paused_until_of", "paused_at"))
    )
