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

    Permits are taken by the claim, in claim order, and freed by the completion, `settle` or the
    rescue, always in the same transaction.
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
        Create or change a limit; what is None is left as it was.

        From the moment that a resource limits how many run at once, jobs that run already count: a permit is
        recorded for each. (A claim that is being made in that moment may still pass uncounted.)
        """
        ...

    def remove_limit(self, name: str, *, now: datetime) -> bool:
        """Forget a limit; jobs of the resource are no longer held back."""
        ...

    def limits(self) -> list[LimitRecord]:
        """All limits with the number of permits held."""
        ...

    def holders(self, name: str, *, limit: int) -> list[PermitRecord]:
        """Who holds permits of a resource, the longest first, at most *limit*; those of a removed limit too."""
        ...

    def release_permits(self, claims: Sequence[JobClaim]) -> int:
        """Free the permits of these runs, by (job_id, claim_id)."""
        ...


class BreakerStore(Protocol):
    """Keeps circuit breakers for the whole cluster."""

    def breaker(self, service: str) -> BreakerRecord | None:
        """One breaker; None if it was never used."""
        ...

    def breakers(self) -> list[BreakerRecord]:
        """All breakers by service."""
        ...

    def save_breaker(
        self, record: BreakerRecord, *, expected_version: int, now: datetime, probes: Probes | None = None
    ) -> bool:
        """
        Store a breaker's state if its version still is *expected_version* (0: create).

        With *probes*, in the same transaction: once its time has come, claims in the whole cluster take
        ``probes.count`` jobs behind the breaker, and another one after each ``probes.every`` in which the
        record was not CLOSED or given new probes: one whose node died must not be waited for forever.
        A breaker that is stored as CLOSED lets everything through. Without *probes* and not CLOSED, what
        was left of the probes stays; `limits` does not show them.
        """
        ...
