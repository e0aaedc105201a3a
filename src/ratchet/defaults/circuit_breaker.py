from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from ratchet.model.breaker import Breaker, BreakerState, Guard, ServiceCall
from ratchet.model.clock import Clock
from ratchet.model.errors import StoreError
from ratchet.spi.store.permits import BreakerStore

T = TypeVar("T")

logger = logging.getLogger("ratchet.breakers")

#: Seconds between two times that a node shares what it has seen of a healthy service.
_SHARE_EVERY: Final = 1.0
_TRIES: Final = 20

#: Told of a breaker that this node has moved: the service, what it was, what it is.
Moved = Callable[[str, Breaker, Breaker], None]


class StoreBreakers:
    """
    Circuit breakers that the whole cluster shares through the store.

    The claim is the gate: jobs behind an open breaker are not claimed. This class counts how calls end.
    A node merges successes into the stored window about once a second, and not at all once the window
    is full of them. A failure, and the outcome of a probe, are merged at once.
    """

    def __init__(
        self, store: BreakerStore, clock: Clock, *, on_moved: Moved = lambda service, before, after: None
    ) -> None:
        self._store = store
        self._clock = clock
        self._on_moved = on_moved
        self._services: dict[str, _Service] = {}
        self._lock = threading.Lock()

    def permits(self, service: str) -> bool:
        """False for a job that was claimed before the breaker opened."""
        seen = self._service(service)
        if seen.is_stale(self._clock.monotonic()):
            try:
                self._look(seen)
            except StoreError as error:
                logger.warning("the state of the breaker %s cannot be read: %s", service, error)
        return not seen.known.holds_back(self._clock.now())

    def retry_after(self, service: str) -> timedelta:
        """How long until probes may start."""
        seen = self._service(service)
        now = self._clock.now()
        if not seen.known.holds_back(now):
            return timedelta(0)
        return seen.guard.settings.wait if seen.known.until is None else seen.known.until - now

    def execute(self, service: str, call: Callable[[], T], *, guard: Guard | None = None) -> T:
        """What *call* returns or raises, counted."""
        seen, rules = self._guarded(service, guard)
        started_at = self._clock.now()
        try:
            value = call()
        except BaseException as error:
            if rules.counts(error) and seen.note(ServiceCall(started_at, True), self._clock):
                self._share(seen)
            raise
        if seen.note(ServiceCall(started_at, False), self._clock):
            self._share(seen)
        return value

    async def execute_async(
        self, service: str, call: Callable[[], Awaitable[T]], *, guard: Guard | None = None
    ) -> T:
        """What awaiting *call* returns or raises, counted; the event loop does not wait for the store."""
        seen, rules = self._guarded(service, guard)
        started_at = self._clock.now()
        try:
            value = await call()
        except BaseException as error:
            if rules.counts(error) and seen.note(ServiceCall(started_at, True), self._clock):
                await asyncio.to_thread(self._share, seen)
            raise
        if seen.note(ServiceCall(started_at, False), self._clock):
            await asyncio.to_thread(self._share, seen)
        return value

    def _guarded(self, service: str, guard: Guard | None) -> tuple[_Service, Guard]:
        seen = self._service(service)
        if guard is not None:
            seen.guard = guard
        return seen, guard or seen.guard

    def _service(self, name: str) -> _Service:
        found = self._services.get(name)
        if found is None:
            with self._lock:
                found = self._services.setdefault(name, _Service(name))
        return found

    def _look(self, seen: _Service) -> None:
        seen.looked_at = self._clock.monotonic()
        record = self._store.breaker(seen.name)
        seen.learn(Breaker.of(record), 0 if record is None else record.version, self._clock.now())

    def _share(self, seen: _Service) -> None:
        """Merge what was seen here into what all nodes know."""
        with seen.sharing:
            outcomes = seen.take(self._clock.monotonic())
            if not outcomes:
                return  # another thread has shared them
            try:
                self._merge(seen, outcomes)
            except StoreError as error:
                # a few outcomes are lost, but no job is
                logger.warning("the outcomes of %s cannot be stored: %s", seen.name, error)

    def _merge(self, seen: _Service, outcomes: list[ServiceCall]) -> None:
        settings = seen.guard.settings
        for _ in range(_TRIES):
            record = self._store.breaker(seen.name)
            version = 0 if record is None else record.version
            now = self._clock.now()
            before = Breaker.of(record)
            after = before.after(outcomes, settings, now)
            if after == before:
                seen.learn(before, version, now)
                return
            opens = after.state is BreakerState.OPEN and (before.state, before.until) != (
                after.state,
                after.until,
            )
            if self._store.save_breaker(
                after.record(seen.name),
                expected_version=version,
                now=now,
                probes=settings.gate if opens else None,
            ):
                seen.learn(after, version + 1, now)
                if opens or after.state is not before.state:
                    self._tell(seen.name, before, after)
                return
        logger.warning("the outcomes of %s were not stored: too many nodes do so at once", seen.name)

    def _tell(self, service: str, before: Breaker, after: Breaker) -> None:
        if after.state is BreakerState.OPEN:
            logger.warning("the breaker of %s is open until %s", service, after.until)
        elif after.state is BreakerState.CLOSED:
            logger.info("the breaker of %s is closed again", service)
        try:
            self._on_moved(service, before, after)
        except Exception:
            logger.exception("telling about the breaker of %s failed", service)


class _Service:
    """What this node knows about a service, and what it has seen since it last shared that."""

    __slots__ = (
        "_ahead",
        "_lock",
        "_outcomes",
        "_shared_at",
        "_version",
        "guard",
        "known",
        "looked_at",
        "name",
        "sharing",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.guard = Guard()
        self.known = Breaker()
        self.looked_at: float | None = None
        self.sharing = threading.Lock()
        self._lock = threading.Lock()
        self._version = 0
        self._ahead = self.known  # with the outcomes that are not shared yet
        self._outcomes: list[ServiceCall] = []
        self._shared_at: float | None = None

    def is_stale(self, now: float) -> bool:
        """True if the breaker may have opened, and even reached its probes, since this node looked."""
        interval = min(_SHARE_EVERY, self.guard.settings.wait.total_seconds() / 2)
        return self.looked_at is None or now - self.looked_at >= interval

    def learn(self, stored: Breaker, version: int, now: datetime) -> None:
        """Take over what the store said, unless something newer is known."""
        with self._lock:
            if version >= self._version:
                self.known, self._version = stored, version
                self._ahead = stored.after(self._outcomes, self.guard.settings, now)

    def note(self, outcome: ServiceCall, clock: Clock) -> bool:
        """Count one more; True if it is time to share: it may decide something, or a second has passed."""
        with self._lock:
            before, now = self._ahead, clock.now()
            self._ahead = before.after((outcome,), self.guard.settings, now)
            self._outcomes.append(outcome)
            both_closed = before.state is self._ahead.state is BreakerState.CLOSED
            # with the failures that other nodes have seen, this one may be enough to open the breaker
            if self._ahead is not before and (outcome.failed or not both_closed):
                return True
            return self._shared_at is None or clock.monotonic() - self._shared_at >= _SHARE_EVERY

    def take(self, now: float) -> list[ServiceCall]:
        """All outcomes that are not shared yet."""
        with self._lock:
            taken, self._outcomes = self._outcomes, []
            self._shared_at = now
            return taken
