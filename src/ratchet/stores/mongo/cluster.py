"""Nodes and locks in MongoDB: beats, rescue, leaving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Final
from uuid import UUID

from msgspec.structs import replace
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from ratchet.model.claim import SUSPECT_AFTER, is_ahead
from ratchet.model.cluster import (
    BeatAnswer,
    LockRecord,
    NodeChange,
    NodeRecord,
    NodeRequest,
    NodeSpec,
    NodeState,
    Rescue,
    dead_process,
    new_node,
    refuse_dead,
    request_of,
)
from ratchet.model.errors import Conflict
from ratchet.model.status import JobStatus
from ratchet.stores.auditing import always
from ratchet.stores.memory.values import check
from ratchet.stores.mongo.abandoned_transactions import end_transactions, held_up
from ratchet.stores.mongo.claims import claims_of
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.values import LOCKS, NODES, Document, length, micros
from ratchet.stores.mongo.schema import RUNNING_INDEX, Names
from ratchet.stores.mongo.transaction.work import Rules, Work
from ratchet.stores.unreadable import readable

_DEAD: Final = NodeState.DEAD.value
_STOP: Final = NodeRequest.STOP.value
_RUNNING: Final = JobStatus.RUNNING.value

#: Seconds of conflicts after which a rescue goes on without the jobs that are in its way.
_HELD_UP_AFTER: Final = 1.0

#: How long after its end the server removes a lock that was not given back.
_FORGOTTEN: Final = timedelta(days=1)


class MongoCluster(MongoPart):
    """Nodes, and the locks they take."""

    # --- beats ----------------------------------------------------------------------------------

    def register(self, node: NodeSpec, *, now: datetime) -> None:
        """Create the node's document with beat 0, ACTIVE; one of the same incarnation is left alone."""
        check((now, node), "now")
        record = new_node(node, now)

        def register(collections: Collections) -> None:
            try:
                collections[Names.NODES].insert_one(NODES.document(record))
            except DuplicateKeyError:
                pass  # this very call, sent again after a lost answer

        self.database.write(register)

    def beat(
        self,
        node_id: str,
        *,
        now: datetime,
        change: NodeChange | None = None,
        known: Sequence[UUID] | None = None,
    ) -> BeatAnswer:
        """
        Raise the beat counter and read back the node's claims, of *known* jobs or all; a DEAD or missing document is not changed.

        The claims are read after the beat. A rescue that comes between has taken them all, and the next beat
        reports it.
        """
        check(now, "now")

        def beat(collections: Collections) -> BeatAnswer:
            found = collections[Names.NODES].find_one_and_update(
                {"_id": node_id, "state": {"$ne": _DEAD}},
                _beaten(now, change),
                {"clock": 1, "request": 1},
                return_document=ReturnDocument.AFTER,
            )
            if found is None:
                return BeatAnswer(alive=False)
            claims = claims_of(collections, node_id, known)
            return BeatAnswer(
                alive=True,
                claims=claims,
                database_time=found["clock"],
                request=request_of(found.get("request")),
            )

        return self.database.write(beat)

    def beat_only(self, node_ids: Sequence[str], *, now: datetime) -> set[str]:
        """Raise the counters of several nodes without reading claims; those that are alive."""
        check(now, "now")
        alive = {"_id": {"$in": list(node_ids)}, "state": {"$ne": _DEAD}}

        def beat(collections: Collections) -> set[str]:
            nodes = collections[Names.NODES]
            if not node_ids or not nodes.update_many(alive, _beaten(now)).matched_count:
                return set()
            return {str(one["_id"]) for one in nodes.find(alive, {"_id": 1})}

        return self.database.write(beat)

    def set_node_state(self, node_id: str, state: NodeState, *, now: datetime) -> bool:
        """ACTIVE to DRAINING and the like; False if the node is DEAD or missing."""
        check(now, "now")
        refuse_dead(state)
        living = {"_id": node_id, "state": {"$ne": _DEAD}}
        change = {"$set": {"state": state.value}}
        return self.database.write(lambda c: c[Names.NODES].update_one(living, change).matched_count > 0)

    def request_of_node(self, node_id: str, request: NodeRequest | None, *, now: datetime) -> bool:
        """Store what a person asks of a node, or take it back; False if the node is DEAD or missing."""
        check(now, "now")
        living = {"_id": node_id, "state": {"$ne": _DEAD}}
        asked = None if request is None else request.value
        change: list[Document] = [
            {"$set": {"request": {"$cond": [{"$eq": ["$request", _STOP]}, _STOP, {"$literal": asked}]}}}
        ]

        def ask(work: Work) -> bool:
            done = work.write(
                Names.NODES, lambda nodes: nodes.update_one(living, change, session=work.session)
            )
            return bool(done.matched_count)

        return self.change(ask)

    def nodes(self, *, counting: bool = True) -> list[NodeRecord]:
        """All nodes, by start time, with the number of jobs each is running; 0 where that is not asked for."""

        def ask(collections: Collections) -> list[NodeRecord]:
            found = readable(collections[Names.NODES].find(), NODES.value, Names.NODES, itemgetter("_id"))
            found.sort(key=lambda node: (node.started_at, node.node_id))
            if not counting:
                return found
            running = _running(collections)
            return [replace(node, running=running.get(node.node_id, 0)) for node in found]

        return self.database.read(ask)

    def database_time(self) -> datetime:
        """The primary's clock."""
        return self.database.clock()

    # --- the end of nodes -----------------------------------------------------------------------

    def rescue(
        self,
        node_id: str,
        *,
        seen_beat: int,
        by: str,
        max_crashes: int,
        now: datetime,
        ran: Mapping[UUID, UUID] | None = None,
        seen: str | None = None,
    ) -> Rescue | None:
        """
        Declare a node dead and take its work back, in one transaction.

        A job that an open transaction has changed makes the whole rescue fail. Where that does not end soon, the
        rescue leaves such jobs out, and takes them back once that transaction has ended.
        """
        check(now, "now")
        watched = {"_id": node_id, "beat": seen_beat}
        node = self.database.read(lambda c: c[Names.NODES].find_one(watched, {"state": 1}))
        is_dead = node is not None and node["state"] == _DEAD
        if node is None or (is_dead and not self._running_on(node_id)):
            return None
        self._make_suspect_streams(node_id)

        def take_back(without: frozenset[UUID], retry_for: float) -> Rescue | None:
            def work(work: Work) -> Rescue | None:
                node = work.nodes.get(node_id)
                if node is not None and node.beat == seen_beat:
                    _load_running(work, node_id)
                    if ran is None:
                        _load_doubts(work, node_id)
                return Rules(work).rescue(
                    node_id,
                    seen_beat=seen_beat,
                    by=by,
                    max_crashes=max_crashes,
                    now=now,
                    ran=ran,
                    seen=seen,
                    held_up=without,
                )

            return self.database.run(work, retry_for=retry_for)

        try:
            rescue = take_back(self._held_up(node_id) if is_dead else frozenset(), _HELD_UP_AFTER)
        except Conflict:
            rescue = take_back(self._held_up(node_id), self.database.RETRY_FOR)
        if rescue is not None and rescue.held_up and self._end_transactions_of(node_id):
            rest = take_back(self._held_up(node_id), self.database.RETRY_FOR)
            rescue = rescue if rest is None else rescue.followed_by(rest)
        return rescue if rescue is None or rescue.took or not is_dead else None

    def _held_up(self, node_id: str) -> frozenset[UUID]:
        return held_up(self.database, self._running_on(node_id))

    def _running_on(self, node_id: str) -> list[UUID]:
        running = {"node_id": node_id, "status": _RUNNING}
        return self.database.read(lambda c: [one["_id"] for one in c[Names.JOBS].find(running, {"_id": 1})])

    def _end_transactions_of(self, node_id: str) -> bool:
        """End what the process of a dead node has left open, where that can be done; True if there was something."""
        process = dead_process(node_id, self.nodes())
        return process is not None and end_transactions(self.database, process)

    def absent_nodes(self) -> list[str]:
        """Node ids that hold RUNNING jobs, or keys or permits of ended ones, and have no living document."""

        def ask(collections: Collections) -> list[str]:
            holders = set(_running(collections))
            holders |= set(collections[Names.STILL_RUNNING].distinct("node_id"))
            alive = collections[Names.NODES].find({"state": {"$ne": _DEAD}}, {"_id": 1})
            return sorted(holders - {one["_id"] for one in alive})

        return self.database.read(ask)

    def deregister(self, node_id: str, *, now: datetime) -> int:
        """A node leaves: hand back what is still RUNNING (uncounted), free what waits for its code, remove the document."""
        check(now, "now")

        def work(work: Work) -> int:
            _load_running(work, node_id)
            return Rules(work).deregister(node_id, now=now)

        return self.change(work, count=always)

    def purge_nodes(self, *, before: datetime) -> int:
        """Delete DEAD documents older than *before*, unless a late claim has left jobs with them."""
        old = {"state": _DEAD, "rescued_at": {"$lt": micros(before)}}

        def purge(collections: Collections) -> int:
            dead = [one["_id"] for one in collections[Names.NODES].find(old, {"_id": 1})]
            if not dead:
                return 0
            holding = collections[Names.JOBS].distinct(
                "node_id", {"node_id": {"$in": dead}, "status": _RUNNING}
            )
            free = [node_id for node_id in dead if node_id not in holding]
            return collections[Names.NODES].delete_many({"_id": {"$in": free}, **old}).deleted_count

        return self.database.write(purge)

    def _make_suspect_streams(self, node_id: str) -> None:
        """Before the transaction: a stream is made outside of it."""
        crashed = {"node_id": node_id, "status": _RUNNING, "crashes": {"$gte": SUSPECT_AFTER - 1}}
        ids = self.database.read(lambda c: c[Names.JOBS].distinct("stream_id", crashed))
        streams = self.database.streams
        streams.make(
            self.database.read(lambda _: {replace(streams.key_of(one), suspect=True) for one in ids})
        )

    # --- locks ----------------------------------------------------------------------------------

    def acquire_lock(self, name: str, *, holder: str, token: UUID, ttl: timedelta, now: datetime) -> bool:
        """Take the lock if it is free or expired; True also where *token* holds it already (renewed)."""
        check((now, name, holder), "now")
        record = LockRecord(name=name, holder=holder, token=token, locked_at=now, expires_at=now + ttl)
        # by the wall clock: the server compares it with its own, and `now` may be a test's
        forget_at = datetime.now(UTC) + ttl + _FORGOTTEN
        fresh = {**LOCKS.document(record), "forget_at": forget_at}
        renewal = {"holder": holder, "expires_at": micros(now + ttl), "forget_at": forget_at}

        def acquire(collections: Collections) -> bool:
            locks = collections[Names.LOCKS]
            if locks.update_one({"_id": name, "token": token}, {"$set": renewal}).matched_count:
                return True
            expired = {"_id": name, "expires_at": {"$lte": micros(now)}}
            try:
                locks.update_one(expired, {"$set": fresh}, upsert=True)
            except DuplicateKeyError:
                return False  # it is held
            return True

        return self.database.write(acquire)

    def release_lock(self, name: str, *, token: UUID) -> bool:
        """Give the lock back, if *token* still holds it."""
        held = {"_id": name, "token": token}
        return self.database.write(lambda c: c[Names.LOCKS].delete_one(held).deleted_count > 0)

    def lock(self, name: str) -> LockRecord | None:
        """Who holds the lock; a read, so that an idle node writes nothing."""
        found = self.database.read(lambda c: c[Names.LOCKS].find_one({"_id": name}))
        return None if found is None else LOCKS.value(found)


def _beaten(now: datetime, change: NodeChange | None = None) -> list[Document]:
    """One beat more; what the server's clock says comes back with it."""
    values = {"beat": {"$add": ["$beat", 1]}, "last_beat_at": micros(now), "clock": "$$NOW"}
    if change is not None:
        values["beat_interval"] = length(change.beat_interval)
        values["silence"] = length(change.silence)
        values["info"] = {"$literal": change.info}
    return [{"$set": values}]


def _running(collections: Collections) -> dict[str, int]:
    """How many jobs each node runs. Without the hint the server would read all jobs, the history included."""
    running = {"$match": {"status": _RUNNING}}
    grouped = {"$group": {"_id": "$node_id", "jobs": {"$sum": 1}}}
    found = collections[Names.JOBS].aggregate([running, grouped], hint=RUNNING_INDEX)
    return {one["_id"]: int(one["jobs"]) for one in found}


def _load_doubts(work: Work, node_id: str) -> None:
    """The runs of jobs that were claimed ahead: how often have they been in doubt?"""
    work.runs_of.load(
        job_id for job_id in work.running_on.of(node_id) if is_ahead(work.jobs[job_id].claim_id)
    )


def _load_running(work: Work, node_id: str) -> None:
    ids = work.running_on.of(node_id)
    work.load_jobs(ids)
    work.permits.load_all({"node_id": node_id})
