"""Cursors of searches: where a page ended, as text that a caller passes back."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from ratchet.model.errors import InvalidJob
from ratchet.model.job import DeadLetter


def job_position(cursor: str) -> UUID:
    """The id after which a page of jobs begins."""
    try:
        return UUID(cursor)
    except ValueError:
        raise _refused(cursor) from None


def dead_letter_cursor(last: DeadLetter) -> str:
    """The cursor of a page that ends with this dead letter."""
    return f"{last.failed_at.isoformat()} {last.job_id}"


def dead_letter_position(cursor: str) -> tuple[datetime, UUID]:
    """The (time of failure, id) after which a page of dead letters begins."""
    failed_at, _, job_id = cursor.partition(" ")
    try:
        position = datetime.fromisoformat(failed_at), UUID(job_id)
    except ValueError:
        raise _refused(cursor) from None
    if position[0].tzinfo is None:
        raise _refused(cursor)
    return position


def _refused(cursor: str) -> InvalidJob:
    return InvalidJob(f"{cursor!r} is not a cursor of this search; pass a page's next_cursor")
