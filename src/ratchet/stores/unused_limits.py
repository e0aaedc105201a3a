"""
What every store goes by that removes limits of keys which no job has any more.

`with_concurrency_key` and `with_rate_key` make limits where jobs are submitted; a key per customer, or per order, makes one
for each. A submission must not pay for the cleaning, and no limit may be missing for a moment while a job that has its
key can start:

1. A limit that was made for a key knows when a submission last *asked* for it, to the day (`ASKED_EVERY`). A process relies on
   what it has asked for an hour. So a limit that nobody has asked for in days is one on which no submitter relies. Whoever
   asks later waits for the transaction that removes it, and makes it anew; or was first, and then the row says so.
2. Jobs that were submitted before still need it, whatever they wait for. Each has its stream, and the stream has the
   key. So a limit stays while a stream has its name that was not set aside days ago, or that a job may have
   (`unused_streams`); but jobs in the archive never run again.
3. A new limit starts with a full rate. So one whose rate is not full yet stays.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from ratchet.model.cadence import Cadence
from ratchet.stores.meters import Meter

#: The time of the last asking is written at most once in so long.
ASKED_EVERY: Final = timedelta(days=1)


def is_known(
    wanted: tuple[int | None, int | None, timedelta | None],
    stored: tuple[int | None, int | None, timedelta | None],
    asked_at: datetime | None,
    now: datetime,
) -> bool:
    """
    True where a submission that asks for a limit has nothing to write.

    *wanted* and *stored*: how many at once, how many per period, and the period. *asked_at* is None where a person has set it.
    """
    same = all(one is None or one == other for one, other in zip(wanted, stored, strict=True))
    return same and (asked_at is None or now - asked_at < ASKED_EVERY)


def is_full(meter: Meter | None, now: datetime) -> bool:
    """True where a rate holds nothing back: a new one would let through as much."""
    return meter is None or (
        isinstance(meter, Cadence) and meter.level >= meter.rate and meter.next_at <= now
    )
