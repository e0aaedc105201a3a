from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PollObservation:
    """One poll as the strategy sees it."""

    #: How many jobs the poll claimed.
    found: int
    #: How many it asked for.
    requested: int
    #: When, in seconds of a monotonic clock.
    at: float
    #: Busy share of the workers, 0.0 to 1.0.
    utilization: float = 0.0

    @property
    def is_empty(self) -> bool:
        """True if the poll found nothing."""
        return self.found <= 0

    @property
    def is_full(self) -> bool:
        """True if the poll got all it asked for, so that more is probably waiting."""
        return self.found > 0 and self.found >= self.requested


class PollingStrategy(Protocol):
    """
    Decides how long a poller rests.

    It knows only what it is told: it reads no clock and starts no thread. One poller owns one
    strategy and calls it from one thread at a time. Where a method is missing or fails, the stock strategy decides.
    """

    def next_delay(self, observation: PollObservation) -> timedelta:
        """
        How long to rest after the poll just *observed*, a full one too.

        A wakeup, a lane that needs more jobs, and a job that is due cut the rest short.
        """
        ...

    def woken(self) -> None:
        """A wakeup arrived: the next delays are short, however idle the node was."""
        ...
