"""The list of jobs that match an address."""

from __future__ import annotations

from dataclasses import fields
from uuid import UUID

from ratchet.api.authorization import is_permitted
from ratchet.dashboard.filters import criteria_of, filter_of
from ratchet.dashboard.pages.question import Data, Question
from ratchet.model.errors import InvalidJob, JobNotFound
from ratchet.model.job import Job, JobFilter, Page, SortBy
from ratchet.model.permissions import Permission
from ratchet.model.status import JobStatus, JobType, Priority

PAGE = 50
#: Seconds for which the names of queues and nodes are good enough for suggestions.
NAMES_FRESH = 30.0
#: The same of how many match.
COUNT_FRESH = 5.0
LONGEST_PAGE = 200
#: Where counting ends.
COUNTED = 10_000


def jobs(question: Question) -> Data:
    """One page of jobs, how many match (up to `COUNTED`), and what the filters can be."""
    words = question.words
    where = filter_of(words, question.now)
    sort = _sort(words.get("sort"))
    descending = words.get("order", "desc") != "asc"
    cursor = words.get("cursor") or None
    limit = _limit(words.get("limit"))
    page = question.scheduler.jobs.find(where, limit=limit, cursor=cursor, sort=sort, descending=descending)
    return {
        "jobs": page.items,
        "next_cursor": page.next_cursor,
        "cursor": cursor,
        "total": _total(question, where, page, first=cursor is None, limit=limit),
        "counted": COUNTED,
        "criteria": criteria_of(words),
        "sort": sort.value,
        "order": "desc" if descending else "asc",
        "statuses": [status.value for status in JobStatus],
        "types": [kind.value for kind in JobType],
        "priorities": list(Priority.__members__),
        "known": question.kept("names", lambda: known_names(question), NAMES_FRESH),
        "can_change_all": not where.is_empty,
    }


def _total(question: Question, where: JobFilter, page: Page[Job], *, first: bool, limit: int) -> int | None:
    """
    How many match; counting is needed only where the first page does not hold all, and ends one behind `COUNTED`.

    None: they are few and far between, or no index knows them. To count them, all of history would be read.
    """
    if first and page.next_cursor is None:
        return len(page)
    if not _is_counted(where) or (page.next_cursor is not None and len(page) < limit):
        return None
    named = f"count {criteria_of(question.words)}"
    return int(
        question.kept(named, lambda: question.scheduler.jobs.count(where, at_most=COUNTED + 1), COUNT_FRESH)
    )


def _is_counted(where: JobFilter) -> bool:
    """True if an index has the jobs that match, and nothing but them."""
    given = {one.name for one in fields(where) if getattr(where, one.name) not in (None, False)}
    if given <= {"statuses"}:
        # One that is ended and rare is found by reading all others.
        return not given or set(where.statuses or ()) <= _INDEXED
    if given <= {"queue", "statuses"}:
        return where.statuses is not None and set(where.statuses) <= {JobStatus.PENDING}
    return given <= {"tags"} or given <= {"batch_id"} or given <= {"schedule"} or given <= {"business_key"}


#: The states whose jobs an index has, and that in which most jobs are.
_INDEXED = frozenset(JobStatus) - {JobStatus.CANCELED}


def known_names(question: Question) -> dict[str, list[str]]:
    """Names for suggestions, from what is small: the nodes and the queues; none for who may see jobs, but no lists of these."""
    if not is_permitted(question.scheduler.backend, Permission.LIST):
        return {"queue": [], "target": [], "node": [], "schedule": []}
    nodes = question.scheduler.nodes.list()
    return {
        "queue": [queue.name for queue in question.scheduler.queues.list(counting=False)][:100],
        "target": sorted({target for node in nodes for target in node.about.targets})[:200],
        "node": [node.node_id for node in nodes][:100],
        "schedule": [record.spec.name for record in question.scheduler.schedules.records()][:100],
    }


def job_with_prefix(question: Question, text: str) -> UUID:
    """The job whose id begins with *text*."""
    digits = text.replace("-", "").lower()
    if len(digits) == 32:
        return UUID(digits)
    # Jobs are found newest first, by id: a page that begins behind the last id with this prefix is a range of the key.
    behind = str(UUID(digits.ljust(32, "f")))
    page = question.scheduler.jobs.find(JobFilter(include_archived=True), limit=2, cursor=behind)
    found = [job.id for job in page if job.id.hex.startswith(digits)]
    if not found:
        raise JobNotFound(UUID(digits.ljust(32, "0")))
    if len(found) > 1:
        raise InvalidJob(f"the ids of several jobs begin with {text}; give more of it")
    return found[0]


def _sort(text: str | None) -> SortBy:
    if not text:
        return SortBy.CREATED
    try:
        return SortBy(text.upper())
    except ValueError:
        raise InvalidJob(f"sort: {text!r} is none of {', '.join(SortBy)}") from None


def _limit(text: str | None) -> int:
    if not text:
        return PAGE
    if not text.isdecimal() or not 1 <= int(text) <= LONGEST_PAGE:
        raise InvalidJob(f"limit: {text!r} is no number from 1 to {LONGEST_PAGE}")
    return int(text)
