"""The awaitable faces of ``scheduler.jobs`` and its neighbors."""

from __future__ import annotations

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
from ratchet.api.threads import AwaitFace, awaited


class AsyncJobs(AwaitFace[Jobs]):
    """`Jobs`, awaitable."""

    get = awaited(Jobs.get)
    find = awaited(Jobs.find)
    count = awaited(Jobs.count)
    counts = awaited(Jobs.counts)
    statistics = awaited(Jobs.statistics)
    executions = awaited(Jobs.executions)
    logs = awaited(Jobs.logs)
    delete = awaited(Jobs.delete)
    tags = awaited(Jobs.tags)


class AsyncDeadLetters(AwaitFace[DeadLetters]):
    """`DeadLetters`, awaitable."""

    find = awaited(DeadLetters.find)
    summary = awaited(DeadLetters.summary)
    purge = awaited(DeadLetters.purge)
    alerts = awaited(DeadLetters.alerts)


class AsyncNodes(AwaitFace[Nodes]):
    """`Nodes`, awaitable."""

    list = awaited(Nodes.list)
    remove = awaited(Nodes.remove)


class AsyncQueues(AwaitFace[Queues]):
    """`Queues`, awaitable."""

    list = awaited(Queues.list)
    pause = awaited(Queues.pause)
    resume = awaited(Queues.resume)


class AsyncLimits(AwaitFace[Limits]):
    """`Limits`, awaitable."""

    set = awaited(Limits.set)
    set_rate = awaited(Limits.set_rate)
    list = awaited(Limits.list)
    holders = awaited(Limits.holders)
    remove = awaited(Limits.remove)


class AsyncBreakers(AwaitFace[Breakers]):
    """`Breakers`, awaitable."""

    list = awaited(Breakers.list)
    open = awaited(Breakers.open)
    reset = awaited(Breakers.reset)


class AsyncSchedules(AwaitFace[Schedules]):
    """`Schedules`, awaitable."""

    get = awaited(Schedules.get)
    list = awaited(Schedules.list)
    remove = awaited(Schedules.remove)


class AsyncBatches(AwaitFace[Batches]):
    """`Batches`, awaitable."""

    get = awaited(Batches.get)
    list = awaited(Batches.list)
