"""
Jobs that no claim reaches, because of what stands in their documents: named by `health`, explained by `explain`.

A claim looks at each stream and each of its priorities. What is beside these is found in the gaps of the same index: a
few looks for each stream, however many jobs wait.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final, TypeGuard

from ratchet.model.cluster import UnreadableRow
from ratchet.model.status import JobStatus
from ratchet.stores.levels import PRIORITIES
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.documents.values import Document, micros
from ratchet.stores.mongo.schema import CLAIM_INDEX, Names
from ratchet.stores.unreadable import MOST_NAMED, named_job, shown

#: What a claim takes for due is at most now, so that one that is never at most this is never due.
_LATEST: Final = micros(datetime.max.replace(tzinfo=UTC))
_HOT: Final = {"status": 1, "stream_id": 1, "priority": 1, "due_at": 1, "node_id": 1}


def unreachable_jobs(collections: Collections) -> list[UnreadableRow]:
    """Some of the waiting jobs that no claim reaches, with what is wrong; none only if there are none."""
    streams = [one["_id"] for one in collections[Names.STREAMS].find({}, {"_id": 1})]
    beside: list[Document] = [
        {"stream_id": {"$nin": streams}},
        {"stream_id": {"$in": streams}, "priority": {"$nin": list(PRIORITIES)}},
        {
            "stream_id": {"$in": streams},
            "priority": {"$in": list(PRIORITIES)},
            "due_at": {"$not": {"$lte": _LATEST}},
        },
    ]
    found: dict[Any, UnreadableRow] = {}
    for where in beside:
        query = {"status": JobStatus.PENDING.value, **where}
        for document in collections[Names.JOBS].find(query, _HOT, hint=CLAIM_INDEX).limit(MOST_NAMED):
            if bad := bad_fields(document, streams):
                found[str(document["_id"])] = named_job(Names.JOBS, document["_id"], bad)
    return list(found.values())


def bad_fields(document: Document, streams: Collection[Any]) -> dict[str, str]:
    """What stands in the document of a waiting or running job that keeps every claim from it, by field; empty: nothing."""
    status = document.get("status")
    if status == JobStatus.RUNNING.value:
        return {} if document.get("node_id") else {"node_id": shown(document.get("node_id"))}
    bad: list[str] = []
    if not (_is_number(stream_id := document.get("stream_id")) and stream_id in streams):
        bad.append("stream_id")
    if not (_is_number(priority := document.get("priority")) and priority in PRIORITIES):
        bad.append("priority")
    if not (_is_number(due_at := document.get("due_at")) and due_at <= _LATEST):
        bad.append("due_at")
    return {name: shown(document[name]) if name in document else "missing" for name in bad}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
