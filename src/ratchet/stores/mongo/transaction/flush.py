"""
How one transaction sends its changes to the server: one command for each collection and kind of change.

New documents, changed ones and those that are gone; then the touches, which make two transactions conflict that
would not see each other (see `work`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pymongo import UpdateOne
from pymongo.collection import Collection

from ratchet.model.errors import Conflict
from ratchet.stores.memory.rows import Row
from ratchet.stores.mongo.documents.jobs import changes_of, document_of
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.tables import LoadedTable, Writer

if TYPE_CHECKING:
    from ratchet.stores.mongo.transaction.work import Work


class Flush:
    """Writes what the tables of one transaction have become."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._session = work.session

    def send(self, writers: Iterable[Writer]) -> None:
        """Send everything that was changed; the jobs first."""
        dependants, conditions = self._touch_around()
        self._flush_jobs(dependants, conditions)
        for table, name, encode in writers:
            self._flush_table(table, self._work.collection(name), encode)
        self._pass_gates()
        for name, ids in self._work.touched.items():
            if ids:
                self._work.wrote = True
                self._work.collection(name).update_many(
                    {"_id": {"$in": list(ids)}}, {"$inc": {"rev": 1}}, session=self._session
                )

    def _pass_gates(self) -> None:
        for key in sorted(self._work.signal_gates):
            self._work.wrote = True
            self._work.collection(Names.SIGNAL_GATES).update_one(
                {"_id": key},
                {"$inc": {"rev": 1}, "$set": {"passed_at": datetime.now(UTC)}},
                upsert=True,
                session=self._session,
            )

    def _touch_around(self) -> tuple[set[UUID], set[UUID]]:
        """Touch what decisions depend on; the parents of new edges, and those of new edges with a condition."""
        dependants: set[UUID] = set()
        conditions: set[UUID] = set()
        for (parent_id, child_id), was, now in self._work.edges.changed():
            self._work.touch(Names.JOBS, child_id)
            if was is None and now is not None:
                self._work.touch(Names.JOBS, parent_id)
                dependants.add(parent_id)
                if now.condition is not None:
                    conditions.add(parent_id)
        for _, before, batch in self._work.batches.changed():
            if before is not None and batch is not None and before.finished_at != batch.finished_at:
                self._work.touch(Names.JOBS, batch.parent_id)
        for (job_id, _), _, _ in self._work.still_running.changed():
            self._work.touch(Names.JOBS, job_id)
        return dependants, conditions

    def _flush_jobs(self, dependants: set[UUID], conditions: set[UUID]) -> None:
        new: list[Document] = []
        updates: list[UpdateOne] = []
        gone: list[UUID] = []
        archived: list[Row] = []
        untouched = self._work.touched.setdefault(Names.JOBS, set())
        for job_id, was, now in self._work.jobs.changed():
            untouched.discard(job_id)
            if now is None:
                gone.append(job_id)
            elif was is None:
                new.append(
                    self._with_flags(
                        document_of(now, self._work.stream(now.spec.stream)), dependants, conditions
                    )
                )
            elif was.archived_at is None and now.archived_at is not None:
                archived.append(now)
            else:
                update = changes_of(was, now, self._work.stream(now.spec.stream))
                update["$inc"] = {"rev": 1}
                if job_id in dependants:
                    update.setdefault("$set", {})["has_dependants"] = True
                if job_id in conditions:
                    update.setdefault("$set", {})["has_conditions"] = True
                updates.append(UpdateOne({"_id": job_id}, update))  # an id alone needs no plan
            dependants.discard(job_id)
        jobs = self._work.collection(Names.JOBS)
        if new:
            self._work.wrote = True
            jobs.insert_many(new, ordered=False, session=self._session)
        if dependants:
            self._work.wrote = True
            jobs.update_many(
                {"_id": {"$in": list(dependants)}},
                {"$set": {"has_dependants": True}, "$inc": {"rev": 1}},
                session=self._session,
            )
            if asked := conditions & dependants:
                jobs.update_many(
                    {"_id": {"$in": list(asked)}}, {"$set": {"has_conditions": True}}, session=self._session
                )
            untouched -= dependants
        if updates:
            self._work.wrote = True
            if jobs.bulk_write(updates, ordered=False, session=self._session).matched_count != len(updates):
                raise Conflict("a job has changed since this transaction read it")
        if archived:
            self._move_to_archive(archived)
        if gone:
            self._work.wrote = True
            jobs.delete_many({"_id": {"$in": gone}}, session=self._session)
            self._work.collection(Names.ARCHIVE).delete_many({"_id": {"$in": gone}}, session=self._session)

    @staticmethod
    def _with_flags(document: Document, dependants: set[UUID], conditions: set[UUID]) -> Document:
        if document["_id"] in dependants:
            document["has_dependants"] = True
        if document["_id"] in conditions:
            document["has_conditions"] = True
        return document

    def _move_to_archive(self, rows: list[Row]) -> None:
        times = {row.job_id: micros(row.archived_at) for row in rows if row.archived_at is not None}
        jobs, ids = self._work.collection(Names.JOBS), list(times)
        documents = [
            {**document, "archived_at": times[document["_id"]]}
            for document in jobs.find({"_id": {"$in": ids}}, session=self._session)
        ]
        self._work.wrote = True
        self._work.collection(Names.ARCHIVE).insert_many(documents, session=self._session)
        jobs.delete_many({"_id": {"$in": ids}}, session=self._session)

    def _flush_table(
        self,
        table: LoadedTable[Any, Any],
        collection: Collection[Document],
        encode: Callable[[Any, Any], Document],
    ) -> None:
        new: list[Document] = []
        updates: list[UpdateOne] = []
        gone: list[Any] = []
        for key, was, now in table.changed():
            if now is None:
                gone.append(table.source.identity(key))
            elif was is None:
                new.append(encode(key, now))
            elif update := _difference(encode(key, was), encode(key, now)):
                updates.append(UpdateOne({"_id": table.source.identity(key)}, update))
        self._work.wrote = self._work.wrote or bool(new or updates or gone)
        if new:
            collection.insert_many(new, ordered=False, session=self._session)
        if updates:
            collection.bulk_write(updates, ordered=False, session=self._session)
        if gone:
            collection.delete_many({"_id": {"$in": gone}}, session=self._session)


def _difference(before: Document, after: Document) -> Document:
    sets = {name: value for name, value in after.items() if name != "_id" and before.get(name) != value}
    gone = {name: "" for name in before if name not in after}
    update: Document = {}
    if sets:
        update["$set"] = sets
    if gone:
        update["$unset"] = gone
    return update
