"""Checks of what users say about a job; a refusal says what would be accepted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar
from uuid import UUID

from ratchet.model.clock import require_aware
from ratchet.model.cluster import BREAKER_GATE, RATE_GATE
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import InvalidJob
from ratchet.model.identifiers import first_id_at
from ratchet.model.job import KEY_LIMIT, BoundedFilter, JobFilter
from ratchet.model.status import Priority

C = TypeVar("C", bound=Enum)

MOST_RETRIES = 1_000_000
#: By how much the clock of a machine that submits may differ from the database's.
CLOCKS_APART = timedelta(days=1)


def text_of(value: object, what: str, *, limit: int = KEY_LIMIT) -> str:
    """*value* as a short text that every store keeps exactly; a UUID is taken too."""
    if isinstance(value, UUID):
        return str(value)
    if not isinstance(value, str):
        raise InvalidJob(f"{what} must be text, not {value!r}")
    if type(value) is not str:
        value = str.__str__(value)  # not an enum or another subclass: drivers may not know it
    if not value.strip():
        raise InvalidJob(f"{what} must not be empty")
    if len(value) > limit:
        raise InvalidJob(
            f"{what} has {len(value)} characters, the limit is {limit}; use a shorter one, or a hash of it"
        )
    if "\0" in value:
        raise InvalidJob(f"{what} contains U+0000, which databases cannot keep; remove it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidJob(f"{what} contains half of a surrogate pair, which databases cannot keep") from None
    return value


def queue_of(value: object) -> str:
    """*value* as the name of a queue; it has no comma, because ``worker --queues`` separates names by commas."""
    name = text_of(value, "the name of a queue")
    if "," in name or name != name.strip():
        raise InvalidJob(
            f"the name of a queue has no comma and no space at its ends, unlike {name!r}: "
            "`ratchet worker --queues` could not name it"
        )
    return name


def resource_of(value: object, what: str = "the name of a resource") -> str:
    """*value* as the name of something that is limited."""
    name = text_of(value, what)
    for prefix, owners in ((BREAKER_GATE, "circuit breakers'"), (RATE_GATE, "rate keys'")):
        if name.startswith(prefix):
            raise InvalidJob(f"names that begin with {prefix!r} are the {owners} own; take another one")
    return name


def count_of(value: object, what: str, *, at_least: int = 0, at_most: int = MOST_RETRIES) -> int:
    """*value* as a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(f"{what} must be a whole number, not {value!r}")
    if value < at_least:
        raise InvalidJob(f"{what} must be at least {at_least}, but is {value}")
    if value > at_most:
        raise InvalidJob(f"{what} must be at most {at_most}, but is {value}")
    return value


def fraction_of(value: object, what: str) -> float:
    """*value* as a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidJob(f"{what} must be a number from 0 to 1, not {value!r}")
    return float(value)


def priority_of(value: object) -> Priority:
    """*value* as one of the five priorities."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= Priority.CRITICAL:
        return Priority(value)
    raise InvalidJob(f"a priority is one of {', '.join(Priority.__members__)} (0 to 4), not {value!r}")


def member_of(kind: type[C], value: object, what: str) -> C:
    """*value* as a member of the enumeration *kind*; its value is taken too."""
    try:
        return kind(value)
    except ValueError:
        shown = ", ".join(str(member.value) for member in kind)
        raise InvalidJob(f"{what} is one of {shown}, not {value!r}") from None


def tags_of(tags: Iterable[object]) -> tuple[str, ...]:
    """Each tag once, in the order given."""
    if isinstance(tags, str):
        raise InvalidJob(f"tags are a list of words; write tags=[{tags!r}]")
    return tuple(dict.fromkeys(text_of(tag, "a tag") for tag in tags))


def members_of(kind: type[C], values: object, what: str) -> tuple[C, ...]:
    """Each of *values* as a member of the enumeration *kind*; a single one, or text, is no list."""
    if isinstance(values, (str, bytes, int)) or not isinstance(values, Iterable):
        raise InvalidJob(f"{what} takes a list, as in {what}=[{next(iter(kind))!s}], not {values!r}")
    return tuple(member_of(kind, value, what) for value in values)


def texts_of(values: object, what: str, *, limit: int = KEY_LIMIT) -> tuple[str, ...]:
    """Each of *values* as text; text alone is no list."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidJob(f"{what} takes a list, as in {what}=[{values!r:.60}]")
    return tuple(text_of(value, what, limit=limit) for value in values)


def after(now: datetime, delay: Duration, what: str) -> datetime:
    """The moment *delay* after *now*."""
    try:
        return now + to_timedelta(delay, what)
    except OverflowError:
        raise InvalidJob(f"{what} of {delay!r} leads beyond the year 9999") from None


def moment_of(value: datetime, what: str) -> datetime:
    """*value* in UTC; a naive one is refused."""
    return require_aware(value, what)


def id_of(value: Any) -> UUID:
    """The job id that *value* is: a UUID, its text, or something that has one (a handle, a `Job`)."""
    if isinstance(value, UUID):
        return value
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            raise InvalidJob(f"{value!r} is not a job id; ids are UUIDs") from None
    inner = getattr(value, "id", None) or getattr(value, "job_id", None)
    if isinstance(inner, UUID):
        return inner
    raise InvalidJob(f"a job id is a UUID or its text, not {value!r}")


def exceptions_of(classes: Any, what: str) -> tuple[type[BaseException], ...]:
    """*classes* as a tuple of exception classes; a single one is taken too."""
    if isinstance(classes, type):
        classes = (classes,)
    found = tuple(classes)
    for cls in found:
        if not (isinstance(cls, type) and issubclass(cls, BaseException)):
            raise InvalidJob(f"{what} takes exception classes, not {cls!r}")
    return found


def joining_transaction(within: object | None) -> dict[str, Any]:
    """The keyword for a store, if there is something to join: a store that somebody wrote for 0.1.0 does not know it."""
    return {} if within is None else {"within": within}


def within_ids(where: JobFilter) -> JobFilter:
    """
    *where* with a range of ids for its range of creation times, so that history outside of it is not read.

    An id has the time of the machine that made it, and ``created_at`` is the database's: a day is added on both sides.
    """
    after, before = where.created_after, where.created_before
    if after is None and before is None:
        return where
    given = {field.name: getattr(where, field.name) for field in fields(JobFilter)}
    return BoundedFilter(
        **given,
        first_id=None if after is None else _id_at(after, -CLOCKS_APART),
        last_id=None if before is None else _id_at(before, CLOCKS_APART),
    )


def _id_at(moment: datetime, distance: timedelta) -> UUID | None:
    """The first id of so much before or after *moment*; None where there is no such time: every id will do."""
    try:
        return first_id_at(moment + distance)
    except OverflowError:
        return None
