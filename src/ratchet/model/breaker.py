"""
A circuit breaker as a value: what it has seen of a service, and what follows from one more call.

Nothing here knows a store or a clock. A breaker that is OPEN lets nothing through until its time has
come; then a limited number of jobs, the probes, may try (see `Probes`), and how they end decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from ratchet.model.cluster import BreakerRecord, Probes
from ratchet.model.errors import InvalidJob, JobInterrupted, RetryLater

#: How a window keeps an outcome: a character each, the latest last.
PASSED: Final = "."
FAILED: Final = "x"


class BreakerState(StrEnum):
    """CLOSED lets jobs through, OPEN none, HALF_OPEN has seen a probe succeed and waits for the others."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """When a breaker opens, and how it finds out that the service is back."""

    failure_rate: float
    window: int
    minimum_calls: int
    wait: timedelta
    probes: int

    def __post_init__(self) -> None:
        if not 0 < self.failure_rate <= 1:
            raise InvalidJob(f"a breaker's failure_rate is over 0 and at most 1, not {self.failure_rate!r}")
        if not 1 <= self.minimum_calls <= self.window:
            raise InvalidJob(
                f"a breaker's minimum_calls lie between 1 and its window of {self.window}, not at {self.minimum_calls}"
            )
        if self.probes < 1 or self.wait <= timedelta(0):
            raise InvalidJob("a breaker needs at least one probe, and a wait before it")

    @property
    def gate(self) -> Probes:
        """What an open breaker lets through once its time has come."""
        return Probes(count=self.probes, every=self.wait)


#: Half of the last 100 calls, at least 5; 30 seconds, then 3 probes.
DEFAULT_SETTINGS: Final = BreakerSettings(0.5, 100, 5, timedelta(seconds=30), 3)


@dataclass(frozen=True, slots=True)
class Guard:
    """How one target's calls are counted: the service's settings, and which exceptions are failures of the service."""

    settings: BreakerSettings = DEFAULT_SETTINGS
    record: tuple[type[BaseException], ...] = ()  # only these count; empty: every Exception
    ignore: tuple[type[BaseException], ...] = ()  # these never do

    def counts(self, error: BaseException) -> bool:
        """
        True where *error* is a failure of the service.

        An application often raises an error of its own in place of the driver's, so the errors behind it are asked
        too. What *error* was raised ``from`` decides like *error* itself. One that was merely being handled when
        *error* was raised can be recorded, but not ignored: the service may have been called because of it.
        """
        if isinstance(error, (JobInterrupted, RetryLater)):
            return False
        for link, is_cause in _behind(error):
            if is_cause and isinstance(link, self.ignore):
                return False
            if self.record and isinstance(link, self.record):
                return True
        return not self.record and isinstance(error, Exception)


def _behind(error: BaseException) -> Iterator[tuple[BaseException, bool]]:
    """*error* and the errors behind it, the latest first; and whether each one is itself a cause, link by link."""
    link: BaseException | None = error
    is_cause, seen = True, set[int]()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link, is_cause
        if link.__cause__ is None:
            is_cause = False
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


class ServiceCall(Struct, frozen=True):
    """One call of the service: when it began, and whether it failed."""

    started_at: datetime
    failed: bool


class _Document(Struct, frozen=True, omit_defaults=True):
    """What `BreakerRecord.document` says."""

    window: str = ""
    passed: int = 0
    since: datetime | None = None


class Breaker(Struct, frozen=True, kw_only=True):
    """The state of one service's breaker."""

    state: BreakerState = BreakerState.CLOSED
    until: datetime | None = None  # where it is not CLOSED: when probes begin; None: never
    window: str = ""  # the latest outcomes, while CLOSED
    passed: int = 0  # probes that have succeeded
    since: datetime | None = None  # calls that began before this no longer count

    @classmethod
    def of(cls, record: BreakerRecord | None) -> Breaker:
        """The breaker that was stored; one that has seen nothing where there is none."""
        if record is None:
            return cls()
        document = msgspec.json.decode(record.document, type=_Document)
        return cls(
            state=BreakerState(record.state),
            until=record.until,
            window=document.window,
            passed=document.passed,
            since=document.since,
        )

    def record(self, service: str) -> BreakerRecord:
        """What to store of it."""
        document = _Document(window=self.window, passed=self.passed, since=self.since)
        return BreakerRecord(
            service=service,
            state=self.state.value,
            until=self.until,
            document=msgspec.json.encode(document).decode(),
        )

    def holds_back(self, now: datetime) -> bool:
        """True while nothing at all is let through."""
        return self.state is BreakerState.OPEN and (self.until is None or self.until > now)

    def after(self, calls: Iterable[ServiceCall], settings: BreakerSettings, now: datetime) -> Breaker:
        """The breaker after these *calls*, one after the other."""
        breaker = self
        for call in calls:
            breaker = breaker._after(call, settings, now)
        return breaker

    def _after(self, call: ServiceCall, settings: BreakerSettings, now: datetime) -> Breaker:
        if self.state is not BreakerState.CLOSED:
            return self._after_probe(call, settings, now)
        if self.since is not None and call.started_at < self.since:
            return self
        window = (self.window + (FAILED if call.failed else PASSED))[-settings.window :]
        too_many = window.count(FAILED) >= settings.failure_rate * len(window)
        if call.failed and too_many and len(window) >= settings.minimum_calls:
            return opened(settings, now)
        return msgspec.structs.replace(self, window=window)

    def _after_probe(self, call: ServiceCall, settings: BreakerSettings, now: datetime) -> Breaker:
        if self.until is None or call.started_at < self.until:
            return self  # it began before the probes: it says nothing new
        if call.failed:
            return opened(settings, now)
        passed = self.passed + 1
        if passed >= settings.probes:
            return Breaker(since=now)
        return msgspec.structs.replace(self, state=BreakerState.HALF_OPEN, passed=passed)


def opened(settings: BreakerSettings, now: datetime) -> Breaker:
    """A breaker that has just opened."""
    return Breaker(state=BreakerState.OPEN, until=now + settings.wait)
