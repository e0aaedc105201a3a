"""An entry of the audit log as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ratchet.model.audit import AuditEntry
from ratchet.stores.mongo.documents.values import Document, micros, time_of
from ratchet.stores.mongo.schema import Names

if TYPE_CHECKING:
    from ratchet.stores.mongo.transaction.work import Work


def append_entry(work: Work, entry: AuditEntry, new: bool) -> None:
    """
    Write *entry* in this transaction; unless it is *new*, its count, reason and outcome are brought up to date.

    One that is there already stays as it is: the verb was sent again because the answer to its commit was lost.
    """
    change = change_of(entry, new)
    work.write(
        Names.AUDIT,
        lambda audit: audit.update_one({"_id": entry.id}, change, upsert=new, session=work.session),
    )


def change_of(entry: AuditEntry, new: bool) -> Document:
    """What is done to the document of *entry*: made if it is *new*, else brought up to date."""
    if not new:
        return {"$set": {"count": entry.count, "reason": entry.reason, "outcome": entry.outcome}}
    return {"$setOnInsert": {name: value for name, value in document_of(entry).items() if name != "_id"}}


def document_of(entry: AuditEntry) -> Document:
    """*entry* as it is stored; what is not given is left out. The filter is text: its keys are anybody's."""
    given = {
        "_id": entry.id,
        "at": micros(entry.at),
        "principal": entry.principal,
        "source": entry.source,
        "verb": entry.verb,
        "job_id": entry.job_id,
        "object": entry.object,
        "filter": None if entry.filter is None else msgspec.json.encode(entry.filter).decode(),
        "count": entry.count,
        "reason": entry.reason,
        "outcome": entry.outcome,
    }
    return {name: value for name, value in given.items() if value is not None}


def entry_of(document: Document) -> AuditEntry:
    """The entry of a stored document."""
    text = document.get("filter")
    return AuditEntry(
        id=document["_id"],
        at=time_of(document["at"]),
        principal=document.get("principal"),
        source=document["source"],
        verb=document["verb"],
        job_id=document.get("job_id"),
        object=document.get("object"),
        filter=None if text is None else msgspec.json.decode(text, type=dict[str, object]),
        count=document.get("count"),
        reason=document.get("reason"),
        outcome=document["outcome"],
    )
