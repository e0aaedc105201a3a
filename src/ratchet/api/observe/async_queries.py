"""The awaitable faces of ``scheduler.jobs`` and its neighbors."""

from __future__ import annotations

import builtins
from datetime import datetime
from uuid import UUID

from ratchet.api.batches.handles import BatchHandle
from ratchet.api.observe.queries import (
    Batches,
    Breakers,
    DeadLetters,
    Jobs,
    Limits,
    Nodes,
    Queues,
    Schedules,
)
from ratchet.api.recurring import Schedule
from ratchet.api.threads import in_thread
from ratchet.model.cluster import BreakerRecord, LimitRecord, NodeRecord, PermitRecord, QueueRecord
from ratchet.model.durations import Duration
from ratchet.model.job import Alert, DeadLetter, Execution, Job, JobFilter, LogLine, Page
from ratchet.model.status import JobStatus


class AsyncJobs:
    """`Jobs`, awaitable."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def get(self, job_id: UUID | str) -> Job:
        """See `Jobs.get`."""
        return await in_thread(self._jobs.get, job_id)

    async def find(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Job]:
        """See `Jobs.find`."""
        return await in_thread(self._jobs.find, where, limit=limit, cursor=cursor)

    async def count(self, where: JobFilter | None = None) -> int:
        """See `Jobs.count`."""
        return await in_thread(self._jobs.count, where)

    async def counts(self) -> dict[JobStatus, int]:
        """See `Jobs.counts`."""
        return await in_thread(self._jobs.counts)

    async def executions(self, job_id: UUID | str, *, all: bool = False) -> list[Execution]:  # noqa: A002 - the contract's word
        """See `Jobs.executions`."""
        return await in_thread(self._jobs.executions, job_id, all=all)

    async def logs(self, job_id: UUID | str, *, limit: int = 1000) -> list[LogLine]:
        """See `Jobs.logs`."""
        return await in_thread(self._jobs.logs, job_id, limit=limit)

    async def delete(self, job_id: UUID | str) -> bool:
        """See `Jobs.delete`."""
        return await in_thread(self._jobs.delete, job_id)

    async def tags(self, *, limit: int = 100) -> dict[str, int]:
        """See `Jobs.tags`."""
        return await in_thread(self._jobs.tags, limit=limit)


class AsyncDeadLetters:
    """`DeadLetters`, awaitable."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters

    async def find(
        self, where: JobFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetter]:
        """See `DeadLetters.find`."""
        return await in_thread(self._dead_letters.find, where, limit=limit, cursor=cursor)

    async def alerts(self, *, since: datetime | None = None, limit: int = 100) -> list[Alert]:
        """See `DeadLetters.alerts`."""
        return await in_thread(self._dead_letters.alerts, since=since, limit=limit)


class AsyncNodes:
    """`Nodes`, awaitable."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def list(self) -> list[NodeRecord]:
        """See `Nodes.list`."""
        return await in_thread(self._nodes.list)

    async def remove(self, node_id: str) -> bool:
        """See `Nodes.remove`."""
        return await in_thread(self._nodes.remove, node_id)


class AsyncQueues:
    """`Queues`, awaitable."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def list(self) -> list[QueueRecord]:
        """See `Queues.list`."""
        return await in_thread(self._queues.list)

    async def pause(self, name: str) -> bool:
        """See `Queues.pause`."""
        return await in_thread(self._queues.pause, name)

    async def resume(self, name: str) -> bool:
        """See `Queues.resume`."""
        return await in_thread(self._queues.resume, name)


class AsyncLimits:
    """`Limits`, awaitable."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def set(self, name: str, *, concurrent: int) -> None:
        """See `Limits.set`."""
        await in_thread(self._limits.set, name, concurrent=concurrent)

    async def set_rate(self, name: str, rate: int, *, per: Duration) -> None:
        """See `Limits.set_rate`."""
        await in_thread(self._limits.set_rate, name, rate, per=per)

    async def list(self) -> list[LimitRecord]:
        """See `Limits.list`."""
        return await in_thread(self._limits.list)

    async def holders(self, name: str, *, limit: int = 100) -> builtins.list[PermitRecord]:
        """See `Limits.holders`."""
        return await in_thread(self._limits.holders, name, limit=limit)

    async def remove(self, name: str) -> bool:
        """See `Limits.remove`."""
        return await in_thread(self._limits.remove, name)


class AsyncBreakers:
    """`Breakers`, awaitable."""

    def __init__(self, breakers: Breakers) -> None:
        self._breakers = breakers

    async def list(self) -> list[BreakerRecord]:
        """See `Breakers.list`."""
        return await in_thread(self._breakers.list)

    async def open(self, name: str) -> bool:
        """See `Breakers.open`."""
        return await in_thread(self._breakers.open, name)

    async def reset(self, name: str) -> bool:
        """See `Breakers.reset`."""
        return await in_thread(self._breakers.reset, name)


class AsyncSchedules:
    """`Schedules`, awaitable."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def get(self, name: str) -> Schedule:
        """See `Schedules.get`."""
        return await in_thread(self._schedules.get, name)

    async def list(self) -> list[Schedule]:
        """See `Schedules.list`."""
        return await in_thread(self._schedules.list)


class AsyncBatches:
    """`Batches`, awaitable."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    async def get(self, batch_id: UUID | str) -> BatchHandle:
        """See `Batches.get`."""
        return await in_thread(self._batches.get, batch_id)

    async def list(self, *, limit: int = 50) -> builtins.list[BatchHandle]:
        """See `Batches.list`."""
        return await in_thread(self._batches.list, limit=limit)
