"""Streams in SQL: the ids of stream keys, and queues that can be paused."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.model.cluster import QueueRecord, StreamRecord
from ratchet.model.job import StreamKey
from ratchet.model.status import Lane
from ratchet.stores.sql.database import Database, Row, Session, SqlPart
from ratchet.stores.trust import Trust

log = logging.getLogger("ratchet.stores.sql")

_COLUMNS = "queue, lane, resource, breaker, limit_key, fairness_key, suspect, parked_target"

FIND_STREAMS_BY_KEY = (
    "SELECT stream_key, stream_id, created_at FROM scheduler_stream WHERE stream_key {in keys text}"
)
# Whoever holds a row for long is using it, and nobody waits for it.
FIND_UNMARKED = """
    SELECT stream_id FROM scheduler_stream
     WHERE stream_id {in ids int} AND created_at < :before ORDER BY stream_id {for update skip locked}
"""
MARK_AS_USED = "UPDATE scheduler_stream SET created_at = :now WHERE stream_id {in ids int}"
FIND_STREAM_BY_ID = f"SELECT {_COLUMNS} FROM scheduler_stream WHERE stream_id = :stream_id {{current}}"
INSERT_STREAM = f"""
    INSERT INTO scheduler_stream (stream_key, {_COLUMNS}, created_at)
    VALUES (:stream_key, :queue, :lane, :resource, :breaker, :limit_key, :fairness_key, :suspect, :parked_target,
            :created_at)
    ON CONFLICT (stream_key) DO NOTHING
"""
FIND_STREAMS = f"SELECT stream_id, epoch, {_COLUMNS} FROM scheduler_stream ORDER BY stream_id"

FIND_PARKED_TARGETS = "SELECT DISTINCT parked_target FROM scheduler_stream WHERE parked_target IS NOT NULL ORDER BY parked_target"

FIND_QUEUES = """
    SELECT s.queue, q.paused, q.paused_at, s.stream_id
      FROM scheduler_stream s LEFT JOIN scheduler_queue q ON q.queue = s.queue
    UNION ALL
    SELECT queue, paused, paused_at, -1 AS stream_id FROM scheduler_queue
"""
COUNT_BY_STREAM = (
    "SELECT stream_id, status, count(*) AS jobs FROM scheduler_job_queue GROUP BY stream_id, status"
)
PAUSE_QUEUE = """
    INSERT INTO scheduler_queue AS q (queue, paused, paused_at) VALUES (:queue, true, :now)
    ON CONFLICT (queue) DO UPDATE SET paused = true, paused_at = :now WHERE NOT q.paused
"""
RESUME_QUEUE = "UPDATE scheduler_queue SET paused = false, paused_at = NULL WHERE queue = :queue AND paused"

#: A stream that is in use is marked so once in a while: `created_at` is when it was made, or used a day after that.
MARKED_EVERY = timedelta(days=1)

#: Keys kept in memory; beyond it the cache starts over (a fairness key per customer can make many).
_CACHED = 20_000


def stream_key(key: StreamKey) -> str:
    """The SHA-256 that stands for a key in its unique index; a key has eight columns, some of them NULL."""
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(key))).hexdigest()


class StreamRegistry:
    """
    Small integers for stream keys, cached in the process.

    A row never changes what its key is made of. It is deleted when no job has used it for days (`unused_streams`): so
    an id is looked up again when this process has not done so for an hour.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._trust = Trust()
        self._trusted: dict[StreamKey, int] = {}
        self._keys: dict[int, StreamKey] = {}

    def id_of(self, session: Session | None, key: StreamKey) -> int:
        """
        The id of a stream, made if it is missing.

        Call it before the transaction that needs it, with None: then a missing row is made in a short
        transaction of its own, so that two submitters do not wait for each other's commit. Inside a
        transaction pass its *session*: SQLite, which has one writer, makes the row there; the others
        use another connection.
        """
        found = self._ids.get(key)
        return found if found is not None else self.ids_of(session, (key,))[key]

    @property
    def _ids(self) -> dict[StreamKey, int]:
        if self._trust.is_over():
            with self._lock:
                self._trusted = {}
        return self._trusted

    def known(self, key: StreamKey) -> int | None:
        """The id of a stream that this process has used before, and not long ago."""
        return self._ids.get(key)

    def known_key(self, stream_id: int) -> StreamKey | None:
        """The key of a stream that this process has met."""
        return self._keys.get(stream_id)

    def forget(self, stream_ids: Iterable[int]) -> None:
        """These streams are no longer there."""
        with self._lock:
            for stream_id in stream_ids:
                key = self._keys.pop(stream_id, None)
                if key is not None and self._trusted.get(key) == stream_id:
                    del self._trusted[key]

    def ids_of(self, session: Session | None, keys: Iterable[StreamKey]) -> Mapping[StreamKey, int]:
        """The ids of many streams, as `id_of` gives them, in one or two statements."""
        wanted, ids = set(keys), self._ids
        found = {key: known for key in wanted if (known := ids.get(key)) is not None}
        if missing := wanted - found.keys():
            if session is not None and self._database.dialect.one_writer:
                made = _find_or_make(session, missing)
                session.on_commit(lambda: self._remember(made))
            else:
                made = self._database.run(lambda own: _find_or_make(own, missing))
                self._remember(made)
            found |= made
        return found

    def key_of(self, stream_id: int, session: Session | None = None) -> StreamKey:
        """The key of a stream; KeyError if there is no such stream."""
        known = self._keys.get(stream_id)
        if known is not None:
            return known

        def find(own: Session) -> Row | None:
            return own.row(FIND_STREAM_BY_ID, {"stream_id": stream_id})

        row = find(session) if session is not None else self._database.read(find)
        if row is None:
            raise KeyError(f"there is no stream {stream_id}")
        key = _key(row)
        if session is None:  # inside a transaction the row may be one that is never committed
            with self._lock:
                self._keys[stream_id] = key  # not its id: a stream that was set aside is not to be used again
        return key

    def needs_permit(self, stream_id: int, session: Session | None = None) -> bool:
        """True where a claim may take permits for the jobs of a stream."""
        try:
            key = self.key_of(stream_id, session)
        except KeyError:
            return True  # a claim that was not made here: look, rather than leak
        return key.resource is not None or key.limit_key is not None

    def recorded_key(self, stream_id: int, session: Session | None = None) -> StreamKey:
        """
        The key of a job's stream; the default one where it is gone.

        It can be gone where the clock of a submitter was days ahead (`unused_streams`). Such a job must not make a
        page unreadable that has others, too.
        """
        try:
            return self.key_of(stream_id, session)
        except KeyError as error:
            log.warning("%s; its jobs are shown in the default queue", error.args[0])
            return StreamKey()

    def _remember(self, made: Mapping[StreamKey, int]) -> None:
        with self._lock:
            if len(self._trusted) + len(made) > _CACHED or len(self._keys) > 2 * _CACHED:
                self._trusted.clear()
                self._keys.clear()
            self._trusted.update(made)
            self._keys.update((stream_id, key) for key, stream_id in made.items())


def _find_or_make(session: Session, keys: set[StreamKey]) -> dict[StreamKey, int]:
    by_hash = {stream_key(key): key for key in keys}
    found = _find(session, by_hash)
    # in the order of the hashes: two transactions that make the same rows must not wait crosswise
    for hashed in sorted(by_hash.keys() - {stream_key(key) for key in found}):
        key = by_hash[hashed]
        params = {**msgspec.structs.asdict(key), "stream_key": hashed, "created_at": datetime.now(UTC)}
        session.execute(INSERT_STREAM, params)
    return found if len(found) == len(keys) else _find(session, by_hash)


def _find(session: Session, by_hash: Mapping[str, StreamKey]) -> dict[StreamKey, int]:
    rows = session.rows(FIND_STREAMS_BY_KEY, {"keys": list(by_hash)})
    now = datetime.now(UTC)
    _mark(session, [stream_id for _, stream_id, used_at in rows if used_at < now - MARKED_EVERY], now)
    return {by_hash[hashed]: stream_id for hashed, stream_id, _ in rows}


def _mark(session: Session, unmarked: list[int], now: datetime) -> None:
    if unmarked:
        free = session.rows(FIND_UNMARKED, {"ids": unmarked, "before": now - MARKED_EVERY})
        if free:
            session.execute(MARK_AS_USED, {"ids": [stream_id for (stream_id,) in free], "now": now})


def _key(row: Row) -> StreamKey:
    queue, lane, resource, breaker, limit_key, fairness_key, suspect, parked_target = row
    return StreamKey(
        queue=queue,
        lane=Lane(lane),
        resource=resource,
        breaker=breaker,
        limit_key=limit_key,
        fairness_key=fairness_key,
        suspect=suspect,
        parked_target=parked_target,
    )


class SqlStreams(SqlPart):
    """Reads streams; pauses and resumes queues."""

    def all_streams(self) -> list[StreamRecord]:
        """All streams by id."""
        rows = self.database.read(lambda session: session.rows(FIND_STREAMS))
        return [StreamRecord(stream_id=row[0], epoch=row[1], key=_key(row[2:])) for row in rows]

    def parked_targets(self) -> list[str]:
        """The targets for which jobs were ever parked, by name."""
        return [target for (target,) in self.database.read(lambda session: session.rows(FIND_PARKED_TARGETS))]

    def queues(self) -> list[QueueRecord]:
        """All queues that were ever used or paused, by name, with counts."""
        rows, counted = self.database.read(lambda s: (s.rows(FIND_QUEUES), s.rows(COUNT_BY_STREAM)))
        jobs = {(stream_id, status): count for stream_id, status, count in counted}
        found: dict[str, QueueRecord] = {}
        for name, paused, paused_at, stream_id in rows:
            before = found.get(name)
            found[name] = QueueRecord(
                name=name,
                paused=bool(paused),
                paused_at=paused_at,
                pending=jobs.get((stream_id, "PENDING"), 0) + (before.pending if before else 0),
                running=jobs.get((stream_id, "RUNNING"), 0) + (before.running if before else 0),
            )
        return [found[name] for name in sorted(found)]

    def pause_queue(self, name: str, *, now: datetime) -> bool:
        """Close a queue for claims; one write, however many jobs wait in it. True: it was open."""
        return (
            self.database.run(lambda session: session.execute(PAUSE_QUEUE, {"queue": name, "now": now})) == 1
        )

    def resume_queue(self, name: str, *, now: datetime) -> bool:
        """Open it again. True: it was paused."""
        return self.database.run(lambda session: session.execute(RESUME_QUEUE, {"queue": name})) == 1
