"""Resource limits and circuit breakers in SQL. The claim takes permits (see `claims`)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter

from ratchet.model.cadence import Cadence
from ratchet.model.claim import JobClaim
from ratchet.model.cluster import BREAKER_GATE, BreakerRecord, LimitRecord, PermitRecord, Probes, breaker_gate
from ratchet.model.status import JobStatus
from ratchet.stores.auditing import always
from ratchet.stores.sql.claiming.gates import Limits, find_holders, open_stream, tokens_of
from ratchet.stores.sql.database import Row, Session, SqlPart
from ratchet.stores.sql.rows.keys_and_permits import FREE_PERMITS
from ratchet.stores.sql.rows.locked import QueueRow, lock_queue_rows
from ratchet.stores.unreadable import readable, require_readable
from ratchet.stores.unused_limits import is_full, is_known
from ratchet.stores.unused_streams import ASIDE, OLDEST, known_until

LOCK_LIMIT = """
    SELECT rate FROM scheduler_resource_limit WHERE resource = :name {for update}
"""

FIND_CONCURRENT = """
    SELECT max_concurrent FROM scheduler_resource_limit WHERE resource = :name
"""

# picked_by is named so that only the index of what runs is read
FIND_RUNNING = """
    SELECT q.job_id
      FROM scheduler_job_queue q JOIN scheduler_stream s ON s.stream_id = q.stream_id
     WHERE q.picked_by IS NOT NULL AND q.status = 'RUNNING' AND (s.resource = :name OR s.limit_key = :name)
"""

SET_LIMIT = """
    INSERT INTO scheduler_resource_limit AS held
           (resource, max_concurrent, rate, period_us, tokens, refilled_at, updated_at, asked_at)
    VALUES (:name, :concurrent, :rate, :period_us, :tokens, :filled_at, :now, :asked_at)
        ON CONFLICT (resource) DO UPDATE
       SET asked_at = CASE WHEN held.asked_at = held.updated_at THEN excluded.asked_at END,
           max_concurrent = COALESCE(excluded.max_concurrent, held.max_concurrent),
           rate = COALESCE(excluded.rate, held.rate),
           period_us = COALESCE(excluded.period_us, held.period_us),
           tokens = excluded.tokens, refilled_at = excluded.refilled_at, updated_at = excluded.updated_at
"""

FIND_LIMIT = """
    SELECT max_concurrent, rate, period_us, asked_at, updated_at FROM scheduler_resource_limit WHERE resource = :name
"""

# --- limits of keys that no job has any more (see `unused_limits`)

FIND_NOT_ASKED_FOR = """
    SELECT resource FROM scheduler_resource_limit
     WHERE asked_at = updated_at AND asked_at < :before ORDER BY asked_at, resource LIMIT :limit
"""

# Whoever is asking for one of them at this moment, or counts by it, needs it.
LOCK_NOT_ASKED_FOR = """
    SELECT resource FROM scheduler_resource_limit
     WHERE resource {in names text} AND asked_at = updated_at AND asked_at < :before
     ORDER BY resource
    {for update skip locked}
"""

FIND_STREAMS_OF = """
    SELECT s.stream_id, s.resource, s.limit_key, s.stream_key < :aside AS is_found, s.created_at,
           EXISTS (SELECT 1 FROM scheduler_job_queue q WHERE q.stream_id = s.stream_id AND q.status = 'PENDING') AS is_waited_in
      FROM scheduler_stream s
     WHERE s.resource {in names text} OR s.limit_key {in names text}
"""

# jobs in the archive never run again
FIND_OLDEST_JOBS = "SELECT job_id, stream_id FROM scheduler_job ORDER BY job_id LIMIT :limit"

FIND_RUNNING_STREAMS = "SELECT DISTINCT stream_id FROM scheduler_job_queue WHERE picked_by IS NOT NULL"

FIND_HELD = "SELECT DISTINCT resource FROM scheduler_resource_permit WHERE resource {in names text}"

FORGET_LIMITS = "DELETE FROM scheduler_resource_limit WHERE resource {in names text}"

KEEP_LIMITS = """
    UPDATE scheduler_resource_limit SET asked_at = :now, updated_at = :now WHERE resource {in names text}
"""

REMOVE_LIMIT = """
    DELETE FROM scheduler_resource_limit WHERE resource = :name
"""

LIST_LIMITS = """
    SELECT l.resource, l.max_concurrent, l.rate, l.period_us,
           (SELECT count(*) FROM scheduler_resource_permit p WHERE p.resource = l.resource) AS permits
      FROM scheduler_resource_limit l
     ORDER BY l.resource
"""

_BREAKER = "SELECT service, state, open_until, document, version FROM scheduler_circuit_breaker"

FIND_BREAKER = f"{_BREAKER} WHERE service = :service"

LIST_BREAKERS = f"{_BREAKER} ORDER BY service"

CREATE_BREAKER = """
    INSERT INTO scheduler_circuit_breaker (service, state, open_until, document, version, updated_at)
    VALUES (:service, :state, :until, :document, 1, :now)
        ON CONFLICT (service) DO NOTHING
"""

SAVE_BREAKER = """
    UPDATE scheduler_circuit_breaker
       SET state = :state, open_until = :until, document = :document, version = version + 1, updated_at = :now
     WHERE service = :service AND version = :expected
"""


_BREAKERS = "scheduler_circuit_breaker"


class SqlPermits(SqlPart):
    """Limits and breakers."""

    def set_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: int | None = None,
        period: timedelta | None = None,
        now: datetime,
    ) -> None:
        """Create or change a limit, as `ResourcePermitStore.set_limit` says. A new rate starts unused."""
        wanted = (concurrent, rate, period)
        self.change(lambda session: _set_limit(session, name, wanted, now, asked_at=None), count=always)

    def ensure_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: int | None = None,
        period: timedelta | None = None,
        now: datetime,
    ) -> None:
        """The same for the key of a submission: `purge_limits` removes what this has made."""
        wanted = (concurrent, rate, period)

        def ensure(session: Session) -> None:
            row = session.row(FIND_LIMIT, {"name": name})
            if row is None or not _is_known(row, wanted, now):
                _set_limit(session, name, wanted, now, asked_at=now)

        self.database.run(ensure)

    def purge_limits(self, *, before: datetime, limit: int, now: datetime) -> int:
        """Remove limits of keys that no job has any more; how many were looked at, at most *limit*."""

        def find(session: Session) -> tuple[list[str], set[str]]:
            names = _names(session.rows(FIND_NOT_ASKED_FOR, {"before": before, "limit": limit}))
            return names, _names_in_use(session, names, before) if names else set()

        names, in_use = self.database.read(find)

        def purge(session: Session) -> int:
            locked = _names(session.rows(LOCK_NOT_ASKED_FOR, {"names": names, "before": before}))
            # after the locks, because a statement sees what was committed before it began
            needed = in_use | _names_that_count(session, locked, now)
            if unused := [name for name in locked if name not in needed]:
                session.execute(FORGET_LIMITS, {"names": unused})
            if kept := [name for name in locked if name in needed]:
                session.execute(KEEP_LIMITS, {"names": kept, "now": now})
            return len(locked)

        return self.database.run(purge) if names else 0

    def remove_limit(self, name: str, *, now: datetime) -> bool:
        """Forget a limit; permits that are held stay with their runs, which free them as they end."""
        return self.change(lambda session: session.execute(REMOVE_LIMIT, {"name": name})) > 0

    def limits(self) -> list[LimitRecord]:
        """All limits with the number of permits held."""
        rows = self.database.read(lambda session: session.rows(LIST_LIMITS))
        named = [row for row in rows if not str(row[0]).startswith(BREAKER_GATE)]
        return readable(named, _limit, "scheduler_resource_limit", itemgetter(0))

    def holders(self, name: str, *, limit: int) -> list[PermitRecord]:
        """Who holds permits of a resource, the longest first, at most *limit*; also those of a limit that was removed."""
        return self.database.read(lambda session: find_holders(session, name, limit))

    def release_permits(self, claims: Sequence[JobClaim]) -> int:
        """Free the permits of these runs, by (job_id, claim_id)."""
        if not claims:
            return 0
        runs = sorted((claim.job_id, claim.claim_id) for claim in claims)
        values = {"ids": sorted({job_id for job_id, _ in runs}), "run": runs}
        return self.database.run(lambda session: session.execute(FREE_PERMITS, values))

    # --- breakers -----------------------------------------------------------------------------

    def breaker(self, service: str) -> BreakerRecord | None:
        """One breaker; None if it was never used."""
        row = self.database.read(lambda session: session.row(FIND_BREAKER, {"service": service}))
        return None if row is None else require_readable(row, _breaker, _BREAKERS, service)

    def breakers(self) -> list[BreakerRecord]:
        """All breakers by service."""
        rows = self.database.read(lambda session: session.rows(LIST_BREAKERS))
        return readable(rows, _breaker, _BREAKERS, itemgetter(0))

    def save_breaker(
        self, record: BreakerRecord, *, expected_version: int, now: datetime, probes: Probes | None = None
    ) -> bool:
        """
        Store a breaker's state if its version still is *expected_version* (0: create); the version grows by one.

        Its probes are a limit: a full bucket from which the claim takes, and which gains one per ``every``.
        """
        values = {
            "service": record.service,
            "state": record.state,
            "until": record.until,
            "document": record.document,
            "expected": expected_version,
            "now": now,
        }

        def save(session: Session) -> bool:
            if expected_version == 0:
                created = {name: value for name, value in values.items() if name != "expected"}
                saved = session.execute(CREATE_BREAKER, created) > 0
            else:
                saved = session.execute(SAVE_BREAKER, values) > 0
            if saved:
                _set_gate(session, record, probes, now)
            return saved

        return self.change(save)


def _set_limit(
    session: Session,
    name: str,
    wanted: tuple[int | None, int | None, timedelta | None],
    now: datetime,
    *,
    asked_at: datetime | None,
) -> None:
    concurrent, rate, period = wanted
    running = _lock_uncounted(session, name) if concurrent is not None else []
    tokens, filled_at = _tokens_after(session, name, rate, period, now)
    values = {
        "name": name,
        "concurrent": concurrent,
        "rate": rate,
        "period_us": None if period is None else period // timedelta(microseconds=1),
        "tokens": tokens,
        "filled_at": filled_at,
        "now": now,
        "asked_at": asked_at,
    }
    session.execute(SET_LIMIT, values)
    columns = ("resource", "job_id", "claim_id", "node_id", "acquired_at")
    permits = [(name, row.job_id, row.claim_id, row.node_id, now) for row in running]
    session.insert_rows("scheduler_resource_permit", columns, permits, on_conflict_do_nothing=True)


def _is_known(row: Row, wanted: tuple[int | None, int | None, timedelta | None], now: datetime) -> bool:
    concurrent, rate, period_us, asked_at, updated_at = row
    try:
        period = None if period_us is None else timedelta(microseconds=period_us)
        return is_known(wanted, (concurrent, rate, period), asked_at if asked_at == updated_at else None, now)
    except (TypeError, ArithmeticError):  # damaged: write it again
        return False


def _names(rows: list[Row]) -> list[str]:
    return [name for (name,) in rows]


def _names_in_use(session: Session, names: Sequence[str], before: datetime) -> set[str]:
    """Those of the names for which a job may be there that is not in the archive, by its stream."""
    oldest = session.rows(FIND_OLDEST_JOBS, {"limit": OLDEST + 1})
    until = min(before, known_until(oldest, before))
    has_jobs = {stream_id for _, stream_id in oldest}
    has_jobs |= {stream_id for (stream_id,) in session.rows(FIND_RUNNING_STREAMS)}
    return {
        name
        for stream_id, resource, limit_key, found, used_at, waited_in in session.rows(
            FIND_STREAMS_OF, {"names": names, "aside": ASIDE}
        )
        if found or waited_in or used_at >= until or stream_id in has_jobs
        for name in (resource, limit_key)
        if name is not None
    }


def _names_that_count(session: Session, names: Sequence[str], now: datetime) -> set[str]:
    """Those of these limits, which are locked, that hold permits or have starts that count."""
    if not names:
        return set()
    streams = {name: open_stream(0, name, None) for name in names}
    limits = Limits.seen(session, streams.values(), now)
    counting = {
        name
        for name, stream in streams.items()
        for limit in limits.of(stream)
        if limit.allowance < 1 or not is_full(limit.meter, now)
    }
    return counting | set(_names(session.rows(FIND_HELD, {"names": names})))


def _set_gate(session: Session, record: BreakerRecord, probes: Probes | None, now: datetime) -> None:
    name = breaker_gate(record.service)
    if record.state == "CLOSED":
        session.execute(REMOVE_LIMIT, {"name": name})
    elif probes is not None:
        period = probes.every * probes.count
        values = {"name": name, "concurrent": None, "rate": probes.count, "tokens": float(probes.count)}
        times = {
            "period_us": period // timedelta(microseconds=1),
            "filled_at": now,
            "now": now,
            "asked_at": None,
        }
        session.execute(SET_LIMIT, {**values, **times})


def _lock_uncounted(session: Session, name: str) -> list[QueueRow]:
    """
    The running jobs of a resource that had no limit on how many run, locked: each has to get its permit.

    Locked, and before the limit is set: a run that ends at this moment must not leave a permit behind.
    """
    if session.value(FIND_CONCURRENT, {"name": name}) is not None:
        return []
    ids = sorted(job_id for (job_id,) in session.rows(FIND_RUNNING, {"name": name}))
    locked = lock_queue_rows(session, ids) if ids else {}
    return [row for row in locked.values() if row.status == JobStatus.RUNNING.value]


def _tokens_after(
    session: Session, name: str, rate: int | None, period: timedelta | None, now: datetime
) -> tuple[float | None, datetime]:
    """
    The tokens that a changed limit starts with: those it had, as far as the new rate allows.

    Every node sets its limits when it starts, and a deploy must not let a burst through.
    """
    if session.row(LOCK_LIMIT, {"name": name}) is None:
        meter = None
    else:
        stream = open_stream(0, name, None)
        meter = next((limit.meter for limit in Limits.seen(session, [stream], now).of(stream)), None)
    if not isinstance(meter, Cadence):
        return (None if rate is None else float(rate)), now
    if rate is not None or period is not None:
        meter = meter.resized(rate or meter.rate, period or meter.period)
    return tokens_of(meter)


def _limit(row: Row) -> LimitRecord:
    name, concurrent, rate, period_us, held = row
    period = None if period_us is None else timedelta(microseconds=period_us)
    return LimitRecord(name=name, concurrent=concurrent, rate=rate, period=period, held=held)


def _breaker(row: Row) -> BreakerRecord:
    service, state, until, document, version = row
    return BreakerRecord(service=service, state=state, until=until, document=document, version=version)
