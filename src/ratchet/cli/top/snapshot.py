"""What the store says at one moment: queues, nodes, running jobs, rates and problems."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec import Struct

from ratchet.model.cluster import NodeRecord, NodeState
from ratchet.model.flow import Flow
from ratchet.model.job import JobFilter, SortBy
from ratchet.model.problems import Problem
from ratchet.model.status import JobStatus
from ratchet.scheduler import Scheduler

#: Running jobs that are read, longest running first.
JOBS_READ = 50


class QueueLine(Struct, frozen=True, kw_only=True):
    """A queue: what is in it and has flowed through it, and whether it is paused."""

    flow: Flow
    paused: bool = False

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.flow.name


class JobLine(Struct, frozen=True, kw_only=True):
    """A job that runs."""

    id: str
    target: str
    queue: str
    node_id: str | None
    started_at: datetime | None
    progress: float | None = None


class Snapshot(Struct, frozen=True, kw_only=True):
    """What was found at ``at``; rates and percentiles are those of the last ``window``."""

    at: datetime
    window: timedelta
    queues: list[QueueLine]
    nodes: list[NodeRecord]
    jobs: list[JobLine]
    pending: int
    running: int
    dead_letters: int
    problems: list[Problem]
    sampled: bool = False

    @property
    def per_second(self) -> float:
        """Runs that ended per second."""
        ended = sum(line.flow.succeeded + line.flow.failed for line in self.queues)
        return ended / self.window.total_seconds()


def take(scheduler: Scheduler, window: timedelta) -> Snapshot:
    """Ask the store. Its cost is bounded, like that of `jobs.statistics`."""
    now = scheduler.backend.now()
    found = scheduler.jobs.statistics(window)
    flows = {flow.name: flow for flow in found.queues}
    paused = {queue.name for queue in scheduler.queues.list() if queue.paused}
    queues = [
        QueueLine(flow=flows.get(name) or Flow(name=name), paused=name in paused)
        for name in flows.keys() | paused
    ]
    health = scheduler.health()
    page = scheduler.jobs.find(
        JobFilter(statuses=[JobStatus.RUNNING]), limit=JOBS_READ, sort=SortBy.SCHEDULED, descending=False
    )
    jobs = [
        JobLine(
            id=str(job.id),
            target=job.target,
            queue=job.queue,
            node_id=job.node_id,
            started_at=job.started_at,
            progress=None if job.progress is None else job.progress.fraction,
        )
        for job in page
    ]
    return Snapshot(
        at=now,
        window=window,
        queues=sorted(queues, key=lambda line: (-line.flow.running - line.flow.due, line.name)),
        nodes=[node for node in scheduler.nodes.list() if node.state is not NodeState.DEAD],
        jobs=sorted(jobs, key=lambda job: (job.started_at is None, job.started_at, job.id)),
        pending=health["pending"],
        running=health["running"],
        dead_letters=health["dead_letters"],
        problems=health.problems,
        sampled=found.sampled,
    )
