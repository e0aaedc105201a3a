"""
`FlowRecorder`: what this node has done in each minute, and what waits in the cluster, kept in the store.

Nothing of it is on the way of a job but one list that the completer leaves here after each commit. What is counted is stored when a
minute is over, in one row of this node's own, so that no two nodes write the same row. A node that did nothing stores nothing. What a
node has counted in the minute in which it is killed is lost.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import Protocol, TypeAlias
from uuid import UUID
from zlib import crc32

from ratchet.engine.identity import NodeIdentity
from ratchet.engine.run import Run
from ratchet.model.decision import CompletionAnswer, Confirm, CountCrash, Fail, Retry, Succeed
from ratchet.model.durations import earlier
from ratchet.model.flow_history import (
    COUNTED,
    LOAD,
    MERGED,
    MERGED_AFTER,
    MINUTE,
    TOTAL,
    FlowPeriod,
    Tally,
    class_of,
    depths_of,
    floor,
    with_total,
)
from ratchet.model.load import Load
from ratchet.model.metrics import OTHER
from ratchet.spi.store.history import FlowStore

logger = logging.getLogger("ratchet.engine")

#: An ended run: its target and queue, what was decided (None: the store refused it), when it was due, began and ended, what the
#: store has answered (None: it was not asked), and its job.
EndedRun: TypeAlias = tuple[
    str, str, "type | None", datetime, "datetime | None", "datetime | None", "CompletionAnswer | None", UUID
]
#: The time of a commit, and the runs in it.
CommittedRuns: TypeAlias = tuple[datetime, list[EndedRun]]
_queue_and_decision = itemgetter(1, 2)

#: Commits that may wait to be counted. One has up to `completion_batch` runs; the service comes by every second.
MOST_COMMITS = 2000
#: Runs of one commit whose wait and run time are looked at, about.
TIMED = 50
#: Minutes that are kept while the store does not take them.
MOST_MINUTES = 60
#: Seconds between two looks at what has ended.
INTERVAL = 1.0
#: Nodes store their minutes spread over so many seconds after the end of a minute.
SPREAD = 8
#: How far a node looks back for what waited last: it stores as well, once, that nothing waits any more.
LOOKED_BACK = 5 * MINUTE
#: Slots of minutes that are merged, and periods that are deleted, in one go.
SLOTS, BATCH = 6, 500


class FlowSource(FlowStore, Protocol):
    """What the recorder reads and writes."""

    def load(self, *, now: datetime, most: int = COUNTED) -> Load: ...


class FlowRecorder:
    """Counts on the thread of its service alone; `commits` is where other threads leave something."""

    def __init__(
        self,
        store: FlowSource,
        *,
        identity: NodeIdentity,
        retention: timedelta,
        most_queues: int,
        held: Callable[[], list[Run]],
        is_turn: Callable[[datetime], bool] = lambda minute: True,
    ) -> None:
        self._store = store
        self._identity = identity
        self._retention = retention
        self._most_queues = most_queues
        self._held = held
        self._is_turn = is_turn  # of several nodes without work one looks at what waits
        #: The commits that are not counted yet; other threads append to it.
        self.commits: deque[CommittedRuns] = deque(maxlen=MOST_COMMITS)
        self._minutes: dict[datetime, dict[str, Tally]] = {}
        self._open: datetime | None = None  # the first minute that is not stored yet
        self._begun: set[UUID] = set()  # counted as started while they were running
        self._looked: datetime | None = None  # the minute of the last look at what waits

    def run_once(self, now: datetime) -> bool:
        """Count what has ended, and once a minute store what is counted; whether it stored anything."""
        self._count()
        minute = floor(now, MINUTE)
        if self._open is None or minute < self._open:  # also where the clock was set back
            self._open = self._looked = minute
        if now < minute + timedelta(seconds=crc32(self._identity.node_id.encode()) % SPREAD):
            return False
        stored = self._store_until(minute) if self._open < minute else False
        if self._looked != minute:
            stored = self._look(minute, now, worked=stored) or stored
        return stored

    def close(self, now: datetime) -> None:
        """The node ends: store the minute that is not over, too."""
        self._count()
        if self._open is not None:
            self._store_until(max(floor(now, MINUTE), self._open) + MINUTE)

    # --- counting -------------------------------------------------------------------------------

    def _count(self) -> None:
        while self.commits:
            at, runs = self.commits.popleft()
            minute = floor(at, MINUTE)
            self._open = self._open or minute
            # what was written while a minute was stored belongs to the next one
            minute = max(minute, self._open)
            every = 1 + len(runs) // TIMED  # of a large commit some runs are timed, and stand for the others
            for (queue, decision), group in groupby(runs, _queue_and_decision):
                row = list(group)
                if row[0][6] is None:
                    continue  # the store was not asked about these: parked, expired, lost
                tally = self._tally(minute, queue)
                self._add_starts(tally, minute, queue, decision, row)
                if decision is not None:
                    _add_ends(tally, decision, row)
            self._time(minute, runs[::every], every)

    def _add_starts(
        self, tally: Tally, minute: datetime, queue: str, decision: type | None, row: list[EndedRun]
    ) -> None:
        if decision is Succeed and minute == self._open and not self._begun:
            tally.started += len(row)  # what has succeeded has begun, and no earlier minute is open
            return
        for run in row:
            started_at, job_id = run[4], run[7]
            if started_at is None:
                continue
            if job_id in self._begun:
                self._begun.discard(job_id)
            elif self._open is None or started_at >= minute or minute == self._open:
                tally.started += 1
            else:
                self._tally(max(floor(started_at, MINUTE), self._open), queue).started += 1

    def _time(self, minute: datetime, runs: list[EndedRun], every: int) -> None:
        for _, queue, decision, due, started_at, finished_at, answer, _ in runs:
            if answer is None or decision is None or started_at is None or finished_at is None:
                continue
            tally = self._tally(minute, queue)
            wait = class_of((started_at - due).total_seconds())
            took = class_of((finished_at - started_at).total_seconds())
            tally.wait[wait] = tally.wait.get(wait, 0) + every
            tally.run[took] = tally.run.get(took, 0) + every

    def _count_running(self, until: datetime) -> None:
        """Count the runs that began before this time and go on as started."""
        held = [run for run in self._held() if run.started_at is not None]
        for run in held:
            began = run.started_at
            if (
                began is not None
                and began < until
                and run.job_id not in self._begun
                and self._open is not None
            ):
                self._begun.add(run.job_id)
                self._tally(max(floor(began, MINUTE), self._open), run.job.body.queue).started += 1
        if len(self._begun) > 2 * len(held) + 1000:  # runs that ended without a commit: canceled, lost
            self._begun &= {run.job_id for run in held}

    def _tally(self, minute: datetime, queue: str) -> Tally:
        queues = self._minutes.get(minute)
        if queues is None:
            queues = self._minutes[minute] = {}
        found = queues.get(queue)
        if found is None:
            name = queue if len(queues) < self._most_queues else OTHER
            found = queues.setdefault(name, Tally())
        return found

    # --- storing --------------------------------------------------------------------------------

    def _store_until(self, until: datetime) -> bool:
        """Store every minute before *until*. If the store does not take them, they are kept for the next time."""
        self._count_running(until)
        self._open = until
        for minute in sorted(self._minutes)[:-MOST_MINUTES]:
            del self._minutes[minute]
        periods = [
            FlowPeriod(at=minute, source=self._identity.node_id, runs=with_total(queues))
            for minute, queues in sorted(self._minutes.items())
            if minute < until
        ]
        if not periods:
            return False
        self._store.record_flow(periods)
        for period in periods:
            del self._minutes[period.at]
        return True

    def _look(self, minute: datetime, now: datetime, *, worked: bool) -> bool:
        """Store what waits, unless another node has done so in this minute; whoever does tidies up, too."""
        self._looked = minute
        if not (worked or self._is_turn(minute)):
            return False
        found = self._store.flow(since=minute - LOOKED_BACK, until=minute + MINUTE, only=TOTAL)
        seen = {one.at: one.depths for one in found if one.source == LOAD}
        if minute in seen:
            return False
        last = seen[max(seen)] if seen else {}
        waited = TOTAL in last and last[TOTAL].due > 0
        load = self._store.load(now=now, most=COUNTED)
        if not (load.due or waited or load.running or worked):
            return False  # an idle cluster writes nothing
        depths = depths_of(load, now, self._most_queues)
        if self._store.record_flow([FlowPeriod(at=minute, source=LOAD, depths=depths)]):
            self._tidy(now)
        return True

    def _tidy(self, now: datetime) -> None:
        before = floor(now - MERGED_AFTER, MERGED)
        for _ in range(SLOTS):
            if not self._store.merge_flow(before=before):
                break
        self._store.purge_flow(before=earlier(now, self._retention), limit=BATCH)


def _add_ends(tally: Tally, decision: type, row: list[EndedRun]) -> None:
    if decision is Succeed or decision is Confirm:
        tally.succeeded += len(row)
    elif decision is Retry:
        tally.retried += len(row)
    elif decision is Fail:
        tally.failed += len(row)
    elif decision is CountCrash:
        dead = sum(1 for run in row if run[6] is not None and run[6].dead_lettered)
        tally.failed += dead
        tally.retried += len(row) - dead
