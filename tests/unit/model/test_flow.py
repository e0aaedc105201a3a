"""Statistics: what samples say about queues and targets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ratchet.model.flow import Percentiles, QueuedSample, RunSample, Statistics, percentiles, statistics_of
from ratchet.model.job import ExecutionStatus, StreamKey
from ratchet.model.load import Load, StreamLoad

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def run(ago: float = 60, took: float = 1, status: str = ExecutionStatus.SUCCEEDED, **more: Any) -> RunSample:
    ended = NOW - ago * SECOND
    values = {"target": "shop:one", "queue": "a", "attempt": 1, "wait": 2 * SECOND, **more}
    return RunSample(
        status=status,
        started_at=ended - took * SECOND,
        finished_at=ended,
        duration=took * SECOND,
        **values,
    )


def statistics(*runs: RunSample, queued: Any = (), load: Load | None = None) -> Statistics:
    return statistics_of(list(runs), list(queued), load or Load(), window=timedelta(hours=1), now=NOW)


def test_percentiles() -> None:
    """By the nearest rank: each is one of the values, also of few."""
    assert percentiles([]) == Percentiles(None, None, None)
    assert percentiles([3 * SECOND]) == Percentiles(3 * SECOND, 3 * SECOND, 3 * SECOND)
    hundred = [number * SECOND for number in range(1, 101)]
    assert percentiles(reversed(hundred)) == Percentiles(50 * SECOND, 95 * SECOND, 99 * SECOND)


def test_runs_of_the_window_count() -> None:
    """By their end; each in its queue and its target, with how it ended."""
    found = statistics(
        run(took=1),
        run(took=3, attempt=2, target="shop:two"),
        run(status=ExecutionStatus.TIMED_OUT, queue="b"),
        run(ago=4000),
        run(ago=3599, took=10),
    )
    a, b = found.queues
    assert (a.name, a.started, a.succeeded, a.failed, a.retried) == ("a", 2, 3, 0, 1)
    assert (b.name, b.succeeded, b.failed) == ("b", 0, 1)
    assert (a.run.p50, a.run.p99, a.wait.p50) == (3 * SECOND, 10 * SECOND, 2 * SECOND)
    assert [(flow.name, flow.succeeded) for flow in found.targets] == [("shop:one", 2), ("shop:two", 1)]
    assert not found.sampled


def test_what_waits_and_runs() -> None:
    """Due or not; the oldest wait of a queue is known although the job is not in the sample."""
    queued = [
        QueuedSample(target="shop:one", queue="a", due_at=NOW - 5 * SECOND),
        QueuedSample(target="shop:one", queue="a", due_at=NOW + 5 * SECOND),
        QueuedSample(target="shop:two", queue="a", due_at=NOW, claimed_at=NOW - SECOND),
    ]
    first = StreamLoad(stream_id=1, key=StreamKey(queue="a"), due=7, first_at=NOW - 60 * SECOND)
    found = statistics(queued=queued, load=Load(streams=(first,)))
    (a,) = found.queues
    assert (a.pending, a.due, a.running, a.started, a.oldest_wait) == (2, 1, 1, 1, 60 * SECOND)
    one, two = found.targets
    assert (one.pending, one.due, one.running, one.oldest_wait) == (2, 1, 0, 5 * SECOND)
    assert (two.pending, two.running, two.oldest_wait) == (0, 1, None)
