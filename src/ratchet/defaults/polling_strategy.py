from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from ratchet.model.errors import ConfigurationError
from ratchet.spi.polling_strategy import PollObservation


@dataclass(frozen=True, slots=True, kw_only=True)
class PollingPace:
    """The numbers behind ``AdaptivePollingStrategy``; the defaults are the documented ones."""

    burst: timedelta = timedelta(milliseconds=500)
    shortest: timedelta = timedelta(seconds=2)
    longest: timedelta = timedelta(seconds=30)
    deep_idle: timedelta = timedelta(seconds=60)
    deep_idle_after: timedelta = timedelta(minutes=5)
    window: int = 10
    full_batches: int = 3

    def __post_init__(self) -> None:
        if not timedelta(0) < self.burst <= self.shortest <= self.longest <= self.deep_idle:
            raise ConfigurationError(
                f"polling delays must satisfy 0 < burst <= shortest <= longest <= deep_idle, got {self}"
            )
        if self.window < 1 or self.full_batches < 1 or self.deep_idle_after <= timedelta(0):
            raise ConfigurationError(f"window, full_batches and deep_idle_after must be positive, got {self}")


class AdaptivePollingStrategy:
    """
    Polls often while there is work, seldom while there is none, at once when woken.

    * Burst, 500 ms: after a wakeup, until a poll after the first one comes back empty.
    * Deep idle, 60 s: nothing found for 5 minutes.
    * Normal, 2 to 30 s: ``2 s * 2^(empty polls in a row) * trend * load``, where *trend* falls from
      1.5 to 0.5 as the last ten polls come back fuller, and *load* grows from 0.5 to 1.5 with the
      busy share of the workers.
    * A quarter of the normal delay: three or more full batches in a row.

    The poller asks it after each poll, but does not rest after a full batch (``goes_on_after_full_batch``): it claims
    again as soon as a lane has room. A full batch counts for the delays that follow it.
    """

    goes_on_after_full_batch = True

    def __init__(self, pace: PollingPace | None = None) -> None:
        self._pace = pace or PollingPace()
        self._fills: deque[float] = deque(maxlen=self._pace.window)
        self._empty_in_a_row = 0
        self._full_in_a_row = 0
        self._last_found_at: float | None = None
        self._woken = False
        self._bursting = False

    def woken(self) -> None:
        """Leave idleness and poll in bursts."""
        self._woken = True
        self._bursting = True
        self._empty_in_a_row = 0
        self._last_found_at = None  # the five minutes start anew with the next poll

    def next_delay(self, observation: PollObservation) -> timedelta:
        """The rest after the observed poll."""
        self._remember(observation)
        if self._bursting:
            return self._pace.burst
        if self._idle_for(observation) >= self._pace.deep_idle_after:
            return self._pace.deep_idle
        if self._full_in_a_row >= self._pace.full_batches:
            return self._normal(observation) / 4
        return self._normal(observation)

    def _remember(self, observation: PollObservation) -> None:
        fill = min(1.0, max(0, observation.found) / max(1, observation.requested))
        self._fills.append(fill)
        self._full_in_a_row = self._full_in_a_row + 1 if fill == 1.0 else 0
        if fill > 0:
            self._empty_in_a_row = 0
            self._last_found_at = observation.at
        elif not self._woken:
            # Another node may take the job before the poll that a wakeup caused: that ends no burst.
            self._empty_in_a_row += 1
            self._bursting = False
        if self._last_found_at is None:
            self._last_found_at = observation.at
        self._woken = False

    def _idle_for(self, observation: PollObservation) -> timedelta:
        since = observation.at if self._last_found_at is None else self._last_found_at
        return timedelta(seconds=max(0.0, observation.at - since))

    def _normal(self, observation: PollObservation) -> timedelta:
        trend = 1.5 - sum(self._fills) / len(self._fills)
        load = 0.5 + min(1.0, max(0.0, observation.utilization))
        # Bounded exponent: without deep idle a node may be idle for months.
        idle = float(1 << min(self._empty_in_a_row, 16))
        delay = self._pace.shortest * (idle * trend * load)
        return min(self._pace.longest, max(self._pace.shortest, delay))
