"""Two filters in one: the jobs that both describe."""

from __future__ import annotations

import dataclasses
from typing import Any

from ratchet.model.job import BoundedFilter, JobFilter

_LISTS = ("statuses", "targets", "types", "priorities")
_SINGLE = (
    "queue",
    "business_key",
    "batch_id",
    "parent_id",
    "schedule",
    "node_id",
    "caller",
    "superseded_by",
    "parked",
    "truncated",
)
_LATER = ("created_after", "scheduled_after")
_EARLIER = ("created_before", "scheduled_before")


def both(where: JobFilter, other: JobFilter) -> JobFilter | None:
    """
    The jobs that *where* and *other* describe; None if there can be none.

    The archive is searched if *where* says so. Two different texts that an error contains cannot be one filter: ValueError.
    """
    given: dict[str, Any] = {}
    for name in _LISTS:
        first, second = getattr(where, name), getattr(other, name)
        if first is not None and second is not None:
            given[name] = [one for one in first if one in set(second)]
            if not given[name]:
                return None
        elif second is not None:
            given[name] = list(second)
    for name in _SINGLE:
        first, second = getattr(where, name), getattr(other, name)
        if first is not None and second is not None and first != second:
            return None
        if second is not None:
            given[name] = second
    for names, choose in ((_LATER, max), (_EARLIER, min)):
        for name in names:
            times = [at for at in (getattr(where, name), getattr(other, name)) if at is not None]
            if times:
                given[name] = choose(times)
    if other.tags is not None:
        given["tags"] = list(dict.fromkeys([*(where.tags or ()), *other.tags]))
    if other.args is not None:
        shared = set(where.args or {}) & set(other.args)
        if any((where.args or {})[name] != other.args[name] for name in shared):
            return None
        given["args"] = {**(where.args or {}), **other.args}
    if other.error_contains is not None:
        texts = {other.error_contains, where.error_contains or other.error_contains}
        if len(texts) > 1:
            raise ValueError("an error cannot be searched for two texts")
        given["error_contains"] = other.error_contains
    return dataclasses.replace(where, **given)


def only(where: JobFilter, job_id: Any) -> JobFilter:
    """*where*, of one job."""
    given = {field.name: getattr(where, field.name) for field in dataclasses.fields(JobFilter)}
    return BoundedFilter(**given, first_id=job_id, last_id=job_id)
