"""
What has flowed through queues and targets lately: the numbers of `scheduler.jobs.statistics`.

They are made from samples that a store reads at a bounded cost: runs of the newest jobs, and jobs that wait or run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from ratchet.model.callbacks import plain_target
from ratchet.model.durations import earlier
from ratchet.model.job import ExecutionStatus
from ratchet.model.load import Load

#: Runs, and jobs that wait or run, that statistics are made from, at most.
SAMPLED: Final = 10_000

_FAILURES: Final = (ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT, ExecutionStatus.CRASHED)


class RunSample(Struct, frozen=True, kw_only=True):
    """A run that has ended: of which target and queue, when, how long it waited and took."""

    target: str
    queue: str
    attempt: int
    status: str
    started_at: datetime | None
    finished_at: datetime | None
    wait: timedelta | None
    duration: timedelta | None


class QueuedSample(Struct, frozen=True, kw_only=True):
    """A job that waits or runs; ``claimed_at`` is None while it waits."""

    target: str
    queue: str
    due_at: datetime
    claimed_at: datetime | None = None


class Percentiles(Struct, frozen=True):
    """Half, 95 and 99 of a hundred values are not greater than these; None: there are no values."""

    p50: timedelta | None = None
    p95: timedelta | None = None
    p99: timedelta | None = None


class Flow(Struct, frozen=True, kw_only=True):
    """
    What waits, runs and has run of one queue or target.

    ``due``: of the ``pending`` jobs, those whose time has come; ``oldest_wait``: of the longest waiting of these.
    In the window: ``started``, and how runs ended: ``succeeded``, ``failed`` (also by timeout or crash), ``retried``
    (runs after the first attempt); ``wait`` and ``run``: how long runs waited for their start, and took.
    """

    name: str
    pending: int = 0
    due: int = 0
    running: int = 0
    oldest_wait: timedelta | None = None
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()


class Statistics(Struct, frozen=True, kw_only=True):
    """Queues and targets, each by name; ``sampled``: True if there was more than was looked at."""

    queues: list[Flow]
    targets: list[Flow]
    sampled: bool = False


def statistics_of(
    runs: Sequence[RunSample],
    queued: Sequence[QueuedSample],
    load: Load,
    *,
    window: timedelta,
    now: datetime,
    most: int = SAMPLED,
    most_queued: int = SAMPLED,
) -> Statistics:
    """The statistics that samples give, of *most* runs and *most_queued* others. How long a queue has waited comes from its *load*, which knows the oldest job."""
    since = earlier(now, window)
    lately = [run for run in runs if run.finished_at is not None and since <= run.finished_at <= now]
    oldest: dict[str, datetime] = {}
    for stream in load.streams:
        if stream.due and stream.first_at is not None:
            at = oldest.get(stream.key.queue, stream.first_at)
            oldest[stream.key.queue] = min(at, stream.first_at)
    queues = _flows(lately, queued, lambda one: one.queue, since, now, oldest)
    targets = _flows(lately, queued, lambda one: plain_target(one.target), since, now, {})
    return Statistics(queues=queues, targets=targets, sampled=len(runs) >= most or len(queued) >= most_queued)


def _flows(
    runs: Iterable[RunSample],
    queued: Iterable[QueuedSample],
    name_of: Callable[[RunSample | QueuedSample], str],
    since: datetime,
    now: datetime,
    oldest: Mapping[str, datetime],
) -> list[Flow]:
    ran: dict[str, list[RunSample]] = {}
    held: dict[str, list[QueuedSample]] = {}
    for run in runs:
        ran.setdefault(name_of(run), []).append(run)
    for job in queued:
        held.setdefault(name_of(job), []).append(job)
    return [
        _flow(name, ran.get(name, []), held.get(name, []), since, now, oldest.get(name))
        for name in sorted({*ran, *held, *oldest})
    ]


def _flow(
    name: str,
    runs: Sequence[RunSample],
    queued: Sequence[QueuedSample],
    since: datetime,
    now: datetime,
    oldest: datetime | None,
) -> Flow:
    waiting = [job.due_at for job in queued if job.claimed_at is None]
    claimed = [job.claimed_at for job in queued if job.claimed_at is not None]
    due = [at for at in waiting if at <= now]
    first = min([*due, *([] if oldest is None else [oldest])], default=None)
    begun = [run.started_at for run in runs if run.started_at is not None] + claimed
    return Flow(
        name=name,
        pending=len(waiting),
        due=len(due),
        running=len(claimed),
        oldest_wait=None if first is None else now - first,
        started=sum(at >= since for at in begun),
        succeeded=sum(run.status == ExecutionStatus.SUCCEEDED for run in runs),
        failed=sum(run.status in _FAILURES for run in runs),
        retried=sum(run.attempt > 1 for run in runs),
        wait=percentiles([run.wait for run in runs if run.wait is not None]),
        run=percentiles([run.duration for run in runs if run.duration is not None]),
    )


def percentiles(values: Iterable[timedelta]) -> Percentiles:
    """By the nearest rank: each is one of the *values*."""
    ranked = sorted(values)
    if not ranked:
        return Percentiles()
    return Percentiles(*(ranked[-(-len(ranked) * share // 100) - 1] for share in (50, 95, 99)))
