"""
The gauges of a store: how much waits and for how long, in one answer for the whole cluster.

They are read together, at most once per `MAX_AGE`, however many look. The cost is that of a health check: it grows with the number
of queues and of running jobs, and neither with the backlog nor with history.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from ratchet.api.backend import Backend
from ratchet.api.observe.health import health_of, problem_of
from ratchet.model import metrics
from ratchet.model.cluster import NodeState
from ratchet.model.errors import RatchetError
from ratchet.model.load import Load
from ratchet.model.metrics import STORE_METRICS, Labels, Metric
from ratchet.model.places import target_of
from ratchet.model.problems import CODES
from ratchet.spi.fault_log import FaultLog
from ratchet.spi.meters import Meters, Sample

faults = FaultLog(logging.getLogger("ratchet"), logging.WARNING)

#: Seconds for which an answer is given again.
MAX_AGE = 5.0
#: Schedules that are looked at for their lateness.
MOST_SCHEDULES = 100


class StoreGauges:
    """Reads the gauges of one store, and remembers them for a moment."""

    def __init__(self, backend: Backend, max_age: float = MAX_AGE) -> None:
        self._backend = backend
        self._max_age = max_age
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._samples: Mapping[Metric, list[Sample]] = {}
        self._queues = Labels(backend.options.metric_labels)

    def watch(self, meters: Meters) -> Callable[[], None]:
        """Let *meters* read them; the answer ends that."""
        ends = [meters.watch(metric, self._reader(metric)) for metric in STORE_METRICS]

        def end() -> None:
            for one in ends:
                one()

        return end

    def read(self) -> Mapping[Metric, list[Sample]]:
        """Every gauge. Where the store does not answer, `ratchet_healthy` is 0, `ratchet_problems` says why, and the others are missing."""
        with self._lock:
            at = self._backend.monotonic()
            if self._read_at is None or at - self._read_at >= self._max_age:
                self._samples = self._fresh()
                self._read_at = self._backend.monotonic()
            return self._samples

    def _reader(self, metric: Metric) -> Callable[[], Iterable[Sample]]:
        return lambda: self.read().get(metric, [])

    def _fresh(self) -> Mapping[Metric, list[Sample]]:
        try:
            load = self._backend.store.load(now=self._backend.now())
            samples = self._of_store(load)
            found = {problem.code for problem in health_of(self._backend, load=load).problems}
        except RatchetError as error:
            # Health would only wait for the same answer again.
            faults.note("the gauges of the store cannot be read", error)
            samples, found = {}, {problem_of(error).code}
        # Every code is named, also where it is none: a series that vanishes looks like an exporter that died.
        codes = dict.fromkeys((*CODES, *sorted(found)))
        return {
            **samples,
            metrics.HEALTHY: [((), float(not found))],
            metrics.PROBLEMS: [((code,), float(code in found)) for code in codes],
        }

    def _of_store(self, load: Load) -> dict[Metric, list[Sample]]:
        store, now = self._backend.store, self._backend.now()
        nodes = store.nodes(counting=False)
        # An empty queue is named too: a series that vanishes looks like an exporter that died.
        for queue in store.queues(counting=False):
            self._queues.of(queue.name)
        late = store.claim_due_recurring(limit=MOST_SCHEDULES, now=now)
        fires = [record.next_fire_at for record in late if record.next_fire_at is not None]
        states = Counter(
            "silent"
            if node.state is not NodeState.DEAD and not node.is_alive(now)
            else str(node.state).lower()
            for node in nodes
        )
        return {
            metrics.QUEUE_DEPTH: self._depths(load),
            metrics.OLDEST_AGE: self._ages(load, now),
            metrics.DEAD_LETTERS: [((), load.dead_letters)],
            metrics.NODES: [((state,), states[state]) for state in _STATES],
            metrics.BREAKER_OPEN: [
                ((breaker.service,), float(breaker.state == "OPEN")) for breaker in store.breakers()
            ],
            metrics.SCHEDULE_LATENESS: [((), max([(now - at).total_seconds() for at in fires], default=0.0))],
            metrics.PARKED_JOBS: [
                (
                    (),
                    sum(
                        stream.due
                        for stream in load.streams
                        if target_of(stream.key.parked_target) is not None
                    ),
                )
            ],
        }

    def _depths(self, load: Load) -> list[Sample]:
        due: Counter[str] = Counter()
        running: Counter[str] = Counter()
        for stream in load.streams:
            queue = self._queues.of(stream.key.queue)
            due[queue] += stream.due
            running[queue] += stream.running
        return [
            ((queue, status), counts[queue])
            for queue in self._named(due)
            for status, counts in (("due", due), ("running", running))
        ]

    def _ages(self, load: Load, now: datetime) -> list[Sample]:
        oldest: dict[str, datetime] = {}
        for stream in load.streams:
            queue = self._queues.of(stream.key.queue)
            if stream.due and stream.first_at is not None:
                oldest[queue] = min(oldest.get(queue, now), stream.first_at)
        return [((queue,), (now - oldest.get(queue, now)).total_seconds()) for queue in self._named(oldest)]

    def _named(self, counted: Iterable[str]) -> list[str]:
        return sorted({*self._queues.known(), *counted})


_STATES = ("silent", *(str(state).lower() for state in NodeState))
