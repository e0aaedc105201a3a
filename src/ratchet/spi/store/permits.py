"""Permits: resource limits, rates, circuit breakers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from ratchet.model.claim import JobClaim
from ratchet.model.cluster import BreakerRecord, LimitRecord, PermitRecord, Probes


class ResourcePermitStore(Protocol):
    """
    Limits how many jobs of a resource run at once, or start per period.

    A claim takes permits, in claim order. The completion, `settle` or the rescue frees them, each in its own
    transaction.
    """

    def set_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: int | None = None,
        period: timedelta | None = None,
        now: datetime,
    ) -> None:
        """
        Create or change a limit, as a person does; None leaves a value as it was. `purge_limits` never removes it.

        As soon as a resource limits how many run at once, jobs that are already running count: a permit is
        recorded for each. (A claim that is being made at that moment may still pass uncounted.)
        """
        ...

    def ensure_limit(
        self,
        name: str,
        *,
        concurrent: int | None = None,
        rate: int | None = None,
        period: timedelta | None = None,
        now: datetime,
    ) -> None:
        """
        Create or change the limit of a key, as a submission does that has the key; None leaves a value as it was.

        Submitters may rely on it for an hour. A limit that is not there yet is made for the key, and `purge_limits`
        removes it when no job has the key any more. One that a person has set stays theirs.
        """
        ...

    def purge_limits(self, *, before: datetime, limit: int, now: datetime) -> int:
        """
        Remove limits that were made for keys, that no submission has asked for since *before*, and that hold nothing back.

        Such a limit has no permits, its rate has no start left that counts, and no job has its key, whatever the job's state, but
        for jobs in the archive, which never run again. Whether one has shows only at streams that `purge_streams` has set
        aside before *before*. Limits that are still needed are looked at again after as long a time. How many were
        removed or are still needed; at most *limit*. *before* must be days ago.
        """
        ...

    def remove_limit(self, name: str, *, now: datetime) -> bool:
        """Remove a limit; jobs of the resource are no longer held back."""
        ...

    def limits(self) -> list[LimitRecord]:
        """All limits, each with the number of permits that are held."""
        ...

    def holders(self, name: str, *, limit: int) -> list[PermitRecord]:
        """Which runs hold permits of a resource, the longest first, at most *limit*; also after the limit was removed."""
        ...

    def release_permits(self, claims: Sequence[JobClaim]) -> int:
        """Free the permits of these runs, by (job_id, claim_id); how many."""
        ...


class BreakerStore(Protocol):
    """Keeps circuit breakers for the whole cluster."""

    def breaker(self, service: str) -> BreakerRecord | None:
        """One breaker; None if it was never used."""
        ...

    def breakers(self) -> list[BreakerRecord]:
        """All breakers, by service."""
        ...

    def save_breaker(
        self, record: BreakerRecord, *, expected_version: int, now: datetime, probes: Probes | None = None
    ) -> bool:
        """
        Store a breaker's state if its version is still *expected_version* (0: create).

        With *probes*, in the same transaction: when the breaker's time has come, claims in the whole cluster take
        ``probes.count`` jobs behind it. They take one more after each ``probes.every`` in which the record neither
        became CLOSED nor got new probes, because a probe whose node died must not be waited for forever.
        A breaker that is stored as CLOSED lets everything through. If the state is not CLOSED and there are no
        *probes*, the remaining probes stay. `limits` does not show probes.
        """
        ...
