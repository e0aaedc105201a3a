"""`Views`: what can be read from a scheduler, one attribute per noun."""

from __future__ import annotations

from functools import cached_property

from ratchet.api.observe.health import Health, health_of
from ratchet.api.observe.queries import Batches, Breakers, DeadLetters, Jobs, Limits, Nodes, Queues, Schedules
from ratchet.scheduler.core import Core


class Views:
    """Jobs, dead letters, nodes, queues, limits, breakers, schedules and batches, as the store has them."""

    _core: Core

    @cached_property
    def jobs(self) -> Jobs:
        """Reads jobs."""
        return Jobs(self._core)

    @cached_property
    def dead_letters(self) -> DeadLetters:
        """Reads jobs that failed for good."""
        return DeadLetters(self._core)

    @cached_property
    def nodes(self) -> Nodes:
        """Shows the nodes of the cluster, and forgets those that are gone."""
        return Nodes(self._core)

    @cached_property
    def queues(self) -> Queues:
        """Shows queues, and closes and opens them."""
        return Queues(self._core)

    @cached_property
    def limits(self) -> Limits:
        """Says how many jobs of a resource may run at once, or start per period."""
        return Limits(self._core)

    @cached_property
    def breakers(self) -> Breakers:
        """Shows circuit breakers, and moves them by hand."""
        return Breakers(self._core)

    @cached_property
    def schedules(self) -> Schedules:
        """Finds schedules."""
        return Schedules(self._core)

    @cached_property
    def batches(self) -> Batches:
        """Finds batches."""
        return Batches(self._core)

    def health(self) -> Health:
        """Whether the store answers and jobs are being run; never raises because of the store."""
        return health_of(self._core)
