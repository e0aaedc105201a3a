"""The audit log: who changed what, when, and with which outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

from msgspec import Struct

from ratchet.model.job import JobFilter

#: Characters that are kept of a name and of a reason.
NAME_LIMIT = 255
REASON_LIMIT = 2000
OBJECT_LIMIT = 512


class AuditOutcome(StrEnum):
    """What became of a verb."""

    DONE = "done"
    UNCHANGED = "unchanged"  # there was nothing to change: the job had ended, the queue was paused already
    REFUSED = "refused"  # the authorizer said no


class AuditSource(StrEnum):
    """Through what a verb was called."""

    API = "api"
    CLI = "cli"
    DASHBOARD = "dashboard"
    NODE = "node"  # a node by itself: schedules that its code declares, a schema that it upgrades


class AuditEntry(Struct, frozen=True, kw_only=True):
    """
    One call of a verb.

    Either *job_id* says what it was about, or *object* does (``queue:emails``, ``limit:gateway``), or, for many jobs,
    *filter*; then *count* is how many were changed.
    """

    id: UUID
    at: datetime
    principal: str | None
    source: str
    verb: str
    job_id: UUID | None = None
    object: str | None = None
    filter: dict[str, Any] | None = None
    count: int | None = None
    reason: str | None = None
    outcome: str = AuditOutcome.DONE.value


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries: every criterion that is given must hold. *after* is included, *before* is not."""

    principal: str | None = None
    source: str | None = None
    verb: str | None = None
    job_id: UUID | None = None
    object: str | None = None
    outcome: str | None = None
    after: datetime | None = None
    before: datetime | None = None


#: The criteria of an `AuditFilter` that are compared with a field of the same name.
EQUAL_CRITERIA = ("principal", "source", "verb", "job_id", "object", "outcome")


def criteria_of(where: JobFilter) -> dict[str, Any]:
    """What a filter says, as JSON values: only what was given."""
    given = {field.name: getattr(where, field.name) for field in fields(JobFilter)}
    return {name: _plain(value) for name, value in given.items() if value is not None and value is not False}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name if isinstance(value, int) else value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
