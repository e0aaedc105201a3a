"""Listings that no index serves: sorted ones, searches by argument, trace, queue or target. What they read is bounded here, for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar
from uuid import UUID

from ratchet.model.cursors import SortedPosition, sorted_position
from ratchet.model.job import JobFilter, SortBy
from ratchet.model.payload.matching import ArgumentMatch
from ratchet.model.status import JobStatus
from ratchet.model.traces import has_trace

#: A sorted listing is of so many matching jobs, the newest ones. Indexes on times that each success writes would make
#: every success dearer.
WINDOW = 10_000
#: A page of a search by argument or trace reads so many jobs at most,
LOOKED_AT = 10_000
#: and so many at once.
STRETCH = 500
#: A page of any other search looks at so many jobs, in stretches that grow: most pages are full after the first.
STRETCHES = (2_000, 8_000, 90_000)
#: Criteria by which jobs are found without looking at others.
_INDEXED = ("tags", "business_key", "batch_id", "parent_id", "schedule")
#: Each of these alone has an index of its own.
HELD = frozenset({JobStatus.PAUSED, JobStatus.WAITING})
_FEW = (frozenset({JobStatus.FAILED}), frozenset({JobStatus.RUNNING}))

Key = datetime | int | None
T = TypeVar("T")


class Candidate(NamedTuple):
    """A matching job, and what the listing is sorted by."""

    job_id: UUID
    key: Key


def statuses_of(where: JobFilter) -> frozenset[JobStatus] | None:
    """The states that are asked for; None: any."""
    return None if where.statuses is None else frozenset(JobStatus(one) for one in where.statuses)


def has_few(statuses: frozenset[JobStatus] | None) -> bool:
    """True for states whose jobs have an index of their own, however many others there are."""
    return bool(statuses) and (statuses in _FEW or (statuses or HELD) <= HELD)


def is_walk(where: JobFilter) -> bool:
    """True if matching jobs can only be found by looking at one job after the other."""
    if where.is_empty or any(getattr(where, name) for name in _INDEXED):
        return False
    return not has_few(statuses_of(where))


def walked_page(
    end_of: Callable[[UUID | None, int], UUID | None],
    read: Callable[[UUID | None, UUID | None, int], Sequence[T]],
    id_of: Callable[[T], UUID],
    *,
    limit: int,
    after: UUID | None,
) -> tuple[list[T], str | None]:
    """
    The jobs of one page, found by looking at one after the other, and the cursor of the next.

    *end_of*: so many jobs after an id, which id is there (None: there are fewer). *read*: at most so many matching jobs after an id,
    up to another (None: to the end), that one included. A page may have less than *limit* jobs, or none, and a cursor.
    """
    found: list[T] = []
    for size in STRETCHES:
        end = end_of(after, size)
        found += read(after, end, limit + 1 - len(found))
        if len(found) > limit:
            return found[:limit], str(id_of(found[limit - 1])) if limit else None
        if end is None:
            return found, None
        after = end
    return found, str(after)


#: Whether a job with this payload and these params matches.
Match = Callable[[str, str | None], bool]


def match_of(where: JobFilter) -> Match | None:
    """Whether a job has the arguments and the trace that *where* names; None: it names neither."""
    trace_id = where.trace_id
    arguments = ArgumentMatch(where.args) if where.args else None
    if arguments is None and trace_id is None:
        return None

    def match(payload: str, params: str | None) -> bool:
        if trace_id is not None and not has_trace(params, trace_id):
            return False
        return arguments is None or arguments(payload)

    return match


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
    read: Callable[[UUID | None, int], Sequence[tuple[UUID, str, str | None]]],
    match: Match,
    *,
    limit: int,
    after: UUID | None,
    most: int | None,
) -> tuple[list[UUID], UUID | None]:
    """
    The first *limit* jobs that match, and after which id to go on (None: there is nothing more).

    *read* gives (id, payload, params) of so many jobs after an id, in the order of the walk. *most*: how many to read.
    """
    found: list[UUID] = []
    looked_at = 0
    while most is None or looked_at < most:
        rows = read(after, STRETCH)
        for job_id, payload, params in rows:
            if match(payload, params):
                found.append(job_id)
                if len(found) == limit:
                    return found, job_id
        if len(rows) < STRETCH:
            return found, None
        looked_at += len(rows)
        after = rows[-1][0]
    return found, after
