"""`Departure`: what a node that stops says about its jobs: what finished, what was handed back, and why."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import timedelta

from ratchet.engine.assembly import Assembly
from ratchet.engine.run import Run
from ratchet.model.durations import format_duration

logger = logging.getLogger("ratchet.engine")

#: A line names at most so many jobs.
JOBS_NAMED = 10


class Departure:
    """Watches one stop of a node and logs a line when it begins, when its time is up, and when it is over."""

    def __init__(self, assembly: Assembly, limit: float) -> None:
        self.limit = limit
        self._coordinator = assembly.coordinator
        self._activity = assembly.announcer.activity
        self._handed_back = self._activity.handed_back
        self._since = time.monotonic()
        self._running = 0
        self._late = 0

    def begin(self, unstarted: int) -> None:
        """Nothing more is claimed, and *unstarted* claims were handed back."""
        self._running = len(self._coordinator.held())
        if not self._running and not unstarted:
            return
        back = f"; {counted(unstarted)} that had not started handed back" if unstarted else ""
        if self._running and not self.limit:
            logger.info("stopping: %s not waited for%s", counted(self._running, "running "), back)
        elif self._running:
            logger.info(
                "stopping: %s may finish within %s%s", counted(self._running, "running "), self._time(), back
            )
        else:
            logger.info("stopping: no job is running%s", back)

    def time_is_up(self) -> None:
        """What still runs is about to be interrupted."""
        late = self._coordinator.held()
        self._late = len(late)
        if late:
            logger.warning(
                "%s not finished within the drain time of %s, interrupted and handed back to run again: %s",
                counted(len(late)),
                self._time(),
                _named(late),
            )

    def end(self, *, exits: bool) -> None:
        """All has ended, or does not end. *exits*: this process will."""
        if not self._running:
            return
        left = self._coordinator.held()
        back = self._activity.handed_back - self._handed_back
        logger.info(
            "stopped after %.1f s: %s finished, %d handed back",
            time.monotonic() - self._since,
            counted(self._running - len(left) - back),
            back,
        )
        if left:
            logger.warning(
                "%s did not stop when interrupted; %s: %s",
                counted(len(left)),
                "handed back when this process ends, in a moment"
                if exits
                else "kept by this process until that code ends",
                _named(left),
            )

    def _time(self) -> str:
        return format_duration(timedelta(seconds=self.limit))


def counted(count: int, kind: str = "") -> str:
    """So many jobs, in words."""
    return f"{count} {kind}{'job' if count == 1 else 'jobs'}"


def _named(runs: Sequence[Run]) -> str:
    names = [f"{run.job_id} ({run.target})" for run in runs[:JOBS_NAMED]]
    more = len(runs) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")
