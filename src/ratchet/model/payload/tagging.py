"""Values that are not JSON as they stand, under tags."""

from __future__ import annotations

import base64
import datetime as dt
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from ..errors import TargetNotAllowed, UnstorableValue
from .advice import advice_for, advice_for_result
from .classes import ClassKind, is_importable, kind_of, name_of
from .placeholders import Placeholder

#: The key that marks a JSON object as something else than a dict.
TAG = "$"
#: The tag of what is kept of a result over the limit: ``{"$": "cut", "size": …, "limit": …, "v": "its beginning"}``.
CUT = "cut"
#: The tag of what stands for a stored value that could not be decoded: ``{"$": "damaged", "v": "why"}``. It is never stored.
DAMAGED = "damaged"
#: Integers beyond these are tagged: not every JSON reader keeps them exact.
LARGEST = 2**63 - 1
SMALLEST = -(2**63)
#: Containers within containers.
MOST_LEVELS = 100


class Tagger:
    """
    Turns one value into JSON with tags, knowing at each moment where in it it is.

    *allowed* says which classes may be stored, *placeholders* whether RESULT may, and *escape_text*
    whether text that databases cannot hold is escaped instead of refused.
    """

    def __init__(
        self,
        *,
        allowed: Callable[[type], bool] | None = None,
        placeholders: bool = True,
        escape_text: bool = False,
    ) -> None:
        self._allowed = allowed
        self._placeholders = placeholders
        self._escape_text = escape_text
        self._path: list[str] = []
        self._open: set[int] = set()

    def root(self, value: Any, name: str) -> Any:
        return self._at(name, value)

    def sequence(self, values: Sequence[Any], name: str) -> list[Any]:
        return [self._at(f"{name}[{index}]", value) for index, value in enumerate(values)]

    def keywords(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self._at("a keyword", key): self._at(f"kwargs[{key!r}]", value) for key, value in values.items()
        }

    def _at(self, step: str, value: Any) -> Any:
        self._path.append(step)
        tagged = self._tagged(value)
        self._path.pop()
        return tagged

    def _tagged(self, value: Any) -> Any:
        write = _WRITERS.get(type(value))
        if write is not None:
            return write(self, value)
        return self._uncommon(value)

    def _uncommon(self, value: Any) -> Any:
        if isinstance(value, Placeholder):
            return self._placeholder(value)
        cls: type = type(value)
        kind = kind_of(cls)
        if kind is not None:
            return self._instance(value, kind)
        # Subclasses of these differ in methods only (pendulum, freezegun, asyncpg's UUID): what is
        # restored is equal. Subclasses of str, int, list … may mean something else: refused below.
        for base, write in _NORMALIZED:
            if isinstance(value, base):
                return write(self, value)
        raise self._refusal(value)

    # --- leaves

    def _same(self, value: Any) -> Any:
        return value

    def _text(self, value: str) -> Any:
        if "\0" not in value and is_encodable(value):
            return value
        if self._escape_text:
            return {TAG: "str", "v": value.encode("unicode_escape").decode("ascii")}
        found = (
            "U+0000, which databases cannot store in text" if "\0" in value else "half of a surrogate pair"
        )
        raise UnstorableValue(
            f"{self._where()} is text that contains {found}; remove it, or pass bytes if it is binary data"
        )

    def _int(self, value: int) -> Any:
        return value if SMALLEST <= value <= LARGEST else {TAG: "int", "v": hex(value)}

    def _float(self, value: float) -> Any:
        return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}

    def _bytes(self, value: bytes | bytearray) -> Any:
        return {TAG: type(value).__name__, "v": base64.b64encode(value).decode("ascii")}

    def _datetime(self, value: dt.datetime) -> Any:
        try:
            plain = dt.datetime.combine(
                dt.date(value.year, value.month, value.day), _plain_time(value), value.tzinfo
            )
        except (TypeError, ValueError):  # pandas.NaT is a datetime without a year
            raise self._refusal(value) from None
        if getattr(value, "nanosecond", 0):
            raise UnstorableValue(f"{self._where()} is {value!r} with nanoseconds; round it to microseconds")
        return _zoned("datetime", plain)

    def _date(self, value: dt.date) -> Any:
        return {TAG: "date", "v": dt.date(value.year, value.month, value.day).isoformat()}

    def _time(self, value: dt.time) -> Any:
        plain = _plain_time(value).replace(tzinfo=value.tzinfo)
        if value.tzinfo is not None and zone_key(value.tzinfo) is None and plain.utcoffset() is None:
            raise UnstorableValue(
                f"{self._where()} is {value!r}, whose zone has no name to store; use a ZoneInfo"
            )
        return _zoned("time", plain)

    def _timedelta(self, value: dt.timedelta) -> Any:
        if getattr(value, "nanoseconds", 0):
            raise UnstorableValue(f"{self._where()} is {value!r} with nanoseconds; round it to microseconds")
        return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}

    def _uuid(self, value: UUID) -> Any:
        return {TAG: "uuid", "v": str(UUID(int=value.int))}

    def _decimal(self, value: Decimal) -> Any:
        return {TAG: "decimal", "v": str(value)}

    def _placeholder(self, value: Placeholder) -> Any:
        if not self._placeholders:
            raise UnstorableValue(
                f"{self._where()} is {value!r}, which means something only in the arguments of a job"
            )
        return {TAG: value.name.lower()}

    # --- containers

    def _list(self, value: list[Any]) -> list[Any]:
        with _Inside(self, value):
            return [self._at(f"[{index}]", item) for index, item in enumerate(value)]

    def _tuple(self, value: tuple[Any, ...]) -> Any:
        with _Inside(self, value):
            return {TAG: "tuple", "v": [self._at(f"[{index}]", item) for index, item in enumerate(value)]}

    def _set(self, value: set[Any] | frozenset[Any]) -> Any:
        with _Inside(self, value):
            return {TAG: type(value).__name__, "v": [self._at(f"{{{item!r:.40}}}", item) for item in value]}

    def _dict(self, value: dict[Any, Any]) -> Any:
        with _Inside(self, value):
            if TAG not in value and all(type(key) is str and self._is_writable(key) for key in value):
                return {key: self._at(f"[{key!r:.40}]", item) for key, item in value.items()}
            # pairs: keys that are not text, and dicts that would look like a tag
            return {
                TAG: "dict",
                "v": [
                    [self._at(f" key {key!r:.40}", key), self._at(f"[{key!r:.40}]", item)]
                    for key, item in value.items()
                ],
            }

    def _instance(self, value: Any, kind: ClassKind) -> Any:
        cls = type(value)
        if not is_importable(cls):
            raise UnstorableValue(
                f"{self._where()} is an instance of {name_of(cls)}, which no worker can import; "
                f"define the class at the top level of a module, or pass its fields as a dict"
            )
        if self._allowed is not None and not self._allowed(cls):
            raise TargetNotAllowed(
                f"{self._where()} is an instance of {name_of(cls)}, which the worker may not restore; annotate "
                f"the parameter with the class, or add its module to allow=[{cls.__module__!r}]"
            )
        with _Inside(self, value):
            try:
                parts = kind.take_apart(value)
            except (AttributeError, ValueError) as error:
                raise UnstorableValue(
                    f"{self._where()} cannot be stored faithfully: {name_of(cls)} {error}; pass its fields as a dict"
                ) from error
            if kind.by_fields:
                parts = {name: self._at(f".{name}", part) for name, part in parts.items()}
            else:
                parts = self._tagged(parts)
            return {TAG: kind.tag, "t": name_of(cls), "v": parts}

    # --- refusing

    def _is_writable(self, key: str) -> bool:
        if self._escape_text:
            return "\0" not in key and is_encodable(key)
        self._at(f" key {key!r:.40}", key)
        return True

    def _where(self) -> str:
        return "".join(self._path)

    def _refusal(self, value: Any) -> UnstorableValue:
        cls = type(value)
        name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
        advice = advice_for_result(value) if self._path[:1] == ["result"] else advice_for(value)
        return UnstorableValue(f"{self._where()} is a {name}, which JSON cannot carry; {advice}")


class _Inside:
    """The time spent inside one container: notices that it contains itself, or is too deep."""

    __slots__ = ("_identity", "_tagger", "_value")

    def __init__(self, tagger: Tagger, value: Any) -> None:
        self._tagger = tagger
        self._value = value
        self._identity = id(value)

    def __enter__(self) -> None:
        tagger = self._tagger
        if self._identity in tagger._open:
            raise UnstorableValue(
                f"{tagger._where()} is the {type(self._value).__name__} that contains it; JSON has no cycles: "
                f"pass ids instead of references"
            )
        if len(tagger._open) > MOST_LEVELS:
            shown = "".join(tagger._path[:4])
            raise UnstorableValue(
                f"{shown}… is nested more than {MOST_LEVELS} levels deep; flatten it, or store it elsewhere"
            )
        tagger._open.add(self._identity)

    def __exit__(self, *_: object) -> None:
        self._tagger._open.discard(self._identity)


def is_encodable(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _plain_time(value: dt.datetime | dt.time) -> dt.time:
    return dt.time(value.hour, value.minute, value.second, value.microsecond, fold=value.fold)


def zone_key(zone: dt.tzinfo | None) -> str | None:
    """The name of a ZoneInfo; None for any other zone. Who has one has imported its module, which takes 3 ms."""
    module = sys.modules.get("zoneinfo")
    return zone.key if module is not None and isinstance(zone, module.ZoneInfo) else None


def _zoned(tag: str, value: Any) -> dict[str, Any]:
    """
    A datetime or time with its zone.

    A ZoneInfo keeps its name and a fixed offset its offset. Any other tzinfo is reduced to the
    offset it has at that moment: the instant survives, the rules of the zone do not.
    """
    zone = value.tzinfo
    if (key := zone_key(zone)) is not None:
        tagged = {TAG: tag, "v": value.replace(tzinfo=None).isoformat(), "z": key}
    else:
        tagged = {TAG: tag, "v": value.isoformat()}
    if value.fold:
        tagged["f"] = 1
    return tagged


_WRITERS: dict[type, Callable[[Tagger, Any], Any]] = {
    type(None): Tagger._same,
    bool: Tagger._same,
    str: Tagger._text,
    int: Tagger._int,
    float: Tagger._float,
    bytes: Tagger._bytes,
    bytearray: Tagger._bytes,
    Decimal: Tagger._decimal,
    dt.datetime: Tagger._datetime,
    dt.date: Tagger._date,
    dt.time: Tagger._time,
    dt.timedelta: Tagger._timedelta,
    UUID: Tagger._uuid,
    list: Tagger._list,
    tuple: Tagger._tuple,
    set: Tagger._set,
    frozenset: Tagger._set,
    dict: Tagger._dict,
}

_NORMALIZED: tuple[tuple[type, Callable[[Tagger, Any], Any]], ...] = (
    (dt.datetime, Tagger._datetime),
    (dt.date, Tagger._date),
    (dt.time, Tagger._time),
    (dt.timedelta, Tagger._timedelta),
    (UUID, Tagger._uuid),
)
