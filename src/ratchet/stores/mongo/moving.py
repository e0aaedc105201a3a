"""MongoDB as one side of a move: its documents in neutral form, the record of the move, and the fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import json
from pymongo import ASCENDING
from pymongo.errors import BulkWriteError

from ratchet.model.errors import StoreError
from ratchet.model.moves import (
    Fence,
    MoveOvertaken,
    MoveRecord,
    NeutralRow,
    RowKind,
    RunningJob,
    same_move,
)
from ratchet.model.status import JobStatus
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.neutral import COLLECTIONS, JOBS, job_in, job_out
from ratchet.stores.mongo.documents.values import Document, time_or_none
from ratchet.stores.mongo.errors import FENCED
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.work import Work

_DUPLICATE: Final = 11000
_THE_MOVE: Final = "move"  # there is one document

#: The collections that nobody writes while a fence holds all writes back; a test compares them with all names.
HELD_BACK: Final = (*JOBS.values(), *(copied.collection for copied in COLLECTIONS.values()))


class MongoMoving(MongoPart):
    """Reads and writes neutral rows, and fences the store off."""

    def neutral_rows(
        self, kind: RowKind, *, after: tuple[Any, ...] | None = None, limit: int
    ) -> list[NeutralRow]:
        """The next rows of a kind."""
        name = JOBS[kind] if kind in JOBS else COLLECTIONS[kind].collection
        beyond = None if after is None else after[0] if kind in JOBS else COLLECTIONS[kind].identity(after)
        query: Document = {} if beyond is None else {"_id": {"$gt": beyond}}

        def ask(collections: Collections) -> list[Document]:
            found = collections[name].find(query, batch_size=limit)
            return list(found.sort("_id", ASCENDING).limit(limit))

        documents = self.database.read(ask)
        if kind in JOBS:
            return [job_out(one, kind, self.database.streams.key_of) for one in documents]
        outward = COLLECTIONS[kind].outward
        return [_readable(outward, one, name) for one in documents]

    def put_rows(
        self, kind: RowKind, rows: Sequence[NeutralRow], *, record: MoveRecord | None = None
    ) -> None:
        """Store rows and how far the move has come, in one transaction, if the move is still this one."""
        if kind in JOBS:
            name, documents = JOBS[kind], [job_in(row, self.database.streams.id_of) for row in rows]
        else:
            copied = COLLECTIONS[kind]
            name, documents = copied.collection, [copied.inward(row) for row in rows]

        def put(collections: Collections) -> None:
            if documents:
                try:
                    collections[name].insert_many(documents, ordered=False)
                except BulkWriteError as error:
                    problems = (error.details or {}).get("writeErrors", ())
                    if any(one.get("code") != _DUPLICATE for one in problems):
                        raise

        def put_of_move(work: Work) -> None:
            assert record is not None
            moves, session = work.collection(Names.MOVES), work.session
            # Written in any case, so that of two calls that put rows, or of this one and whoever takes over, one conflicts.
            found = moves.find_one({"_id": _THE_MOVE}, session=session)
            if found is None or not same_move(_record(found), record):
                raise MoveOvertaken
            work.write(
                Names.MOVES,
                lambda them: them.replace_one({"_id": _THE_MOVE}, _document(record), session=session),
            )
            if documents:
                # a duplicate would end the transaction
                ids = [one["_id"] for one in documents]
                there = work.collection(name).find({"_id": {"$in": ids}}, {"_id": 1}, session=session)
                known = {_hashable(one["_id"]) for one in there}
                new = [one for one in documents if _hashable(one["_id"]) not in known]
                if new:
                    work.write(
                        name,
                        lambda them: them.insert_many(
                            new, ordered=False, bypass_document_validation=True, session=session
                        ),
                    )

        if record is None:
            self.database.read(put)  # harmless to repeat, as a read is
        else:
            self.database.run(put_of_move)

    def move_record(self) -> MoveRecord | None:
        """The move that this store is a side of."""
        found = self.database.read(lambda collections: collections[Names.MOVES].find_one({"_id": _THE_MOVE}))
        return None if found is None else _record(found)

    def save_move(self, record: MoveRecord | None, *, was: MoveRecord | None) -> bool:
        """Write down a move in place of *was*."""

        def save(work: Work) -> bool:
            moves, session = work.collection(Names.MOVES), work.session
            found = moves.find_one({"_id": _THE_MOVE}, session=session)
            if not same_move(None if found is None else _record(found), was):
                return False
            if record is not None:
                document = _document(record)
                work.write(
                    Names.MOVES,
                    lambda them: them.replace_one({"_id": _THE_MOVE}, document, upsert=True, session=session),
                )
            elif was is not None:
                work.write(Names.MOVES, lambda them: them.delete_one({"_id": _THE_MOVE}, session=session))
            return True

        return self.database.run(save)

    def fence_off(self, fence: Fence, reason: str) -> None:
        """
        Validators refuse what would make a document invalid.

        Setting one waits for the transactions that use the collection. ``moderate``: a document that is invalid already can be
        changed, so what runs can end, and nodes can beat. A delete is not validated; the comparison at the end would show one.
        """
        if fence is Fence.CLAIMS:
            self._validate(Names.JOBS, _not_running(reason), "moderate")
        self._validate(Names.NODES, _nothing(reason), "moderate")
        if fence is not Fence.CLAIMS:  # the rows of a move that arrives are put past the validators
            for name in dict.fromkeys(HELD_BACK):
                self._validate(name, _nothing(reason), "strict")

    def lift_fence(self) -> None:
        """Take the validators away."""
        for name in dict.fromkeys((*HELD_BACK, Names.NODES)):
            self._validate(name, {}, "strict")

    def _validate(self, name: str, validator: Document, level: str) -> None:
        self.database.read(
            lambda collections: collections.database.command(
                "collMod", name, validator=validator, validationLevel=level, validationAction="error"
            )
        )

    def held_claims(self, *, limit: int) -> list[RunningJob]:
        """Claims that are held."""

        def ask(collections: Collections) -> list[RunningJob]:
            running = {"status": JobStatus.RUNNING.value, "node_id": {"$gt": ""}}
            fields = {"claim_id": 1, "node_id": 1, "attempts": 1, "claimed_at": 1}
            found = [
                RunningJob(
                    job_id=one["_id"],
                    claim_id=one["claim_id"],
                    node_id=one["node_id"],
                    attempt=int(one.get("attempts", 0)) + 1,
                    since=time_or_none(one.get("claimed_at")),
                )
                for one in collections[Names.JOBS].find(running, fields).limit(limit)
            ]
            still = collections[Names.STILL_RUNNING].find().limit(limit)
            found += [
                RunningJob(
                    job_id=one["_id"]["job_id"],
                    claim_id=one["_id"]["claim_id"],
                    node_id=one["node_id"],
                    ended=True,
                )
                for one in still
            ]
            return found[:limit]

        return self.database.read(ask)

    def origin(self) -> str:
        """The product and the moment of the first step; both are stored, so an address does not matter."""
        installed = self.database.read(
            lambda c: min(one["applied_at"] for one in c[Names.VERSION].find({}, {"applied_at": 1}))
        )
        return f"mongodb {self.database.name} {installed}"


def _record(document: Document) -> MoveRecord:
    return json.decode(document["document"], type=MoveRecord)


def _document(record: MoveRecord) -> Document:
    return {
        "_id": _THE_MOVE,
        "move_id": record.move_id,
        "state": record.state.value,
        "document": json.encode(record).decode(),
    }


def _hashable(identity: Any) -> Any:
    """A key of several fields is a document."""
    return tuple(identity.items()) if isinstance(identity, dict) else identity


def _readable(outward: Any, document: Document, collection: str) -> NeutralRow:
    try:
        row: NeutralRow = outward(document)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise StoreError(
            f"the document {document.get('_id')!r} of {collection} cannot be read ({error}), so it cannot be moved; mend or "
            f"delete it, and go on"
        ) from error
    return row


def _not_running(reason: str) -> Document:
    """Jobs that are not RUNNING are valid: those that are may end, and no other may begin."""
    return {
        "$jsonSchema": {"title": FENCED + reason, "properties": {"status": {"not": {"enum": ["RUNNING"]}}}}
    }


def _nothing(reason: str) -> Document:
    return {"$jsonSchema": {"title": FENCED + reason, "required": ["fenced off"]}}
