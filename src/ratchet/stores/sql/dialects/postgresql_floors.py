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
  clock) is found by a claim from the edge, which is made as often as it costs no more than a twentieth of
  the time: every few claims where there is nothing to read over, every ten seconds where it takes half of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from ratchet.model.claim import ClaimRequest
from ratchet.stores.sql.dialects.postgresql_arrays import binary_array

#: How long after its due time a new job may become visible without raising an epoch.
MARGIN = "interval '2 seconds'"

#: A sweep costs at most this part of the time.
SWEEPING = 0.05

#: So many branches are told of; more cost more than they save.
MOST_BRANCHES = 2_500

#: What was told of more than a few branches is good enough for so many seconds: to read over what was claimed since
#: costs less than to tell of every branch again.
FEW, TELLING = 25, 0.2

#: The stream, the priority, the stream's epoch, and the first job that may be waiting: due time and id.
Floor = tuple[int, int, int, datetime, UUID]

#: The beginning of every branch.
EDGE = (datetime.min.replace(tzinfo=UTC), UUID(int=0))

_COLUMNS = (("stream_id", "int"), ("priority", "int"), ("epoch", "int"), ("at", "time"), ("id", "uuid"))

#: A FROM item; its binds are those of `floor_params`.
FLOORS = """unnest(CAST(:floor_stream_id AS bigint[]), CAST(:floor_priority AS bigint[]), CAST(:floor_epoch AS bigint[]),
                 CAST(:floor_at AS timestamptz[]), CAST(:floor_id AS uuid[])) f (stream_id, priority, epoch, at, id)"""


def floor_params(floors: Sequence[Floor]) -> dict[str, object]:
    """The binds of FLOORS. Arrays, not a row set: the text stays the same, and with it the prepared plan."""
    columns: Iterable[Sequence[object]] = zip(*floors, strict=True) if floors else [()] * len(_COLUMNS)
    return {
        f"floor_{name}": binary_array(column, kind)  # type: ignore[arg-type]  # the kinds are written above
        for (name, kind), column in zip(_COLUMNS, columns, strict=True)
    }


class Floors:
    """What the claims of one store have seen, by lane. Safe for many threads: each entry is replaced as a whole."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self._known: dict[object, Sequence[Floor]] = {}
        self._sweep_at: dict[object, float] = {}
        self._learned_at: dict[object, float] = {}
        self._encoded: tuple[Sequence[Floor], dict[str, object]] = ((), floor_params(()))

    def params(self, start: Sequence[Floor]) -> dict[str, object]:
        """The binds of FLOORS, encoded once for all claims that start there."""
        encoded = self._encoded
        if encoded[0] is not start:
            self._encoded = encoded = (start, floor_params(start))
        return encoded[1]

    def wants(self, request: ClaimRequest, start: Sequence[Floor]) -> bool:
        """True where a claim from *start* is to tell what it sees."""
        learned_at = self._learned_at.get((request.lane, request.suspects), float("-inf"))
        return len(start) <= FEW or self.monotonic() - learned_at >= TELLING

    def known(self, request: ClaimRequest) -> Sequence[Floor]:
        """What the last claim of this kind saw."""
        return self._known.get((request.lane, request.suspects), ())

    def of(self, request: ClaimRequest) -> Sequence[Floor]:
        """Where a claim is to start; nothing: at the edge, because a sweep is due."""
        kind = (request.lane, request.suspects)
        if self.monotonic() >= self._sweep_at.get(kind, float("-inf")):
            return ()
        return self._known.get(kind, ())

    def learn(self, request: ClaimRequest, seen: Sequence[Floor], *, swept_since: float | None) -> None:
        """Keep what a claim has seen; *swept_since*: it began then, at the edge."""
        kind = (request.lane, request.suspects)
        if swept_since is not None:
            now = self.monotonic()
            self._sweep_at[kind] = now + (now - swept_since) / SWEEPING
        self._known[kind] = seen
        self._learned_at[kind] = self.monotonic()
