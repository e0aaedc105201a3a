"""Answers of stores in one plain form, so that they can be compared and a difference can be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from msgspec import Struct

from ratchet.model.errors import BusinessKeyBusy, EmptyFilter, RatchetError
from ratchet.model.job import Page

#: What each store numbers or dates by itself, or keeps for itself as a hint; it means nothing to anybody else.
OWN = frozenset({"alert_id", "stream_id", "epoch", "database_time", "has_conditions"})

#: The lives that are played begin later: a time before it is a store's own clock, asked where no `now` is passed.
WALL_CLOCK_ENDS = datetime(2030, 1, 1, tzinfo=UTC)

#: Errors whose message is the contract's own; that of another may name what the database said.
_SPOKEN = (BusinessKeyBusy, EmptyFilter)

Plain = Any


def plain(value: object, names: Mapping[UUID, str]) -> Plain:
    """*value* as lists, dicts and text; ids by their short *names*."""
    if isinstance(value, UUID):
        return names.get(value, str(value))
    if isinstance(value, datetime):
        return "(a wall clock)" if value < WALL_CLOCK_ENDS else value.isoformat()
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, Struct):
        seen = {
            field: plain(getattr(value, field), names)
            for field in value.__struct_fields__
            if field not in OWN
        }
        return seen | {"released": sorted(seen["released"])} if "released" in seen else seen
    if isinstance(value, Page):
        return {
            "items": [plain(item, names) for item in value],
            "has_more": value.next_cursor is not None,
        }
    if isinstance(value, Mapping):
        return {str(plain(key, names)): plain(item, names) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(plain(item, names)) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item, names) for item in value]
    if isinstance(value, RatchetError):
        text = str(value)
        for job_id, name in names.items():
            text = text.replace(str(job_id), name)
        return {
            "raised": type(value).__name__,
            "message": text if isinstance(value, _SPOKEN) else "(its own)",
        }
    return value


def in_any_order(values: Iterable[Plain]) -> list[Plain]:
    """A list of answers of which no contract says the order."""
    return sorted(values, key=repr)


def differences(expected: Plain, found: Plain, path: str = "") -> list[str]:
    """Where two plain answers differ, one line each."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lines: list[str] = []
        for key in [*expected, *(key for key in found if key not in expected)]:
            if key not in expected:
                lines.append(f"{path}.{key}: not expected, found {found[key]!r}")
            elif key not in found:
                lines.append(f"{path}.{key}: expected {expected[key]!r}, not found")
            else:
                lines += differences(expected[key], found[key], f"{path}.{key}")
        return lines
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            line
            for number, (one, other) in enumerate(zip(expected, found, strict=True))
            for line in differences(one, other, f"{path}[{number}]")
        ]
    if type(expected) is type(found) and expected == found:
        return []
    return [f"{path or 'the answer'}: expected {expected!r}, found {found!r}"]
