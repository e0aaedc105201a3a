"""The words of a message: what has happened, how often, and where to look."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct

from ratchet.model.events import (
    BreakerClosed,
    BreakerOpened,
    Event,
    JobDeadLettered,
    JobEvent,
    JobsCanceled,
    JobsRetried,
    NodeJoined,
    NodeLost,
)
from ratchet.model.job import Alert

#: Characters of a title, and of one line of the text.
MOST_TITLE = 200
MOST_LINE = 500
#: A key may be the address of a customer, and a filter may hold one.
_PRIVATE = {"business_key", "filter", "key"}


class Message(Struct, frozen=True, kw_only=True):
    """
    One message to people.

    ``id`` is the same however often it is sent. ``count``: of how many failures or events it tells; ``repeated``: it tells
    of those that came after an earlier message.
    """

    id: str
    event: str
    title: str
    lines: tuple[str, ...]
    at: datetime
    count: int = 1
    repeated: bool = False
    details: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """Title and lines."""
        return "\n".join((self.title, *self.lines))

    def labelled(self, label: str | None) -> Message:
        """The same, with *label* in front of its title."""
        return self if label is None else msgspec.structs.replace(self, title=f"[{label}] {self.title}")


# --- dead letters -----------------------------------------------------------------------------


def of_alert(alert: Alert, key: str, before: Alert | None) -> Message:
    """What is said when an alert is raised; *before*: the alert about the same cause in the window before."""
    lines = [
        f"{_jobs(alert.count)} failed for good so far, the first at {_time(alert.created_at)}: "
        f"job {alert.job_id}, {one_line(alert.reason)}"
    ]
    if before is not None:
        lines.append(
            f"It goes on: the alert of {_time(before.created_at)} has counted {_jobs(before.count)}."
        )
    lines.append(_where_to_look(alert))
    return Message(
        id=key,
        event=JobDeadLettered.__name__,
        title=one_line(f"{alert.target} fails: {alert.error or alert.reason}", MOST_TITLE),
        lines=tuple(lines),
        at=alert.created_at,
        count=alert.count,
        details=_of_alert(alert),
    )


def of_repeats(alert: Alert, key: str, more: int, now: datetime) -> Message:
    """What is said of *more* failures that came after the first message about an alert."""
    return Message(
        id=key,
        event=JobDeadLettered.__name__,
        title=one_line(
            f"{_jobs(more)} more of {alert.target} failed: {alert.error or alert.reason}", MOST_TITLE
        ),
        lines=(
            f"{_jobs(alert.count)} have failed for good between {_time(alert.created_at)} and {_time(now)}; "
            f"{more:,} of them after the first message.",
            _where_to_look(alert),
        ),
        at=now,
        count=more,
        repeated=True,
        details=_of_alert(alert),
    )


def _of_alert(alert: Alert) -> dict[str, Any]:
    return {
        "target": alert.target,
        "error": alert.error,
        "reason": alert.reason,
        "job_id": str(alert.job_id),
        "total": alert.count,
        "since": alert.created_at.isoformat(),
    }


def _where_to_look(alert: Alert) -> str:
    return f"Look: ratchet dlq summary --target {one_line(alert.target)}"


# --- other events -----------------------------------------------------------------------------


def cause_of(event: Event) -> tuple[str, ...]:
    """What makes two events the same alert: their kind, and target and error, or service."""
    kind = type(event).__name__
    match event:
        case JobEvent():
            return kind, event.target, str(getattr(event, "error_type", None) or "")
        case BreakerOpened() | BreakerClosed():
            return kind, event.service
    return (kind,)


def of_event(event: Event, key: str, at: datetime) -> Message:
    """What is said of the first event of its kind."""
    return Message(
        id=key,
        event=type(event).__name__,
        title=one_line(_words(event), MOST_TITLE),
        lines=_lines(event),
        at=at,
        details=_of_event(event),
    )


def of_more_events(event: Event, key: str, more: int, since: datetime, now: datetime) -> Message:
    """What is said of *more* events like *event*, of which the first was told."""
    return Message(
        id=key,
        event=type(event).__name__,
        title=one_line(f"{more:,} more since {_time(since)}: {_words(event)}", MOST_TITLE),
        lines=(f"At least {more:,} more such events ({type(event).__name__}) until {_time(now)}.",),
        at=now,
        count=more,
        repeated=True,
        details=_of_event(event),
    )


def _words(event: Event) -> str:
    match event:
        case NodeLost():
            return f"node {event.node_id} is lost"
        case NodeJoined():
            return f"node {event.node_id} has joined"
        case BreakerOpened():
            until = "until it is reset" if event.until is None else f"until {_time(event.until)}"
            return f"the circuit breaker {event.service!r} is open {until}"
        case BreakerClosed():
            return f"the circuit breaker {event.service!r} has closed"
        case JobsRetried():
            return f"{_jobs(event.count)} were retried"
        case JobsCanceled():
            return f"{_jobs(event.count)} were canceled"
        case JobEvent():
            error = getattr(event, "error", None) or getattr(event, "reason", None)
            return f"{type(event).__name__}: {event.target}{f': {error}' if error else ''}"
    return type(event).__name__


def _lines(event: Event) -> tuple[str, ...]:
    match event:
        case NodeLost():
            return (
                f"{_jobs(event.requeued)} wait again, {event.suspects:,} of them run alone next time; "
                f"{_jobs(event.dead_lettered)} became dead letters.",
            )
        case JobEvent():
            return (f"job {event.job_id}, attempt {event.attempt}",)
    return ()


def _of_event(event: Event) -> dict[str, Any]:
    """The plain fields of an event."""
    found = {name: _plain(getattr(event, name)) for name in event.__struct_fields__ if name not in _PRIVATE}
    return {name: value for name, value in found.items() if value is not _UNKNOWN}


_UNKNOWN = object()
_AS_TEXT: dict[type, Callable[[Any], Any]] = {
    datetime: datetime.isoformat,
    timedelta: timedelta.total_seconds,
    UUID: str,
}


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.name
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return one_line(value)
    convert = _AS_TEXT.get(type(value))
    return _UNKNOWN if convert is None else convert(value)


# --- text -------------------------------------------------------------------------------------


def one_line(text: str, most: int = MOST_LINE) -> str:
    """*text* as one line without control characters, cut to *most*."""
    # Cut first: an error text may be long. Whitespace and line breaks of any kind become one space.
    shown = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * most])
    line = " ".join(shown.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"


def _time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
