"""A `JobFilter` as an address that can be shared, and back. The words are those of ``ratchet jobs list``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar
from urllib.parse import urlencode
from uuid import UUID

from starlette.datastructures import ImmutableMultiDict, QueryParams

from ratchet.model.durations import parse_duration
from ratchet.model.errors import InvalidJob
from ratchet.model.job import JobFilter
from ratchet.model.status import JobStatus, JobType, Priority

E = TypeVar("E", bound=Enum)
Words = ImmutableMultiDict[str, str]

#: The words of an address that choose jobs, in the order in which pages show them.
CRITERIA = (
    "status",
    "queue",
    "target",
    "tag",
    "key",
    "caller",
    "schedule",
    "batch",
    "parent",
    "node",
    "type",
    "priority",
    "since",
    "until",
    "due_after",
    "due_before",
    "error",
    "error_type",
    "arg",
    "superseded_by",
    "parked",
    "truncated",
    "archived",
)
#: Those that may be given several times.
_LISTS = frozenset({"status", "target", "tag", "type", "priority", "arg"})
_FLAGS = frozenset({"parked", "truncated", "archived"})
#: Stands for an error that has no type.
NO_TYPE = "-"
#: Other ways to say it in the search box.
_ALIASES = {"id": "job", "function": "target", "text": "error", "tags": "tag", "state": "status"}


def filter_of(words: Words, now: datetime) -> JobFilter:
    """The filter that an address means; `InvalidJob` says which word is wrong."""
    one = {name: words[name].strip() for name in CRITERIA if words.get(name, "").strip()}
    return JobFilter(
        statuses=_members(JobStatus, _list(words, "status"), "status"),
        tags=_list(words, "tag") or None,
        targets=_list(words, "target") or None,
        queue=one.get("queue"),
        types=_members(JobType, _list(words, "type"), "type"),
        priorities=_members(Priority, _list(words, "priority"), "priority"),
        business_key=one.get("key"),
        batch_id=_id(one.get("batch"), "batch"),
        parent_id=_id(one.get("parent"), "parent"),
        schedule=one.get("schedule"),
        node_id=one.get("node"),
        created_after=moment(one.get("since"), "since", now),
        created_before=moment(one.get("until"), "until", now),
        scheduled_after=moment(one.get("due_after"), "due_after", now),
        scheduled_before=moment(one.get("due_before"), "due_before", now),
        error_contains=one.get("error"),
        caller=one.get("caller"),
        superseded_by=_id(one.get("superseded_by"), "superseded_by"),
        args=_arguments(_list(words, "arg")),
        parked=True if one.get("parked") else None,
        truncated=True if one.get("truncated") else None,
        error_type="" if one.get("error_type") == NO_TYPE else one.get("error_type"),
        include_archived=bool(one.get("archived")),
    )


def criteria_of(words: Words) -> list[tuple[str, str]]:
    """The words of an address that choose jobs, without those that say nothing."""
    return [(name, value) for name in CRITERIA for value in words.getlist(name) if value.strip()]


def address(path: str, pairs: Iterable[tuple[str, object]]) -> str:
    """*path* with these words behind it."""
    text = urlencode([(name, str(value)) for name, value in pairs if value is not None])
    return f"{path}?{text}" if text else path


def words_of(text: str) -> Words:
    """The part of an address behind the question mark."""
    return QueryParams(text)


def searched(text: str) -> list[tuple[str, str]]:
    """
    What a search box means: ``queue:mail status:failed card declined``.

    A word before a colon is a criterion if there is one of that name. What is left is looked for in error texts, a
    status alone is that status, and an id is a job (``job``).
    """
    try:
        parts = shlex.split(text)
    except ValueError:  # a quotation mark without its other half
        parts = text.split()
    found: list[tuple[str, str]] = []
    rest: list[str] = []
    for part in parts:
        name, colon, value = part.partition(":")
        name = _ALIASES.get(name.lower(), name.lower())
        if colon and value and (name in CRITERIA or name == "job"):
            found.append((name, "1" if name in _FLAGS else value))
        elif part.upper() in JobStatus.__members__:
            found.append(("status", part.upper()))
        elif _looks_like_id(part):
            found.append(("job", part))
        else:
            rest.append(part)
    if rest:
        found.append(("error", " ".join(rest)))
    return found


def _looks_like_id(text: str) -> bool:
    digits = text.replace("-", "").lower()
    return len(digits) >= 8 and len(digits) <= 32 and set(digits) <= set("0123456789abcdef")


def _list(words: Words, name: str) -> list[str]:
    return [value.strip() for value in words.getlist(name) if value.strip()]


def _members(kind: type[E], values: list[str], name: str) -> list[E] | None:
    if not values:
        return None
    try:
        return [kind[word.strip().upper()] for value in values for word in value.split(",")]
    except KeyError as error:
        raise InvalidJob(f"{name}: {error.args[0]!r} is none of {', '.join(kind.__members__)}") from None


def _id(text: str | None, name: str) -> UUID | None:
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise InvalidJob(f"{name}: {text!r} is no id") from None


def moment(text: str | None, name: str, now: datetime) -> datetime | None:
    """A time in ISO 8601 (UTC unless it names a zone), or a duration before now, such as ``2h``."""
    if text is None:
        return None
    try:
        return now - parse_duration(text)
    except (ValueError, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidJob(
            f"{name}: {text!r} is neither a time (2026-03-01T12:00) nor a duration (2h)"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _arguments(values: list[str]) -> Mapping[str, Any] | None:
    found: dict[str, Any] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals):
            raise InvalidJob(f"arg: {value!r} is not NAME=VALUE, such as 0=42 or region=eu")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found or None
