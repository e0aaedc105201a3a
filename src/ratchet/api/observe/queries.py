"""Facades: ``scheduler.jobs``, ``.dead_letters``, ``.queues``, ``.limits``, ``.breakers``, ``.schedules``, ``.batches``."""

from __future__ import annotations

import builtins
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import msgspec

from ratchet.api.authorization import ASKED_AT_ONCE, LOOKED_AT, Permitted, by_hand, require
from ratchet.api.backend import Backend
from ratchet.api.batches.handles import BatchHandle
from ratchet.api.checks import (
    after,
    count_of,
    id_of,
    members_of,
    moment_of,
    queue_of,
    resource_of,
    text_of,
    texts_of,
    within_ids,
)
from ratchet.api.observe.rates import history_of, read_statistics
from ratchet.api.observe.records import job_of
from ratchet.api.recurring import Schedule, ScheduleNotFound, run_facts
from ratchet.api.submit.sending import wake
from ratchet.api.targets.breakers import SERVICE_LIMIT
from ratchet.api.targets.names import NAME_LIMIT
from ratchet.model.cluster import (
    BreakerRecord,
    LimitRecord,
    PermitRecord,
    QueueRecord,
)
from ratchet.model.composition import BatchRecord, ScheduleRecord
from ratchet.model.durations import Duration, format_duration, to_timedelta
from ratchet.model.errors import InvalidJob, JobNotFound
from ratchet.model.events import BreakerClosed, BreakerOpened
from ratchet.model.filters import both
from ratchet.model.flow import Statistics
from ratchet.model.flow_history import FlowPoint
from ratchet.model.job import (
    Alert,
    DeadLetter,
    DeadLetterGroup,
    Execution,
    Job,
    JobFilter,
    JobRecord,
    LogLine,
    Page,
    SortBy,
)
from ratchet.model.permissions import Permission
from ratchet.model.status import JobStatus, JobType, Priority
from ratchet.model.traces import checked_trace_id

#: How each criterion of a `JobFilter` is checked.
_CRITERIA: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("created_after", "created_before", "scheduled_after", "scheduled_before"), moment_of),
    **dict.fromkeys(("queue", "business_key", "schedule", "node_id", "caller"), text_of),
    **dict.fromkeys(("batch_id", "parent_id", "superseded_by"), lambda value, name: id_of(value)),
    "error_type": lambda value, name: text_of(value, name, limit=NAME_LIMIT) if value != "" else value,
    "error_contains": lambda value, name: text_of(value, name, limit=NAME_LIMIT),
    "statuses": lambda value, name: members_of(JobStatus, value, name),
    "types": lambda value, name: members_of(JobType, value, name),
    "priorities": lambda value, name: members_of(Priority, value, name),
    "trace_id": checked_trace_id,
    "tags": texts_of,
    "targets": lambda value, name: texts_of(value, name, limit=NAME_LIMIT),
}
_MOST = 1000
#: Dead letters that one call purges, if each has to be asked about.
MOST = 1_000_000
#: Dead letters that are deleted in one transaction.
_PURGED_AT_ONCE = 100


def checked_filter(where: JobFilter | None) -> JobFilter:
    """*where*, checked: its times in UTC, where a naive one is refused, and each criterion of its type."""
    if where is None:
        return JobFilter()
    if not isinstance(where, JobFilter):
        raise InvalidJob(f"a search takes a JobFilter, not {where!r}")
    checked: dict[str, Any] = {
        name: check(value, name)
        for name, check in _CRITERIA.items()
        if (value := getattr(where, name)) is not None
    }
    return within_ids(dataclasses.replace(where, **checked) if checked else where)


_NEWEST_FIRST = {"sort": SortBy.CREATED, "descending": True}


def _sort_of(sort: Any) -> SortBy:
    try:
        return SortBy(sort)
    except ValueError:
        raise InvalidJob(f"sort is one of {', '.join(SortBy)}, not {sort!r}") from None


def _page_size(limit: int) -> int:
    return count_of(limit, "the limit of a page", at_least=1, at_most=_MOST)


class Facade:
    """A group of verbs on one kind of thing."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend


class Jobs(Facade):
    """Reads jobs, wherever they live: queue, history, archive."""

    def get(self, job_id: UUID | str) -> Job:
        """One job; `JobNotFound` if there is none."""
        identity = id_of(job_id)
        require(self._backend, Permission.VIEW, job_id=identity)
        record = self._backend.store.get(identity)
        if record is None:
            raise JobNotFound(identity)
        return job_of(record, self._backend)

    def find(
        self,
        where: JobFilter | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: SortBy = SortBy.CREATED,
        descending: bool = True,
    ) -> Page[Job]:
        """
        One page of matching jobs, newest first; pass ``page.next_cursor`` on, with the same sort, for the next.

        By CREATED all jobs are listed. By anything else the newest 10,000 that match are, as they were when the first
        page was read; jobs that lack it come last. A page looks at 100,000 jobs at most: with few matches in a long history it
        may have less than *limit* of them, or none, and a ``next_cursor``.
        """
        order = {"sort": _sort_of(sort), "descending": bool(descending)}
        # A store of an older version knows no other order.
        given: dict[str, Any] = {} if order == _NEWEST_FIRST else order
        store, permitted = self._backend.store, self._permitted(where)
        page = permitted.page(
            lambda most, after: store.find(permitted.where, limit=most, cursor=after, **given),
            _page_size(limit),
            cursor,
        )
        return Page([job_of(record, self._backend) for record in page], page.next_cursor)

    def count(self, where: JobFilter | None = None, *, at_most: int | None = None) -> int:
        """
        How many jobs match; counting ends at *at_most*, so that it costs no more where there are many.

        If an authorizer without a scope has to be asked about each, each is read.
        """
        store, permitted = self._backend.store, self._permitted(where)
        most = None if at_most is None else count_of(at_most, "at_most", at_least=1)
        if permitted.is_empty:
            return 0
        if permitted.asks:
            return sum(1 for _ in islice(self._each(permitted), most))
        return store.count(permitted.where) if most is None else store.count(permitted.where, at_most=most)

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs are in each state, archive not included."""
        if self._backend.authorizer is None:
            return self._backend.store.counts()
        permitted = self._permitted(None)
        if permitted.asks:
            found = Counter(record.status for record in self._each(permitted))
            return {status: found[status] for status in JobStatus}
        return {status: self.count(JobFilter(statuses=[status])) for status in JobStatus}

    def _permitted(self, where: JobFilter | None) -> Permitted:
        """The part of the filter that may be read."""
        checked = checked_filter(where)
        return Permitted(self._backend, Permission.VIEW, checked)

    def _each(self, permitted: Permitted) -> Iterator[JobRecord]:
        store = self._backend.store
        return permitted.each(lambda cursor: store.find(permitted.where, limit=ASKED_AT_ONCE, cursor=cursor))

    def statistics(self, window: Duration = timedelta(hours=1)) -> Statistics:
        """
        What waits, runs and has run in each queue and of each target, with how long runs waited and took.

        Runs that ended within *window* count. The cost is bounded: looked at are the runs of the newest jobs and the jobs
        that wait or run, 10,000 of each at most (``sampled`` says whether that was too few).
        """
        length = to_timedelta(window, "the window", zero=False)
        now = self._backend.now()
        # How much waits comes from samples; the load is asked for how long, and counts nothing.
        return read_statistics(self._backend, length, self._backend.store.load(now=now, most=1), now)

    def history(
        self,
        window: Duration = timedelta(hours=1),
        queue: str | None = None,
        step: Duration | None = None,
        *,
        each_queue: bool = False,
    ) -> list[FlowPoint]:
        """
        What has flowed through a queue, or through all together, in each step of the time since *window* ago; oldest first.

        Nodes store what they did when a minute is over, so the last minute is missing, and so is what a node did in the
        minute in which it was killed. Without a *step* there are about sixty. Single minutes are kept for three hours; for
        a longer window a step is a multiple of ten. With *each_queue* there is a point for each queue of which something is
        known in a step. Rates are kept for `history_retention`.
        """
        require(self._backend, Permission.LIST, about="history")
        return history_of(self._backend, window, queue, step, each_queue=each_queue)

    def executions(self, job_id: UUID | str, *, all: bool = False) -> list[Execution]:  # noqa: A002 - the contract's word
        """The runs of a job, oldest first; with *all* also those that counted as no attempt."""
        identity = id_of(job_id)
        require(self._backend, Permission.VIEW, job_id=identity)
        return self._backend.store.executions(identity, uncounted=all)

    def logs(self, job_id: UUID | str, *, limit: int = 1000) -> list[LogLine]:
        """What a job logged, in order; the newest *limit* lines."""
        identity, most = id_of(job_id), count_of(limit, "the limit", at_least=1)
        require(self._backend, Permission.VIEW, job_id=identity)
        return self._backend.store.logs(identity, limit=most)

    def delete(self, job_id: UUID | str) -> bool:
        """Remove a job with its history; False if there is none, or it is RUNNING."""
        identity = id_of(job_id)
        with by_hand(self._backend, Permission.DELETE, job_id=identity):
            return self._backend.store.delete(identity)

    def tags(self, *, limit: int = 100) -> dict[str, int]:
        """How many jobs carry each tag, most used first."""
        most = count_of(limit, "the limit", at_least=1)
        require(self._backend, Permission.LIST, about="tags")
        return self._backend.store.tag_counts(limit=most)


class DeadLetters(Facade):
    """Reads jobs that failed for good, and the alerts about them."""

    def find(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """One page of dead letters, latest failure first. It cannot search by ``args`` and ``trace_id``: ``jobs.find`` can."""
        checked = checked_filter(where)
        if checked.args or checked.trace_id:
            name = "args" if checked.args else "trace_id"
            raise InvalidJob(
                f"dead letters cannot be searched by {name}; "
                f"use jobs.find(JobFilter(statuses=[JobStatus.FAILED], {name}=...))"
            )
        store, most = self._backend.store, _page_size(limit)
        permitted = Permitted(self._backend, Permission.VIEW, checked)
        if permitted.is_empty:
            return Page([])
        if not permitted.asks:
            return store.dead_letters(permitted.where, limit=most, cursor=cursor)
        found: builtins.list[DeadLetter] = []
        looked_at = 0
        while True:
            page = store.dead_letters(checked, limit=most - len(found), cursor=cursor)
            found += [letter for letter in page if permitted.allows(store.get(letter.job_id))]
            looked_at += len(page.items)
            cursor = page.next_cursor
            if cursor is None or len(found) == most or looked_at >= LOOKED_AT:
                return Page(found, cursor)

    def summary(self, where: JobFilter | None = None, *, limit: int = 100) -> list[DeadLetterGroup]:
        """Dead letters by target and error type, most first: how many, since when, and the latest of each."""
        checked = checked_filter(where)
        if checked.args or checked.trace_id:
            raise InvalidJob("dead letters cannot be counted by args or trace_id; jobs.count can")
        most = _page_size(limit)
        permitted = Permitted(self._backend, Permission.VIEW, checked)
        if permitted.is_empty:
            return []
        if permitted.asks:  # groups cannot be divided by asking about each job
            require(self._backend, Permission.LIST, about="dead letters")
        return self._backend.store.dead_letter_groups(permitted.where, limit=most)

    def purge(self, where: JobFilter, *, dry_run: bool = False) -> int:
        """
        Delete matching dead letters for good, oldest first; how many, or with *dry_run* how many it would be.

        One that something unfinished needs stays: a batch or a join that is open. An empty filter is refused.
        """
        if not isinstance(where, JobFilter):
            raise InvalidJob(f"purge takes a JobFilter, not {where!r}")
        where.require_criterion("dead_letters.purge")
        store, wanted = self._backend.store, checked_filter(where)
        permitted = Permitted(self._backend, Permission.DELETE, wanted)

        def purge(some: JobFilter, _: int) -> int:
            after, total = None, 0
            while True:
                deleted, after = store.delete_dead_letters(
                    some, limit=_PURGED_AT_ONCE, after=after, dry_run=dry_run
                )
                total += deleted
                if after is None:
                    return total

        failed = both(permitted.where, JobFilter(statuses=[JobStatus.FAILED]))

        def find(cursor: str | None) -> Page[JobRecord]:
            return Page([]) if failed is None else store.find(failed, limit=ASKED_AT_ONCE, cursor=cursor)

        if dry_run:
            return permitted.change(find, purge, MOST)[0]
        with by_hand(
            self._backend, Permission.DELETE, "purge", about="dead letters", where=where, asked=False
        ):
            return permitted.change(find, purge, MOST)[0]

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        require(self._backend, Permission.LIST, about="alerts")
        return self._backend.store.alerts(
            since=None if since is None else moment_of(since, "since"), limit=_page_size(limit)
        )


class Queues(Facade):
    """Shows queues, and closes and opens them."""

    def list(self, *, counting: bool = True) -> list[QueueRecord]:
        """All queues that were ever used or paused, with what is in them; without *counting* the numbers are 0."""
        require(self._backend, Permission.LIST, about="queues")
        now = self._backend.now()
        return [
            msgspec.structs.replace(record, paused=False, paused_at=None, paused_until=None)
            if record.paused and not record.is_paused(now)
            else record
            for record in (
                self._backend.store.queues() if counting else self._backend.store.queues(counting=False)
            )
        ]

    def pause(self, name: str, *, until: datetime | Duration | None = None) -> bool:
        """
        Let no job of this queue start, on any node; True if that changed anything.

        *until*: a time, or a duration from now; then the queue opens by itself. A paused queue is given another time.
        """
        queue, now = queue_of(name), self._backend.now()
        about = f"queue:{queue}"
        if until is None:
            with by_hand(self._backend, Permission.QUEUES, "pause", about=about):
                return self._backend.store.pause_queue(queue, now=now)
        at = moment_of(until, "until") if isinstance(until, datetime) else after(now, until, "until")
        if at <= now:
            raise InvalidJob(
                f"a queue can be paused until a time that is to come, not until {at.isoformat()}"
            )
        said = f"until {at.isoformat()}"
        with by_hand(self._backend, Permission.QUEUES, "pause", about=about, reason=said):
            paused = self._backend.store.pause_queue(queue, now=now, until=at)
        if paused:
            wake(self._backend)  # nodes wait for the time that they know
        return paused

    def resume(self, name: str) -> bool:
        """Let its jobs start again; True if it was paused."""
        queue = queue_of(name)
        with by_hand(self._backend, Permission.QUEUES, "resume", about=f"queue:{queue}"):
            resumed = self._backend.store.resume_queue(queue, now=self._backend.now())
        if resumed:
            wake(self._backend)
        return resumed


class Limits(Facade):
    """Says how many jobs of a resource may run at once, or start per period."""

    def set(self, name: str, *, concurrent: int) -> None:
        """At most *concurrent* jobs of this resource run at once, in the whole cluster."""
        resource, most = resource_of(name), count_of(concurrent, "concurrent", at_least=0)
        with self._by_hand("set", resource, f"concurrent: {most}"):
            self._backend.store.set_limit(resource, concurrent=most, now=self._backend.now())
        wake(self._backend)

    def set_rate(self, name: str, rate: int, *, per: Duration) -> None:
        """At most *rate* jobs of this resource start within each period *per*."""
        resource, most = resource_of(name), count_of(rate, "the rate", at_least=1)
        period = to_timedelta(per, "the period", zero=False)
        with self._by_hand("set", resource, f"rate: {most} per {format_duration(period)}"):
            self._backend.store.set_limit(resource, rate=most, period=period, now=self._backend.now())
        wake(self._backend)

    def _by_hand(self, verb: str, name: str, reason: str | None = None) -> AbstractContextManager[None]:
        return by_hand(self._backend, Permission.LIMITS, verb, about=f"limit:{name}", reason=reason)

    def list(self) -> list[LimitRecord]:
        """All limits, with the number of permits that are held."""
        require(self._backend, Permission.LIST, about="limits")
        return self._backend.store.limits()

    def holders(self, name: str, *, limit: int = 100) -> builtins.list[PermitRecord]:
        """Who holds permits of this resource: jobs and their nodes, the longest first."""
        resource, most = text_of(name, "the name of a resource"), _page_size(limit)
        require(self._backend, Permission.LIST, about=f"limit:{resource}")
        return self._backend.store.holders(resource, limit=most)

    def remove(self, name: str) -> bool:
        """Forget a limit; False if there was none."""
        resource = text_of(name, "the name of a resource")
        with self._by_hand("remove", resource):
            removed = self._backend.store.remove_limit(resource, now=self._backend.now())
        if removed:
            wake(self._backend)
        return removed


class Breakers(Facade):
    """Shows circuit breakers, and moves them by hand."""

    def list(self) -> list[BreakerRecord]:
        """All breakers that were ever used."""
        require(self._backend, Permission.LIST, about="breakers")
        return self._backend.store.breakers()

    def open(self, name: str) -> bool:
        """Let no job start that depends on this service, until `reset`; False if a person had opened it already."""
        return self._move(name, "OPEN")

    def reset(self, name: str) -> bool:
        """Close the breaker: jobs start again; False if it was closed."""
        moved = self._move(name, "CLOSED")
        if moved:
            wake(self._backend)
        return moved

    def _move(self, name: str, state: str) -> bool:
        service = text_of(name, "the name of a service", limit=SERVICE_LIMIT)
        verb = "open" if state == "OPEN" else "reset"
        with by_hand(self._backend, Permission.BREAKERS, verb, about=f"breaker:{service}"):
            return self._swapped(service, state)

    def _swapped(self, service: str, state: str) -> bool:
        while True:  # a compare-and-swap: another node may be counting on the same row
            now = self._backend.now()
            record = self._backend.store.breaker(service)
            if record is None and state == "CLOSED":
                return False
            # a breaker that a person opened has no `until`; one that opened by itself has, and can be held open
            if record is not None and record.state == state and (state == "CLOSED" or record.until is None):
                return False
            version = 0 if record is None else record.version
            changed = msgspec.structs.replace(
                record or BreakerRecord(service=service, state=state), state=state, until=None, document="{}"
            )
            if self._backend.store.save_breaker(changed, expected_version=version, now=now):
                opened = state == "OPEN"
                event = (
                    BreakerOpened(service=service, at=now)
                    if opened
                    else BreakerClosed(service=service, at=now)
                )
                if self._backend.hears(type(event)):
                    self._backend.publish(event)
                return True


class Schedules(Facade):
    """Finds schedules."""

    def get(self, name: str) -> Schedule:
        """The schedule of this name; `ScheduleNotFound` if there is none."""
        require(self._backend, Permission.LIST, about=f"schedule:{name}")
        if self._backend.store.schedule(name) is None:
            raise ScheduleNotFound(name)
        return Schedule(self._backend, name)

    def list(self, *, tag: str | None = None) -> list[Schedule]:
        """All schedules by name; with *tag*, those whose runs have it."""
        require(self._backend, Permission.LIST, about="schedules")
        return self._tagged(tag)

    def remove(self, *, tag: str) -> int:
        """
        Forget all schedules whose runs have this tag; how many. Runs that are there already stay.

        Those that the authorizer refuses stay, too.
        """
        wanted, backend = text_of(tag, "a tag"), self._backend
        tagged = [schedule for schedule in self._tagged(wanted) if schedule._may_be_changed()]
        with by_hand(backend, Permission.SCHEDULES, "remove", about=f"tag:{wanted}", many=True, asked=False):
            return sum(backend.store.remove_schedule(schedule.name) for schedule in tagged)

    def _tagged(self, tag: str | None) -> builtins.list[Schedule]:
        return [
            Schedule(self._backend, record.spec.name)
            for record in self._backend.store.schedules()
            if tag is None or tag in run_facts(record.spec).get("tags", ())
        ]

    def records(self) -> builtins.list[ScheduleRecord]:
        """Everything that is stored of all schedules, by name, with one question to the store."""
        require(self._backend, Permission.LIST, about="schedules")
        return self._backend.store.schedules()


class Batches(Facade):
    """Finds batches."""

    def get(self, batch_id: UUID | str) -> BatchHandle:
        """The batch with this id; `JobNotFound` if there is none."""
        identity = id_of(batch_id)
        require(self._backend, Permission.LIST, about=f"batch:{identity}")
        record = self._backend.store.batch(identity)
        if record is None:
            raise JobNotFound(identity)
        return BatchHandle(self._backend, identity, record.name)

    def list(self, *, limit: int = 50) -> builtins.list[BatchHandle]:
        """The newest batches."""
        return [BatchHandle(self._backend, one.batch_id, one.name) for one in self.records(limit=limit)]

    def records(self, *, limit: int = 50) -> builtins.list[BatchRecord]:
        """Everything that is stored of the newest batches, with one question to the store."""
        most = _page_size(limit)
        require(self._backend, Permission.LIST, about="batches")
        return self._backend.store.batches(limit=most)


__all__ = [
    "Batches",
    "Breakers",
    "DeadLetters",
    "Facade",
    "Jobs",
    "Limits",
    "Queues",
    "Schedules",
    "checked_filter",
]
