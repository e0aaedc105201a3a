"""
Streams and queues in MongoDB.

A stream that no job uses any more is set aside, and deleted some days later: by the same steps, and for the same
reasons, as in the SQL stores. A stream that is set aside has another ``key_hash``. A transaction is never open for
longer than a minute here.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec.structs import asdict
from pymongo import UpdateOne
from pymongo.errors import DuplicateKeyError

from ratchet.model.cluster import QueueRecord, StreamRecord
from ratchet.model.errors import Conflict
from ratchet.model.job import StreamKey
from ratchet.model.load import COUNTED, Load
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.claiming.load import read_load
from ratchet.stores.mongo.claiming.many_streams import with_jobs_among
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.stream_registry import key_of
from ratchet.stores.mongo.documents.values import Document, micros, pause_end, time_or_none
from ratchet.stores.mongo.schema import CLAIM_INDEX, RUNNING_INDEX, Names
from ratchet.stores.mongo.transaction.work import Work
from ratchet.stores.unused_streams import ASIDE, OLDEST, known_until

log = logging.getLogger("ratchet.stores.mongo")

#: Streams that one purge looks at; those with waiting jobs among them are few.
_LOOKED_AT: Final = 10_000

#: The statuses of jobs that are waiting or running, and the index that holds those alone.
_HOT: Final = {JobStatus.PENDING.value: CLAIM_INDEX, JobStatus.RUNNING.value: RUNNING_INDEX}


class MongoStreams(MongoPart):
    """Reads streams, deletes those that no job uses; pauses and resumes queues."""

    def streams(self) -> list[StreamRecord]:
        """All streams by id."""
        return self.database.read(
            lambda collections: [
                StreamRecord(stream_id=document["_id"], key=key_of(document), epoch=0)
                for document in collections[Names.STREAMS].find().sort("_id", 1)
            ]
        )

    def parked_targets(self) -> list[str]:
        """The targets for which jobs were ever parked, by name."""
        return self.database.read(
            lambda collections: sorted(
                collections[Names.STREAMS].distinct("parked_target", {"parked_target": {"$exists": True}})
            )
        )

    def load(self, *, now: datetime, most: int = COUNTED) -> Load:
        """Every stream that has waiting or running jobs, and how many jobs wait and have failed; counted up to *most*."""
        return self.database.read(lambda collections: read_load(collections, now, most))

    def queues(self, *, counting: bool = True) -> list[QueueRecord]:
        """All queues that were ever used or paused, by name, with counts; without *counting* these are 0."""

        def ask(collections: Collections) -> list[QueueRecord]:
            queue_of = {one["_id"]: str(one["queue"]) for one in collections[Names.STREAMS].find()}
            paused = {str(one["_id"]): one for one in collections[Names.QUEUES].find()}
            counts: dict[tuple[str, str], int] = {}
            for status, index in _HOT.items() if counting else ():
                grouped = collections[Names.JOBS].aggregate(
                    [{"$match": {"status": status}}, {"$group": {"_id": "$stream_id", "jobs": {"$sum": 1}}}],
                    hint=index,
                )
                for one in grouped:
                    place = (queue_of.get(one["_id"], ""), status)
                    counts[place] = counts.get(place, 0) + int(one["jobs"])
            return [
                QueueRecord(
                    name=name,
                    paused=bool(paused.get(name, {}).get("paused", False)),
                    pending=counts.get((name, JobStatus.PENDING.value), 0),
                    running=counts.get((name, JobStatus.RUNNING.value), 0),
                    paused_at=time_or_none(paused.get(name, {}).get("paused_at")),
                    paused_until=pause_end(paused.get(name, {})),
                )
                for name in sorted({*queue_of.values(), *paused})
            ]

        return self.database.read(ask)

    def pause_queue(self, name: str, *, now: datetime, until: datetime | None = None) -> bool:
        """Close a queue for claims; one document, however many jobs wait in it. True: it was open, or had another time."""
        stored: Document = {"paused": True, "paused_at": micros(now)}
        change: Document = {"$set": stored, "$unset": {"paused_until": "", "paused_until_of": ""}}
        if until is not None:
            stored |= {"paused_until": micros(until), "paused_until_of": micros(now)}
            change = {"$set": stored}

        def pause(work: Work) -> bool:
            queues = work.collection(Names.QUEUES)
            found = queues.find_one({"_id": name}, session=work.session)
            if found is not None and found.get("paused") is True and pause_end(found) == until:
                return False
            # Who has changed it since this transaction began is in conflict with it, and then what he wrote decides.
            try:
                work.write(
                    Names.QUEUES,
                    lambda queues: queues.update_one(
                        {"_id": name}, change, upsert=True, session=work.session
                    ),
                )
            except DuplicateKeyError as error:
                raise Conflict(f"queue {name!r} is being paused by somebody else") from error
            return True

        return self.change(pause)

    def resume_queue(self, name: str, *, now: datetime) -> bool:
        """Open it again. True: it was paused."""
        change = {
            "$set": {"paused": False},
            "$unset": {"paused_at": "", "paused_until": "", "paused_until_of": ""},
        }

        def resume(work: Work) -> bool:
            paused = {"_id": name, "paused": True}
            done = work.write(
                Names.QUEUES, lambda queues: queues.update_one(paused, change, session=work.session)
            )
            return bool(done.modified_count)

        return self.change(resume)

    # --- unused streams -------------------------------------------------------------------------

    def purge_streams(self, *, before: datetime, limit: int, now: datetime) -> int:
        """Set aside what was not used since *before*, delete what was set aside before it; how many, at most *limit*."""

        def work(collections: Collections) -> int:
            self._put_back(collections, now)
            deleted = self._delete(collections, before, limit)
            return deleted + self._set_aside(collections, before, limit - deleted, now)

        return self.database.write(work)

    def _delete(self, collections: Collections, before: datetime, limit: int) -> int:
        rows = [oldest_jobs(collections, name) for name in (Names.JOBS, Names.ARCHIVE)]
        until = min([before, *(known_until(table, before) for table in rows)])
        used = {stream_id for table in rows for _, stream_id in table} | streams_of_hot_jobs(collections)
        query = {"key_hash": {"$gte": ASIDE}, "used_at": {"$lt": micros(until)}}
        found = _unused(collections, query, limit, used)
        if not found:
            return 0
        gone = collections[Names.STREAMS].delete_many({"_id": {"$in": found}, "key_hash": {"$gte": ASIDE}})
        self.database.streams.forget(found)
        return gone.deleted_count

    def _set_aside(self, collections: Collections, before: datetime, limit: int, now: datetime) -> int:
        old = [{"used_at": {"$lt": micros(before)}}, {"used_at": {"$exists": False}}]
        query: Document = {"key_hash": {"$lt": ASIDE}, "$or": old}
        found = _unused(collections, query, limit, set()) if limit > 0 else []
        changes = [
            UpdateOne(
                {"_id": one, "$or": old}, {"$set": {"key_hash": f"{ASIDE} {one}", "used_at": micros(now)}}
            )
            for one in found
        ]
        self.database.streams.forget(found)
        return collections[Names.STREAMS].bulk_write(changes, ordered=False).modified_count if changes else 0

    def _put_back(self, collections: Collections, now: datetime) -> None:
        hot = sorted(streams_of_hot_jobs(collections))
        there = {one["_id"] for one in collections[Names.STREAMS].find({"_id": {"$in": hot}}, {"_id": 1})}
        newest = collections[Names.STREAMS].find_one({}, {"_id": 1}, sort=[("_id", -1)]) or {"_id": 0}
        # What was deleted was older than the newest. Any other number is damage.
        for lost in [one for one in hot if one not in there and 0 < one < newest["_id"]]:
            log.error("jobs wait in the stream %s, which was deleted; it is put back", lost)
            key = self.database.streams.known_key(lost) or StreamKey()
            parts = {name: value for name, value in asdict(key).items() if value is not None}
            fields = {**parts, "lane": key.lane.value, "key_hash": f"{ASIDE} {lost}", "used_at": micros(now)}
            collections[Names.STREAMS].update_one({"_id": lost}, {"$setOnInsert": fields}, upsert=True)


def _unused(collections: Collections, query: Document, limit: int, used: set[int]) -> list[int]:
    """The first of these streams that have no waiting job, but for the *used* and for the newest one."""
    newest = collections[Names.STREAMS].find_one({}, {"_id": 1}, sort=[("_id", -1)])
    if newest is None:
        return []
    wanted = {**query, "_id": {"$nin": [*used, newest["_id"]]}}
    found = collections[Names.STREAMS].find(wanted, {"_id": 1}).sort("_id", 1).limit(_LOOKED_AT)
    ids = [int(one["_id"]) for one in found]
    unused: list[int] = []
    for start in range(0, len(ids), limit):
        some = ids[start : start + limit]
        waiting = with_jobs_among(collections, some)
        unused += [stream_id for stream_id in some if stream_id not in waiting]
        if len(unused) >= limit:
            break
    return unused[:limit]


def oldest_jobs(collections: Collections, name: str) -> list[tuple[UUID, int]]:
    """The jobs at the old end of a collection, with each stream that they have."""
    # also the stream that a suspect came from
    fields = ("stream_id", "home_stream_id")
    jobs = collections[name].find({}, dict.fromkeys(fields, 1)).sort("_id", 1).limit(OLDEST + 1)
    return [(one["_id"], int(one[field])) for one in jobs for field in fields if field in one]


def streams_of_hot_jobs(collections: Collections) -> set[int]:
    """The streams of all jobs that wait or run."""
    return {
        int(one["_id"])
        for status, index in _HOT.items()
        for one in collections[Names.JOBS].aggregate(
            [{"$match": {"status": status}}, {"$group": {"_id": "$stream_id"}}], hint=index
        )
        if isinstance(one["_id"], int)  # anything else is damage
    }
