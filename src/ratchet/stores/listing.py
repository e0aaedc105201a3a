"""Sorted listings and searches by argument, which no index serves: what they read is bounded here, for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from ratchet.model.cursors import SortedPosition, sorted_position
from ratchet.model.job import JobFilter, SortBy
from ratchet.model.payload.matching import ArgumentMatch

#: A sorted listing is of so many matching jobs, the newest ones. Indexes on times that each success writes would make
#: every success dearer.
WINDOW = 10_000
#: A page of a search by argument reads so many payloads at most,
LOOKED_AT = 10_000
#: and so many at once.
STRETCH = 500

Key = datetime | int | None


class Candidate(NamedTuple):
    """A matching job, and what the listing is sorted by."""

    job_id: UUID
    key: Key


def match_of(where: JobFilter) -> Callable[[str], bool] | None:
    """Whether a payload has the arguments that *where* names; None: it names none."""
    return ArgumentMatch(where.args) if where.args else None


def sorted_page(
    newest: Callable[[UUID | None, int], Iterable[Candidate]],
    sort: SortBy,
    *,
    descending: bool,
    limit: int,
    cursor: str | None,
) -> tuple[list[UUID], str | None]:
    """
    The ids of one page, and the cursor of the next.

    *newest* is asked for so many of the newest matching jobs, up to an id if one is given.
    """
    after = None if cursor is None else sorted_position(cursor, sort, descending=descending)
    found = list(newest(None if after is None else after.top, WINDOW))
    if not found:
        return [], None
    top = (
        after.top if after is not None else max((one.job_id for one in found), key=lambda job_id: job_id.int)
    )
    present = [(one.key, one.job_id.int, one) for one in found if one.key is not None]
    absent = [(one.job_id.int, one) for one in found if one.key is None]
    present.sort(key=lambda one: one[:2], reverse=descending)
    absent.sort(key=lambda one: one[0], reverse=descending)
    if after is not None:
        number = after.job_id.int
        if after.key is None:
            present = []
            absent = [one for one in absent if (one[0] < number if descending else one[0] > number)]
        else:
            last = (after.key, number)
            present = [one for one in present if (one[:2] < last if descending else one[:2] > last)]
    ordered = [one[-1] for one in present] + [one[-1] for one in absent]
    page = ordered[:limit]
    ids = [one.job_id for one in page]
    if len(ordered) <= limit:
        return ids, None
    return ids, SortedPosition(sort, descending, top, page[-1].key, page[-1].job_id).cursor()


def walk(
    read: Callable[[UUID | None, int], Sequence[tuple[UUID, str]]],
    match: Callable[[str], bool],
    *,
    limit: int,
    after: UUID | None,
    most: int | None,
) -> tuple[list[UUID], UUID | None]:
    """
    The first *limit* jobs whose payload matches, and after which id to go on (None: there is nothing more).

    *read* gives (id, payload) of so many jobs after an id, in the order of the walk. *most*: payloads to read.
    """
    found: list[UUID] = []
    looked_at = 0
    while most is None or looked_at < most:
        rows = read(after, STRETCH)
        for job_id, payload in rows:
            if match(payload):
                found.append(job_id)
                if len(found) == limit:
                    return found, job_id
        if len(rows) < STRETCH:
            return found, None
        looked_at += len(rows)
        after = rows[-1][0]
    return found, after
