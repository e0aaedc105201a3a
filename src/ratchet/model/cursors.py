"""Cursors of searches: where a page ended, as text that a caller passes back."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ratchet.model.errors import InvalidJob
from ratchet.model.job import DeadLetter, SortBy


def job_position(cursor: str) -> UUID:
    """The id after which a page of jobs begins."""
    try:
        return UUID(cursor)
    except (ValueError, TypeError, AttributeError):  # of something that is no text
        raise _refused(cursor) from None


class SortedPosition(NamedTuple):
    """
    Where a page of a sorted listing ended.

    ``top`` is the newest job there was when the first page was read: jobs that are added later are not in this
    listing, so that they move nothing.
    """

    sort: SortBy
    descending: bool
    top: UUID
    key: datetime | int | None
    job_id: UUID

    def cursor(self) -> str:
        """As text."""
        key = self.key.isoformat() if isinstance(self.key, datetime) else self.key
        direction = "down" if self.descending else "up"
        return f"{self.sort}/{direction}/{self.top}/{'' if key is None else key}/{self.job_id}"


def sorted_position(cursor: str, sort: SortBy, *, descending: bool) -> SortedPosition:
    """The position that *cursor* names, of a listing that is sorted like this."""
    parts = cursor.split("/")
    if len(parts) != 5 or parts[:2] != [str(sort), "down" if descending else "up"]:
        raise _refused(cursor)
    _, _, top, key, job_id = parts
    try:
        read: datetime | int | None
        if not key:
            read = None
        elif sort is SortBy.PRIORITY:
            read = int(key)
        else:
            read = datetime.fromisoformat(key)
            if read.tzinfo is None:
                raise _refused(cursor)
        return SortedPosition(sort, descending, UUID(top), read, UUID(job_id))
    except ValueError:
        raise _refused(cursor) from None


def dead_letter_cursor(last: DeadLetter) -> str:
    """The cursor of a page that ends with this dead letter."""
    return f"{last.failed_at.isoformat()} {last.job_id}"


def dead_letter_position(cursor: str) -> tuple[datetime, UUID]:
    """The (time of failure, id) after which a page of dead letters begins."""
    if not isinstance(cursor, str):
        raise _refused(cursor)
    failed_at, _, job_id = cursor.partition(" ")
    try:
        position = datetime.fromisoformat(failed_at), UUID(job_id)
    except ValueError:
        raise _refused(cursor) from None
    if position[0].tzinfo is None:
        raise _refused(cursor)
    return position


def audit_cursor(at: datetime, entry_id: UUID) -> str:
    """The cursor of a page of the audit log that ends with this entry."""
    return f"{at.isoformat()} {entry_id}"


def audit_position(cursor: str) -> tuple[datetime, UUID]:
    """The (time, id) after which a page of the audit log begins."""
    return dead_letter_position(cursor)


def _refused(cursor: str) -> InvalidJob:
    return InvalidJob(f"{cursor!r} is not a cursor of this search; pass a page's next_cursor")
