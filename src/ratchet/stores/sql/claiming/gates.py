"""
What closes a stream, as predicates that the claim and its explanation share.

Most gates are conditions on the stream's row. Limits are counted: the claim locks the limit's row,
takes at most what is left, and records a permit per job, all in its own transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from ratchet.model.claim import ClaimRequest, party_of
from ratchet.model.cluster import BREAKER_GATE, PermitRecord, breaker_gate
from ratchet.model.rates import Bucket
from ratchet.stores.fairness import Rank, in_turns
from ratchet.stores.meters import Meter, kept, meter_of, pass_all
from ratchet.stores.sql.claiming.claim_order import PRIORITIES, Branch, Read, choose, owners
from ratchet.stores.sql.database import Row, Session

QUEUE_PAUSED = "EXISTS (SELECT 1 FROM scheduler_queue u WHERE u.queue = s.queue AND u.paused)"
# OPEN without a time is open until somebody closes it
BREAKER_OPEN = """(s.breaker IS NOT NULL AND EXISTS (
           SELECT 1 FROM scheduler_circuit_breaker b
            WHERE b.service = s.breaker AND b.state = 'OPEN' AND (b.open_until IS NULL OR b.open_until > :now)))"""
PARKED_ELSEWHERE = "(s.parked_target IS NOT NULL AND s.parked_target {not in parked_targets text})"

#: The streams a request may claim from, but for limits and breakers; *s* is the stream. `OPEN_STREAM`: with both, but for rates.
#: `RUNNABLE_QUEUE`: of any lane, suspects and others.
RUNNABLE_QUEUE = f"""(:every_queue OR s.queue {{in queues text}})
       AND NOT {PARKED_ELSEWHERE}
       AND NOT {QUEUE_PAUSED}"""
RUNNABLE_STREAM = f"s.lane = :lane AND s.suspect = :suspects AND {RUNNABLE_QUEUE}"
# An empty pool is seen here, without a lock, so that jobs behind it do not make the claim of others longer;
# rates, and how much is left of what is not used up, are counted by `Limits`.
NO_PERMIT_LEFT = """(COALESCE(s.resource, s.limit_key) IS NOT NULL AND EXISTS (
           SELECT 1 FROM scheduler_resource_limit l
            WHERE l.resource IN (s.resource, s.limit_key)
              AND l.max_concurrent <= (SELECT count(*) FROM scheduler_resource_permit p WHERE p.resource = l.resource)))"""
OPEN_STREAM = f"""{RUNNABLE_STREAM}
       AND NOT {BREAKER_OPEN}
       AND NOT {NO_PERMIT_LEFT}"""

FIND_OPEN_STREAMS = f"""
    SELECT s.stream_id, s.resource, s.limit_key, s.breaker, s.fairness_key FROM scheduler_stream s WHERE {OPEN_STREAM}
"""
FIND_OPEN_STREAMS_AMONG = f"{FIND_OPEN_STREAMS} AND s.stream_id {{in stream_ids int}}"

FIND_WAITING_STREAMS = f"""{FIND_OPEN_STREAMS}
       AND EXISTS (SELECT 1 FROM scheduler_job_queue q WHERE q.stream_id = s.stream_id AND q.status = 'PENDING')
"""

# A limit that another claim is counting right now is closed for this one: two claims never wait for each other.
LOCK_LIMITS = """
    SELECT resource, max_concurrent, rate, period_us, tokens, refilled_at
      FROM scheduler_resource_limit WHERE resource {in names text} ORDER BY resource {for update skip locked}
"""
READ_LIMITS = """
    SELECT resource, max_concurrent, rate, period_us, tokens, refilled_at
      FROM scheduler_resource_limit WHERE resource {in names text}
"""
COUNT_PERMITS = """
    SELECT resource, count(*) AS permits FROM scheduler_resource_permit WHERE resource {in names text} GROUP BY resource
"""
# by claim: its token begins with the time
FIND_HOLDERS = """
    SELECT resource, job_id, claim_id, node_id FROM scheduler_resource_permit
     WHERE resource = :name ORDER BY claim_id, job_id LIMIT :limit
"""
COUNT_STARTS = """
    UPDATE scheduler_resource_limit SET tokens = :tokens, refilled_at = :since WHERE resource = :resource
"""


def stream_params(request: ClaimRequest, now: datetime) -> dict[str, object]:
    """The binds of OPEN_STREAM."""
    return {
        "lane": request.lane,
        "suspects": request.suspects,
        "every_queue": request.queues is None,
        "queues": sorted(request.queues or ()),
        "parked_targets": sorted(request.parked_targets),
        "now": now,
    }


#: A stream and a priority.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class OpenStream:
    """A stream that a request may claim from, and the names of the limits it may have."""

    stream_id: int
    limits: tuple[str, ...]
    party: str = ""


def open_stream(
    stream_id: int,
    resource: str | None,
    limit_key: str | None,
    breaker: str | None = None,
    fairness_key: str | None = None,
) -> OpenStream:
    """A stream from its row; a key and a resource of one name are one limit. A breaker's probes are one too."""
    names = (resource, limit_key, breaker_gate(breaker))
    limits = tuple({name: None for name in names if name is not None})
    return OpenStream(stream_id, limits, party_of(fairness_key))


def open_streams(
    session: Session, request: ClaimRequest, now: datetime, due: Collection[Place] | None = None
) -> list[OpenStream]:
    """The streams that the request may claim from, but for limits; with *due* only those that it names."""
    params = stream_params(request, now)
    if due is None:
        rows = session.rows(FIND_OPEN_STREAMS, params)
    else:
        stream_ids = sorted({stream_id for stream_id, _ in due})
        rows = session.rows(FIND_OPEN_STREAMS_AMONG, {**params, "stream_ids": stream_ids})
    return [open_stream(*row) for row in rows]


def waiting_streams(session: Session, request: ClaimRequest, now: datetime) -> list[OpenStream]:
    """Those of the streams that the request may claim from which have jobs, due or not."""
    return [open_stream(*row) for row in session.rows(FIND_WAITING_STREAMS, stream_params(request, now))]


@dataclass(slots=True)
class Limit:
    """What one limit still lets through at one moment."""

    name: str
    concurrent: int | None  # how many more may run
    meter: Meter | None = None  # how many more may start; None: no rate

    @property
    def allowance(self) -> int:
        """How many jobs may be claimed now."""
        slots = _NO_LIMIT if self.concurrent is None else self.concurrent
        return max(slots if self.meter is None else min(slots, self.meter.starts), 0)

    @property
    def next_start_at(self) -> datetime | None:
        """When another job may be claimed, where the rate is what holds it back."""
        return None if self.meter is None or self.meter.starts > 0 else self.meter.opens_at()


_NO_LIMIT = 2**31
_CLOSED = 0


class Limits:
    """The limits of some streams at one moment, and what a claim takes from them."""

    def __init__(
        self, limits: Mapping[str, Limit], busy: Collection[str] = (), ahead: timedelta = timedelta()
    ) -> None:
        self._limits = limits
        self._busy = busy  # closed for now: not locked here, perhaps by another claim
        self._ahead = ahead  # how far starts may be planned

    @classmethod
    def seen(
        cls,
        session: Session,
        streams: Iterable[OpenStream],
        now: datetime,
        ahead: timedelta = timedelta(),
    ) -> Limits:
        """The limits of *streams* as they are, without locks: good for looking, not for taking."""
        names = sorted({name for stream in streams for name in stream.limits})
        return cls(_limits(session, READ_LIMITS, names, now, ahead) if names else {}, ahead=ahead)

    def under_lock(self, session: Session, names: Collection[str], now: datetime) -> Limits:
        """The same, with *names* counted anew under a lock until this transaction ends; all others are closed."""
        found = _limits(session, LOCK_LIMITS, sorted(names), now, self._ahead)
        return Limits(found, self._limits.keys() - found.keys(), self._ahead)

    def of(self, stream: OpenStream) -> list[Limit]:
        """The limits that a stream has."""
        return [self._limits[name] for name in stream.limits if name in self._limits]

    def gates(self, stream: OpenStream) -> tuple[str, ...]:
        """The names of the limits that a stream has."""
        return tuple(name for name in stream.limits if name in self._limits or name in self._busy)

    def allowances(self) -> dict[str, int]:
        """How many jobs each limit lets through."""
        return {name: limit.allowance for name, limit in self._limits.items()} | dict.fromkeys(
            self._busy, _CLOSED
        )

    def take(
        self,
        session: Session,
        request: ClaimRequest,
        claimed: Sequence[tuple[UUID, OpenStream]],
        now: datetime,
    ) -> list[datetime | None]:
        """
        Record a permit per claimed job and limit, and count the starts, in claim order.

        When each of the jobs may start; None: at once.
        """
        permits: list[tuple[object, ...]] = []
        meters: dict[str, Meter] = {}
        starts: list[datetime | None] = []
        for job_id, stream in claimed:
            limits = self.of(stream)
            permits += [
                (limit.name, job_id, request.claim_id, request.node_id, now)
                for limit in limits
                if limit.concurrent is not None
            ]
            passed = {one.name: meters.get(one.name, one.meter) for one in limits if one.meter is not None}
            start, after = pass_all([meter for meter in passed.values() if meter is not None])
            meters.update(zip(passed, after, strict=True))
            starts.append(start)
        columns = ("resource", "job_id", "claim_id", "node_id", "acquired_at")
        session.insert_rows("scheduler_resource_permit", columns, permits)
        for name, meter in sorted(meters.items()):
            tokens, since = tokens_of(meter)
            session.execute(COUNT_STARTS, {"resource": name, "tokens": tokens, "since": since})
        return starts


def find_holders(session: Session, name: str, limit: int) -> list[PermitRecord]:
    """Who holds permits of a resource, the longest first."""
    rows = session.rows(FIND_HOLDERS, {"name": name, "limit": limit})
    return [PermitRecord(resource=row[0], job_id=row[1], claim_id=row[2], node_id=row[3]) for row in rows]


def _limits(
    session: Session, sql: str, names: Sequence[str], now: datetime, ahead: timedelta
) -> dict[str, Limit]:
    rows = session.rows(sql, {"names": names})
    # after the locks: a statement sees what was committed before it began
    names = [row[0] for row in rows if row[1] is not None]
    held: dict[str, int] = dict(session.rows(COUNT_PERMITS, {"names": names})) if names else {}
    found: dict[str, Limit] = {}
    for name, most, rate, period_us, tokens, since in rows:
        concurrent = None if most is None else most - held.get(name, 0)
        meter = None
        if rate is not None and period_us:
            tokens = rate if tokens is None else tokens
            # a bucket's level in starts is a double, which holds it exactly enough to find it again
            level = round(tokens * period_us) if name.startswith(BREAKER_GATE) else int(tokens)
            period = timedelta(microseconds=period_us)
            meter = meter_of(name, rate, period, (level, since or now), now, ahead)
        if concurrent is not None or meter is not None:  # else it limits nothing
            found[name] = Limit(name, concurrent, meter)
    return found


def tokens_of(meter: Meter) -> tuple[float, datetime]:
    """What the limit's row says of its meter."""
    level, since = kept(meter)
    return (level / meter.start if isinstance(meter, Bucket) else float(level)), since


@dataclass(frozen=True, slots=True)
class Choice:
    """What a claim is going to take, behind which limits."""

    ranks: list[Rank]  # in claim order, or in turns
    branches: list[Branch]
    limits: Limits
    streams: dict[int, OpenStream]

    def in_turns(self, request: ClaimRequest, rows: Sequence[Row]) -> list[Row]:
        """Claimed *rows* that come in claim order, in the order in which their parties take turns."""
        return in_turns(rows, lambda row: self.streams[row[1]].party, request.after)

    @property
    def has_keys(self) -> bool:
        """True where some of the streams have fairness keys."""
        return any(stream.party for stream in self.streams.values())

    def permitted(self, session: Session, request: ClaimRequest, rows: list[Row], now: datetime) -> list[Row]:
        """The claimed *rows*, which come in claim order and have taken their permits: each with when it may start."""
        if not any(branch.gates for branch in self.branches):
            return rows
        claimed = [(row[0], self.streams[row[1]]) for row in rows]
        starts = self.limits.take(session, request, claimed, now)
        return [(*row, start) for row, start in zip(rows, starts, strict=True)]


def choose_gated(
    session: Session, request: ClaimRequest, now: datetime, read: Read, due: Collection[Place] | None = None
) -> Choice:
    """
    The next jobs of all open streams, limits included; where it is known which places have due jobs, of these.

    First without locks, because a claim that finds nothing must not write, and a lock is a write.
    Then, if jobs behind limits are among the chosen, again with those limits locked.
    """
    streams = open_streams(session, request, now, due)
    limits = Limits.seen(session, streams, now, request.ahead)
    choice = _choice(request, streams, limits, read, due)
    owner = owners(branch for branch in choice.branches if branch.gates)
    names = {gate for rank in choice.ranks if rank[2] in owner for gate in owner[rank[2]].gates}
    if not names or session.dialect.one_writer:
        return choice
    locked = limits.under_lock(session, names, now)
    if any(name.startswith(BREAKER_GATE) for name in names):
        # a breaker that opened again before its probes were locked has new ones, for later
        streams = open_streams(session, request, now, due)
    return _choice(request, streams, locked, read, due, choice.branches)


def _choice(
    request: ClaimRequest,
    streams: Sequence[OpenStream],
    limits: Limits,
    read: Read,
    due: Collection[Place] | None,
    before: Iterable[Branch] = (),
) -> Choice:
    """What the limits let through; *before*: what was read of the branches without their locks, and need not be again."""
    candidates = gated_branches(streams, limits, due)
    known = {(branch.stream_id, branch.priority): branch for branch in before}
    for branch in candidates:
        if (earlier := known.get((branch.stream_id, branch.priority))) is not None:
            branch.resume(earlier)
    ranks = choose(candidates, request.limit, limits.allowances(), read, request.after)
    return Choice(ranks, candidates, limits, {stream.stream_id: stream for stream in streams})


def gated_branches(
    streams: Sequence[OpenStream], limits: Limits, due: Collection[Place] | None = None
) -> list[Branch]:
    """The branches of streams, each with its limits; those of closed streams, and those not *due*, are left out."""
    allowances = limits.allowances()
    found: list[Branch] = []
    for stream in streams:
        gates = limits.gates(stream)
        most = min((allowances[gate] for gate in gates), default=None)
        if most is None or most > 0:
            found += [
                Branch(stream.stream_id, priority, gates, most, stream.party)
                for priority in PRIORITIES
                if due is None or (stream.stream_id, priority) in due
            ]
    return found
