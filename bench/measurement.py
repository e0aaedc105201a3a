"""What was measured, and what it is to be compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(slots=True)
class Measurement:
    """The values of one workload for one contender, one per round."""

    workload: str
    contender: str
    unit: str  # jobs/s, ms, MB
    values: list[float] = field(default_factory=list)
    details: dict[str, list[float]] = field(default_factory=dict)  # CPU microseconds per job, for one

    @property
    def median(self) -> float:
        """The value that counts."""
        return median(self.values)

    def add(self, value: float, **details: float) -> None:
        """One more round."""
        self.values.append(value)
        for name, detail in details.items():
            self.details.setdefault(name, []).append(detail)

    def document(self) -> dict[str, Any]:
        """As it is written to a file."""
        return {
            "workload": self.workload,
            "contender": self.contender,
            "unit": self.unit,
            "median": self.median,
            "values": self.values,
            "details": {name: median(values) for name, values in self.details.items()},
        }


class Results:
    """All measurements of a run, by workload and contender."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Measurement] = {}
        self.tables: dict[str, list[Mapping[str, Any]]] = {}

    def of(self, workload: str, contender: str, unit: str) -> Measurement:
        """The measurement to add to."""
        return self._found.setdefault((workload, contender), Measurement(workload, contender, unit))

    def find(self, workload: str, contender: str) -> Measurement | None:
        """What was measured; None if it was not."""
        return self._found.get((workload, contender))

    @property
    def all(self) -> list[Measurement]:
        """Every measurement, in the order in which they were begun."""
        return list(self._found.values())


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio that must be reached: (workload, contender) over (workload, contender)."""

    text: str
    above: tuple[str, str]
    below: tuple[str, str]
    least: float

    def ratio(self, results: Results) -> float | None:
        """What was reached; None if one side was not measured. For times, small is good, so the ratio is turned."""
        above, below = results.find(*self.above), results.find(*self.below)
        if above is None or below is None or not above.median or not below.median:
            return None
        if above.unit == "ms":
            above, below = below, above
        if len(above.values) != len(below.values):
            return above.median / below.median
        # Both sides of a round were measured in the same minute: their ratio is worth more than that of medians.
        return median(one / other for one, other in zip(above.values, below.values, strict=True))


TARGETS: Sequence[Target] = (
    Target("drain, sync jobs, 1 process / pgqueuer sync", ("drain sync 1", "ratchet"), ("drain sync 1", "pgqueuer"), 2.0),
    Target("drain, sync jobs, 1 process / pgqueuer async", ("drain sync 1", "ratchet"), ("drain async 1", "pgqueuer"), 1.0),
    Target("drain, async jobs, 1 process / pgqueuer async", ("drain async 1", "ratchet"), ("drain async 1", "pgqueuer"), 1.1),
    Target("drain, async jobs, 2 processes / pgqueuer async", ("drain async 2", "ratchet"), ("drain async 2", "pgqueuer"), 1.1),
    Target("drain, sync jobs, 2 processes / pgqueuer sync", ("drain sync 2", "ratchet"), ("drain sync 2", "pgqueuer"), 1.5),
    Target("enqueue one by one, sync / raw INSERT", ("enqueue sync", "ratchet"), ("enqueue sync", "raw"), 0.5),
    Target("enqueue one by one, sync / procrastinate", ("enqueue sync", "ratchet"), ("enqueue sync", "procrastinate"), 2.5),
    Target("bulk enqueue / pgqueuer", ("bulk", "ratchet"), ("bulk", "pgqueuer"), 1.5),
    Target("latency, other process, p50: pgqueuer /", ("latency other p50", "ratchet"), ("latency other p50", "pgqueuer"), 1.0),
    Target("latency, other process, p99: pgqueuer /", ("latency other p99", "ratchet"), ("latency other p99", "pgqueuer"), 1.0),
    Target("latency, same process, p50: 1 ms /", ("latency same p50", "ratchet"), ("latency same p50", "limit"), 1.0),
    Target("drain with 1,000,000 pending / with 10,000", ("backlog 1000000", "ratchet"), ("backlog 10000", "ratchet"), 0.9),
    Target("drain with 300,000 pending / with 10,000", ("backlog 300000", "ratchet"), ("backlog 10000", "ratchet"), 0.9),
    Target("drain with 1,000,000 finished / with none", ("history 1000000", "ratchet"), ("history 0", "ratchet"), 0.9),
    Target("drain under a held snapshot, after 1 minute / at the start", ("snapshot 1 min", "ratchet"), ("snapshot start", "ratchet"), 0.8),
    Target("drain under a held snapshot, after 5 minutes / at the start", ("snapshot 5 min", "ratchet"), ("snapshot start", "ratchet"), 0.8),
    Target("drain of 1,000 chains of 10 / of as many plain jobs", ("chains of 10", "ratchet"), ("chains: plain jobs", "ratchet"), 0.75),
    Target("drain of a batch of 100,000 / of as many plain jobs", ("batch of 100,000", "ratchet"), ("batch: plain jobs", "ratchet"), 0.85),
    Target("a batch of 100,000: 20 MB / growth of the worker", ("batch: worker memory", "limit"), ("batch: worker memory", "ratchet"), 1.0),
    Target("a stream of 1,000,000: 20 MB / growth of the submitter", ("streaming batch: submitter's memory", "limit"), ("streaming batch: submitter's memory", "ratchet"), 1.0),
    Target("drain beside 300,000 jobs behind gates / without them", ("gates: other work beside them", "ratchet"), ("gates: other work without them", "ratchet"), 0.9),
    Target("gates: 1 write per second / writes of 3 nodes besides beats", ("gates: writes", "limit"), ("gates: writes", "ratchet"), 1.0),
    Target("breaker closed to first start: 2 s /", ("gates: breaker to first start", "ratchet"), ("gates: to first start", "limit"), 1.0),
    Target("permits there to first start: 2 s /", ("gates: permit to first start", "ratchet"), ("gates: to first start", "limit"), 1.0),
    Target("queue resumed to first start: 2 s /", ("gates: queue to first start", "ratchet"), ("gates: to first start", "limit"), 1.0),
    Target("rate limit of 100 per second, 3 nodes: fewest in a second / 95", ("rate: fewest in a second", "ratchet"), ("rate: fewest in a second", "limit"), 1.0),
    Target("rate limit of 100 per second, 3 nodes: 100 / most in a second", ("rate: most in a second", "limit"), ("rate: most in a second", "ratchet"), 1.0),
    Target("rate limit, sliding seconds: fewest / 95", ("rate: fewest in a sliding second", "ratchet"), ("rate: fewest in a second", "limit"), 1.0),
    Target("rate limit, sliding seconds: 100 / most", ("rate: most in a second", "limit"), ("rate: most in a sliding second", "ratchet"), 1.0),
    Target("drain with 50 fairness keys / with none", ("fairness: 50 keys", "ratchet"), ("fairness: no keys", "ratchet"), 0.9),
    Target("SQLite drain, 1 process / huey", ("sqlite drain 1", "ratchet"), ("sqlite drain 1", "huey"), 4.0),
    Target("MariaDB drain, sync jobs / pgqueuer sync on PostgreSQL", ("mariadb drain sync 1", "ratchet"), ("mariadb drain sync 1", "pgqueuer"), 0.35),
    Target("MariaDB drain, async jobs / pgqueuer async on PostgreSQL", ("mariadb drain async 1", "ratchet"), ("mariadb drain async 1", "pgqueuer"), 0.35),
    Target("MongoDB drain, sync jobs / pgqueuer sync on PostgreSQL", ("mongodb drain sync 1", "ratchet"), ("mongodb drain sync 1", "pgqueuer"), 0.2),
    Target("MongoDB drain, async jobs / pgqueuer async on PostgreSQL", ("mongodb drain async 1", "ratchet"), ("mongodb drain async 1", "pgqueuer"), 0.2),
    Target("worker memory: 20 MB / growth over 500,000 jobs", ("memory", "limit"), ("memory", "ratchet"), 1.0),
)  # fmt: skip


#: An earlier commit must not have been faster than this; two runs of the same code differ by as much.
LEAST_OF_EARLIER = 0.97


def priced(results: Results, equipped: str) -> list[Target]:
    """For every workload that the contender *equipped* took part in: what is left of the speed with its part."""
    return [
        Target(
            f"{found.workload}, {equipped} / ratchet",
            (found.workload, equipped),
            (found.workload, "ratchet"),
            LEAST_OF_EARLIER,
        )
        for found in results.all
        if found.contender == equipped
    ]


def unchanged(results: Results, earlier: str) -> list[Target]:
    """For every workload that the contender *earlier* took part in: Ratchet must be about as good as it was."""
    return [
        Target(
            f"{found.workload} / {earlier}",
            (found.workload, "ratchet"),
            (found.workload, earlier),
            LEAST_OF_EARLIER,
        )
        for found in results.all
        if found.contender == earlier
    ]
