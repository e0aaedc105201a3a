"""
Which jobs a claim may take: the gates of streams, what limits let through, and the order of the rest.

Most gates are conditions on the stream's row; the claim and its explanation share them. Limits are counted: the claim
locks the limit's row, takes at most what is left, and records a permit per job, all in its own transaction.

The order needs no sort of the backlog. A *level* is the due jobs of one stream and one priority; in it the oldest job
comes first, whatever the boost. So the next *n* jobs of all streams are found by looking at the first jobs of each
level, and reading on only in levels that can still contribute.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

from ratchet.model.claim import NO_PARTY, ClaimRequest
from ratchet.model.cluster import BREAKER_GATE, PermitRecord, breaker_gate
from ratchet.model.rates import Bucket
from ratchet.stores.fairness import Rank, Rounds, claim_order, in_turns
from ratchet.stores.levels import PRIORITIES, Level
from ratchet.stores.meters import Meter, kept, meter_of, pass_all
from ratchet.stores.sql.database import Row, Session
from ratchet.stores.unreadable import Column, Count, Micros, Shape, Time, Unread, due_time, passed_by

# A pause without a time, or with the time of an earlier one (code of an earlier version leaves it there), lasts until
# somebody ends it. With a time of its own it ends by itself.
PAUSED_FOR_GOOD = "u.paused AND (u.paused_until IS NULL OR u.paused_until_of <> u.paused_at)"
PAUSED_UNTIL = "u.paused AND u.paused_until > :now AND u.paused_until_of = u.paused_at"
QUEUE_PAUSED = """EXISTS (SELECT 1 FROM scheduler_queue u WHERE u.queue = s.queue
           AND u.paused AND (u.paused_until IS NULL OR u.paused_until > :now OR u.paused_until_of <> u.paused_at))"""
# OPEN without a time is open until somebody closes it
BREAKER_OPEN = """(s.breaker IS NOT NULL AND EXISTS (
           SELECT 1 FROM scheduler_circuit_breaker b
            WHERE b.service = s.breaker AND b.state = 'OPEN' AND (b.open_until IS NULL OR b.open_until > :now)))"""
PARKED_ELSEWHERE = "(s.parked_target IS NOT NULL AND s.parked_target {not in parked_targets text})"

#: The gates of a stream *s*. `RUNNABLE_QUEUE`: its queue and its parked target; `RUNNABLE_STREAM`: and its lane, and
#: whether it is for suspects; `OPEN_STREAM`: and its breaker, and an empty pool of permits. Rates come later (`Limits`).
SERVED_QUEUE = f"(:every_queue OR s.queue {{in queues text}}) AND NOT {PARKED_ELSEWHERE}"
RUNNABLE_QUEUE = f"""{SERVED_QUEUE}
       AND NOT {QUEUE_PAUSED}"""
# Streams that are named are read by their numbers: SQLite would rather read every stream of the lane, in the order of turns.
RUNNABLE_STREAM = f"{{unindexed}}(s.lane) = :lane AND s.suspect = :suspects AND {RUNNABLE_QUEUE}"
# An empty pool is seen here, without a lock, so that jobs behind it do not slow down the claim of others. Rates, and
# what is left of other pools, are counted by `Limits`. Each name by itself: for one among two columns MariaDB reads all
# limits, for each stream and priority; a claim among 1,500 keys with limits took seconds, one among 5,000 never ended.
_FULL = """EXISTS (
           SELECT 1 FROM scheduler_resource_limit l
            WHERE l.resource = s.{name}
              AND l.max_concurrent <= (SELECT count(*) FROM scheduler_resource_permit p WHERE p.resource = l.resource))"""
NO_PERMIT_LEFT = f"""(COALESCE(s.resource, s.limit_key) IS NOT NULL AND (
           s.resource IS NOT NULL AND {_FULL.format(name="resource")}
        OR s.limit_key IS NOT NULL AND {_FULL.format(name="limit_key")}))"""
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


def heads_params(requests: Sequence[ClaimRequest], now: datetime) -> dict[str, object]:
    """The binds of `plan.find_heads`."""
    lanes = sorted({request.lane.value for request in requests})
    mixed = len({request.suspects for request in requests}) > 1
    return {**stream_params(requests[0], now), "lanes": lanes, "mixed": mixed}


#: A stream and a priority: what a level is known by.
LevelKey = tuple[int, int]


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
    """A stream from its row. A key and a resource of the same name are one limit; the probes of a breaker are one too."""
    names = (resource, limit_key, None if breaker is None else breaker_gate(breaker))
    limits = tuple({name: None for name in names if name is not None})
    return OpenStream(stream_id, limits, fairness_key or NO_PARTY)


def open_streams(
    session: Session, request: ClaimRequest, now: datetime, due: Collection[LevelKey] | None = None
) -> list[OpenStream]:
    """The streams that the request may claim from, before limits are counted; with *due*, only those in it."""
    params = stream_params(request, now)
    if due is None:
        rows = session.rows(FIND_OPEN_STREAMS, params)
    else:
        stream_ids = sorted({stream_id for stream_id, _ in due})
        rows = session.rows(FIND_OPEN_STREAMS_AMONG, {**params, "stream_ids": stream_ids})
    return [open_stream(*row) for row in rows if _has_names(row)]


def waiting_streams(session: Session, request: ClaimRequest, now: datetime) -> list[OpenStream]:
    """The same, but only streams that have waiting jobs, due or not."""
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
        self._busy = busy  # closed for now: another claim may have locked them
        self._ahead = ahead  # how far starts may be planned

    @classmethod
    def seen(
        cls,
        session: Session,
        streams: Iterable[OpenStream],
        now: datetime,
        ahead: timedelta = timedelta(),
    ) -> Limits:
        """The limits of *streams*, read without locks: good for looking, not for taking."""
        names = sorted({name for stream in streams for name in stream.limits})
        return cls(_limits(session, READ_LIMITS, names, now, ahead) if names else {}, ahead=ahead)

    def under_lock(self, session: Session, names: Collection[str], now: datetime) -> Limits:
        """The same, with *names* counted again under a lock that lasts until the transaction ends; all others are closed."""
        found = _limits(session, LOCK_LIMITS, sorted(names), now, self._ahead, held=True)
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
    session: Session,
    sql: str,
    names: Sequence[str],
    now: datetime,
    ahead: timedelta,
    *,
    held: bool = False,
) -> dict[str, Limit]:
    rows = session.rows(sql, {"names": names})
    # after the locks, because a statement sees what was committed before it began
    names = [row[0] for row in rows if row[1] is not None]
    if held:
        session.hold("scheduler_resource_limit", "resource", names)
    permits: dict[str, int] = dict(session.rows(COUNT_PERMITS, {"names": names})) if names else {}
    found: dict[str, Limit] = {}
    for row in rows:
        try:
            limit = _limit_of(row, permits, now, ahead)
        except Exception as error:
            passed_by("scheduler_resource_limit", row[0], error)
            limit = Limit(row[0], 0, None)  # which of its jobs may start, nobody can say
        if limit is not None:
            found[row[0]] = limit
    return found


_LIMIT = Shape(
    Column("resource", str),
    Column("max_concurrent", Count | None),
    Column("rate", Count | None),
    Column("period_us", Micros | None),
    Column("tokens", float | None),
    Column("refilled_at", Time | None),
)


def _limit_of(row: Row, held: Mapping[str, int], now: datetime, ahead: timedelta) -> Limit | None:
    """A limit and what is left of it; None: it limits nothing."""
    name, most, rate, period_us, tokens, since = _LIMIT.one(row)
    concurrent = None if most is None else most - held.get(name, 0)
    meter = None
    if rate is not None and period_us:
        tokens = rate if tokens is None else tokens
        # what a bucket holds is stored in starts, as a double: exact enough to get the same back
        amount = round(tokens * period_us) if name.startswith(BREAKER_GATE) else int(tokens)
        period = timedelta(microseconds=period_us)
        meter = meter_of(name, rate, period, (amount, since or now), now, ahead)
    if concurrent is None and meter is None:
        return None
    limit = Limit(name, concurrent, meter)
    _ = limit.next_start_at  # an error where its numbers lead to no time
    return limit


def tokens_of(meter: Meter) -> tuple[float, datetime]:
    """What the limit's row stores of its meter."""
    amount, since = kept(meter)
    return (amount / meter.start if isinstance(meter, Bucket) else float(amount)), since


# --- when a gate opens --------------------------------------------------------------------------


def next_opening(
    session: Session, request: ClaimRequest, now: datetime
) -> tuple[datetime | None, set[LevelKey]]:
    """
    The earliest time at which a stream has a due job that its breaker and limits let through (None: unknown),
    and the levels that have jobs which are due now.
    """
    rows = session.dialect.claim_plan.look(session, [request], now)
    limits = Limits.seen(session, streams_of(rows), now, request.ahead)
    due = {
        (row[0], row[6])
        for row in rows
        if _is_for(request, row) and (due_at := due_time(row[4])) is not None and due_at <= now
    }
    return openings_of([request], rows, limits)[0], due


def openings_of(
    requests: Sequence[ClaimRequest], rows: Sequence[Row], limits: Limits, now: datetime | None = None
) -> list[datetime | None]:
    """
    For each request, when the first of its jobs can be claimed, by the *rows* of `plan.find_heads`; None: unknown.

    With *now*, a resource without free permits is asked for again as ``request.ask_again_after`` says.
    """
    waiting = [
        row
        for row in rows
        if due_time(row[4]) is not None
        and not isinstance(row[5], Unread)
        and not isinstance(row[9], Unread)
        and _has_names(row)
    ]
    return [
        min(
            _openings(
                [_head(row) for row in waiting if _is_for(request, row)],
                limits,
                None if now is None or request.ask_again_after is None else now + request.ask_again_after,
            ),
            default=None,
        )
        for request in requests
    ]


def streams_of(rows: Sequence[Row]) -> list[OpenStream]:
    """The streams that have a waiting job, of the *rows* of `plan.find_heads`."""
    return [open_stream(*row[:4]) for row in rows if row[4] is not None and _has_names(row)]


def _has_names(row: Row) -> bool:
    """False for a stream whose gates are no names: nothing of it can be claimed."""
    return not any(isinstance(name, bytes) for name in row[1:5])


def _is_for(request: ClaimRequest, row: Row) -> bool:
    return bool(row[7] == request.lane.value and row[8] == request.suspects)


def _head(row: Row) -> tuple[OpenStream, datetime]:
    """A stream, and when its first job is due, or its breaker or its queue lets it through."""
    due_at = due_time(row[4])
    assert due_at is not None
    opens = [at for at in (row[5], row[9]) if at is not None]
    return open_stream(*row[:4]), max(due_at, *opens) if opens else due_at


def _openings(
    heads: Sequence[tuple[OpenStream, datetime]], limits: Limits, ask_again_at: datetime | None
) -> Iterator[datetime]:
    for stream, due_at in heads:
        opens = [limit.next_start_at for limit in limits.of(stream)]
        if any(limit.concurrent is not None and limit.concurrent <= 0 for limit in limits.of(stream)):
            if ask_again_at is None:
                continue  # it opens when a permit is freed, and nobody knows when that will be
            opens.append(ask_again_at)
        yield max([due_at, *(at for at in opens if at is not None)])


# --- the choice ---------------------------------------------------------------------------------

#: Reads on in each level: so many more ranks, and sets `Level.ended` where there are fewer.
Read = Callable[[Sequence[tuple[Level, int]]], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a claim is going to take, behind which limits."""

    ranks: list[Rank]  # in claim order, or as the parties take turns
    levels: list[Level]
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
        """The claimed *rows* (in claim order), each with its start time, after permits were recorded for them."""
        if not any(level.gates for level in self.levels):
            return rows
        claimed = [(row[0], self.streams[row[1]]) for row in rows]
        starts = self.limits.take(session, request, claimed, now)
        return [(*row, start) for row, start in zip(rows, starts, strict=True)]


def choose_gated(
    session: Session,
    request: ClaimRequest,
    now: datetime,
    read: Read,
    due: Collection[LevelKey] | None = None,
) -> Choice:
    """
    The next jobs of all open streams, limits included; *due*: the levels that have due jobs, where that is known.

    First without locks, because a claim that finds nothing must not write, and a lock is a write. Then, if some of
    the chosen jobs are behind limits, again with those limits locked.
    """
    streams = open_streams(session, request, now, due)
    limits = Limits.seen(session, streams, now, request.ahead)
    choice = _choice(request, streams, limits, read, due)
    owner = owners(level for level in choice.levels if level.gates)
    names = {gate for rank in choice.ranks if rank[2] in owner for gate in owner[rank[2]].gates}
    if not names or session.dialect.one_writer:
        return choice
    locked = limits.under_lock(session, names, now)
    if any(name.startswith(BREAKER_GATE) for name in names):
        # a breaker that opened again before its probes were locked gets new ones later
        streams = open_streams(session, request, now, due)
    return _choice(request, streams, locked, read, due, choice.levels)


def _choice(
    request: ClaimRequest,
    streams: Sequence[OpenStream],
    limits: Limits,
    read: Read,
    due: Collection[LevelKey] | None,
    before: Iterable[Level] = (),
) -> Choice:
    """What the limits let through; *before*: levels that were read already, without the locks, and need not be again."""
    candidates = gated_levels(streams, limits, due)
    known = {(level.stream_id, level.priority): level for level in before}
    for level in candidates:
        if (earlier := known.get((level.stream_id, level.priority))) is not None:
            level.resume(earlier)
    ranks = choose(candidates, request.limit, limits.allowances(), read, request.after)
    return Choice(ranks, candidates, limits, {stream.stream_id: stream for stream in streams})


def gated_levels(
    streams: Sequence[OpenStream], limits: Limits, due: Collection[LevelKey] | None = None
) -> list[Level]:
    """The levels of these streams, each with its limits, without those of closed streams and those that are not *due*."""
    allowances = limits.allowances()
    found: list[Level] = []
    for stream in streams:
        gates = limits.gates(stream)
        most = min((allowances[gate] for gate in gates), default=None)
        if most is None or most > 0:
            found += [
                Level(stream.stream_id, priority, gates, most, stream.party)
                for priority in PRIORITIES
                if due is None or (stream.stream_id, priority) in due
            ]
    return found


# --- claim order --------------------------------------------------------------------------------


def choose(
    candidates: Sequence[Level],
    limit: int,
    allowances: Mapping[str, int],
    read: Read,
    after: str | None = None,
) -> list[Rank]:
    """
    The first *limit* jobs that the allowances let through: in claim order, and where there are several parties, in turns.

    Levels are read in steps, no further than their limits go, until no unread job can be better than the worst chosen
    one. Levels that have ranks were read before.
    """
    parties = len({level.party for level in candidates})
    step = _first_step(limit, len(candidates))
    if parties > 1:
        step = min(step, -(-limit // parties))
    wanted = [level for level in candidates if not level.ranks and not level.ended]
    count = step
    while True:
        read([(level, level.further(count)) for level in wanted])
        for level in wanted:
            level.ended = level.ended or level.further(1) == 0
        if parties > 1:
            rounds = Rounds(candidates, limit, allowances, after)
            chosen = [rank for rank, _ in rounds.chosen]
            more = [level for level in candidates if not level.ended and rounds.may_miss(level)]
            share = rounds.share(limit, more)
        else:
            chosen = _best(candidates, limit, allowances)
            worst = chosen[-1] if len(chosen) == limit else None
            more = [one for one in candidates if not one.ended and (worst is None or one.ranks[-1] < worst)]
            share = limit - len(chosen)
        if not more:
            return chosen
        wanted, count = more, max(share, step)
        step *= 2


def _first_step(limit: int, count: int) -> int:
    """How many jobs of each of *count* levels to read first: few where there are many levels."""
    return min(limit, max(4, limit // 50, -(-3 * limit // max(count, 1))))


def _best(candidates: Sequence[Level], limit: int, allowances: Mapping[str, int]) -> list[Rank]:
    ranks = _in_order(candidates)
    if not any(level.gates for level in candidates):
        return ranks[:limit]
    gated = owners(level for level in candidates if level.gates)
    left = dict(allowances)
    chosen: list[Rank] = []
    for rank in ranks:
        level = gated.get(rank[2])
        if level is not None:
            if any(left[gate] <= 0 for gate in level.gates):
                continue
            for gate in level.gates:
                left[gate] -= 1
        chosen.append(rank)
        if len(chosen) == limit:
            break
    return chosen


def _in_order(candidates: Sequence[Level]) -> list[Rank]:
    """What was read of all levels, in claim order."""
    read = [level.ranks for level in candidates if level.ranks]
    if len(read) == 1:
        return read[0]  # a level is in order by itself
    # sorted runs, one after the other, are what Python's sort merges fastest
    return sorted(chain.from_iterable(read), key=claim_order)


def owners(candidates: Iterable[Level]) -> dict[Any, Level]:
    """The level of each job that was read, by the job's id."""
    return {rank[2]: level for level in candidates for rank in level.ranks}
