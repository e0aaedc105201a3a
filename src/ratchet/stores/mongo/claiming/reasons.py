"""Why a job is not running: the claim's own gates, asked about one job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from ratchet.model.claim import ClaimRequest
from ratchet.model.cluster import BREAKER_GATE, NAMED_HOLDERS, no_permit
from ratchet.model.composition import EdgeState
from ratchet.model.status import JobStatus
from ratchet.stores.levels import Level
from ratchet.stores.memory.rows import Row
from ratchet.stores.mongo.claiming.claim_order import choose
from ratchet.stores.mongo.claiming.gates import NO_LIMIT, Gates, find_holders, read_on
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import Database
from ratchet.stores.mongo.documents.jobs import WITHOUT_BODY, row_of
from ratchet.stores.mongo.schema import Names

Reason = tuple[str, str, datetime | None]

#: The node that the question is about: any, with nothing running.
_ASKING = UUID(int=0)

NOTHING_TAKEN: Mapping[str, int] = {}


def reasons(collections: Collections, database: Database, job_id: UUID, now: datetime) -> list[Reason]:
    """Everything that keeps a claim at *now* from returning this job; empty: it would."""
    document = collections[Names.JOBS].find_one({"_id": job_id}, WITHOUT_BODY) or collections[
        Names.ARCHIVE
    ].find_one({"_id": job_id}, WITHOUT_BODY)
    if document is None:
        return [("not_found", f"there is no job {job_id}", None)]
    row = row_of(document, database.streams.key_of)
    if row.status is JobStatus.WAITING:
        return list(_of_waiting(collections, row))
    if row.status is JobStatus.RUNNING:
        return [("running", f"it is running on node {row.node_id}", None)]
    if row.status is JobStatus.PAUSED:
        return [("paused", "it is paused; resume it", None)]
    if row.status is not JobStatus.PENDING:
        return [(row.status.value.lower(), f"it has ended as {row.status}", None)]
    key = row.stream
    asking = ClaimRequest(node_id="", claim_id=_ASKING, limit=1, lane=key.lane, suspects=key.suspect)
    gates = database.streams_with_jobs.gates(collections, asking, now)
    found = [*_of_stream(row, gates, now), *_of_limits(collections, row, gates)]
    return found or list(_of_turn(collections, row, gates, asking, now))


def _of_waiting(collections: Collections, row: Row) -> Iterator[Reason]:
    awaits = row.awaits_signal and row.spec.signal is not None
    if awaits and row.spec.signal is not None:
        yield "waiting_signal", f"it waits for the signal {row.spec.signal.key!r}", row.signal_due_at
    settled = {"$in": [EdgeState.SATISFIED.value, EdgeState.BROKEN.value]}
    unsettled = {"_id.child_id": row.job_id, "state": {"$not": settled}}
    parents = [one["_id"]["parent_id"] for one in collections[Names.DEPENDENCIES].find(unsettled).limit(3)]
    if parents or not awaits:
        named = ", ".join(str(parent_id) for parent_id in parents) or "its batch"
        yield "waiting_parent", f"it waits for {named}", None


def _of_stream(row: Row, gates: Gates, now: datetime) -> Iterator[Reason]:
    key = row.stream
    if row.due_at > now:
        held = "for the code of its last run to end, at the latest " if row.held_until is not None else ""
        yield "not_due", f"it waits {held}until {row.due_at.isoformat()}", row.due_at
    if key.queue in gates.paused:
        yield "queue_paused", f"the queue {key.queue!r} is paused; resume it", None
    if key.parked_target is not None:
        yield "parked", f"no node that claimed it could import {key.parked_target}; start one that can", None
    if key.suspect:
        text = f"it was running in {row.crashes} crashes, so a node runs it only when no other suspect runs there"
        yield "suspect", text, None
    if key.breaker is not None and key.breaker in gates.breakers:
        yield "breaker_open", f"the circuit breaker {key.breaker!r} is open", gates.breakers[key.breaker]


def _of_limits(
    collections: Collections, row: Row, gates: Gates, taken: Mapping[str, int] = NOTHING_TAKEN
) -> Iterator[Reason]:
    """Why limits let nothing through, when so many before it have *taken* of them."""
    for name in gates.limits_of(row.stream_id) if row.stream_id in gates.streams else ():
        gone, meter = taken.get(name, 0), gates.meters.get(name)
        until = None if meter is None or meter.starts > gone else meter.opens_at(gone)
        if name.startswith(BREAKER_GATE):
            if until is not None:
                text = f"the circuit breaker {row.stream.breaker!r} waits for what its probes say"
                yield "breaker_open", text, until
            continue
        if gates.slots(name) <= gone:
            held = find_holders(collections, name, NAMED_HOLDERS + 1)
            yield "no_permit", no_permit(name, held), None
        if until is not None:
            yield "rate_limited", f"as many jobs of {name!r} have started as its rate allows", until


def _of_turn(
    collections: Collections, row: Row, gates: Gates, asking: ClaimRequest, now: datetime
) -> Iterator[Reason]:
    """Which limits are used up by those before it, in a claim of any size; nothing: it has its turn."""
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
