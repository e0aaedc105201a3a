"""
Streams that no job uses any more, in SQL: set aside, and deleted some days later.

A key per customer, or per order, makes a stream for each. A claim does not meet those without jobs, but they would be
kept for ever. A submission must not pay for that: it has the id of its stream from a cache, and does not lock the
stream's row. So:

1. A stream that nobody has looked up for days, and that has no waiting job, is *set aside*: it gets another
   `stream_key`. It is all there for the jobs that have it, but whoever looks for its key makes a new one. Two streams
   of one key are as good as one: gates and turns go by what the key is made of.
2. Processes believe a cached id for an hour (`StreamRegistry`). Days later no job can come into it any more, but
   from a transaction that was open all that time.
3. It is *deleted* when also no job that has ended, or waits outside of the queue, has it: neither in the table of jobs
   nor in the archive. These have no index for it. But ids go by time: what was submitted before the stream was set
   aside stands at the old end of each table, and more than a few thousand jobs are not looked at: then streams wait
   until some of these jobs are gone. The newest stream is never deleted, because SQLite would use its number again.
4. Should a job have come all the same, its stream is put back under the same number: as it was, if this process
   knows it, or as the default one. The job runs; only its gates may be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime

import msgspec

from ratchet.model.job import StreamKey
from ratchet.stores.sql.database import Session, SqlPart
from ratchet.stores.unused_streams import ASIDE, OLDEST, known_until

log = logging.getLogger("ratchet.stores.sql")

_NOTHING_WAITS = """NOT EXISTS (SELECT 1 FROM scheduler_job_queue q
                        WHERE q.stream_id = s.stream_id AND q.status = 'PENDING')"""

FIND_UNUSED = f"""
    SELECT s.stream_id FROM scheduler_stream s
     WHERE s.created_at < :before AND s.stream_key < :aside AND s.stream_id < :newest AND {_NOTHING_WAITS}
     ORDER BY s.stream_id LIMIT :limit
"""
# a row that somebody holds is in use
LOCK_STREAMS = """
    SELECT stream_id FROM scheduler_stream
     WHERE stream_id {in ids int} AND created_at < :before ORDER BY stream_id {for update skip locked}
"""
SET_ASIDE = """
    UPDATE scheduler_stream SET stream_key = :stream_key, created_at = :now WHERE stream_id = :stream_id
"""
FIND_ASIDE = f"""
    SELECT s.stream_id FROM scheduler_stream s
     WHERE s.created_at < :before AND s.stream_key >= :aside AND s.stream_id < :newest
       AND s.stream_id {{not in used int}} AND {_NOTHING_WAITS}
     ORDER BY s.stream_id LIMIT :limit
"""
DELETE_STREAM = "DELETE FROM scheduler_stream WHERE stream_id = :stream_id AND stream_key >= :aside"
FIND_NEWEST = "SELECT max(stream_id) AS newest FROM scheduler_stream"
FIND_OLDEST_JOBS = (
    "SELECT job_id, stream_id FROM scheduler_job ORDER BY job_id LIMIT :limit",
    "SELECT job_id, stream_id FROM scheduler_job_archive ORDER BY job_id LIMIT :limit",
)
FIND_RUNNING = "SELECT DISTINCT stream_id FROM scheduler_job_queue WHERE picked_by IS NOT NULL"
FIND_LOST = """
    SELECT DISTINCT q.stream_id FROM scheduler_job_queue q
     WHERE NOT EXISTS (SELECT 1 FROM scheduler_stream s WHERE s.stream_id = q.stream_id)
"""
COLUMNS = (
    "stream_id", "stream_key", "queue", "lane", "resource", "breaker", "limit_key", "fairness_key", "suspect",
    "parked_target", "created_at",
)  # fmt: skip


class SqlUnusedStreams(SqlPart):
    """Sets streams aside, deletes them, and puts back what a job still needs."""

    def purge_streams(self, *, before: datetime, limit: int, now: datetime) -> int:
        """Set aside what was not used since *before*, delete what was set aside before it; how many, at most *limit*."""
        self._put_back(now)
        deleted = self._delete(before, limit)
        return deleted + self._set_aside(before, limit - deleted, now)

    def _set_aside(self, before: datetime, limit: int, now: datetime) -> int:
        params = {"before": before, "aside": ASIDE, "limit": limit, "newest": self._newest()}
        found = self._ids(FIND_UNUSED, params) if limit > 0 else []

        def work(session: Session) -> int:
            values = [
                {"stream_id": one, "stream_key": _aside(one), "now": now}
                for one in _locked(session, found, before)
            ]
            return sum(session.execute(SET_ASIDE, params) for params in values)

        changed = self.database.run(work) if found else 0
        self.streams.forget(found)
        return changed

    def _delete(self, before: datetime, limit: int) -> int:
        jobs = self.database.read(
            lambda session: [session.rows(sql, {"limit": OLDEST + 1}) for sql in FIND_OLDEST_JOBS]
        )
        until = min([before, *(known_until(rows, before) for rows in jobs)])
        used = {stream_id for rows in jobs for _, stream_id in rows} | set(self._ids(FIND_RUNNING, {}))
        params = {"before": until, "aside": ASIDE, "limit": limit, "newest": self._newest()}
        found = self._ids(FIND_ASIDE, {**params, "used": [0, *sorted(used)]})

        def work(session: Session) -> int:
            free = _locked(session, found, until)
            return sum(session.execute(DELETE_STREAM, {"stream_id": one, "aside": ASIDE}) for one in free)

        deleted = self.database.run(work) if found else 0
        self.streams.forget(found)
        return deleted

    def _put_back(self, now: datetime) -> None:
        lost = self._ids(FIND_LOST, {})
        if not lost:
            return
        log.error("jobs wait in streams that were deleted (%s); these are put back", lost)
        rows = [(one, _aside(one), *_values(self.streams.known_key(one) or StreamKey()), now) for one in lost]
        self.database.run(
            lambda session: session.insert_rows(
                "scheduler_stream", COLUMNS, rows, on_conflict_do_nothing=True
            )
        )

    def _newest(self) -> int:
        found = self.database.read(lambda session: session.value(FIND_NEWEST))
        return int(found or 0)

    def _ids(self, sql: str, params: dict[str, object]) -> list[int]:
        return [stream_id for (stream_id,) in self.database.read(lambda session: session.rows(sql, params))]


def _locked(session: Session, stream_ids: list[int], before: datetime) -> list[int]:
    rows = session.rows(LOCK_STREAMS, {"ids": stream_ids, "before": before})
    return [stream_id for (stream_id,) in rows]


def _aside(stream_id: int) -> str:
    return f"{ASIDE} {stream_id}"


def _values(key: StreamKey) -> Collection[object]:
    return [getattr(value, "value", value) for value in msgspec.structs.astuple(key)]
