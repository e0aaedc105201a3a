"""Small integers for stream keys: each job's document holds the number of its stream."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import json
from msgspec.structs import asdict, astuple
from pymongo.errors import DuplicateKeyError

from ratchet.model.job import StreamKey
from ratchet.model.status import Lane
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import Names
from ratchet.stores.stream_cache import StreamCache

if TYPE_CHECKING:
    from ratchet.stores.mongo.connections import Collections
    from ratchet.stores.mongo.database import Database

log = logging.getLogger("ratchet.stores.mongo")

#: A stream that is in use is marked so once in a while.
MARKED_EVERY: Final = timedelta(days=1)

#: Keys of ids kept in memory; claims read them, and a fairness key per customer can make many.
_KEYS_KEPT: Final = 40_000


class StreamRegistry(StreamCache):
    """
    Finds the ids of stream keys, and the keys of ids; makes a stream that is missing.

    A missing stream is made outside of any transaction, so that two submitters of a new queue do not conflict.
    """

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database

    def id_of(self, key: StreamKey) -> int:
        """The id of a stream, made if it is missing."""
        found = self.known(key)
        if found is None:
            found = _find_or_make(self._database.collections(), key)
            self.remember({key: found})
        return found

    def look_up(self, keys: Iterable[StreamKey]) -> None:
        """Look up the ids of these together, where many are unknown; what has to be marked as used is left to `id_of`."""
        known = self.known_ids()
        missing = {_hash(key): key for key in keys if key not in known}
        if len(missing) < 2:
            return
        fresh = {
            "key_hash": {"$in": list(missing)},
            "used_at": {"$gte": micros(datetime.now(UTC) - MARKED_EVERY)},
        }
        found = self._database.read(
            lambda collections: list(collections[Names.STREAMS].find(fresh, {"key_hash": 1}))
        )
        self.remember({missing[one["key_hash"]]: int(one["_id"]) for one in found})

    def make(self, keys: Iterable[StreamKey]) -> None:
        """Make what is missing of these, before a transaction that needs them."""
        known = self.known_ids()
        missing = {key for key in keys if key not in known}
        if missing:
            self._database.read(lambda _: [self.id_of(key) for key in missing])

    def key_of(self, stream_id: int) -> StreamKey:
        """
        The key of a stream; the default one where it is gone.

        It can be gone where the clock of a submitter was days ahead (`MongoStreams.purge_streams`). One such job must
        not make a whole page unreadable.
        """
        found = self.known_key(stream_id)
        if found is None:
            document = self._database.collections()[Names.STREAMS].find_one({"_id": stream_id})
            if document is None:
                log.warning("there is no stream %s; its jobs are shown in the default queue", stream_id)
                return StreamKey()
            found = key_of(document)
            self.knows(stream_id, found)
        return found

    def knows(self, stream_id: int, key: StreamKey) -> None:
        """Remember a stream that was read; perhaps it was set aside, so its key does not lead to it."""
        if self.known_key(stream_id) is None:
            if len(self._keys) >= _KEYS_KEPT:
                with self._lock:
                    self._keys.clear()
            self.remember_key(stream_id, key)


def _hash(key: StreamKey) -> str:
    return hashlib.sha256(json.encode(astuple(key))).hexdigest()


def key_of(document: Document) -> StreamKey:
    """The key of a stream's document."""
    return StreamKey(
        queue=document["queue"],
        lane=Lane(document["lane"]),
        resource=document.get("resource"),
        breaker=document.get("breaker"),
        limit_key=document.get("limit_key"),
        fairness_key=document.get("fairness_key"),
        suspect=document["suspect"],
        parked_target=document.get("parked_target"),
    )


def _find_or_make(collections: Collections, key: StreamKey) -> int:
    streams = collections[Names.STREAMS]
    hashed = _hash(key)
    parts = {name: value for name, value in asdict(key).items() if value is not None}
    now = datetime.now(UTC)
    while True:
        found = streams.find_one({"key_hash": hashed}, {"used_at": 1})
        if found is not None:
            if found.get("used_at", 0) < micros(now - MARKED_EVERY):
                streams.update_one(
                    {"_id": found["_id"], "key_hash": hashed}, {"$set": {"used_at": micros(now)}}
                )
            return int(found["_id"])
        last = streams.find_one({}, {"_id": 1}, sort=[("_id", -1)])
        number = 1 if last is None else int(last["_id"]) + 1
        try:
            streams.insert_one(
                {"_id": number, "key_hash": hashed, **parts, "lane": key.lane.value, "used_at": micros(now)}
            )
        except DuplicateKeyError:
            continue  # somebody has made it, or taken the number
        return number
