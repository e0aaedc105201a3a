"""Where measurements go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from ratchet.model.metrics import Metric

#: The labels' values, in the order of `Metric.labels`, and the number.
Sample: TypeAlias = tuple[tuple[str, ...], float]


class Meters(Protocol):
    """
    Takes what a node measures: ``ratchet.contrib.prometheus`` and ``ratchet.contrib.opentelemetry`` are two.

    A scheduler without meters measures nothing, which costs nothing. Values come in groups, a few times per second, from the threads
    of the node; whatever a method raises is logged and changes nothing for a job. Labels are in the order of
    `Metric.labels`.
    """

    def add(self, metric: Metric, labels: tuple[str, ...], amount: float) -> None:
        """A counter has grown by *amount*."""

    def record(self, metric: Metric, labels: tuple[str, ...], values: Sequence[float]) -> None:
        """These values belong into a histogram."""

    def watch(self, metric: Metric, read: Callable[[], Iterable[Sample]]) -> Callable[[], None]:
        """Call *read* for a gauge or a counter whenever somebody looks; the answer ends that."""
        return lambda: None
