"""Resource limits and circuit breakers in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from ratchet.model import reasons as why
from ratchet.model.cadence import Cadence
from ratchet.model.claim import JobClaim
from ratchet.model.cluster import (
    BREAKER_GATE,
    BreakerRecord,
    LimitRecord,
    PermitRecord,
    Probes,
    breaker_gate,
    resources_of,
)
from ratchet.model.job import StreamKey
from ratchet.model.rates import Bucket
from ratchet.model.reasons import NAMED_HOLDERS, Reason
from ratchet.stores.memory.rows import Limit
from ratchet.stores.memory.runs import count_running, free_permits
from ratchet.stores.memory.state import Part, State, atomic
from ratchet.stores.meters import Meter, kept, meter_of, pass_all
from ratchet.stores.unused_limits import is_full, is_known


def breaker_closes(state: State, key: StreamKey, now: datetime) -> bool:
    """True while the stream's circuit breaker lets nothing through."""
    record = None if key.breaker is None else state.breakers.get(key.breaker)
    return record is not None and record.state == "OPEN" and (record.until is None or record.until > now)


def opening_of(state: State, key: StreamKey) -> datetime | None:
    """When the stream's circuit breaker lets probes through; None: not known."""
    record = None if key.breaker is None else state.breakers.get(key.breaker)
    return None if record is None else record.until


def meter_for(limit: Limit, now: datetime, ahead: timedelta = timedelta()) -> Meter | None:
    """What counts the starts of the limit's rate at *now*; None: it has no rate."""
    if limit.rate is None or limit.period is None:
        return None
    return meter_of(limit.name, limit.rate, limit.period, (limit.level, limit.refilled_at), now, ahead)


def holders_of(state: State, name: str) -> list[PermitRecord]:
    """Who holds permits of a resource, the longest first: a claim's token begins with the time."""
    held = sorted(state.permits_of.of(name), key=lambda key: (key[2].int, key[1].int))
    return [
        PermitRecord(resource=name, job_id=job_id, claim_id=claim_id, node_id=state.permits[key].node_id)
        for key in held
        for _, job_id, claim_id in (key,)
    ]


class Allowances:
    """How many more jobs of each resource one claim may take."""

    def __init__(self, state: State, *, now: datetime, ahead: timedelta = timedelta()) -> None:
        self._state = state
        self._now = now
        self._ahead = ahead
        self._limits: dict[str, Limit] = {}
        self._meters: dict[str, Meter] = {}  # of limits that have a rate
        self._taken: dict[str, int] = {}

    def admit(self, key: StreamKey) -> bool:
        """True where every resource of the stream has room for one more."""
        return all(self._has_room(name) for name in self._limited(key))

    def take(self, key: StreamKey) -> None:
        """One more job of the stream is claimed."""
        for name in self._limited(key):
            self._taken[name] = self._taken.get(name, 0) + 1

    def spend(self, keys: Sequence[StreamKey]) -> list[datetime | None]:
        """Write down what the taken jobs cost, in claim order; when each of them may start, None: at once."""
        meters = dict(self._meters)
        starts: list[datetime | None] = []
        for key in keys:
            names = [name for name in self._limited(key) if name in meters]
            start, after = pass_all([meters[name] for name in names])
            meters.update(zip(names, after, strict=True))
            starts.append(start)
        for name, meter in meters.items():
            if name in self._taken:
                level, since = kept(meter)
                self._state.limits.put(name, replace(self._limits[name], level=level, refilled_at=since))
        return starts

    def refusals(self, key: StreamKey) -> list[Reason]:
        """Why the stream has no room for one more."""
        reasons: list[Reason] = []
        for name in self._limited(key):
            if name.startswith(BREAKER_GATE):
                if self._starts_left(name) <= 0:
                    service = name.removeprefix(BREAKER_GATE)
                    reasons.append(why.breaker_probing(service, self._next_start_at(name)))
                continue
            if self._permits_left(name, self._limits[name]) <= 0:
                reasons.append(why.no_permit(name, holders_of(self._state, name)[: NAMED_HOLDERS + 1]))
            if self._starts_left(name) <= 0:
                reasons.append(why.rate_limited(name, self._next_start_at(name)))
        return reasons

    def _limited(self, key: StreamKey) -> Iterator[str]:
        for name in dict.fromkeys((key.resource, key.limit_key, breaker_gate(key.breaker))):
            limit = None if name is None else self._state.limits.get(name)
            if name is not None and limit is not None:
                if name not in self._limits:
                    self._limits[name] = limit
                    if (meter := meter_for(limit, self._now, self._ahead)) is not None:
                        self._meters[name] = meter
                yield name

    def _has_room(self, name: str) -> bool:
        limit = self._limits[name]
        return self._permits_left(name, limit) > 0 and self._starts_left(name) > 0

    def _permits_left(self, name: str, limit: Limit) -> int:
        if limit.concurrent is None:
            return 1
        return limit.concurrent - self._state.permits_of.size(name) - self._taken.get(name, 0)

    def opens_at(self, key: StreamKey) -> datetime | None:
        """When every resource of the stream has room for one more; None: when a permit is freed, which is not known."""
        opens = [self._now]
        for name in self._limited(key):
            if self._permits_left(name, self._limits[name]) <= 0:
                return None
            opens.append(self._next_start_at(name) or self._now)
        return max(opens)

    def _starts_left(self, name: str) -> int:
        meter = self._meters.get(name)
        return 1 if meter is None else meter.starts - self._taken.get(name, 0)

    def _next_start_at(self, name: str) -> datetime | None:
        meter = self._meters.get(name)
        if meter is None or self._starts_left(name) > 0:
            return None
        return meter.opens_at(self._taken.get(name, 0))


class MemoryPermits(Part):
    """Limits and breakers."""

    @atomic
    def set_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: int | None = None,
        period: timedelta | None = None,
        now: datetime,
    ) -> None:
        self._set_limit(name, (concurrent, rate, period), now, asked_at=None)

    @atomic
    def ensure_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: int | None = None,
        period: timedelta | None = None,
        now: datetime,
    ) -> None:
        wanted, held = (concurrent, rate, period), self._state.limits.get(name)
        if held is None:
            self._set_limit(name, wanted, now, asked_at=now)
        elif not is_known(wanted, (held.concurrent, held.rate, held.period), held.asked_at, now):
            self._set_limit(name, wanted, now, asked_at=None if held.asked_at is None else now)

    def _set_limit(
        self,
        name: str,
        values: tuple[int | None, int | None, timedelta | None],
        now: datetime,
        *,
        asked_at: datetime | None,
    ) -> None:
        concurrent, rate, period = values
        before = self._state.limits.get(name)
        held = Limit(name=name, refilled_at=now) if before is None else before
        after = replace(
            held,
            asked_at=asked_at,
            concurrent=held.concurrent if concurrent is None else concurrent,
            rate=held.rate if rate is None else rate,
            period=held.period if period is None else period,
        )
        if after.rate is not None and after.period is not None:
            before_it = meter_for(held, now)
            cadence = (
                before_it.resized(after.rate, after.period)
                if isinstance(before_it, Cadence)
                else Cadence.full(after.rate, after.period, now)
            )
            after = replace(after, level=cadence.level, refilled_at=cadence.next_at)
        self._state.limits.put(name, after)
        if held.concurrent is None and after.concurrent is not None:
            count_running(self._state, name)

    @atomic
    def purge_limits(self, *, before: datetime, limit: int, now: datetime) -> int:
        state = self._state
        old = [one for one in state.limits.values() if one.asked_at is not None and one.asked_at < before]
        old = sorted(old, key=lambda one: (one.asked_at, one.name))[:limit]
        has_jobs = {row.stream_id for row in state.jobs.values() if row.archived_at is None}
        needed = {
            name
            for stream_id, record in state.streams.items()
            if stream_id in has_jobs
            or not state.is_stream_aside(stream_id)
            or state.streams_used_at[stream_id] >= before
            for name in resources_of(record.key)
        }
        for one in old:
            if one.name in needed or state.permits_of.size(one.name) or not is_full(meter_for(one, now), now):
                state.limits.put(one.name, replace(one, asked_at=now))
            else:
                state.limits.remove(one.name)
        return len(old)

    @atomic
    def remove_limit(self, name: str, *, now: datetime) -> bool:
        return self._state.limits.remove(name) is not None

    @atomic
    def limits(self) -> list[LimitRecord]:
        return [
            LimitRecord(
                name=limit.name,
                concurrent=limit.concurrent,
                rate=limit.rate,
                period=limit.period,
                held=self._state.permits_of.size(limit.name),
            )
            for limit in sorted(self._state.limits.values(), key=lambda limit: limit.name)
            if not limit.name.startswith(BREAKER_GATE)
        ]

    @atomic
    def holders(self, name: str, *, limit: int) -> list[PermitRecord]:
        return holders_of(self._state, name)[:limit]

    @atomic
    def release_permits(self, claims: Sequence[JobClaim]) -> int:
        return sum(free_permits(self._state, claim.job_id, claim.claim_id) for claim in claims)

    @atomic
    def breaker(self, service: str) -> BreakerRecord | None:
        return self._state.breakers.get(service)

    @atomic
    def breakers(self) -> list[BreakerRecord]:
        return sorted(self._state.breakers.values(), key=lambda record: record.service)

    @atomic
    def save_breaker(
        self, record: BreakerRecord, *, expected_version: int, now: datetime, probes: Probes | None = None
    ) -> bool:
        held = self._state.breakers.get(record.service)
        if (0 if held is None else held.version) != expected_version:
            return False
        self._state.breakers.put(record.service, replace(record, version=expected_version + 1))
        if record.state == "CLOSED":
            self._state.limits.remove(f"{BREAKER_GATE}{record.service}")
        elif probes is not None:
            self._fill_gate(f"{BREAKER_GATE}{record.service}", probes, now)
        return True

    def _fill_gate(self, name: str, probes: Probes, now: datetime) -> None:
        full = Bucket.full(probes.count, probes.every * probes.count, now)
        gate = Limit(name=name, rate=full.rate, period=full.period, level=full.level, refilled_at=now)
        self._state.limits.put(name, gate)
