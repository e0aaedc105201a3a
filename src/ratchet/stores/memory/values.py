"""Values that no database would store are refused here, too: naive times, broken text, keys that are too long."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from ratchet.model.clock import require_aware
from ratchet.model.errors import InvalidJob, UnstorableData
from ratchet.model.job import KEY_LIMIT, JobSpec, Progress

_TARGET_LIMIT = 512
_KEYS = ("idempotency_key", "business_key", "schedule", "caller")
_TARGETS = ("target", "on_success", "on_failure")


def check(value: object, name: str = "value") -> None:
    """Refuse *value*, or anything inside it, that cannot be stored as it is."""
    if value is None or isinstance(value, Enum):
        return
    if isinstance(value, str):
        _check_text(value, name)
    elif isinstance(value, datetime):
        if value.tzinfo is not UTC:
            require_aware(value, name)
    elif isinstance(value, Struct):
        for field in value.__struct_fields__:
            check(getattr(value, field), field)
    elif isinstance(value, Progress):
        check(value.message, "message")
    elif isinstance(value, tuple):
        for item in value:
            check(item, name)


def check_spec(spec: JobSpec) -> None:
    """Refuse a job that cannot be stored as it is."""
    check(spec)
    for field in _KEYS:
        _check_length(getattr(spec, field), KEY_LIMIT, field)
    for field in _TARGETS:
        _check_length(getattr(spec, field), _TARGET_LIMIT, field)
    stream = spec.stream
    for text in (stream.queue, stream.resource, stream.breaker, stream.limit_key, stream.fairness_key):
        _check_length(text, KEY_LIMIT, "a part of the stream")
    for tag in spec.tags:
        _check_length(tag, KEY_LIMIT, "a tag")
    if spec.signal is not None:
        _check_length(spec.signal.key, KEY_LIMIT, "the signal's key")


def in_utc(spec: JobSpec) -> JobSpec:
    """The job with its times in UTC, as databases give them back."""
    expires_at, signal = spec.expires_at, spec.signal
    if signal is not None and signal.deadline is not None:
        signal = replace(signal, deadline=require_aware(signal.deadline, "deadline"))
    return replace(
        spec,
        scheduled_at=require_aware(spec.scheduled_at, "scheduled_at"),
        expires_at=None if expires_at is None else require_aware(expires_at, "expires_at"),
        signal=signal,
    )


def _check_text(text: str, name: str) -> None:
    if text.isascii():
        if "\0" not in text:
            return
    else:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UnstorableData(
                f"{name} holds half a surrogate pair at position {error.start}, which is not valid Unicode; "
                f"nothing was written"
            ) from error
    if "\0" in text:
        raise UnstorableData(f"{name} holds U+0000, which databases cannot store; nothing was written")


def _check_length(text: str | None, limit: int, name: str) -> None:
    if text is not None and len(text) > limit:
        raise InvalidJob(f"{name} has {len(text)} characters, at most {limit} can be stored: {text[:40]!r}…")
