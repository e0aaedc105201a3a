"""The lane: what the engine asks of a place where jobs run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ratchet.engine.run import Run, Stop
from ratchet.model.status import Lane


class JobLane(Protocol):
    """
    Runs jobs of one lane.

    A run that was accepted is either started, and then its outcome is handed to the completer
    exactly once, or given back by `withdraw`.
    """

    lane: Lane
    slots: int

    def start(self) -> None:
        """Be ready to run."""
        ...

    def accept(self, runs: Sequence[Run]) -> None:
        """Take over claimed jobs, in claim order: what came of the last `wanted`."""
        ...

    def accept_planned(self, run: Run) -> None:
        """Take over a run that was claimed earlier and may start from now on."""
        ...

    def wanted(self) -> int:
        """How many more jobs to claim now: free slots and what will be started soon."""
        ...

    def free(self) -> int:
        """How many slots are neither taken nor waited for; negative if more runs wait than can start."""
        ...

    def withdraw(self, before: float) -> list[Run]:
        """Give back runs that were accepted before *before* (monotonic) and have not started."""
        ...

    def running(self) -> list[Run]:
        """Runs that have started and not ended."""
        ...

    def holding(self) -> list[Run]:
        """Every run the lane has, started or not."""
        ...

    def interrupt(self, run: Run, reason: Stop) -> None:
        """Make a started run stop, as far as this lane can."""
        ...

    def replace(self, run: Run) -> None:
        """Give up on a run that does not stop: free its slot. Called after `Run.give_up`."""
        ...

    @property
    def stuck(self) -> int:
        """Slots that were given up and whose code still runs."""
        ...

    @property
    def down(self) -> str | None:
        """Why it runs nothing any more; None while it works."""
        ...

    def stop(self, timeout: float) -> None:
        """Start nothing more and end idle workers; runs that go on are left alone."""
        ...
