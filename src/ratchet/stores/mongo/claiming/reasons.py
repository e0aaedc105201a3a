"""Why a job is not running: the claim's own gates, asked about one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.model import reasons as why
from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import BREAKER_GATE
from ratchet.model.composition import EdgeState
from ratchet.model.places import all_keys, target_of
from ratchet.model.reasons import NAMED_HOLDERS, NAMED_PARENTS, Reason
from ratchet.model.status import JobStatus
from ratchet.stores.levels import Level
from ratchet.stores.memory.rows import Row
from ratchet.stores.mongo.claiming.claim_order import choose
from ratchet.stores.mongo.claiming.gates import NO_LIMIT, Gates, find_holders, read_on
from ratchet.stores.mongo.claiming.unreachable import bad_fields
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import Database
from ratchet.stores.mongo.documents.jobs import WITHOUT_BODY, row_of
from ratchet.stores.mongo.documents.values import Document
from ratchet.stores.mongo.schema import Names
from ratchet.stores.unreadable import columns_text, shown

#: The node that the question is about: any, with nothing running.
_ASKING = UUID(int=0)

NOTHING_TAKEN: Mapping[str, int] = {}


def reasons(collections: Collections, database: Database, job_id: UUID, now: datetime) -> list[Reason]:
    """Everything that keeps a claim at *now* from returning this job; empty: it would."""
    document = collections[Names.JOBS].find_one({"_id": job_id}, WITHOUT_BODY) or collections[
        Names.ARCHIVE
    ].find_one({"_id": job_id}, WITHOUT_BODY)
    if document is None:
        return [why.not_found(job_id)]
    row = row_of(document, database.streams.key_of)
    if bad := _unreachable(collections, document, row):
        return [why.unreadable(columns_text(bad))]
    if row.status is JobStatus.WAITING:
        return list(_of_waiting(collections, row))
    if row.status is JobStatus.RUNNING:
        return [why.running(row.node_id)]
    if row.status is JobStatus.PAUSED:
        return [why.paused()]
    if row.status is not JobStatus.PENDING:
        return [why.ended(row.status)]
    key = row.stream
    asking = ClaimRequest(
        node_id="",
        claim_id=_ASKING,
        limit=1,
        lane=key.lane,
        suspects=key.suspect,
        parked_targets=all_keys(key.parked_target),
    )
    gates = database.streams_with_jobs.gates(collections, asking, now)
    found = [*_of_stream(row, gates, now), *_of_limits(collections, row, gates)]
    return found or list(_of_rivals(collections, row, gates, asking, now))


def _unreachable(collections: Collections, document: Document, row: Row) -> dict[str, str]:
    if document.get("status") not in list(JobStatus):
        return {"status": shown(document.get("status"))}
    if row.status not in (JobStatus.PENDING, JobStatus.RUNNING):
        return {}
    there = collections[Names.STREAMS].find({"_id": document.get("stream_id")}, {"_id": 1})
    return bad_fields(document, [one["_id"] for one in there])


def _of_waiting(collections: Collections, row: Row) -> Iterator[Reason]:
    if row.awaits_signal and row.spec.signal is not None:
        yield why.waiting_signal(row.spec.signal.key, row.signal_due_at)
    settled = {"$in": [EdgeState.SATISFIED.value, EdgeState.BROKEN.value]}
    unsettled = {"_id.child_id": row.job_id, "state": {"$not": settled}}
    edges = collections[Names.DEPENDENCIES].find(unsettled).sort("_id.parent_id", 1).limit(NAMED_PARENTS)
    parents = [edge["_id"]["parent_id"] for edge in edges]
    if parents or not row.awaits_signal:
        yield why.waiting_parent(parents)


def _of_stream(row: Row, gates: Gates, now: datetime) -> Iterator[Reason]:
    key = row.stream
    yield from why.of_due_time(row.scheduled_at, row.held_until, now)
    if key.queue in gates.paused:
        yield why.queue_paused(key.queue, gates.paused[key.queue])
    if (target := target_of(key.parked_target)) is not None:
        yield why.parked(target)
    if key.suspect:
        yield why.suspect()
    if key.breaker is not None and key.breaker in gates.breakers:
        yield why.breaker_open(key.breaker, gates.breakers[key.breaker])


def _of_limits(
    collections: Collections, row: Row, gates: Gates, taken: Mapping[str, int] = NOTHING_TAKEN
) -> Iterator[Reason]:
    """Why limits let nothing through, when so many before it have *taken* of them."""
    for name in gates.limits_of(row.stream_id) if row.stream_id in gates.streams else ():
        gone, meter = taken.get(name, 0), gates.meters.get(name)
        until = None if meter is None or meter.starts > gone else meter.opens_at(gone)
        if name.startswith(BREAKER_GATE):
            if until is not None:
                yield why.breaker_probing(name.removeprefix(BREAKER_GATE), until)
            continue
        if gates.slots(name) <= gone:
            yield why.no_permit(name, find_holders(collections, name, NAMED_HOLDERS + 1))
        if until is not None:
            yield why.rate_limited(name, until)


def _of_rivals(
    collections: Collections, row: Row, gates: Gates, asking: ClaimRequest, now: datetime
) -> Iterator[Reason]:
    """Which limits the jobs before it use up, in a claim of any size; nothing: the claim takes it."""
    names = gates.limits_of(row.stream_id) if row.stream_id in gates.streams else ()
    if not names or min(gates.allowance(name) for name in names) >= NO_LIMIT:
        return
    rivals = [level for level in gates.levels(gates.open_streams(asking)) if level.gates]
    most = sum(level.most or 0 for level in rivals)
    asking = replace(asking, limit=most)

    def read(wanted: Sequence[Level], share: int) -> None:
        read_on(collections, wanted, asking, now, share=share)

    allowances = {name: gates.allowance(name) for level in rivals for name in level.gates}
    chosen = choose(rivals, most, allowances, read)
    if row.job_id not in {rank[2] for rank, _ in chosen}:
        taken = Counter(name for _, level in chosen for name in level.gates)
        yield from _of_limits(collections, row, gates, taken)
