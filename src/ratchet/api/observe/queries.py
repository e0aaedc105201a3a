"""Facades: ``scheduler.jobs``, ``.dead_letters``, ``.nodes``, ``.queues``, ``.limits``, ``.breakers``, ``.schedules``, ``.batches``."""

from __future__ import annotations

import builtins
import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

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
from ratchet.api.observe.records import job_of
from ratchet.api.recurring import Schedule, ScheduleNotFound, run_facts
from ratchet.api.submit.sending import wake
from ratchet.api.targets.breakers import SERVICE_LIMIT
from ratchet.api.targets.names import NAME_LIMIT
from ratchet.model.cluster import (
    BreakerRecord,
    LimitRecord,
    NodeRecord,
    NodeState,
    PermitRecord,
    QueueRecord,
)
from ratchet.model.durations import Duration, to_timedelta
from ratchet.model.errors import InvalidJob, JobNotFound, NodeAlive
from ratchet.model.events import BreakerClosed, BreakerOpened
from ratchet.model.flow import SAMPLED, Statistics, statistics_of
from ratchet.model.job import (
    Alert,
    DeadLetter,
    DeadLetterGroup,
    Execution,
    Job,
    JobFilter,
    LogLine,
    Page,
    SortBy,
)
from ratchet.model.status import JobStatus, JobType, Priority

#: How each criterion of a `JobFilter` is checked.
_CRITERIA: dict[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("created_after", "created_before", "scheduled_after", "scheduled_before"), moment_of),
    **dict.fromkeys(("queue", "business_key", "schedule", "node_id", "caller"), text_of),
    **dict.fromkeys(("batch_id", "parent_id", "superseded_by"), lambda value, name: id_of(value)),
    "error_contains": lambda value, name: text_of(value, name, limit=NAME_LIMIT),
    "statuses": lambda value, name: members_of(JobStatus, value, name),
    "types": lambda value, name: members_of(JobType, value, name),
    "priorities": lambda value, name: members_of(Priority, value, name),
    "tags": texts_of,
    "targets": lambda value, name: texts_of(value, name, limit=NAME_LIMIT),
}
_MOST = 1000
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
        page was read; jobs that lack it come last.
        """
        order = {"sort": _sort_of(sort), "descending": bool(descending)}
        # A store of an older version knows no other order.
        given: dict[str, Any] = {} if order == _NEWEST_FIRST else order
        page = self._backend.store.find(
            checked_filter(where), limit=_page_size(limit), cursor=cursor, **given
        )
        return Page([job_of(record, self._backend) for record in page], page.next_cursor)

    def count(self, where: JobFilter | None = None) -> int:
        """How many jobs match."""
        return self._backend.store.count(checked_filter(where))

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs are in each state, archive not included."""
        return self._backend.store.counts()

    def statistics(self, window: Duration = timedelta(hours=1)) -> Statistics:
        """
        What waits, runs and has run in each queue and of each target, with how long runs waited and took.

        Runs that ended within *window* count. The cost is bounded: looked at are the runs of the newest jobs and the jobs
        that wait or run, 10,000 of each at most (``sampled`` says whether that was too few).
        """
        length = to_timedelta(window, "the window", zero=False)
        store, now = self._backend.store, self._backend.now()
        runs, queued = store.run_samples(limit=SAMPLED), store.queued_samples(limit=SAMPLED)
        return statistics_of(runs, queued, store.load(now=now), window=length, now=now)

    def executions(self, job_id: UUID | str, *, all: bool = False) -> list[Execution]:  # noqa: A002 - the contract's word
        """The runs of a job, oldest first; with *all* also those that counted as no attempt."""
        return self._backend.store.executions(id_of(job_id), uncounted=all)

    def logs(self, job_id: UUID | str, *, limit: int = 1000) -> list[LogLine]:
        """What a job logged, in order; the newest *limit* lines."""
        return self._backend.store.logs(id_of(job_id), limit=count_of(limit, "the limit", at_least=1))

    def delete(self, job_id: UUID | str) -> bool:
        """Remove a job with its history; False if there is none, or it is RUNNING."""
        return self._backend.store.delete(id_of(job_id))

    def tags(self, *, limit: int = 100) -> dict[str, int]:
        """How many jobs carry each tag, most used first."""
        return self._backend.store.tag_counts(limit=count_of(limit, "the limit", at_least=1))


class DeadLetters(Facade):
    """Reads jobs that failed for good, and the alerts about them."""

    def find(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """One page of dead letters, latest failure first. It cannot search by ``args``: ``jobs.find`` can."""
        checked = checked_filter(where)
        if checked.args:
            raise InvalidJob(
                "dead letters cannot be searched by args; use jobs.find(JobFilter(statuses=[JobStatus.FAILED], args=...))"
            )
        return self._backend.store.dead_letters(checked, limit=_page_size(limit), cursor=cursor)

    def summary(self, where: JobFilter | None = None, *, limit: int = 100) -> list[DeadLetterGroup]:
        """Dead letters by target and error type, most first: how many, since when, and the latest of each."""
        checked = checked_filter(where)
        if checked.args:
            raise InvalidJob("dead letters cannot be counted by args; jobs.count can")
        return self._backend.store.dead_letter_groups(checked, limit=_page_size(limit))

    def purge(self, where: JobFilter, *, dry_run: bool = False) -> int:
        """
        Delete matching dead letters for good, oldest first; how many, or with *dry_run* how many it would be.

        One that something unfinished needs stays: a batch or a join that is open. An empty filter is refused.
        """
        if not isinstance(where, JobFilter):
            raise InvalidJob(f"purge takes a JobFilter, not {where!r}")
        where.require_criterion("dead_letters.purge")
        wanted, after, total = checked_filter(where), None, 0
        while True:
            deleted, after = self._backend.store.delete_dead_letters(
                wanted, limit=_PURGED_AT_ONCE, after=after, dry_run=dry_run
            )
            total += deleted
            if after is None:
                return total

    def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """The latest alerts, newest first."""
        return self._backend.store.alerts(
            since=None if since is None else moment_of(since, "since"), limit=_page_size(limit)
        )


class Nodes(Facade):
    """Shows the nodes of the cluster, and forgets those that are gone."""

    def list(self) -> list[NodeRecord]:
        """All nodes by start time, dead ones included until they are purged."""
        return self._backend.store.nodes()

    def remove(self, node_id: str) -> bool:
        """
        Forget a node that is dead or has been silent for too long; False if there is none with this id.

        The jobs of a silent node are requeued, as when another node notices its death. A node that still
        beats is not removed: `NodeAlive`.
        """
        store, now = self._backend.store, self._backend.store.database_time()
        node = next((one for one in store.nodes() if one.node_id == node_id), None)
        if node is None:
            return False
        if node.state is not NodeState.DEAD:
            quiet = now - node.last_beat_at
            crashes = self._backend.options.max_crashes
            if quiet <= node.silence or not store.rescue(
                node_id, seen_beat=node.beat, by="removed", max_crashes=crashes, now=now
            ):
                raise NodeAlive(
                    f"node {node_id} is alive: its last beat was {max(0.0, quiet.total_seconds()):.1f} s ago, and it "
                    f"is silent after {node.silence.total_seconds():g} s; stop process {node.pid} on {node.host} instead"
                )
        store.deregister(node_id, now=now)
        return True


class Queues(Facade):
    """Shows queues, and closes and opens them."""

    def list(self) -> list[QueueRecord]:
        """All queues that were ever used or paused, with what is in them."""
        now = self._backend.now()
        return [
            msgspec.structs.replace(record, paused=False, paused_at=None, paused_until=None)
            if record.paused and not record.is_paused(now)
            else record
            for record in self._backend.store.queues()
        ]

    def pause(self, name: str, *, until: datetime | Duration | None = None) -> bool:
        """
        Let no job of this queue start, on any node; True if that changed anything.

        *until*: a time, or a duration from now; then the queue opens by itself. A paused queue is given another time.
        """
        queue, now = queue_of(name), self._backend.now()
        if until is None:
            return self._backend.store.pause_queue(queue, now=now)
        at = moment_of(until, "until") if isinstance(until, datetime) else after(now, until, "until")
        if at <= now:
            raise InvalidJob(
                f"a queue can be paused until a time that is to come, not until {at.isoformat()}"
            )
        paused = self._backend.store.pause_queue(queue, now=now, until=at)
        if paused:
            wake(self._backend)  # nodes wait for the time that they know
        return paused

    def resume(self, name: str) -> bool:
        """Let its jobs start again; True if it was paused."""
        resumed = self._backend.store.resume_queue(queue_of(name), now=self._backend.now())
        if resumed:
            wake(self._backend)
        return resumed


class Limits(Facade):
    """Says how many jobs of a resource may run at once, or start per period."""

    def set(self, name: str, *, concurrent: int) -> None:
        """At most *concurrent* jobs of this resource run at once, in the whole cluster."""
        self._backend.store.set_limit(
            resource_of(name),
            concurrent=count_of(concurrent, "concurrent", at_least=0),
            now=self._backend.now(),
        )
        wake(self._backend)

    def set_rate(self, name: str, rate: int, *, per: Duration) -> None:
        """At most *rate* jobs of this resource start within each period *per*."""
        self._backend.store.set_limit(
            resource_of(name),
            rate=count_of(rate, "the rate", at_least=1),
            period=to_timedelta(per, "the period", zero=False),
            now=self._backend.now(),
        )
        wake(self._backend)

    def list(self) -> list[LimitRecord]:
        """All limits, with the number of permits that are held."""
        return self._backend.store.limits()

    def holders(self, name: str, *, limit: int = 100) -> builtins.list[PermitRecord]:
        """Who holds permits of this resource: jobs and their nodes, the longest first."""
        return self._backend.store.holders(text_of(name, "the name of a resource"), limit=_page_size(limit))

    def remove(self, name: str) -> bool:
        """Forget a limit; False if there was none."""
        removed = self._backend.store.remove_limit(
            text_of(name, "the name of a resource"), now=self._backend.now()
        )
        if removed:
            wake(self._backend)
        return removed


class Breakers(Facade):
    """Shows circuit breakers, and moves them by hand."""

    def list(self) -> list[BreakerRecord]:
        """All breakers that were ever used."""
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
        if self._backend.store.schedule(name) is None:
            raise ScheduleNotFound(name)
        return Schedule(self._backend, name)

    def list(self, *, tag: str | None = None) -> list[Schedule]:
        """All schedules by name; with *tag*, those whose runs have it."""
        return [
            Schedule(self._backend, record.spec.name)
            for record in self._backend.store.schedules()
            if tag is None or tag in run_facts(record.spec).get("tags", ())
        ]

    def remove(self, *, tag: str) -> int:
        """Forget all schedules whose runs have this tag; how many. Runs that are there already stay."""
        wanted = text_of(tag, "a tag")
        return sum(schedule.remove() for schedule in self.list(tag=wanted))


class Batches(Facade):
    """Finds batches."""

    def get(self, batch_id: UUID | str) -> BatchHandle:
        """The batch with this id; `JobNotFound` if there is none."""
        identity = id_of(batch_id)
        record = self._backend.store.batch(identity)
        if record is None:
            raise JobNotFound(identity)
        return BatchHandle(self._backend, identity, record.name)

    def list(self, *, limit: int = 50) -> builtins.list[BatchHandle]:
        """The newest batches."""
        records = self._backend.store.batches(limit=_page_size(limit))
        return [BatchHandle(self._backend, record.batch_id, record.name) for record in records]


__all__ = [
    "Batches",
    "Breakers",
    "DeadLetters",
    "Facade",
    "Jobs",
    "Limits",
    "Nodes",
    "Queues",
    "Schedules",
    "checked_filter",
]
