"""
Whether a claim on PostgreSQL looks into every stream, or goes by the claim index to those with waiting jobs.

A few streams are looked into one by one, each where the last claim left off (`postgresql_floors`): nothing is read
over. A store with a key for each customer has thousands, most of them without jobs, and every claim would look at
all of them for ever. There the claim walks the claim index instead, from each stream to the next. It is another
statement, not a part of the usual one: to carry it along unused took a fifth of a small claim.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ratchet.stores.sql.claims import FIRST_DUE, find_heads
from ratchet.stores.sql.database import Database
from ratchet.stores.sql.dialects.postgresql.scan_start import FLOORED, floor_at, floor_id

#: So many streams are looked into one by one.
FEW_STREAMS = 100

#: Seconds after which streams are counted again: where they were many, and where claims met none or many.
MANY_LAST, FEW_LAST = 60.0, 10.0

COUNT_STREAMS = f"SELECT count(*) AS streams FROM (SELECT 1 FROM scheduler_stream LIMIT {FEW_STREAMS + 1}) n"

# From each place with waiting jobs to the next in the claim index. Never a join that a plan could turn into a scan.
_WALK = """WITH RECURSIVE busy (stream_id, priority) AS (
                (SELECT q.stream_id, q.priority FROM scheduler_job_queue q
                  WHERE q.status = 'PENDING' ORDER BY q.stream_id, q.priority LIMIT 1)
             UNION ALL
                SELECT n.stream_id, n.priority
                  FROM busy w CROSS JOIN LATERAL (
                       SELECT q.stream_id, q.priority FROM scheduler_job_queue q
                        WHERE q.status = 'PENDING' AND (q.stream_id, q.priority) > (w.stream_id, w.priority)
                        ORDER BY q.stream_id, q.priority LIMIT 1) n
            )"""
_ROW = "CROSS JOIN LATERAL (SELECT * FROM scheduler_stream t WHERE t.stream_id = {}.stream_id LIMIT 1) s"

#: Where streams come from, as *s*, by whether they are many.
STREAMS = {
    False: "scheduler_stream s",
    True: f"""({_WALK}
                SELECT stream_id, array_agg(priority) AS priorities FROM busy GROUP BY stream_id) w {_ROW.format("w")}""",
}
#: The priorities of such a stream that are looked at: a column to carry along, and a FROM item.
_PRIORITIES = {
    False: ("", "(VALUES (4), (3), (2), (1), (0))"),
    True: ("w.priorities, ", "LATERAL unnest(o.priorities)"),
}
_PLACES = {
    False: "scheduler_stream s CROSS JOIN {priorities}",
    True: f"({_WALK} SELECT stream_id, priority AS column1 FROM busy) p {_ROW.format('p')}",
}
_FLOOR = f"({floor_at('f.place', 'p.column1')}, {floor_id('f.place', 'p.column1')})"
#: The look for the heads of all places, by the same. Of fifty keys with jobs of one priority, four in five branches are
#: empty: they are left out.
HEADS = {
    many: "SELECT * FROM ({} OFFSET 0) h WHERE h.scheduled_time IS NOT NULL".format(
        find_heads(
            f"{places} CROSS JOIN LATERAL (SELECT {FLOORED} AS place OFFSET 0) f",
            FIRST_DUE.replace("<bound>", f"AND (q.scheduled_time, q.job_id) >= {_FLOOR}"),
        )
    )
    for many, places in _PLACES.items()
}


def among(claim: str, *, many: bool) -> str:
    """The claim among a few streams, or among many."""
    column, priorities = _PRIORITIES[many]
    parts = {"<streams>": STREAMS[many], "<priorities of>": column, "<priorities>": priorities}
    for mark, part in parts.items():
        claim = claim.replace(mark, part)
    return claim


class Census:
    """Knows whether there are many streams; counts them only when claims have met so many, or none at all."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.found_many = False
        self._monotonic = monotonic
        self._in_doubt = False
        self._count_at = float("-inf")

    def met(self, streams: int) -> None:
        """So many open streams a claim has met; none: perhaps too many to tell of."""
        if not 0 < streams <= FEW_STREAMS:
            self._in_doubt = True

    def take(self, database: Database) -> None:
        """Count, if there is a reason and the last time was not a moment ago."""
        if (self._in_doubt or self.found_many) and self._monotonic() >= self._count_at:
            found = database.read(lambda session: session.value(COUNT_STREAMS))
            self.found_many = found > FEW_STREAMS
            self._in_doubt = False
            self._count_at = self._monotonic() + (MANY_LAST if self.found_many else FEW_LAST)
