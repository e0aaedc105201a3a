"""Text of strangers, as it is shown: targets, errors, arguments and log lines can hold anything."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import msgspec
from markupsafe import Markup

from ratchet.model.job import Job, json_safe

#: Stands where there is nothing to show.
NOTHING = "\u2013"
#: Characters of one text that a page shows, at most.
LONGEST = 20_000

#: Controls (also of terminals), marks that turn the direction of text, what has no width, and half characters.
_SPELLED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def shown(text: str, limit: int = LONGEST) -> str:
    """*text* with everything invisible spelled out, and cut where nobody reads on."""
    length = len(text)
    if length > limit:
        text = text[:limit]
    text = _SPELLED.sub(_spelled, text.replace("\r\n", "\n"))
    return text if length <= limit else f"{text}… ({length:,} characters)"


def _spelled(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def finalized(value: Any) -> Any:
    """What a template prints; Jinja escapes it afterwards, unless it is markup of ours."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    if isinstance(value, Enum):
        value = value.name if isinstance(value, int) else value.value
    return shown(str(value)) if not isinstance(value, int | float) else value


def pretty(value: Any) -> str:
    """A value as JSON that people read."""
    return json.dumps(document(value), indent=2, ensure_ascii=False)


def document(value: Any) -> Any:
    """*value* as plain JSON: times in ISO 8601, durations in seconds, records as objects."""
    match value:
        case Job():
            return value.to_dict()
        case msgspec.Struct():
            return {name: document(getattr(value, name)) for name in value.__struct_fields__}
        case Mapping():
            return {str(key): document(item) for key, item in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return {name: document(getattr(value, name)) for name in value._fields}
        case list() | tuple() | set() | frozenset():
            return [document(item) for item in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {name: document(getattr(value, name)) for name in value.__dataclass_fields__}
    return json_safe(value)


def span(length: timedelta | float | None) -> str:
    """A duration in at most two units: ``1.24 s``, ``3 min 20 s``, ``2 d 4 h``."""
    if length is None:
        return NOTHING
    seconds = length.total_seconds() if isinstance(length, timedelta) else float(length)
    sign, seconds = ("-" if seconds < 0 else ""), abs(seconds)
    if seconds < 0.001:
        return "<1 ms"
    if seconds < 1:
        return f"{sign}{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{sign}{seconds:.2f} s"
    if seconds < 60:
        return f"{sign}{seconds:.0f} s"
    for unit, size, below, part in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
        if seconds < size * (60 if unit == "min" else 24) or unit == "d":
            whole, rest = divmod(int(seconds), size)
            return f"{sign}{whole} {unit}" + (f" {rest // part} {below}" if rest // part else "")
    raise AssertionError("every duration has a unit")


def ago(moment: datetime, now: datetime) -> str:
    """How long ago, or in how long, in one unit."""
    seconds = (now - moment).total_seconds()
    length = abs(seconds)
    for unit, size, limit in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 86400), ("d", 86400, 1e12)):
        if length < limit:
            count = int(length // size)
            if count == 0:
                return "now"
            return f"{count} {unit} ago" if seconds > 0 else f"in {count} {unit}"
    raise AssertionError("every distance has a unit")


def count(number: int, most: int | None = None) -> str:
    """``1,234``; where counting ended, ``10,000+``."""
    return f"{most:,}+" if most is not None and number > most else f"{number:,}"


def jobs_of(number: int, most: int | None = None) -> str:
    """So many jobs, in words."""
    return "1 job" if number == 1 else f"{count(number, most)} jobs"
