"""Facades: ``scheduler.jobs``, ``.dead_letters``, ``.nodes``, ``.queues``, ``.limits``, ``.breakers``, ``.schedules``, ``.batches``."""

from __future__ import annotations

import builtins
import dataclasses
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from ratchet.api.backend import Backend
from ratchet.api.batches.handles import BatchHandle
from ratchet.api.checks import count_of, id_of, moment_of, queue_of, resource_of, text_of
from ratchet.api.observe.records import job_of
from ratchet.api.recurring import Schedule, ScheduleNotFound
from ratchet.api.submit.sending import wake
from ratchet.api.targets.breakers import SERVICE_LIMIT
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
from ratchet.model.job import Alert, DeadLetter, Execution, Job, JobFilter, LogLine, Page
from ratchet.model.status import JobStatus

_TIMES = ("created_after", "created_before", "scheduled_after", "scheduled_before")
_MOST = 1000


def checked_filter(where: JobFilter | None) -> JobFilter:
    """*where* with its times in UTC; a naive one is refused."""
    if where is None:
        return JobFilter()
    if not isinstance(where, JobFilter):
        raise InvalidJob(f"a search takes a JobFilter, not {where!r}")
    times: dict[str, Any] = {
        name: moment_of(value, name) for name in _TIMES if (value := getattr(where, name)) is not None
    }
    return dataclasses.replace(where, **times) if times else where


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
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Job]:
        """One page of matching jobs, newest first; pass ``page.next_cursor`` on for the next."""
        page = self._backend.store.find(checked_filter(where), limit=_page_size(limit), cursor=cursor)
        return Page([job_of(record, self._backend) for record in page], page.next_cursor)

    def count(self, where: JobFilter | None = None) -> int:
        """How many jobs match."""
        return self._backend.store.count(checked_filter(where))

    def counts(self) -> dict[JobStatus, int]:
        """How many jobs are in each state, archive not included."""
        return self._backend.store.counts()

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
        """One page of dead letters, latest failure first."""
        return self._backend.store.dead_letters(checked_filter(where), limit=_page_size(limit), cursor=cursor)

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
        return self._backend.store.queues()

    def pause(self, name: str) -> bool:
        """Let no job of this queue start, on any node; True if it was open."""
        return self._backend.store.pause_queue(queue_of(name), now=self._backend.now())

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

    def list(self) -> list[Schedule]:
        """All schedules by name."""
        return [Schedule(self._backend, record.spec.name) for record in self._backend.store.schedules()]


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
