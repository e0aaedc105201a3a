"""Verbs for many jobs: those that were selected, or all that match an address."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from ratchet.dashboard.filters import address, criteria_of, filter_of
from ratchet.dashboard.orders import Confirmation, Done, Order
from ratchet.model.errors import InvalidJob, NotAuthorized
from ratchet.model.job import Job as JobValue
from ratchet.model.job import JobFilter, Page
from ratchet.model.status import AT_REST, LIVE, JobStatus, Priority

#: Jobs that one request changes; whoever wants more asks again.
MOST = 10_000
#: Jobs that can be selected.
SELECTED = 200
#: Jobs that one call changes.
CHUNK = 250
#: Jobs that a confirmation shows.
SAMPLES = 5

#: The states in which each verb changes a job.
STATES: dict[str, Collection[JobStatus]] = {
    "retry": {JobStatus.FAILED},
    "cancel": LIVE,
    "pause": {JobStatus.PENDING, JobStatus.FAILED},
    "resume": {JobStatus.PAUSED},
    "run-now": {JobStatus.PENDING, JobStatus.PAUSED},
    "set-priority": AT_REST,
    "delete": frozenset(JobStatus) - {JobStatus.RUNNING},
}

One = Callable[[Order, str], bool]


def change_many(verb: str, order: Order, one: One) -> Done | Confirmation:
    """Do it, or say what would be done."""
    ids = order.form.getlist("id")
    if len(ids) > SELECTED:
        raise InvalidJob(f"at most {SELECTED} jobs can be selected; use a filter for more")
    if verb == "set-priority" and order.form.get("to", "").upper() not in Priority.__members__:
        raise InvalidJob(f"say which priority with to: one of {', '.join(Priority.__members__)}")
    permitted = _permitted(one)
    return _selected(verb, order, permitted, ids) if ids else _matching(verb, order, permitted)


def _permitted(one: One) -> One:
    """*one*, which leaves out what the authorizer refuses, like the scheduler's own verbs for many."""

    def act(order: Order, job_id: str) -> bool:
        try:
            return one(order, job_id)
        except NotAuthorized:
            return False

    return act


def _selected(verb: str, order: Order, one: One, ids: list[str]) -> Done | Confirmation:
    jobs = [order.scheduler.jobs.get(job_id) for job_id in dict.fromkeys(ids)]
    fit = [job for job in jobs if job.status in STATES[verb]]
    if order.asks and not order.form.get("confirm"):
        fields = [("id", str(job.id)) for job in jobs]
        return Confirmation(verb, len(fit), MOST, True, fit[:SAMPLES], fields + _priority(order))
    count = sum(one(order, str(job.id)) for job in fit)
    return Done(f"{len(jobs)} selected jobs", _list(order), count, refusal="none of them can be changed so")


def _matching(verb: str, order: Order, one: One) -> Done | Confirmation:
    chosen = filter_of(order.words, order.now)
    if chosen.is_empty:
        raise InvalidJob("say which jobs, with a filter: without one, every job would be changed")
    wanted = [status for status in chosen.statuses or JobStatus if status in STATES[verb]]
    if verb == "set-priority":
        others = [p for p in chosen.priorities or Priority if p.name != order.form["to"].upper()]
        chosen = dataclasses.replace(chosen, priorities=others)
        wanted = wanted if others else []
    where = dataclasses.replace(chosen, statuses=wanted, include_archived=False)
    total = order.scheduler.jobs.count(where, at_most=MOST + 1) if wanted else 0
    if order.form.get("dry_run") or (order.asks and not order.form.get("confirm")):
        samples = order.scheduler.jobs.find(where, limit=SAMPLES).items if total else []
        return Confirmation(verb, total, MOST, False, samples, _priority(order))
    count = _change(verb, order, one, where, min(total, MOST)) if total else 0
    named = "jobs with " + ", ".join(f"{name}={value}" for name, value in criteria_of(order.words))
    return Done(named, _list(order), count, refusal="none of them can be changed so", more=total > MOST)


def _change(verb: str, order: Order, one: One, where: JobFilter, total: int) -> int:
    """In pieces, each a transaction of its own; never more than were counted."""
    bulk = {"retry": order.scheduler.retry_jobs, "cancel": order.scheduler.cancel_jobs}.get(verb)
    done = 0
    if bulk is not None:
        while done < total and (some := bulk(where, limit=min(CHUNK, total - done))):
            done += some
        return done
    cursor: str | None = None
    seen = 0
    while seen < total:
        page: Page[JobValue] = order.scheduler.jobs.find(where, limit=min(CHUNK, total - seen), cursor=cursor)
        done += sum(one(order, str(job.id)) for job in page)
        seen, cursor = seen + len(page), page.next_cursor
        if cursor is None:
            break
    return done


def _priority(order: Order) -> list[tuple[str, str]]:
    return [("to", order.form["to"])] if order.form.get("to") else []


def _list(order: Order) -> str:
    return address("/jobs", criteria_of(order.words))
