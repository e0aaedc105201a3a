"""
Where a claim on PostgreSQL starts to look.

Entries of finished jobs stay at the beginning of the claim index until a vacuum removes them, and no vacuum may while
another session holds an old snapshot. A claim from the beginning then reads over every job that was claimed since.
So a store remembers, for each level (stream and priority), the first waiting job that its last claim *saw*, and
starts the next claim there. Three things keep that from hiding a job:

* **The epoch.** Whatever puts a job before what others may have seen (rescue, hand-back, resume, a retry by
  hand, a due time in the past) raises its stream's epoch in the same transaction. A remembered start counts only
  while the epoch is the one that was read together with it, in the same snapshot.
* **The margin.** A new job that is due now does not raise the epoch, for then all submissions would wait for one
  row. It may become visible a little after its due time; so no start is later than two seconds ago.
* **The sweep.** What still arrives before a start (from a caller's transaction that was open for longer, or with a
  wrong clock) is found by a sweep: a claim or a look from the beginning. Sweeps take at most a fiftieth of the time:
  ten a second where there is nothing to read over, one every 2.5 seconds where it takes 50 ms. But whatever they take,
  there is one every five seconds. A sweep may also have waited, for a lock or for a server that stood still, and what
  waited was no work: of two sweeps in a row only the shorter one counts.

Measured: behind 20,000 finished jobs that an old snapshot holds, a claim of 10 takes 3.7 times less CPU, and five times
less time. Without an old snapshot it makes no difference. In the SQL texts a start is called a *floor*.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.spacing import Spacing
from ratchet.model.status import Lane
from ratchet.stores.levels import PRIORITIES
from ratchet.stores.sql.dialects.postgresql.values import binary_array

#: How long after its due time a new job may become visible without raising an epoch.
MARGIN = "interval '2 seconds'"

#: Sweeps take at most this part of the time,
SWEEPING = 0.02
#: unless there would be none for so many seconds.
LONGEST_WITHOUT_SWEEP = 5.0

#: Before every id.
NO_ID = "'00000000-0000-0000-0000-000000000000'"

#: A claim tells what it saw of at most so many levels; more cost more than they save.
MOST_LEVELS = 2_500

#: What was told of more than a few levels is used for so many seconds: to read over what was claimed meanwhile costs
#: less than to tell of every level again.
FEW, TELLING = 25, 0.2

#: The priority of the level that is told of every stream, even where it is empty.
LOWEST = min(PRIORITIES)

#: The stream, the priority, the stream's epoch, and the first job that may be waiting: due time and id.
ScanStart = tuple[int, int, int, datetime, UUID]

#: What a claim is for: a lane, and suspects or others.
Purpose = tuple[Lane, bool]

#: The beginning of every level.
BEGINNING = (datetime.min.replace(tzinfo=UTC), UUID(int=0))

_STREAMS = "CAST(:floor_stream_id AS bigint[])"
_FOUND = f"width_bucket(CAST(s.stream_id AS bigint), {_STREAMS})"

#: Where the levels of stream *s* are in the arrays of `start_params`; NULL: not there, or with another epoch. A search
#: in a sorted array, not a join: the planner has nothing to choose, and it takes a third of the time.
START_INDEX = f"""CASE WHEN ({_STREAMS})[{_FOUND}] = s.stream_id AND (CAST(:floor_epoch AS bigint[]))[{_FOUND}] = s.epoch
                    THEN {len(PRIORITIES)} * {_FOUND} - {len(PRIORITIES) - 1} END"""


def start_at(index: str, priority: str) -> str:
    """The due time at which the look into a level starts."""
    return f"COALESCE((CAST(:floor_at AS timestamptz[]))[{index} + {priority}], '-infinity')"


def start_id(index: str, priority: str) -> str:
    """The id at which it starts."""
    return f"COALESCE((CAST(:floor_id AS uuid[]))[{index} + {priority}], {NO_ID})"


# --- what a claim tells -------------------------------------------------------------------------

#: Jobs may still arrive that are due after this moment, so no start is later.
HORIZON = f"LEAST(CAST(:now AS timestamptz), statement_timestamp()) - {MARGIN}"

#: What a claim tells of each level in `heads`: a `ScanStart`, in the columns of a job.
SEEN = {
    "job_id": f"CASE WHEN h.scheduled_time < {HORIZON} THEN h.job_id ELSE {NO_ID} END",
    "stream_id": "h.stream_id",
    "priority": "h.priority",
    "scheduled_time": f"LEAST(h.scheduled_time, {HORIZON})",
}


def in_place_of(columns: str, values: Mapping[str, str]) -> str:
    """These values in the places of the columns of the same name, NULL in the others."""
    return ", ".join(values.get(column.split(".")[1].strip(), "NULL") for column in columns.split(","))


# --- what a store remembers ---------------------------------------------------------------------


def start_params(starts: Sequence[ScanStart]) -> dict[str, object]:
    """
    The binds of START_INDEX, `start_at` and `start_id`: the streams in order, and all levels of each, by priority.

    Arrays, not a row set: the text stays the same, and with it the prepared plan.
    """
    known = {start[:2]: start for start in starts}
    epochs = {start[0]: start[2] for start in starts}
    streams = sorted(epochs)
    begins = [
        known[stream, priority][3:] if (stream, priority) in known else BEGINNING
        for stream in streams
        for priority in sorted(PRIORITIES)
    ]
    return {
        "floor_stream_id": binary_array(streams, "int"),
        "floor_epoch": binary_array([epochs[stream] for stream in streams], "int"),
        "floor_at": binary_array([at for at, _ in begins], "time"),
        "floor_id": binary_array([job_id for _, job_id in begins], "uuid"),
    }


def with_empty(seen: Sequence[ScanStart]) -> list[ScanStart]:
    """
    What was told of some streams, and that their other levels are empty.

    Of a stream a claim tells every level that has a job, and the lowest one, which says how late a start may be.
    """
    latest = max((start[3] for start in seen), default=BEGINNING[0])
    found = {
        (stream, priority): (stream, priority, epoch, latest, BEGINNING[1])
        for stream, _, epoch, *_ in seen
        for priority in PRIORITIES
    }
    found.update((start[:2], start) for start in seen)
    return list(found.values())


class ScanStarts:
    """What the claims of one store have seen, by purpose. Safe for many threads: each entry is replaced as a whole."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._known: dict[Purpose, Sequence[ScanStart]] = {}
        self._sweep_at: dict[Purpose, float] = {}
        self._sweeps: dict[Purpose, Spacing] = {}
        self._learned_at: dict[Purpose, float] = {}
        self._encoded: tuple[Sequence[ScanStart], dict[str, object]] = ((), start_params(()))

    def params(self, start: Sequence[ScanStart]) -> dict[str, object]:
        """`start_params`, encoded once for all claims that start there."""
        encoded = self._encoded
        if encoded[0] is not start:
            self._encoded = encoded = (start, start_params(start))
        return encoded[1]

    def wants(self, request: ClaimRequest, start: Sequence[ScanStart]) -> bool:
        """True where a claim from *start* is to tell what it sees."""
        learned_at = self._learned_at.get(_purpose(request), float("-inf"))
        return len(start) <= FEW or self.monotonic() - learned_at >= TELLING

    def known(self, request: ClaimRequest) -> Sequence[ScanStart]:
        """What the last claim for this purpose saw."""
        return self._known.get(_purpose(request), ())

    def of_look(self, requests: Sequence[ClaimRequest]) -> tuple[list[ScanStart], list[Purpose]]:
        """
        Where a look for all of *requests* together starts, and for which purposes that is the beginning.

        As soon as one request is for suspects and one is not, the look meets suspects and others of every lane; those
        that nobody asked for are not read from the beginning.
        """
        found = {_purpose(request): self.of(request) for request in requests}
        met = {(lane, suspects) for lane, _ in found for _, suspects in found}
        starts = [start for one in met for start in found.get(one, self._known.get(one, ()))]
        return starts, [one for one, known in found.items() if not known]

    def of(self, request: ClaimRequest) -> Sequence[ScanStart]:
        """Where a claim starts; empty: at the beginning, because a sweep is due."""
        purpose = _purpose(request)
        if self.monotonic() >= self._sweep_at.get(purpose, float("-inf")):
            return ()
        return self._known.get(purpose, ())

    def learn(self, request: ClaimRequest, seen: Sequence[ScanStart], *, swept_since: float | None) -> None:
        """Keep what a claim has seen; *swept_since*: when it began, if it was a sweep."""
        purpose = _purpose(request)
        if swept_since is not None:
            self._swept(purpose, swept_since)
        self._known[purpose] = seen
        self._learned_at[purpose] = self.monotonic()

    def looked(
        self, swept: Sequence[Purpose], heads: Mapping[tuple[int, int], datetime | None], *, since: float
    ) -> None:
        """
        A look that began at *since*, and was a sweep for the purposes *swept*, found these due times, by level.

        Where one is before a remembered start, all starts are forgotten: the next claim is a sweep and sees what there is.
        """
        for purpose in swept:
            if any((heads.get(start[:2]) or start[3]) < start[3] for start in self._known.get(purpose, ())):
                self._known[purpose] = ()
            else:
                self._swept(purpose, since)

    def _swept(self, purpose: Purpose, since: float) -> None:
        spacing = self._sweeps.setdefault(purpose, Spacing(SWEEPING, LONGEST_WITHOUT_SWEEP))
        self._sweep_at[purpose] = spacing.next_after(since, self.monotonic())


def _purpose(request: ClaimRequest) -> Purpose:
    return request.lane, request.suspects
