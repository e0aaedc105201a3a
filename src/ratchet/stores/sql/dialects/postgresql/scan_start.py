"""
Where a claim on PostgreSQL starts to look.

Entries of finished jobs stay at the left edge of the claim index until a vacuum may remove them, and none
may while another session holds an old snapshot: a claim from the edge then reads over every job that was
ever claimed since. So a store remembers, for each (stream, priority), the first waiting job that its last
claim *saw*, and begins the next claim there. Three things keep that from hiding a job:

* **The epoch.** Whatever puts a job before what others may have seen (rescue, hand-back, resume, a retry by
  hand, a due time in the past) raises its stream's epoch in the same transaction. A floor counts only while
  the epoch is the one that was read together with it, in the same snapshot.
* **The margin.** A new job that is due now does not raise the epoch, for all submissions would wait for one
  row. It may become visible a little after its due time; so no floor is later than two seconds ago.
* **The sweep.** What still comes below a floor (a caller's transaction that was open for longer, a wrong
  clock) is found by a claim or a look from the edge, which is made as often as it costs no more than a fiftieth of
  the time: ten times a second where there is nothing to read over, every 25 seconds where it takes half of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.model.status import Lane
from ratchet.stores.sql.claiming.claim_order import PRIORITIES
from ratchet.stores.sql.dialects.postgresql.arrays import binary_array

#: How long after its due time a new job may become visible without raising an epoch.
MARGIN = "interval '2 seconds'"

#: A sweep costs at most this part of the time.
SWEEPING = 0.02

#: Before every id.
NO_ID = "'00000000-0000-0000-0000-000000000000'"

#: So many branches are told of; more cost more than they save.
MOST_BRANCHES = 2_500

#: What was told of more than a few branches is good enough for so many seconds: to read over what was claimed since
#: costs less than to tell of every branch again.
FEW, TELLING = 25, 0.2

#: The priority of which every stream is told.
LOWEST = min(PRIORITIES)

#: The stream, the priority, the stream's epoch, and the first job that may be waiting: due time and id.
Floor = tuple[int, int, int, datetime, UUID]

#: What a claim is for: a lane, and suspects or others.
Kind = tuple[Lane, bool]

#: The beginning of every branch.
EDGE = (datetime.min.replace(tzinfo=UTC), UUID(int=0))

_STREAMS = "CAST(:floor_stream_id AS bigint[])"
_FOUND = f"width_bucket(CAST(s.stream_id AS bigint), {_STREAMS})"

#: Where the branches of stream *s* are in the arrays of `floor_params`; NULL: not there, or with another epoch. A search
#: in a sorted array, not a join: nothing for the planner to choose, and a third of its time.
FLOORED = f"""CASE WHEN ({_STREAMS})[{_FOUND}] = s.stream_id AND (CAST(:floor_epoch AS bigint[]))[{_FOUND}] = s.epoch
                    THEN {len(PRIORITIES)} * {_FOUND} - {len(PRIORITIES) - 1} END"""


def floor_at(floored: str, priority: str) -> str:
    """The due time at which a branch begins."""
    return f"COALESCE((CAST(:floor_at AS timestamptz[]))[{floored} + {priority}], '-infinity')"


def floor_id(floored: str, priority: str) -> str:
    """The id at which it begins."""
    return f"COALESCE((CAST(:floor_id AS uuid[]))[{floored} + {priority}], {NO_ID})"


def floor_params(floors: Sequence[Floor]) -> dict[str, object]:
    """
    The binds of FLOORED, `floor_at` and `floor_id`: the streams in order, and all branches of each, by priority.

    Arrays, not a row set: the text stays the same, and with it the prepared plan.
    """
    known = {floor[:2]: floor for floor in floors}
    epochs = {floor[0]: floor[2] for floor in floors}
    streams = sorted(epochs)
    starts = [
        known[stream, priority][3:] if (stream, priority) in known else EDGE
        for stream in streams
        for priority in sorted(PRIORITIES)
    ]
    return {
        "floor_stream_id": binary_array(streams, "int"),
        "floor_epoch": binary_array([epochs[stream] for stream in streams], "int"),
        "floor_at": binary_array([at for at, _ in starts], "time"),
        "floor_id": binary_array([job_id for _, job_id in starts], "uuid"),
    }


def with_empty(seen: Sequence[Floor]) -> list[Floor]:
    """
    What was told of some streams, and that their other branches are empty.

    Of a stream all branches are told that have a job, and the lowest one, which says how late a floor may be.
    """
    latest = max((floor[3] for floor in seen), default=EDGE[0])
    found = {
        (stream, priority): (stream, priority, epoch, latest, EDGE[1])
        for stream, _, epoch, *_ in seen
        for priority in PRIORITIES
    }
    found.update((floor[:2], floor) for floor in seen)
    return list(found.values())


class Floors:
    """What the claims of one store have seen, by lane. Safe for many threads: each entry is replaced as a whole."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._known: dict[Kind, Sequence[Floor]] = {}
        self._sweep_at: dict[Kind, float] = {}
        self._learned_at: dict[Kind, float] = {}
        self._encoded: tuple[Sequence[Floor], dict[str, object]] = ((), floor_params(()))

    def params(self, start: Sequence[Floor]) -> dict[str, object]:
        """The binds of `floor_params`, encoded once for all claims that start there."""
        encoded = self._encoded
        if encoded[0] is not start:
            self._encoded = encoded = (start, floor_params(start))
        return encoded[1]

    def wants(self, request: ClaimRequest, start: Sequence[Floor]) -> bool:
        """True where a claim from *start* is to tell what it sees."""
        learned_at = self._learned_at.get(_kind(request), float("-inf"))
        return len(start) <= FEW or self.monotonic() - learned_at >= TELLING

    def known(self, request: ClaimRequest) -> Sequence[Floor]:
        """What the last claim of this kind saw."""
        return self._known.get(_kind(request), ())

    def of_look(self, requests: Sequence[ClaimRequest]) -> tuple[list[Floor], list[Kind]]:
        """
        Where a look for all of *requests* together is to start, and for which kinds that is the edge.

        It meets suspects and others of every lane as soon as one request is for suspects and one is not; those that
        nobody asked for are not read from the edge.
        """
        starts = {_kind(request): self.of(request) for request in requests}
        met = {(lane, suspects) for lane, _ in starts for _, suspects in starts}
        floors = [floor for kind in met for floor in starts.get(kind, self._known.get(kind, ()))]
        return floors, [kind for kind, start in starts.items() if not start]

    def of(self, request: ClaimRequest) -> Sequence[Floor]:
        """Where a claim is to start; nothing: at the edge, because a sweep is due."""
        kind = _kind(request)
        if self.monotonic() >= self._sweep_at.get(kind, float("-inf")):
            return ()
        return self._known.get(kind, ())

    def learn(self, request: ClaimRequest, seen: Sequence[Floor], *, swept_since: float | None) -> None:
        """Keep what a claim has seen; *swept_since*: it began then, at the edge."""
        kind = _kind(request)
        if swept_since is not None:
            self._swept(kind, swept_since)
        self._known[kind] = seen
        self._learned_at[kind] = self.monotonic()

    def looked(
        self, from_edge: Sequence[Kind], heads: Mapping[tuple[int, int], datetime | None], *, since: float
    ) -> None:
        """
        A look that began at *since*, for some kinds at the edge, found these due times, by stream and priority.

        Where one is below a floor, no floor counts any more: the next claim begins at the edge and sees what there is.
        """
        for kind in from_edge:
            if any((heads.get(floor[:2]) or floor[3]) < floor[3] for floor in self._known.get(kind, ())):
                self._known[kind] = ()
            else:
                self._swept(kind, since)

    def _swept(self, kind: Kind, since: float) -> None:
        now = self.monotonic()
        self._sweep_at[kind] = now + (now - since) / SWEEPING


def _kind(request: ClaimRequest) -> Kind:
    return request.lane, request.suspects
