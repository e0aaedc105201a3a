"""
Streams in SQL: queues that can be paused, and streams that no job uses any more.

An unused stream is first set aside and deleted some days later. A key per customer, or per order, makes a stream for
each. A claim never meets a stream without jobs, but the rows would stay for ever. A submission must not pay for the
cleaning: it has the id of its stream from a cache, and does not lock the stream's row. So:

1. A stream that nobody has looked up for days, and that has no waiting job, is *set aside*: it gets another
   `stream_key`. The jobs that have it keep it, but whoever looks for its key makes a new one. Two streams of one key
   do no harm: gates and fairness go by the columns that the key is made of.
2. A process relies on a cached id for an hour (`StreamCache`). Days later no job can enter the stream any more, except
   from a transaction that was open all that time.
3. It is *deleted* when no job has it any more that has ended or waits outside of the queue, neither in the table of
   jobs nor in the archive. These tables have no index for that. But ids are in the order of time: what was submitted
   before the stream was set aside is at the old end of each table. Only a few thousand jobs there are looked at; if
   there are more, streams stay until some of these jobs are gone. The newest stream is never deleted, because SQLite
   would use its number again.
4. If a job has entered it all the same, its stream is put back under the same number: as it was, if this process
   knows its key, or else as the default one. The job runs; only its gates may be lost.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from datetime import datetime
from operator import itemgetter

import msgspec

from ratchet.model.cluster import QueueRecord, StreamRecord, own_time
from ratchet.model.job import StreamKey
from ratchet.model.load import COUNTED, Load
from ratchet.stores.sql.claiming.load import read_load
from ratchet.stores.sql.database import Session, SqlPart
from ratchet.stores.sql.rows.stream_registry import KEY_COLUMNS, key_of_row
from ratchet.stores.unreadable import readable
from ratchet.stores.unused_streams import ASIDE, OLDEST, known_until

log = logging.getLogger("ratchet.stores.sql")

FIND_STREAMS = f"SELECT stream_id, epoch, {KEY_COLUMNS} FROM scheduler_stream ORDER BY stream_id"

FIND_PARKED_TARGETS = "SELECT DISTINCT parked_target FROM scheduler_stream WHERE parked_target IS NOT NULL ORDER BY parked_target"

FIND_QUEUES = """
    SELECT s.queue, q.paused, q.paused_at, q.paused_until, q.paused_until_of, s.stream_id
      FROM scheduler_stream s LEFT JOIN scheduler_queue q ON q.queue = s.queue
    UNION ALL
    SELECT queue, paused, paused_at, paused_until, paused_until_of, -1 AS stream_id FROM scheduler_queue
"""
COUNT_BY_STREAM = (
    "SELECT stream_id, status, count(*) AS jobs FROM scheduler_job_queue GROUP BY stream_id, status"
)
LOCK_QUEUE = """
    SELECT paused, paused_at, paused_until, paused_until_of FROM scheduler_queue WHERE queue = :queue {for update}
"""
PAUSE_QUEUE = """
    UPDATE scheduler_queue SET paused = true, paused_at = :now, paused_until = :until, paused_until_of = :until_of
     WHERE queue = :queue
"""
RESUME_QUEUE = """
    UPDATE scheduler_queue SET paused = false, paused_at = NULL, paused_until = NULL, paused_until_of = NULL
     WHERE queue = :queue AND paused
"""

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
_STREAM_COLUMNS = (
    "stream_id", "stream_key", "queue", "lane", "resource", "breaker", "limit_key", "fairness_key", "suspect",
    "parked_target", "created_at",
)  # fmt: skip


class SqlStreams(SqlPart):
    """Reads and cleans up streams; pauses and resumes queues."""

    def streams(self) -> list[StreamRecord]:
        """All streams by id."""
        rows = self.database.read(lambda session: session.rows(FIND_STREAMS))
        return readable(
            rows,
            lambda row: StreamRecord(stream_id=row[0], epoch=row[1], key=key_of_row(row[2:])),
            "scheduler_stream",
            itemgetter(0),
        )

    def parked_targets(self) -> list[str]:
        """The targets for which jobs were ever parked, by name."""
        return [target for (target,) in self.database.read(lambda session: session.rows(FIND_PARKED_TARGETS))]

    def load(self, *, now: datetime, most: int = COUNTED) -> Load:
        """Every stream that has waiting or running jobs, and how many jobs wait and have failed; counted up to *most*."""
        return self.database.read(lambda session: read_load(session, now, most))

    def queues(self, *, counting: bool = True) -> list[QueueRecord]:
        """All queues that were ever used or paused, by name, with counts; without *counting* these are 0."""
        rows, counted = self.database.read(
            lambda s: (s.rows(FIND_QUEUES), s.rows(COUNT_BY_STREAM) if counting else [])
        )
        jobs = {(stream_id, status): count for stream_id, status, count in counted}
        found: dict[str, QueueRecord] = {}
        for name, paused, paused_at, until, until_of, stream_id in rows:
            before = found.get(name)
            found[name] = QueueRecord(
                name=name,
                paused=bool(paused),
                paused_at=paused_at,
                paused_until=own_time(until, until_of, paused_at),
                pending=jobs.get((stream_id, "PENDING"), 0) + (before.pending if before else 0),
                running=jobs.get((stream_id, "RUNNING"), 0) + (before.running if before else 0),
            )
        return [found[name] for name in sorted(found)]

    def pause_queue(self, name: str, *, now: datetime, until: datetime | None = None) -> bool:
        """Close a queue for claims; one row, however many jobs wait in it. True: it was open, or had another time."""
        values = {"queue": name, "now": now, "until": until, "until_of": None if until is None else now}

        def pause(session: Session) -> bool:
            session.insert_rows(
                "scheduler_queue", ("queue", "paused"), [(name, False)], on_conflict_do_nothing=True
            )
            paused, paused_at, old, old_of = session.row(LOCK_QUEUE, {"queue": name}) or (
                False,
                None,
                None,
                None,
            )
            if paused and own_time(old, old_of, paused_at) == until:
                return False
            return session.execute(PAUSE_QUEUE, values) == 1

        return self.change(pause)

    def resume_queue(self, name: str, *, now: datetime) -> bool:
        """Open it again. True: it was paused."""
        return self.change(lambda session: session.execute(RESUME_QUEUE, {"queue": name})) == 1

    def purge_streams(self, *, before: datetime, limit: int, now: datetime) -> int:
        """Set aside what was not used since *before*, delete what was set aside before it; how many, at most *limit*."""
        self._put_streams_back(now)
        deleted = self._delete_streams(before, limit)
        return deleted + self._set_streams_aside(before, limit - deleted, now)

    def _set_streams_aside(self, before: datetime, limit: int, now: datetime) -> int:
        params = {"before": before, "aside": ASIDE, "limit": limit, "newest": self._newest_stream()}
        found = self._stream_ids(FIND_UNUSED, params) if limit > 0 else []

        def work(session: Session) -> int:
            values = [
                {"stream_id": one, "stream_key": _aside(one), "now": now}
                for one in _locked(session, found, before)
            ]
            return sum(session.execute(SET_ASIDE, params) for params in values)

        changed = self.database.run(work) if found else 0
        self.stream_registry.forget(found)
        return changed

    def _delete_streams(self, before: datetime, limit: int) -> int:
        jobs = self.database.read(
            lambda session: [session.rows(sql, {"limit": OLDEST + 1}) for sql in FIND_OLDEST_JOBS]
        )
        until = min([before, *(known_until(rows, before) for rows in jobs)])
        used = {stream_id for rows in jobs for _, stream_id in rows} | set(self._stream_ids(FIND_RUNNING, {}))
        params = {"before": until, "aside": ASIDE, "limit": limit, "newest": self._newest_stream()}
        found = self._stream_ids(FIND_ASIDE, {**params, "used": [0, *sorted(used)]})

        def work(session: Session) -> int:
            free = _locked(session, found, until)
            return sum(session.execute(DELETE_STREAM, {"stream_id": one, "aside": ASIDE}) for one in free)

        deleted = self.database.run(work) if found else 0
        self.stream_registry.forget(found)
        return deleted

    def _put_streams_back(self, now: datetime) -> None:
        # What was deleted was older than the newest. Any other number is damage, and to put it back might use up the numbers.
        lost = [one for one in self._stream_ids(FIND_LOST, {}) if type(one) is int and one > 0]
        lost = [one for one in lost if one < self._newest_stream()]
        if not lost:
            return
        log.error("jobs wait in streams that were deleted (%s); these are put back", lost)
        rows = [
            (one, _aside(one), *_values(self.stream_registry.known_key(one) or StreamKey()), now)
            for one in lost
        ]
        self.database.run(
            lambda session: session.insert_rows(
                "scheduler_stream", _STREAM_COLUMNS, rows, on_conflict_do_nothing=True
            )
        )

    def _newest_stream(self) -> int:
        found = self.database.read(lambda session: session.value(FIND_NEWEST))
        return int(found or 0)

    def _stream_ids(self, sql: str, params: dict[str, object]) -> list[int]:
        return [stream_id for (stream_id,) in self.database.read(lambda session: session.rows(sql, params))]


def _locked(session: Session, stream_ids: list[int], before: datetime) -> list[int]:
    rows = session.rows(LOCK_STREAMS, {"ids": stream_ids, "before": before})
    return [stream_id for (stream_id,) in rows]


def _aside(stream_id: int) -> str:
    return f"{ASIDE} {stream_id}"


def _values(key: StreamKey) -> Collection[object]:
    return [getattr(value, "value", value) for value in msgspec.structs.astuple(key)]
