"""
What a node measures. A node without meters does not come through here at all.

`NodeMeters` stands around two operations of the node: the claim and the commit of outcomes. The runs of a commit come in one
list, and lists are passed on together: with Prometheus that takes 0.3 us of CPU for a run in commits of 500, and 3.5 us if each
run were told to prometheus_client by itself. A service does it every second, so that no commit waits for it; whoever reads the
meters gets what has ended until then. Numbers that the node has anyway are read when somebody looks.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter, sub
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ratchet.engine.flow import CommittedRuns, EndedRun
from ratchet.model import metrics
from ratchet.model.clock import Clock
from ratchet.model.decision import (
    Confirm,
    CountCrash,
    Expire,
    Fail,
    HandBack,
    Park,
    Reschedule,
    Retry,
    Succeed,
)
from ratchet.model.errors import StoreError
from ratchet.model.metrics import Labels, Metric
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.meters import Meters, Sample

if TYPE_CHECKING:
    from ratchet.engine.assembly import Assembly

faults = FaultLog(logging.getLogger("ratchet.parts"))
T = TypeVar("T")

#: Commits that wait for the service, at most; with more, the thread that commits passes them on itself.
MOST_COMMITS = 200
#: By the decision about a run: what the label says. A refused completion is `lost`, whatever was decided.
OUTCOME_OF: dict[type, str] = {
    Succeed: "succeeded",
    Confirm: "succeeded",
    Fail: "failed",
    Retry: "retried",
    Reschedule: "rescheduled",
    HandBack: "handed_back",
    CountCrash: "crashed",
    Park: "parked",
    Expire: "expired",
}
LOST = "lost"
#: Every outcome that the label can have.
OUTCOMES = (*dict.fromkeys(OUTCOME_OF.values()), LOST)
#: Target, queue and decision of an ended run.
_series = itemgetter(0, 1, 2)
_timed = itemgetter(3, 4, 5)
_seconds = timedelta.total_seconds


class NodeMeters:
    """The measurements of one node, for any number of meters."""

    def __init__(self, meters: Sequence[Meters], clock: Clock, most_labels: int) -> None:
        self._meters = meters
        self._clock = clock
        self._targets = Labels(most_labels)
        self._queues = Labels(most_labels)
        self._commits: deque[CommittedRuns] = deque()
        self._watches: list[Callable[[], None]] = []

    def around_claims(self, store: T) -> T:
        """*store*, with its claims measured."""
        claim = cast("Any", store).claim_next_batch

        def claim_next_batch(request: Any, **more: Any) -> Any:
            with _Watch(self, metrics.CLAIM_DURATION):
                jobs = claim(request, **more)
            if jobs:
                self._add(metrics.CLAIMED, (str(request.lane),), len(jobs))
            return jobs

        return cast("T", _Instead(store, claim_next_batch=claim_next_batch))

    def around_completions(self, store: T) -> T:
        """*store*, with its commits of outcomes measured."""
        commit = cast("Any", store).complete

        def complete(completions: Any, **more: Any) -> Any:
            with _Watch(self, metrics.COMPLETION_DURATION):
                return commit(completions, **more)

        return cast("T", _Instead(store, complete=complete))

    def ended(self, commit: CommittedRuns) -> None:
        """The runs of *commit* have ended, and the store has answered."""
        self._commits.append(commit)
        if len(self._commits) > MOST_COMMITS:
            self.pass_on()

    def watch(self, node: Assembly) -> None:
        """Let meters read what the node knows anyway, from now until `close`."""
        lanes = node.coordinator.lanes
        self._watch(metrics.JOBS_RUNNING, lambda: self._running(node))
        self._watch(metrics.SLOTS, lambda: [((str(name),), lane.slots) for name, lane in lanes.items()])
        self._watch(
            metrics.SLOTS_BUSY, lambda: [((str(name),), len(lane.running())) for name, lane in lanes.items()]
        )
        self._watch(metrics.STILL_RUNNING, lambda: [((), sum(lane.stuck for lane in lanes.values()))])
        self._watch(metrics.UNWRITTEN, lambda: [((), node.completer.backlog())])
        self._watch(metrics.RESCUES, lambda: [((), node.orphans.rescued)])
        self._watch(metrics.WAKEUPS, lambda: [((), node.poller.wakeups)])

    def close(self) -> None:
        """The node is gone: pass on the rest, and read nothing of it any more."""
        self.pass_on()
        while self._watches:
            _guarded(self._watches.pop(), "__call__")

    def pass_on(self) -> None:
        """Tell the meters about the runs that have ended since the last time."""
        ended = list(self._taken())
        counts: Counter[tuple[str, str, str]] = Counter()
        durations: dict[tuple[str, str], list[float]] = defaultdict(list)
        waits: dict[str, list[float]] = defaultdict(list)
        # Runs of one kind mostly come one after the other, and what is done for a whole row of them costs little for each.
        for (target_name, queue_name, decision), row in groupby(ended, _series):
            target, queue = self._targets.of(target_name), self._queues.of(queue_name)
            runs = list(row)
            counts[target, queue, OUTCOME_OF.get(decision, LOST)] += len(runs)
            if decision is not Succeed:
                runs = [run for run in runs if run[4] is not None and run[5] is not None]
            if runs:
                due, started, finished = zip(*map(_timed, runs), strict=True)
                waits[queue] += map(_seconds, map(sub, started, due))
                durations[target, queue] += map(_seconds, map(sub, finished, started))
        for labels, amount in counts.items():
            self._add(metrics.JOBS, labels, amount)
        for pair, values in durations.items():
            self._record(metrics.JOB_DURATION, pair, values)
        for name, values in waits.items():
            # A node whose clock is behind the one that submitted starts a job before it is due.
            self._record(metrics.JOB_WAIT, (name,), [0.0 if wait < 0.0 else wait for wait in values])

    def _taken(self) -> Iterator[EndedRun]:
        """Each run once, whoever else takes some at this moment."""
        while self._commits:
            try:
                _, runs = self._commits.popleft()
            except IndexError:
                return
            yield from runs

    def measured(self, metric: Metric, seconds: float, error: BaseException | None) -> None:
        """An operation of the store took *seconds*."""
        self._record(metric, (), [seconds])
        if isinstance(error, StoreError):
            self._add(metrics.STORE_ERRORS, (type(error).__name__,), 1)

    @property
    def monotonic(self) -> Callable[[], float]:
        return self._clock.monotonic

    def _running(self, node: Assembly) -> Iterable[Sample]:
        running = Counter(
            self._queues.of(run.job.body.queue)
            for lane in node.coordinator.lanes.values()
            for run in lane.running()
        )
        # A queue that was seen once is always named: a series that vanishes cannot be told from a dead worker.
        return [((queue,), running[queue]) for queue in self._queues.known()]

    def _watch(self, metric: Metric, read: Callable[[], Iterable[Sample]]) -> None:
        def fresh() -> Iterable[Sample]:
            self.pass_on()
            return read()

        for meters in self._meters:
            ended = _guarded(meters, "watch", metric, fresh)
            if callable(ended):
                self._watches.append(ended)

    def _add(self, metric: Metric, labels: tuple[str, ...], amount: float) -> None:
        for meters in self._meters:
            _guarded(meters, "add", metric, labels, amount)

    def _record(self, metric: Metric, labels: tuple[str, ...], values: Sequence[float]) -> None:
        for meters in self._meters:
            _guarded(meters, "record", metric, labels, values)


class _Watch:
    """How long a block took, also if it failed."""

    __slots__ = ("_meters", "_metric", "_started")

    def __init__(self, meters: NodeMeters, metric: Metric) -> None:
        self._meters = meters
        self._metric = metric

    def __enter__(self) -> None:
        self._started = self._meters.monotonic()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._meters.measured(self._metric, self._meters.monotonic() - self._started, error)


class _Instead:
    """An object with some of its methods replaced."""

    def __init__(self, inner: object, **methods: Callable[..., Any]) -> None:
        self.__dict__.update(methods)
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _guarded(part: object, method: str, *arguments: object) -> object:
    """What a meter answers; None if it raises or has no such method: it may come with some of them only."""
    try:
        told = getattr(part, method, None)
        return None if told is None else told(*arguments)
    except BaseException as error:
        faults.note(f"Meters.{method}() raised; what it was told is lost", error)
        return None
