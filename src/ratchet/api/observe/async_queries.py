"""The awaitable faces of ``scheduler.jobs`` and its neighbors."""

from __future__ import annotations

from ratchet.api.observe.audit import Audit
from ratchet.api.observe.nodes import Nodes
from ratchet.api.observe.queries import (
    Batches,
    Breakers,
    DeadLetters,
    Jobs,
    Limits,
    Queues,
    Schedules,
)
from ratchet.api.storage import Storage
from ratchet.api.threads import AwaitFace, awaited


class AsyncJobs(AwaitFace[Jobs]):
    """`Jobs`, awaitable."""

    get = awaited(Jobs.get)
    find = awaited(Jobs.find)
    count = awaited(Jobs.count)
    counts = awaited(Jobs.counts)
    statistics = awaited(Jobs.statistics)
    history = awaited(Jobs.history)
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
    drain = awaited(Nodes.drain)
    resume = awaited(Nodes.resume)
    stop = awaited(Nodes.stop)
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
    records = awaited(Schedules.records)
    remove = awaited(Schedules.remove)


class AsyncStorage(AwaitFace[Storage]):
    """`Storage`, awaitable."""

    stats = awaited(Storage.stats)
    purge = awaited(Storage.purge)


class AsyncAudit(AwaitFace[Audit]):
    """`Audit`, awaitable."""

    find = awaited(Audit.find)


class AsyncBatches(AwaitFace[Batches]):
    """`Batches`, awaitable."""

    get = awaited(Batches.get)
    list = awaited(Batches.list)
    records = awaited(Batches.records)
