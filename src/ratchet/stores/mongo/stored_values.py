"""The texts that MongoDB keeps, portion by portion, and others in their place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from msgspec.structs import replace
from pymongo import ASCENDING, UpdateOne

from ratchet.model.stored_values import Place, ValueChange, ValueRow
from ratchet.stores.memory.state import State
from ratchet.stores.memory.stored_values import set_keys
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.values import time_of
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.transaction.work import Work


class _Texts(NamedTuple):
    """Where the texts of a place are: its collection, the path of each text, and what their context is made of."""

    collection: str
    texts: Mapping[str, str]  # path by field
    facts: Mapping[str, str]  # path by fact


_OF_JOB = {
    **{name: name for name in ("payload", "params", "state", "signal", "result", "error")},
    "progress": "progress_message",
}
_JOB = {"job_id": "_id", "type": "type", "parent_id": "parent_id"}
_STREAMS = {name: name for name in ("stream_id", "home_stream_id")}
_PLACES = {
    Place.JOBS: _Texts(Names.JOBS, _OF_JOB, {**_JOB, **_STREAMS}),
    Place.ARCHIVE: _Texts(Names.ARCHIVE, _OF_JOB, _JOB),
    Place.RUNS: _Texts(
        Names.EXECUTIONS, {"error": "error", "traceback": "traceback"}, {"job_id": "_id.job_id"}
    ),
    Place.LOGS: _Texts(
        Names.LOGS, {"message": "message"}, {"job_id": "_id.job_id", "attempt": "attempt", "at": "at"}
    ),
    Place.ALERTS: _Texts(Names.ALERTS, {"error": "error"}, {"job_id": "job_id"}),
    Place.AUDIT: _Texts(Names.AUDIT, {"reason": "reason"}, {"id": "_id"}),
    Place.SIGNALS: _Texts(
        Names.SIGNALS, {"payload": "spec.payload", "rejected": "spec.rejected"}, {"key": "spec.key"}
    ),
    Place.CONDITIONS: _Texts(
        Names.DEPENDENCIES,
        {"argument": "condition.argument"},
        {"parent_id": "_id.parent_id", "child_id": "_id.child_id"},
    ),
    Place.SCHEDULES: _Texts(Names.SCHEDULES, {"template": "spec.template"}, {"name": "_id"}),
}


class MongoStoredValues(MongoPart):
    """Reads and swaps stored texts."""

    def value_rows(self, place: Place, *, after: Any = None, limit: int) -> list[ValueRow]:
        """The next documents of *place*, as they are stored."""
        where = _PLACES[place]
        query = {} if after is None else {"_id": {"$gt": after}}
        paths = [
            path for path in (*where.texts.values(), *where.facts.values()) if not path.startswith("_id")
        ]

        def ask(collections: Collections) -> list[dict[str, Any]]:
            found = collections[where.collection].find(query, dict.fromkeys(paths, 1))
            return list(found.sort("_id", ASCENDING).limit(limit))

        rows = [_row(where, document) for document in self.database.read(ask)]
        return [self._with_places(row) for row in rows] if where.collection == Names.JOBS else rows

    def _with_places(self, row: ValueRow) -> ValueRow:
        """The row of a job, with the places of its streams instead of their ids."""
        facts = {name: value for name, value in row.facts.items() if not name.endswith("stream_id")}
        queued = self._place(row.facts["stream_id"])
        home = row.facts["home_stream_id"]
        facts |= {"queued_at": queued, "place": queued if home is None else self._place(home)}
        return replace(row, facts=facts)

    def _place(self, stream_id: Any) -> str | None:
        try:
            return self.database.streams.key_of(stream_id).parked_target
        except KeyError:
            return None  # damaged; whoever looks for it finds that

    def set_keys(self, keys: Mapping[UUID, Collection[str]]) -> int:
        """Move jobs to the places of these keys; how many were changed."""

        def work(work: Work) -> int:
            work.load_jobs(keys)
            return set_keys(cast(State, work), keys)

        return self.database.run(work)

    def swap_values(self, place: Place, changes: Sequence[ValueChange]) -> int:
        """Put texts in the place of others that still stand there; each document is changed whole or not at all."""
        where = _PLACES[place]
        updates = [
            UpdateOne(
                {"_id": change.key, **{where.texts[field]: text for field, text in change.before.items()}},
                {"$set": {where.texts[field]: text for field, text in change.after.items()}},
            )
            for change in changes
        ]
        if not updates:
            return 0
        return self.counted(lambda c: c[where.collection].bulk_write(updates, ordered=False).modified_count)


def _row(where: _Texts, document: Mapping[str, Any]) -> ValueRow:
    texts = {field: _at(document, path) for field, path in where.texts.items()}
    facts = {fact: _at(document, path) for fact, path in where.facts.items()}
    if isinstance(facts.get("at"), int):
        facts["at"] = time_of(facts["at"])
    return ValueRow(
        key=document["_id"],
        texts={field: text for field, text in texts.items() if isinstance(text, str)},
        facts=facts,
    )


def _at(document: Any, path: str) -> Any:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, Mapping) else None
    return document
