"""The audit log: who changed what, through what, and with which outcome."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.audit import AuditFilter, AuditOutcome, AuditSource
from ratchet.model.errors import InvalidJob

#: Entries of one page.
SHOWN = 50
_TEXTS = ("principal", "source", "verb", "job_id", "object", "outcome")
_TIMES = ("after", "before")


def audit(question: Question) -> Data:
    """One page of entries, newest first; the words behind the address are the criteria of an `AuditFilter`."""
    words = question.words
    chosen: dict[str, Any] = {name: words[name].strip() for name in _TEXTS if words.get(name, "").strip()}
    times: dict[str, Any] = {
        name: _time(words[name].strip(), name) for name in _TIMES if words.get(name, "").strip()
    }
    cursor = words.get("cursor") or None
    page = question.scheduler.audit.find(AuditFilter(**chosen, **times), limit=SHOWN, cursor=cursor)
    return {
        "entries": [asdict(entry) for entry in page],
        "next_cursor": page.next_cursor,
        "cursor": cursor,
        "chosen": {**chosen, **times},
        "sources": [one.value for one in AuditSource],
        "outcomes": [one.value for one in AuditOutcome],
    }


def _time(text: str, name: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidJob(f"{name}: {text!r} is no time, such as 2026-01-31T12:00:00+00:00") from None
