"""
Claims in MongoDB: which jobs are due, in which order, and whose they are.

The first jobs of the streams are merged here, then one `update_many` by ids writes the claim's token on those that
are still PENDING, and a read by the token says which they were. There is no transaction, and no node waits for another. Jobs
whose resource has permits are claimed in a short transaction beside it, which counts and takes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence, Set
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure

from ratchet.model.claim import ClaimedJob, ClaimRequest, JobBody, JobClaim
from ratchet.model.cluster import PermitRecord, breaker_gate, resources_of
from ratchet.model.errors import CommitUnknown, Conflict
from ratchet.model.reasons import Reason
from ratchet.model.status import JobStatus, JobType, Priority
from ratchet.spi.store.claims import JobClaimStore
from ratchet.stores.levels import PRIORITIES, Level
from ratchet.stores.memory.changes import Effects, change
from ratchet.stores.memory.permits import Allowances, breaker_closes
from ratchet.stores.memory.rows import Row
from ratchet.stores.memory.runs import counted_resources_of
from ratchet.stores.memory.values import check
from ratchet.stores.mongo.claiming.claim_order import Chosen, choose, levels_of
from ratchet.stores.mongo.claiming.fairness import KnownLevels, first_due
from ratchet.stores.mongo.claiming.gates import (
    LEVELS,
    Gates,
    absorb_jobs,
    depth_of,
    first_job_stages,
    read_gates,
    read_on,
)
from ratchet.stores.mongo.claiming.reasons import reasons
from ratchet.stores.mongo.claiming.turns import choose_of_next_parties
from ratchet.stores.mongo.connections import CODEC, DURABLE, Collections
from ratchet.stores.mongo.database import Database, MongoPart
from ratchet.stores.mongo.documents.jobs import MOST, body_of, is_sound, salvaged
from ratchet.stores.mongo.documents.values import Document, duration_of, micros, time_of
from ratchet.stores.mongo.errors import TIMED_OUT, is_time_up
from ratchet.stores.mongo.schema import BATCH, Names
from ratchet.stores.mongo.transaction.work import Work
from ratchet.stores.next_parties import NextParties
from ratchet.stores.unreadable import NO_TIME, claim_made, unreadable

#: Seconds that a claim waits for a job that an open transaction has changed, and for how long it then skips the job.
LOCKED_JOB_WAIT: Final = 0.25
AVOIDED: Final = 2.0
#: After so many such jobs a claim takes what it has.
BLOCKED: Final = 4
#: How often a claim looks again where other processes took all the jobs that it had chosen.
RACES: Final = 3
#: Seconds for which a claim is tried again when others take permits of the same limits.
PERMIT_RETRIES: Final = 1.0

_TYPES: Final = {kind.value: kind for kind in JobType}
_PENDING: Final = JobStatus.PENDING.value
_PRIORITIES: Final = {int(priority): priority for priority in Priority}
#: The server cannot count on in a field: it is no number (TypeMismatch), or the number would be too large (BadValue).
_NO_REVISION: Final = (14, 2)
#: What a claim reads of its jobs: all but what it has just written itself.
_CLAIMED: Final = dict.fromkeys(("claim_id", "claimed_at", "node_id", "rev"), 0)

#: A claimed job, and when a rate lets it start; None: at once.
Held = tuple[Document, datetime | None]


class MongoClaims(MongoPart, JobClaimStore):
    """Takes due jobs for one node, atomically."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._avoiding = threading.Lock()
        self._claiming = threading.Lock()  # threads of one process would only reach for the same jobs
        self._open: dict[Any, list[int]] = {}  # the streams that were open for a request, last time
        self._known_levels: dict[Any, KnownLevels] = {}  # where open streams have fairness keys, or are many
        self._parties = NextParties()
        self._avoided: dict[UUID, float] = {}

    def claim_next_batch(self, request: ClaimRequest, *, now: datetime) -> list[ClaimedJob]:
        """Up to ``request.limit`` due jobs with their bodies, RUNNING under ``request.claim_id``, in claim order."""
        held = self._claim(request, now)
        with claim_made(bool(held)):
            return [self._claimed(document, request, now, start_at) for document, start_at in held]

    def _claimed(
        self, document: Document, request: ClaimRequest, now: datetime, start_at: datetime | None
    ) -> ClaimedJob:
        """A claimed job, whatever stands in its document."""
        if is_sound(document):
            try:
                claim, body = _claim(document, request, now, start_at), self._body(document)
                if 0 <= claim.attempts < MOST and 0 <= claim.crashes < MOST and 0 <= body.jitter <= 1:
                    return ClaimedJob(claim=claim, body=body)
            except (ValueError, TypeError, OverflowError, KeyError):
                pass
        found, bad, newer = salvaged(document)
        claim, body = _claim(found, request, now, start_at), self._body(found)
        return ClaimedJob(claim=claim, body=body, unreadable=unreadable(bad, newer=newer))

    def bodies(self, claims: Sequence[JobClaim]) -> dict[UUID, JobBody]:
        """The bodies of claimed jobs; a job that its claim no longer holds is left out."""
        held = {(claim.job_id, claim.claim_id) for claim in claims}
        query = {"_id": {"$in": [claim.job_id for claim in claims]}, "status": JobStatus.RUNNING.value}

        def ask(collections: Collections) -> list[Document]:
            return list(collections[Names.JOBS].find(query))

        found = self.database.read(ask) if claims else []
        return {
            one["_id"]: self._body(salvaged(one)[0]) for one in found if (one["_id"], one["claim_id"]) in held
        }

    def mark_started(self, claims: Sequence[JobClaim], *, now: datetime) -> int:
        """Remember that these runs of claims ahead have started; how many are still held."""
        tokens: dict[UUID, list[UUID]] = {}
        for claim in claims:
            tokens.setdefault(claim.claim_id, []).append(claim.job_id)

        def mark(collections: Collections) -> int:
            marked = 0
            for token, ids in tokens.items():
                held = {"_id": {"$in": ids}, "status": JobStatus.RUNNING.value}
                mine = {"claim_id": token}  # fence
                started = {"$set": {"held_claim_id": token}, "$inc": {"rev": 1}}
                marked += collections[Names.JOBS].update_many(held | mine, started).matched_count
            return marked

        return self.database.write(mark) if tokens else 0

    def next_due_at(self, request: ClaimRequest, *, now: datetime) -> datetime | None:
        """When the earliest PENDING job of the request's open streams is (or was) due; None: there is none."""
        check(now, "now")

        def ask(collections: Collections) -> list[datetime]:
            gates = self.database.streams_with_jobs.gates(collections, request, now)
            streams = {
                stream_id: opens_at
                for stream_id, key in gates.streams.items()
                if (opens_at := gates.opens_at(key, request)) is not None
            }
            for stream_id in list(streams):
                if any(gates.slots(name) <= 0 for name in gates.limits_of(stream_id)):
                    if request.ask_again_after is None:
                        del streams[stream_id]
                    else:
                        streams[stream_id] = max(streams[stream_id], now + request.ask_again_after)
            found: list[datetime] = []
            for document in first_due(collections, streams):
                stream_id = document["stream_id"]
                opens = [gates.next_token_at(name) for name in gates.limits_of(stream_id)]
                if streams[stream_id] > now:
                    opens.append(streams[stream_id])
                if (due_at := _due_time(document["due_at"])) is not None:
                    found.append(max([due_at, *(at for at in opens if at is not None)]))
            return found

        return min(self.database.read(ask), default=None)

    def next_due_of(self, requests: Sequence[ClaimRequest], *, now: datetime) -> list[datetime | None]:
        """`next_due_at` of each request."""
        return [self.next_due_at(request, now=now) for request in requests]

    def claims_of(self, node_id: str) -> dict[UUID, UUID]:
        """Job id to claim id of everything RUNNING under *node_id*."""
        return self.database.read(lambda collections: claims_of(collections, node_id))

    def explain(self, job_id: UUID, *, now: datetime) -> list[Reason]:
        """Why a claim at *now* by a node that takes every lane and queue would not return this job."""
        check(now, "now")
        return self.database.read(lambda collections: reasons(collections, self.database, job_id, now))

    # --- the claim ------------------------------------------------------------------------------

    def _claim(self, request: ClaimRequest, now: datetime) -> list[Held]:
        check(now, "now")
        if request.limit <= 0:
            return []
        with self._claiming:
            return self._claim_again_if_raced(request, now)

    def _claim_again_if_raced(self, request: ClaimRequest, now: datetime) -> list[Held]:
        """Claim; where other processes took all the jobs that were chosen, look at the next ones."""
        lost: set[UUID] = set()
        for _ in range(RACES):
            held, chosen = self._claim_once(request, now, lost)
            if held or not chosen - lost:
                return held
            lost |= chosen
        return []

    def _claim_once(
        self, request: ClaimRequest, now: datetime, lost: Set[UUID]
    ) -> tuple[list[Held], Set[UUID]]:
        """What was claimed, and which jobs without limits were chosen; not those that were *lost* before."""
        chosen, gates = self.database.read(lambda c: self._choose(c, request, now, lost))
        free: list[UUID] = []
        gated: list[UUID] = []
        counted = {
            stream_id: bool(resources_of(gates.streams[stream_id]) or gates.limits_of(stream_id))
            for stream_id in {level.stream_id for _, level in chosen}
        }
        for rank, level in chosen:
            (gated if counted[level.stream_id] else free).append(rank[2])
        held: list[Held] = [(one, None) for one in self._take(free, request, now)] if free else []
        if gated:
            with claim_made(bool(held)):
                self.database.streams.look_up(
                    gates.streams[level.stream_id] for _, level in chosen if counted[level.stream_id]
                )
                held += self._take_with_permits(gated, request, now)
        self.database.linked_jobs.claimed(one for one, _ in held)
        order = {rank[2]: number for number, (rank, _) in enumerate(chosen)}
        return sorted(held, key=lambda found: order[found[0]["_id"]]), set(free)

    def _choose(
        self, collections: Collections, request: ClaimRequest, now: datetime, lost: Set[UUID]
    ) -> tuple[Chosen, Gates]:
        """What the claim should take, mostly in one round trip: it guesses which streams are open, and is mostly right."""
        kind = (request.lane, request.suspects, request.queues, request.parked_targets)
        avoided = self._avoid() | lost
        streams_with_jobs = self.database.streams_with_jobs
        if streams_with_jobs.are_many:
            self._known_levels.setdefault(kind, KnownLevels())
        known_levels = self._known_levels.get(kind)
        if known_levels is not None:
            chosen, gates = self._choose_in_turns(collections, request, now, avoided, known_levels)
            for _, level in chosen:
                self.database.streams.knows(level.stream_id, gates.streams[level.stream_id])
            return chosen, gates
        guessed = {
            (level.stream_id, level.priority): level
            for stream_id in self._open.get(kind, ())
            for level in levels_of(stream_id)
        }
        depth = depth_of(len(guessed), request.limit)
        ahead = [(level, depth) for level in guessed.values()]
        gates, documents = read_gates(collections, request, now, first_job_stages(ahead, now, avoided))
        if streams_with_jobs.count_read(len(gates.streams)):
            return self._choose(collections, request, now, lost)
        absorb_jobs(ahead, documents, request.boost_interval, now)
        streams = gates.open_streams(request)
        if any(gates.streams[stream_id].fairness_key is not None for stream_id in streams):
            self._known_levels[kind] = KnownLevels()
            return self._choose(collections, request, now, lost)
        self._open[kind] = streams if len(streams) * len(PRIORITIES) <= LEVELS else []
        for stream_id in streams:
            self.database.streams.knows(stream_id, gates.streams[stream_id])
        candidates = gates.levels(streams)
        for level in candidates:
            if (known := guessed.get((level.stream_id, level.priority))) is not None:
                level.ranks, level.ended = known.ranks, known.ended

        def read(wanted: Sequence[Level], share: int) -> None:
            read_on(collections, wanted, request, now, avoided, share)

        allowances = {name: gates.allowance(name) for level in candidates for name in level.gates}
        return choose(candidates, request.limit, allowances, read), gates

    def _choose_in_turns(
        self,
        collections: Collections,
        request: ClaimRequest,
        now: datetime,
        avoided: Set[UUID],
        known_levels: KnownLevels,
    ) -> tuple[Chosen, Gates]:
        if self._parties.are_many(request):
            found = choose_of_next_parties(collections, request, now, avoided, self._parties)
            if found is not None:
                return found
        streams_with_jobs = self.database.streams_with_jobs
        chosen, gates = known_levels.choose(collections, request, now, avoided, streams_with_jobs)
        streams_with_jobs.count_read(len(gates.streams))
        self._parties.saw(request, known_levels.streams, lambda: [level.party for _, level in chosen])
        return chosen, gates

    def _take(self, ids: Sequence[UUID], request: ClaimRequest, now: datetime) -> list[Document]:
        """Write the token on those of these jobs that are still PENDING and due."""
        taken = {
            "$set": {
                "status": JobStatus.RUNNING.value,
                "claim_id": request.claim_id,
                "claimed_at": micros(now),
                "node_id": request.node_id,
            },
            "$unset": {"held_claim_id": ""},
            "$inc": {"rev": 1},
        }

        def take(collections: Collections) -> list[Document]:
            # in a causal session the read waits until a majority has what the update wrote
            with self.database.client().start_session(causal_consistency=True) as session:
                return self._take_and_read(collections, ids, taken, request, now, session)

        return self.database.write(take)

    def _take_and_read(
        self,
        collections: Collections,
        ids: Sequence[UUID],
        taken: Document,
        request: ClaimRequest,
        now: datetime,
        session: ClientSession,
    ) -> list[Document]:
        held: list[Document] = []
        left = sorted(ids, key=lambda job_id: job_id.int)
        for _ in range(BLOCKED):
            due = {"_id": {"$in": left}, "status": _PENDING, "due_at": {"$lte": micros(now)}}
            whole = _update_many(collections, due, taken, session)
            mine = {"_id": {"$in": left}, "claim_id": request.claim_id}
            held += collections[Names.JOBS].find(mine, _CLAIMED, session=session, batch_size=BATCH)
            got = {document["_id"] for document in held}
            left = [job_id for job_id in left if job_id not in got]
            if whole or not left:
                break
            self._avoid(left[:1])  # the server takes them in the order of ids, so it waited for this one
            left = left[1:]
        return held

    def _take_with_permits(self, ids: Sequence[UUID], request: ClaimRequest, now: datetime) -> list[Held]:
        """Claim jobs of limited resources: permits are counted, taken and written in one transaction."""

        def work(work: Work) -> dict[UUID, datetime | None]:
            work.jobs.load(ids)
            _load_limits(work, ids)
            allowances = Allowances(work, now=now, ahead=request.ahead)
            taken: list[Row] = []
            for job_id in ids:
                row = work.jobs.get(job_id)
                # Asked again in the transaction that spends the probes: the breaker may have opened since.
                if row is None or not _is_due(row, now) or breaker_closes(work, row.stream, now):
                    continue
                if allowances.admit(row.stream):
                    allowances.take(row.stream)
                    taken.append(row)
            starts = allowances.spend([row.stream for row in taken])
            for row in taken:
                _take_row(work, row, request, now)
            return {row.job_id: start for row, start in zip(taken, starts, strict=True)}

        try:
            starts = self.database.run(work, retry_for=PERMIT_RETRIES)
        except Conflict:
            return []  # other claims of the resource were faster, again and again
        if not starts:
            return []
        query = {"_id": {"$in": list(starts)}, "claim_id": request.claim_id}
        with claim_made():
            found = self.database.read(lambda c: list(c[Names.JOBS].find(query, _CLAIMED, batch_size=BATCH)))
        return [(document, starts[document["_id"]]) for document in found]

    def _avoid(self, more: Iterable[UUID] = ()) -> set[UUID]:
        """Jobs that an open transaction has changed: claims skip them for a moment."""
        with self._avoiding:
            now = time.monotonic()
            self._avoided = {job_id: until for job_id, until in self._avoided.items() if until > now}
            self._avoided.update(dict.fromkeys(more, now + AVOIDED))
            return set(self._avoided)

    def _body(self, document: Document) -> JobBody:
        return body_of(document, self.database.streams.key_of)


def _due_time(value: Any) -> datetime | None:
    """A stored due time, or what it amounts to: one before all times is over, any other that cannot be read never comes."""
    try:
        return time_of(value)
    except OverflowError:
        return NO_TIME if value < 0 else None
    except TypeError:
        return None


def claims_of(
    collections: Collections, node_id: str, known: Sequence[UUID] | None = None
) -> dict[UUID, UUID]:
    """Job id to claim id of everything RUNNING under *node_id*, or of those of it that are *known*."""
    running: Document = {"node_id": node_id, "status": JobStatus.RUNNING.value}
    if known is not None:
        running["_id"] = {"$in": list(known)}
    return {one["_id"]: one["claim_id"] for one in collections[Names.JOBS].find(running, {"claim_id": 1})}


def _mend_revisions(collections: Collections, query: Document) -> bool:
    """Begin the revisions of these jobs anew where they cannot be counted on; False: there were none."""
    ids = {"_id": query["_id"], "rev": {"$exists": True}}
    bad = [{"rev": {"$not": {"$type": ["int", "long"]}}}, {"rev": {"$gte": 2**62}}]
    mended = collections[Names.JOBS].update_many({**ids, "$or": bad}, {"$set": {"rev": 0}})
    return mended.modified_count > 0


def _update_many(collections: Collections, query: Document, update: Document, session: ClientSession) -> bool:
    """
    Change every document that matches; False where the server has stopped in the middle.

    A document that an open transaction has changed is waited for, and a user's transaction may be open for
    long. The driver's own method has no limit of time for the server, so the command is spelled out. Where the
    majority is what took too long, the read that follows waits for it.
    """
    command = {
        "update": Names.JOBS,
        "updates": [{"q": query, "u": update, "multi": True}],
        "writeConcern": DURABLE.document,
        "maxTimeMS": int(LOCKED_JOB_WAIT * 1000),
    }
    try:
        answer = collections.database.command(command, codec_options=CODEC, session=session)
    except OperationFailure as error:
        if is_time_up(error):
            return False
        raise
    for refused in answer.get("writeErrors", ()):
        if refused.get("code") == TIMED_OUT:
            return False
        if refused.get("code") in _NO_REVISION and _mend_revisions(collections, query):
            return _update_many(collections, query, update, session)  # what was taken before stays taken
        raise OperationFailure(str(refused.get("errmsg")), refused.get("code"), refused)
    unheard = answer.get("writeConcernError")
    if unheard is not None and unheard.get("code") != TIMED_OUT:
        raise CommitUnknown(f"a claim was made, but perhaps not by a majority: {unheard}")
    return True


def _is_due(row: Row, now: datetime) -> bool:
    return row.status is JobStatus.PENDING and row.due_at <= now


def _load_limits(work: Work, ids: Iterable[UUID]) -> None:
    """Read the limits of these jobs, and who holds permits of them, together: a hundred keys would be two hundred reads."""
    streams = {row.stream for job_id in ids if (row := work.jobs.get(job_id)) is not None}
    gates = {gate for key in streams if (gate := breaker_gate(key.breaker)) is not None}
    names = {name for key in streams for name in resources_of(key)}
    work.limits.load(sorted(names | gates))
    limits = {name: work.limits.get(name) for name in sorted(names)}
    work.permits_of.load(
        name for name, one in limits.items() if one is not None and one.concurrent is not None
    )


def _take_row(work: Work, row: Row, request: ClaimRequest, now: datetime) -> None:
    claim: dict[str, Any] = {
        "status": JobStatus.RUNNING,
        "claim_id": request.claim_id,
        "claimed_at": now,
        "node_id": request.node_id,
        "held_claim_id": None,
    }
    change(work, row, Effects(), now=now, **claim)
    for name in counted_resources_of(work, row):
        permit = PermitRecord(
            resource=name, job_id=row.job_id, claim_id=request.claim_id, node_id=request.node_id
        )
        work.permits.assume_absent([(name, row.job_id, request.claim_id)])
        work.permits.put((name, row.job_id, request.claim_id), permit)
        work.touch(Names.LIMITS, name)


def _claim(document: Document, request: ClaimRequest, now: datetime, start_at: datetime | None) -> JobClaim:
    timeout = document.get("timeout")
    return JobClaim(
        job_id=document["_id"],
        claim_id=request.claim_id,
        node_id=request.node_id,
        stream_id=document["stream_id"],
        type=_TYPES[document.get("type", JobType.SINGLE.value)],
        priority=_PRIORITIES[document["priority"]],
        scheduled_at=time_of(document["due_at"]),
        claimed_at=now,
        attempts=document.get("attempts", 0),
        crashes=document.get("crashes", 0),
        max_retries=document.get("max_retries", 0),
        timeout=None if timeout is None else duration_of(timeout),
        start_at=start_at,
    )
