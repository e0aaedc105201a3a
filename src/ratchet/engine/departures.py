"""The departures: claimed runs that a rate lets start a little later, each at its own moment."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.engine.run import Run
from ratchet.model.status import Lane

#: How long to rest where nothing waits; whatever is added wakes the service.
NOTHING = timedelta(seconds=10)
#: As late as a thread that was woken may be: so few of a rate's starts that its slack covers most of them.
PUNCTUAL = timedelta(milliseconds=40)
#: So many jobs that missed their start are remembered.
REMEMBERED = 1000


class Departures:
    """
    Runs that wait for their start, which their claim names, and then go to their lane.

    They hold no slot meanwhile. After a stall those that are late may not start among the others, or more would start
    in that time than their rate allows: they are given back with the next `withdraw`, and claimed again for another
    start. But each job only once, for a machine that is always late must not keep it from ever starting.
    """

    def __init__(
        self,
        depart: Callable[[Lane, Run], None],
        monotonic: Callable[[], float],
        on_added: Callable[[], None] = lambda: None,
    ) -> None:
        self._depart = depart
        self._monotonic = monotonic
        self.on_added = on_added
        self._lock = threading.Lock()
        self._waiting: list[tuple[datetime, int, Lane, Run]] = []
        self._number = 0
        self._missed: list[Run] = []
        self._excused: dict[UUID, None] = {}  # jobs that missed a start: they need not be punctual again

    def add(self, lane: Lane, run: Run, start_at: datetime) -> None:
        """A run that may start at *start_at*."""
        with self._lock:
            self._number += 1
            heapq.heappush(self._waiting, (start_at, self._number, lane, run))
        self.on_added()

    def count(self, lane: Lane) -> int:
        """How many wait for their start in a lane."""
        return sum(of is lane for _, _, of, _ in list(self._waiting))

    def withdraw(self, before: float) -> list[Run]:
        """Give back what was accepted before *before* and has not departed, and what missed its start."""
        with self._lock:
            missed, self._missed = self._missed, []
            older = [run for *_, run in self._waiting if run.accepted < before]
            self._waiting = [waiting for waiting in self._waiting if waiting[-1].accepted >= before]
            heapq.heapify(self._waiting)
        return missed + older

    def run_once(self, now: datetime) -> int:
        """Let everything depart whose moment has come; how many that were."""
        departed = 0
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                start_at, _, lane, run = heapq.heappop(self._waiting)
                if now - start_at > PUNCTUAL and run.job_id not in self._excused:
                    self._missed.append(run)
                    self._excused[run.job_id] = None
                    continue
                self._excused.pop(run.job_id, None)
                run.accepted = self._monotonic()
                self._depart(lane, run)
                departed += 1
            while len(self._excused) > REMEMBERED:
                del self._excused[next(iter(self._excused))]
        return departed

    def rest(self, now: datetime) -> timedelta:
        """How long until the next departure."""
        with self._lock:
            return max(self._waiting[0][0] - now, timedelta()) if self._waiting else NOTHING
