"""Streams in SQL: the ids of stream keys, and queues that can be paused."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec

from ratchet.model.cluster import QueueRecord, StreamRecord
from ratchet.model.job import StreamKey
from ratchet.model.status import Lane
from ratchet.stores.sql.database import Database, Row, Session, SqlPart

_COLUMNS = "queue, lane, resource, breaker, limit_key, fairness_key, suspect, parked_target"

FIND_STREAMS_BY_KEY = "SELECT stream_key, stream_id FROM scheduler_stream WHERE stream_key {in keys text}"
FIND_STREAM_BY_ID = f"SELECT {_COLUMNS} FROM scheduler_stream WHERE stream_id = :stream_id {{current}}"
INSERT_STREAM = f"""
    INSERT INTO scheduler_stream (stream_key, {_COLUMNS}, created_at)
    VALUES (:stream_key, :queue, :lane, :resource, :breaker, :limit_key, :fairness_key, :suspect, :parked_target,
            :created_at)
    ON CONFLICT (stream_key) DO NOTHING
"""
FIND_STREAMS = f"SELECT stream_id, epoch, {_COLUMNS} FROM scheduler_stream ORDER BY stream_id"

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

#: Keys kept in memory; beyond it the cache starts over (a fairness key per customer can make many).
_CACHED = 20_000


def stream_key(key: StreamKey) -> str:
    """The SHA-256 that stands for a key in its unique index; a key has eight columns, some of them NULL."""
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(key))).hexdigest()


class StreamRegistry:
    """
    Small integers for stream keys, cached in the process.

    Rows are never deleted and never change their key, so what is cached stays true.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._ids: dict[StreamKey, int] = {}
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

    def known(self, key: StreamKey) -> int | None:
        """The id of a stream that this process has used before."""
        return self._ids.get(key)

    def ids_of(self, session: Session | None, keys: Iterable[StreamKey]) -> Mapping[StreamKey, int]:
        """The ids of many streams, as `id_of` gives them, in one or two statements."""
        wanted = set(keys)
        found = {key: known for key in wanted if (known := self._ids.get(key)) is not None}
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
            self._remember({key: stream_id})
        return key

    def _remember(self, made: Mapping[StreamKey, int]) -> None:
        with self._lock:
            if len(self._ids) + len(made) > _CACHED:
                self._ids.clear()
                self._keys.clear()
            self._ids.update(made)
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
    return {by_hash[hashed]: stream_id for hashed, stream_id in rows}


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
