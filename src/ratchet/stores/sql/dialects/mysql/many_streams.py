"""
Which streams have waiting jobs, on MySQL with very many streams.

Of few streams, each is looked at. A store with a key for each customer has thousands, most of them without jobs.
MySQL cannot walk an index from one value to the next in a statement, but it can skip the values of a list: so the
streams that had jobs are remembered, and one question finds jobs of all other streams, without naming these.
Measured, where three streams have jobs: a claim of 20 takes 17 % less CPU among 150 streams, 2.7 times less among
1,000, 6.8 times less among 3,000.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

from ratchet.stores.sql.database import Session

#: Up to so many streams, each is looked at.
FEW_STREAMS = 100

#: No stream has this number.
COUNTED = -1
#: One more row of a look: how many streams there are, up to one more than a few.
COUNT_STREAMS = f"""
    SELECT {COUNTED}, (SELECT count(*) FROM (SELECT 1 FROM scheduler_stream LIMIT {FEW_STREAMS + 1}) n)
"""

# The server skips the ranges of the index that the list names; beyond a thousand values it does not.
FIND_OTHERS = """
    SELECT q.stream_id FROM scheduler_job_queue q FORCE INDEX (idx_claim_executable)
     WHERE q.status = 'PENDING' AND q.stream_id > :after AND q.stream_id <= :until AND q.stream_id {not in known int}
     LIMIT :most
"""
FIND_BUSY = """
    SELECT s.stream_id FROM scheduler_stream s
     WHERE EXISTS (SELECT 1 FROM scheduler_job_queue q FORCE INDEX (idx_claim_executable)
                    WHERE q.status = 'PENDING' AND q.stream_id = s.stream_id)
"""
FIND_BUSY_AMONG = f"{FIND_BUSY} AND s.stream_id {{in known int}}"

_RANGES = 500
_JOBS = 100  # that one question about others returns
_QUESTIONS = 8  # about others; where these still find some, every stream is looked at
_FORGET = 2.0  # seconds after which streams without jobs are forgotten
_LAST = 2**31 - 1


class BusyStreams:
    """The streams that have waiting jobs, of all lanes and queues. Safe for many threads."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.are_many = False  # so many streams that remembering pays
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known: frozenset[int] = frozenset()
        self._forget_at = float("-inf")

    def counted(self, streams: int) -> None:
        """Keep what `COUNT_STREAMS` found."""
        self.are_many = streams > FEW_STREAMS

    def find(self, session: Session) -> list[int]:
        """Every stream that has waiting jobs now, and perhaps some that had."""
        with self._lock:
            known, forget = self._known, self._monotonic() >= self._forget_at
            if forget:
                self._forget_at = self._monotonic() + _FORGET
        if forget and known:
            known = frozenset(_ids(session.rows(FIND_BUSY_AMONG, {"known": sorted(known)})))
        found = known | self._others(session, known)
        with self._lock:
            self._known = found if forget else self._known | found
        return sorted(found)

    def _others(self, session: Session, known: frozenset[int]) -> frozenset[int]:
        found: set[int] = set()
        questions = _QUESTIONS
        for after, until, listed in _portions(sorted(known)):
            while True:
                # a list is never empty: no stream has the number 0
                params = {"after": after, "until": until, "known": [0, *listed, *found], "most": _JOBS}
                others = set(_ids(session.rows(FIND_OTHERS, params)))
                if not others:
                    break
                found |= others
                questions -= 1
                if not questions:
                    return frozenset(_ids(session.rows(FIND_BUSY)))
        return frozenset(found)


def _portions(known: Sequence[int]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """The ids of streams as a few ranges (after, until), each with the known ids in it."""
    after = 0
    for start in range(0, max(len(known), 1), _RANGES):
        listed = known[start : start + _RANGES]
        until = listed[-1] if start + _RANGES < len(known) else _LAST
        yield after, until, listed
        after = until


def _ids(rows: Sequence[tuple[int, ...]]) -> Iterator[int]:
    return (row[0] for row in rows)
