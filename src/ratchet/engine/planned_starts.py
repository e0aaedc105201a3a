"""Planned starts: claimed runs that a rate lets start a little later, each at its own moment."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.engine.run import Run
from ratchet.model.status import Lane

#: How long to rest while nothing waits; adding a run wakes the service.
NOTHING = timedelta(seconds=10)
#: A start that is later than this has been missed. A thread that is woken is often late by less, and the slack of a
#: rate (`Cadence`) covers that.
PUNCTUAL = timedelta(milliseconds=40)
#: How many jobs that missed their start are remembered.
REMEMBERED = 1000


class PlannedStarts:
    """
    Runs that wait for the start that their claim names, and then go to their lane. They hold no slot meanwhile.

    After a stall, runs that are late may not start among the others, or more would start in that time than their
    rate allows: they are given back with the next `withdraw`, and claimed again for another start. That happens to
    each job once only: on a machine that is always late it has to start some time.
    """

    def __init__(
        self,
        start: Callable[[Lane, Run], None],
        monotonic: Callable[[], float],
        on_added: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._monotonic = monotonic
        self.on_added = on_added
        self._lock = threading.Lock()
        self.waiting: list[tuple[datetime, int, Lane, Run]] = []  # a heap
        self._number = 0
        self._missed: list[Run] = []
        self._excused: dict[UUID, None] = {}  # jobs that missed a start: they need not be punctual again

    def add(self, lane: Lane, run: Run, start_at: datetime) -> None:
        """A run that may start at *start_at*."""
        with self._lock:
            self._number += 1
            heapq.heappush(self.waiting, (start_at, self._number, lane, run))
        self.on_added()

    def count(self, lane: Lane) -> int:
        """How many wait for their start in a lane."""
        return sum(of is lane for _, _, of, _ in list(self.waiting))

    def withdraw(self, before: float) -> list[Run]:
        """Give back what was accepted before *before* and has not started, and what missed its start."""
        with self._lock:
            missed, self._missed = self._missed, []
            older = [run for *_, run in self.waiting if run.accepted < before]
            self.waiting = [waiting for waiting in self.waiting if waiting[-1].accepted >= before]
            heapq.heapify(self.waiting)
        return missed + older

    def run_once(self, now: datetime) -> int:
        """Hand every run whose moment has come to its lane; how many."""
        started = 0
        with self._lock:
            while self.waiting and self.waiting[0][0] <= now:
                start_at, _, lane, run = heapq.heappop(self.waiting)
                if now - start_at > PUNCTUAL and run.job_id not in self._excused:
                    self._missed.append(run)
                    self._excused[run.job_id] = None
                    continue
                self._excused.pop(run.job_id, None)
                run.accepted = self._monotonic()
                self._start(lane, run)
                started += 1
            while len(self._excused) > REMEMBERED:
                del self._excused[next(iter(self._excused))]
        return started

    def rest(self, now: datetime) -> timedelta:
        """How long until the next start."""
        with self._lock:
            return max(self.waiting[0][0] - now, timedelta()) if self.waiting else NOTHING
