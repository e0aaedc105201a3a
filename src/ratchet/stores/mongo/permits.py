"""Resource limits and circuit breakers in MongoDB; how a claim takes permits is in `claims`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from operator import itemgetter

from ratchet.model.claim import JobClaim
from ratchet.model.cluster import BREAKER_GATE, BreakerRecord, LimitRecord, PermitRecord, Probes
from ratchet.stores.auditing import always
from ratchet.stores.memory.permits import meter_for
from ratchet.stores.memory.values import check
from ratchet.stores.mongo.claiming.gates import find_holders
from ratchet.stores.mongo.connections import Collections
from ratchet.stores.mongo.database import MongoPart
from ratchet.stores.mongo.documents.values import BREAKERS, LIMITS, Document, micros, time_or_none
from ratchet.stores.mongo.schema import Names
from ratchet.stores.mongo.streams import oldest_jobs, streams_of_hot_jobs
from ratchet.stores.mongo.transaction.work import Rules, Work
from ratchet.stores.unreadable import readable, require_readable
from ratchet.stores.unused_limits import is_full
from ratchet.stores.unused_streams import ASIDE, known_until


class MongoPermits(MongoPart):
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
        """Create or change a limit; what is None is left as it was."""
        check((now, name), "now")
        self.change(
            lambda work: Rules(work).set_limit(
                name, concurrent=concurrent, rate=rate, period=period, now=now
            ),
            count=always,
        )

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
        check((now, name), "now")
        self.database.run(
            lambda work: Rules(work).ensure_limit(
                name, concurrent=concurrent, rate=rate, period=period, now=now
            )
        )

    def purge_limits(self, *, before: datetime, limit: int, now: datetime) -> int:
        """Remove limits of keys that no job has any more; how many were looked at, at most *limit*."""
        return self.database.write(lambda collections: _purge(collections, before, limit, now))

    def remove_limit(self, name: str, *, now: datetime) -> bool:
        """Forget a limit; jobs of the resource are no longer held back."""

        def remove(work: Work) -> bool:
            found = work.write(
                Names.LIMITS, lambda limits: limits.delete_one({"_id": name}, session=work.session)
            )
            return bool(found.deleted_count)

        return self.change(remove)

    def limits(self) -> list[LimitRecord]:
        """All limits with the number of permits held."""

        def ask(collections: Collections) -> list[LimitRecord]:
            grouped = collections[Names.PERMITS].aggregate(
                [{"$group": {"_id": "$_id.resource", "held": {"$sum": 1}}}]
            )
            held = {one["_id"]: int(one["held"]) for one in grouped}
            limits = readable(collections[Names.LIMITS].find(), LIMITS.value, Names.LIMITS, itemgetter("_id"))
            return [
                LimitRecord(
                    name=limit.name,
                    concurrent=limit.concurrent,
                    rate=limit.rate,
                    period=limit.period,
                    held=held.get(limit.name, 0),
                )
                for limit in sorted(limits, key=lambda limit: limit.name)
                if not limit.name.startswith(BREAKER_GATE)
            ]

        return self.database.read(ask)

    def holders(self, name: str, *, limit: int) -> list[PermitRecord]:
        """Who holds permits of a resource, the longest first, at most *limit*; those of a removed limit too."""
        return self.database.read(lambda collections: find_holders(collections, name, limit))

    def release_permits(self, claims: Sequence[JobClaim]) -> int:
        """Free the permits of these runs, by (job_id, claim_id)."""
        if not claims:
            return 0
        runs = [{"_id.job_id": claim.job_id, "_id.claim_id": claim.claim_id} for claim in claims]  # fence
        return self.database.write(lambda c: c[Names.PERMITS].delete_many({"$or": runs}).deleted_count)

    # --- breakers -------------------------------------------------------------------------------

    def breaker(self, service: str) -> BreakerRecord | None:
        """One breaker; None if it was never used."""
        found = self.database.read(lambda c: c[Names.BREAKERS].find_one({"_id": service}))
        return None if found is None else require_readable(found, BREAKERS.value, Names.BREAKERS, service)

    def breakers(self) -> list[BreakerRecord]:
        """All breakers by service."""
        return self.database.read(
            lambda c: readable(
                c[Names.BREAKERS].find().sort("_id", 1), BREAKERS.value, Names.BREAKERS, itemgetter("_id")
            )
        )

    def save_breaker(
        self, record: BreakerRecord, *, expected_version: int, now: datetime, probes: Probes | None = None
    ) -> bool:
        """Store a breaker's state if its version still is *expected_version* (0: create)."""
        check((now, record), "now")
        return self.change(
            lambda work: Rules(work).save_breaker(
                record, expected_version=expected_version, now=now, probes=probes
            )
        )


def _purge(collections: Collections, before: datetime, limit: int, now: datetime) -> int:
    limits, not_asked = collections[Names.LIMITS], {"asked_at": {"$lt": micros(before)}}
    found = list(limits.find(not_asked).sort([("asked_at", 1), ("_id", 1)]).limit(limit))
    names = [str(document["_id"]) for document in found]
    needed = _names_in_use(collections, names, before) if names else set()
    kept: list[str] = []
    for document, name in zip(found, names, strict=True):
        if name in needed or not _is_full(document, now):
            kept.append(name)
            continue
        # Whoever has asked for it or counted by it meanwhile needs it.
        read = {field: document.get(field) for field in ("asked_at", "level", "refilled_at", "rev")}
        limits.delete_one({"_id": name, **read})
    if kept:
        limits.update_many({"_id": {"$in": kept}, **not_asked}, {"$set": {"asked_at": micros(now)}})
    return len(found)


def _names_in_use(collections: Collections, names: list[str], before: datetime) -> set[str]:
    """Those of the names for which a job may be there that is not in the archive, by its stream, or that hold permits."""
    jobs = oldest_jobs(collections, Names.JOBS)
    until = min(before, known_until(jobs, before))
    uses = {"$or": [{"resource": {"$in": names}}, {"limit_key": {"$in": names}}]}
    streams = list(collections[Names.STREAMS].find(uses))
    has_jobs = {stream_id for _, stream_id in jobs} | streams_of_hot_jobs(collections)
    held = collections[Names.PERMITS].distinct("_id.resource", {"_id.resource": {"$in": names}})
    return {*held} | {
        name
        for stream in streams
        if stream["key_hash"] < ASIDE
        or stream["_id"] in has_jobs
        or (used_at := time_or_none(stream.get("used_at"))) is None
        or used_at >= until
        for name in (stream.get("resource"), stream.get("limit_key"))
        if name is not None
    }


def _is_full(document: Document, now: datetime) -> bool:
    try:
        return is_full(meter_for(LIMITS.value(document), now), now)
    except (ValueError, TypeError, KeyError, ArithmeticError):  # what it lets through, nobody can say
        return False
