"""The ids of stream keys in SQL, found or made."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from ratchet.model.job import StreamKey
from ratchet.model.status import Lane
from ratchet.stores.sql.database import Database, Row, Session
from ratchet.stores.stream_cache import StreamCache
from ratchet.stores.unreadable import checked, faults, shown

log = logging.getLogger("ratchet.stores.sql")

#: The columns that a key is made of.
KEY_COLUMNS = "queue, lane, resource, breaker, limit_key, fairness_key, suspect, parked_target"

FIND_STREAMS_BY_KEY = (
    "SELECT stream_key, stream_id, created_at FROM scheduler_stream WHERE stream_key {in keys text}"
)
# A row that somebody holds for long is in use anyway; nobody waits for it.
FIND_UNMARKED = """
    SELECT stream_id FROM scheduler_stream
     WHERE stream_id {in ids int} AND created_at < :before ORDER BY stream_id {for update skip locked}
"""
MARK_AS_USED = "UPDATE scheduler_stream SET created_at = :now WHERE stream_id {in ids int}"
FIND_STREAM_BY_ID = f"SELECT {KEY_COLUMNS} FROM scheduler_stream WHERE stream_id = :stream_id {{current}}"
FIND_STREAMS_BY_ID = (
    f"SELECT stream_id, {KEY_COLUMNS} FROM scheduler_stream WHERE stream_id {{in ids int}} {{current}}"
)
INSERT_STREAM = f"""
    INSERT INTO scheduler_stream (stream_key, {KEY_COLUMNS}, created_at)
    VALUES (:stream_key, :queue, :lane, :resource, :breaker, :limit_key, :fairness_key, :suspect, :parked_target,
            :created_at)
    ON CONFLICT (stream_key) DO NOTHING
"""

#: A stream in use is marked once a day: `created_at` is when it was made, or when it was last marked.
MARKED_EVERY = timedelta(days=1)


def stream_key(key: StreamKey) -> str:
    """The SHA-256 that stands for a key in its unique index; a key has eight columns, some of them NULL."""
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.astuple(key))).hexdigest()


class StreamRegistry(StreamCache):
    """Finds the ids of stream keys, and the keys of ids; makes a stream that is missing."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    def id_of(self, session: Session | None, key: StreamKey) -> int:
        """
        The id of a stream, made if it is missing.

        Call it before the transaction that needs it, with None: then a missing row is made in a short
        transaction of its own, so that two submitters do not wait for each other's commit. Inside a
        transaction pass its *session*: SQLite, which has one writer, makes the row there; the others
        use another connection.
        """
        found = self.known(key)
        return found if found is not None else self.ids_of(session, (key,))[key]

    def ids_of(self, session: Session | None, keys: Iterable[StreamKey]) -> Mapping[StreamKey, int]:
        """The ids of many streams, as `id_of` gives them, in one or two statements."""
        wanted, ids = set(keys), self.known_ids()
        found = {key: known for key in wanted if (known := ids.get(key)) is not None}
        if missing := wanted - found.keys():
            if session is not None and self._database.dialect.one_writer:
                made = _find_or_make(session, missing)
                session.on_commit(lambda: self.remember(made))
            else:
                made = self._database.run(lambda own: _find_or_make(own, missing))
                self.remember(made)
            found |= made
        return found

    def key_of(self, stream_id: int, session: Session | None = None) -> StreamKey:
        """The key of a stream; KeyError if there is no such stream."""
        if type(stream_id) is not int:
            raise KeyError(f"{shown(stream_id)} is no stream")
        known = self._keys.get(stream_id)
        if known is not None:
            return known

        def find(own: Session) -> Row | None:
            return own.row(FIND_STREAM_BY_ID, {"stream_id": stream_id})

        row = find(session) if session is not None else self._database.read(find)
        if row is None:
            raise KeyError(f"there is no stream {stream_id}")
        try:
            key = checked(key_of_row(row))
        except ValueError as error:
            raise KeyError(f"the stream {stream_id} cannot be read") from error
        if session is None:  # inside a transaction the row may be one that is never committed
            self.remember_key(stream_id, key)
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

        It can be gone where the clock of a submitter was days ahead (`unused_streams`). Such a job must not make
        a page unreadable that shows others too.
        """
        try:
            return self.key_of(stream_id, session)
        except KeyError as error:
            faults.note(f"{error.args[0]}; its jobs are shown in the default queue")
            return StreamKey()

    def recorded_keys(
        self, stream_ids: Iterable[int], session: Session, *, committed: bool = False
    ) -> Mapping[int, StreamKey]:
        """
        The keys of many streams in one statement, as `recorded_key` gives them.

        *committed*: the session only reads, so what it finds is there for good, and is remembered.
        """
        wanted = set(stream_ids)
        found = {one: key for one in wanted if (key := self._keys.get(one)) is not None}
        if missing := [one for one in wanted - found.keys() if type(one) is int]:
            for stream_id, *columns in session.rows(FIND_STREAMS_BY_ID, {"ids": sorted(missing)}):
                try:
                    found[stream_id] = checked(key_of_row(tuple(columns)))
                except ValueError:
                    continue
                if committed:
                    self.remember_key(stream_id, found[stream_id])
        return {one: found[one] if one in found else self.recorded_key(one, session) for one in wanted}


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


def key_of_row(row: Row) -> StreamKey:
    """The key in a row of `KEY_COLUMNS`."""
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
